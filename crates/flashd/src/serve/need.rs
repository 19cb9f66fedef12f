//! The data that a command needs, and the place where it is.

use nvme_wire::{Status, Submission, command::SglKind};

use super::limits::MAX_TRANSFER;

/// The data that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// None.
    Nothing,
    /// This many bytes from the host, or at least as many.
    FromHost { len: u64, exactly: bool },
    /// This many bytes to the host; it may have room for more if not `exactly`.
    ToHost { len: u64, exactly: bool },
}

/// The place of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataSource<'a> {
    /// There is none to wait for.
    Nowhere,
    /// In the command capsule.
    Capsule(&'a [u8]),
    /// With the host, which has to be asked for this many bytes.
    Host(usize),
}

impl Need {
    /// Some data from the host, which may send more.
    pub(super) fn at_least(len: usize) -> Self {
        Self::FromHost {
            len: len as u64,
            exactly: false,
        }
    }

    /// Some data to the host, which may have room for more.
    pub(super) fn room_for(len: u64) -> Self {
        Self::ToHost {
            len,
            exactly: false,
        }
    }

    /// Find the data of `command`, which came with `capsule`.
    pub(super) fn find<'a>(
        self,
        command: &Submission,
        capsule: &'a [u8],
    ) -> Result<DataSource<'a>, Status> {
        let (len, exactly, to_host) = match self {
            Self::Nothing if capsule.is_empty() => return Ok(DataSource::Nowhere),
            Self::Nothing => return Err(Status::InvalidField),
            Self::FromHost { len, exactly } => (len, exactly, false),
            Self::ToHost { len, exactly } => (len, exactly, true),
        };
        // Fabrics knows only SGLs (Base §3.3.3.1: PSDT), and fused commands do not exist here.
        if command.psdt() != 0b01 || command.fuse() != 0 {
            return Err(Status::InvalidField);
        }
        let room = u64::from(command.sgl.length.get());
        if room < len || (exactly && room > len) {
            return Err(Status::SglLengthInvalid);
        }
        match (command.sgl.kind(), to_host) {
            (SglKind::Transport, _) if !capsule.is_empty() => Err(Status::InvalidField),
            (SglKind::Transport, true) => Ok(DataSource::Nowhere),
            (SglKind::Transport, false) if room == 0 => Ok(DataSource::Nowhere),
            (SglKind::Transport, false) => match usize::try_from(room) {
                Ok(room) if room <= MAX_TRANSFER => Ok(DataSource::Host(room)),
                _ => Err(Status::SglLengthInvalid),
            },
            (SglKind::InCapsule, false) => {
                let from = usize::try_from(command.sgl.address.get());
                let from = from.map_err(|_| Status::SglOffsetInvalid)?;
                let rest = capsule.get(from..).ok_or(Status::SglOffsetInvalid)?;
                let data = rest.get(..room as usize).ok_or(Status::SglLengthInvalid)?;
                Ok(DataSource::Capsule(data))
            }
            (SglKind::InCapsule, true) | (SglKind::Unknown(_), _) => Err(Status::SglTypeInvalid),
        }
    }
}
