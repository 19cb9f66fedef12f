//! The NVMe namespace below an XFS, if it can copy: from places of the file system to logical blocks,
//! and Copy commands that keep to the namespace's limits.
//!
//! Only a namespace, or a partition of one, is taken: below device mapper or md an address of the
//! file system is none of the device.

use std::{fs::File, io, ops::Range, os::unix::fs::MetadataExt, path::PathBuf};

use linux_abi::nvme::{
    self, Answer,
    command::{self, Fate, SourceRange},
    identify::{CNS_CONTROLLER, CNS_NAMESPACE, Controller, IDENTIFY_LEN, Namespace, ONCS_COPY},
};
use units::{Bytes, PhysOffset};

use crate::{Filesystem, device::BlockDevice};

/// The status with which a device refused a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("NVMe status {0:#x}")]
pub(super) struct NvmeStatus(pub(super) u16);

impl From<NvmeStatus> for io::Error {
    fn from(status: NvmeStatus) -> Self {
        Self::other(status)
    }
}

/// Why the device below a file system cannot be asked to copy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoCopy {
    /// Blocks are pinned by sharing them, which this XFS cannot.
    #[error("the file system was made without reflink=1")]
    NoReflink,
    /// No node, or an unusual `/sys`.
    #[error("the block device below it is not to be found")]
    NoDevice,
    /// Device mapper, md, a SCSI disk …
    #[error("it is not on an NVMe namespace or a partition of one ({name})")]
    NotNvme {
        /// The device's name.
        name: String,
    },
    /// Metadata beside each block or at its end.
    #[error("{device} has a format that is not supported (metadata, or its block size)", device = device.display())]
    Format {
        /// The device.
        device: PathBuf,
    },
    /// It has zones.
    #[error("{device} has zones", device = device.display())]
    Zoned {
        /// The device.
        device: PathBuf,
    },
    /// The command is optional.
    #[error("{device} has no Copy command", device = device.display())]
    NoCommand {
        /// The device.
        device: PathBuf,
    },
    /// Something failed.
    #[error("{device}: {operation} failed: {source}", device = device.display())]
    Failed {
        /// The device.
        device: PathBuf,
        /// The operation.
        operation: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// The limits of a Copy command (NVM §4.1.5.1: MSSRL, MCL, MSRC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Most blocks of a source range.
    range_blocks: u64,
    /// Most blocks of a command.
    blocks: u64,
    /// Most source ranges of a command.
    ranges: usize,
}

/// Bytes to be copied, from `from` to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) from: PhysOffset,
    pub(super) to: PhysOffset,
    pub(super) len: Bytes,
}

/// One Copy command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopyCommand {
    pub(super) destination: u64,
    pub(super) sources: Vec<Range<u64>>,
}

/// A namespace that can copy, with the place of the file system on it.
#[derive(Debug)]
pub(super) struct CopyDevice {
    file: File,
    pub(super) path: PathBuf,
    nsid: u32,
    block: Bytes,
    /// Where the file system's partition begins.
    start: Bytes,
    limits: Limits,
}

impl CopyDevice {
    /// The one below `fs`.
    pub(super) fn below(fs: &Filesystem) -> Result<Self, NoCopy> {
        let mounted = BlockDevice::by_number(fs.dev).ok_or(NoCopy::NoDevice)?;
        let (device, start) = mounted.whole().ok_or(NoCopy::NoDevice)?;
        let name = device.name();
        if !name.starts_with("nvme") {
            let name = name.into_owned();
            return Err(NoCopy::NotNvme { name });
        }
        let path = device.path.clone();
        let fail = |operation| {
            let device = path.clone();
            move |source| NoCopy::Failed {
                device,
                operation,
                source,
            }
        };
        if device.is_zoned() {
            return Err(NoCopy::Zoned { device: path });
        }
        let file = File::open(&path).map_err(fail("open"))?;
        // The node of this name must be the device that sysfs means.
        let node = file.metadata().map_err(fail("look at the node"))?.rdev();
        if BlockDevice::by_number(node).as_ref() != Some(&device) {
            return Err(NoCopy::NoDevice);
        }
        let nsid = nvme::namespace_id(&file).map_err(fail("ask for the namespace"))?;
        let mut data = [0; IDENTIFY_LEN];
        let mut identify = |structure: u8, nsid| {
            match nvme::identify(&file, structure, nsid, 0, &mut data) {
                Ok(Answer::Success) => Ok(data),
                Ok(Answer::Status(status)) => Err(NvmeStatus(status).into()),
                Err(error) => Err(error),
            }
            .map_err(fail("Identify"))
        };
        let controller = Controller::first_of(&identify(CNS_CONTROLLER, 0)?);
        let namespace = Namespace::first_of(&identify(CNS_NAMESPACE, nsid)?);
        let (Some(controller), Some(namespace)) = (controller, namespace) else {
            return Err(NoCopy::NoCommand { device: path });
        };
        let can_copy = controller.nvm_commands.get() & ONCS_COPY != 0;
        let limits = Limits {
            range_blocks: namespace.copy_range_blocks.get().into(),
            blocks: namespace.copy_blocks.get().into(),
            ranges: usize::from(namespace.copy_ranges) + 1,
        };
        if !can_copy || limits.range_blocks == 0 || limits.blocks == 0 {
            return Err(NoCopy::NoCommand { device: path });
        }
        let block = device
            .number("queue/logical_block_size")
            .and_then(|known| block_size(&namespace, known, fs.block_size))
            .filter(|block| start.get().is_multiple_of(block.get()));
        let Some(block) = block else {
            return Err(NoCopy::Format { device: path });
        };
        tracing::debug!(device = %path.display(), nsid, ?limits, "the device can copy");
        Ok(Self {
            file,
            path,
            nsid,
            block,
            start,
            limits,
        })
    }

    /// The commands for these transfers, which have whole logical blocks.
    pub(super) fn commands(&self, transfers: &[Transfer]) -> Option<Vec<CopyCommand>> {
        let block = self.block.get();
        let lba = |place: PhysOffset| {
            let byte = place.get().checked_add(self.start.get())?;
            byte.is_multiple_of(block).then(|| byte / block)
        };
        let mut blocks = Vec::with_capacity(transfers.len());
        for transfer in transfers {
            if !transfer.len.get().is_multiple_of(block) {
                return None;
            }
            blocks.push((
                lba(transfer.from)?,
                lba(transfer.to)?,
                transfer.len.get() / block,
            ));
        }
        Some(pack(&blocks, self.limits))
    }

    /// Send one command.
    pub(super) fn copy(&self, command: &CopyCommand) -> io::Result<Fate> {
        let blocks = command.sources.iter();
        let sources: Vec<_> = blocks
            .map(|blocks| SourceRange::new(blocks.start, blocks_of(blocks) as u32))
            .collect();
        command::copy(&self.file, self.nsid, command.destination, &sources)
    }

    /// Make the copied data durable.
    pub(super) fn flush(&self) -> io::Result<Fate> {
        command::flush(&self.file, self.nsid)
    }
}

/// Bytes of a logical block; `None` where blocks have metadata, are not as `known`, or are larger than
/// the file system's.
fn block_size(namespace: &Namespace, known: u64, fs_block: Bytes) -> Option<Bytes> {
    let format = namespace.format_in_use();
    let block = 1_u64.checked_shl(format.block_shift.into())?;
    let fits = block == known && fs_block.get().is_multiple_of(block);
    (format.metadata.get() == 0 && fits).then_some(Bytes(block))
}

const fn blocks_of(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Transfers (from, to, blocks) as commands: one for each run of destinations, as far as the limits
/// allow, sources that follow each other joined.
fn pack(transfers: &[(u64, u64, u64)], limits: Limits) -> Vec<CopyCommand> {
    let mut commands: Vec<CopyCommand> = Vec::new();
    // Where the last command's destination ends, and how many blocks it has.
    let (mut end, mut blocks) = (0, 0);
    for &(mut from, mut to, mut rest) in transfers {
        while rest > 0 {
            let open = !commands.is_empty() && end == to && blocks < limits.blocks;
            if !open {
                commands.push(CopyCommand {
                    destination: to,
                    sources: Vec::new(),
                });
                blocks = 0;
            }
            let Some(command) = commands.last_mut() else {
                break;
            };
            let room = rest.min(limits.blocks - blocks).min(limits.range_blocks);
            let full = command.sources.len() >= limits.ranges;
            let took = match command.sources.last_mut() {
                Some(last) if last.end == from && blocks_of(last) < limits.range_blocks => {
                    let more = room.min(limits.range_blocks - blocks_of(last));
                    last.end += more;
                    more
                }
                _ if !full => {
                    command.sources.push(from..from + room);
                    room
                }
                _ => {
                    // A new command for the same place.
                    blocks = limits.blocks;
                    continue;
                }
            };
            (from, to, rest) = (from + took, to + took, rest - took);
            blocks += took;
            end = to;
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        range_blocks: 4,
        blocks: 10,
        ranges: 3,
    };

    /// Carry out commands on a device whose blocks are numbers.
    fn perform(commands: &[CopyCommand], device: &mut [u64]) {
        for command in commands {
            let mut to = command.destination as usize;
            for source in &command.sources {
                for block in source.clone() {
                    device[to] = device[block as usize];
                    to += 1;
                }
            }
        }
    }

    #[test]
    fn neighbours_share_a_command_and_a_source_range() {
        let commands = pack(&[(0, 100, 1), (1, 101, 1), (5, 102, 2)], LIMITS);
        assert_eq!(
            commands,
            [CopyCommand {
                destination: 100,
                sources: vec![0..2, 5..7],
            }]
        );
        assert_eq!(pack(&[(0, 100, 1), (1, 200, 1)], LIMITS).len(), 2);
    }

    #[test]
    fn metadata_and_large_blocks_are_refused() {
        let mut identify = vec![0; 4096];
        identify[26] = 1;
        identify[132..136].copy_from_slice(&[0, 0, 12, 0]);
        let size = |identify: &[u8], known, fs| {
            block_size(&Namespace::first_of(identify).unwrap(), known, Bytes(fs))
        };
        assert_eq!(size(&identify, 4096, 4096), Some(Bytes(4096)));
        assert_eq!(size(&identify, 4096, 1024), None);
        identify[132] = 8;
        assert_eq!(size(&identify, 4096, 4096), None);
        identify[132] = 0;
        assert_eq!(size(&identify, 512, 4096), None);
        identify[134] = 200;
        assert_eq!(size(&identify, 512, 4096), None);
    }

    proptest! {
        #[test]
        fn every_block_is_copied_within_the_limits(
            lengths in prop::collection::vec((0u64..100, 1u64..20, any::<bool>()), 0..12),
            range_blocks in 1u64..6,
            blocks in 1u64..12,
            ranges in 1usize..4,
        ) {
            let limits = Limits { range_blocks, blocks, ranges };
            let mut to = 200;
            let mut transfers = Vec::new();
            let mut expected: Vec<u64> = (0..1000).collect();
            for (from, len, gap) in lengths {
                to += u64::from(gap);
                for block in 0..len {
                    expected[(to + block) as usize] = from + block;
                }
                transfers.push((from, to, len));
                to += len;
            }
            let commands = pack(&transfers, limits);
            let mut device: Vec<u64> = (0..1000).collect();
            perform(&commands, &mut device);
            prop_assert_eq!(device, expected);
            for command in &commands {
                let sum: u64 = command.sources.iter().map(blocks_of).sum();
                prop_assert!((1..=blocks).contains(&sum));
                prop_assert!((1..=ranges).contains(&command.sources.len()));
                prop_assert!(command.sources.iter().all(|s| blocks_of(s) <= range_blocks));
            }
        }
    }
}
