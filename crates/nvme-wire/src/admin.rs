//! Commands of the admin queue, parsed (Base §5).

use crate::{
    command::Submission,
    feature::{Feature, Select},
    identify::{Cns, CommandSet},
    log::LogPage,
    opcode::AdminOpcode,
};

/// A command of the admin queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminCommand {
    /// Identify.
    Identify(Identify),
    /// Get Log Page.
    GetLogPage(GetLogPage),
    /// Get Features.
    GetFeatures {
        /// FID.
        feature: Feature,
        /// SEL.
        select: Select,
        /// Dword 11.
        value: u32,
    },
    /// Set Features.
    SetFeatures {
        /// FID.
        feature: Feature,
        /// SV: the value shall outlive a reset.
        save: bool,
        /// Dword 11.
        value: u32,
        /// Dword 12.
        dword12: u32,
    },
    /// Abort.
    Abort {
        /// SQID.
        queue: u16,
        /// CID.
        cid: u16,
    },
    /// Asynchronous Event Request.
    AsyncEventRequest,
    /// Keep Alive.
    KeepAlive,
    /// An opcode that has no meaning here.
    Unknown(u8),
}

/// The parameters of Identify (Base §5.17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// CNS.
    pub cns: Cns,
    /// CNTID.
    pub controller: u16,
    /// CNSSID: an endurance group, for lists of them.
    pub cns_specific: u16,
    /// CSI.
    pub set: CommandSet,
}

/// The parameters of Get Log Page (Base §5.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// LID.
    pub page: LogPage,
    /// LSP.
    pub specific: u8,
    /// LSI: an endurance group, for pages of one.
    pub specific_id: u16,
    /// RAE: keep the event that this page reports.
    pub retain_event: bool,
    /// Bytes (NUMD, zero-based dwords on the wire): 4 to 16 GiB.
    pub len: u64,
    /// LPO: bytes from the start of the page, or an index if `indexed`.
    pub offset: u64,
    /// OT: LPO is an index.
    pub indexed: bool,
    /// CSI.
    pub set: CommandSet,
}

impl AdminCommand {
    /// Parses a submission on the admin queue. Opcode 7Fh is [`crate::Command::parse`]'s, and
    /// unknown here.
    #[must_use]
    pub fn parse(command: &Submission) -> Self {
        let dword10 = command.cdw10.get();
        let dword11 = command.cdw11.get();
        match AdminOpcode::from_raw(command.opcode) {
            AdminOpcode::Identify => Self::Identify(Identify {
                cns: Cns::from_raw(dword10 as u8),
                controller: (dword10 >> 16) as u16,
                cns_specific: dword11 as u16,
                set: CommandSet::from_raw((dword11 >> 24) as u8),
            }),
            AdminOpcode::GetLogPage => Self::GetLogPage(GetLogPage::parse(command)),
            AdminOpcode::GetFeatures => Self::GetFeatures {
                feature: Feature::from_raw(dword10 as u8),
                select: Select::from_raw((dword10 >> 8 & 0b111) as u8),
                value: dword11,
            },
            AdminOpcode::SetFeatures => Self::SetFeatures {
                feature: Feature::from_raw(dword10 as u8),
                save: dword10 & 1 << 31 != 0,
                value: dword11,
                dword12: command.cdw12.get(),
            },
            AdminOpcode::Abort => Self::Abort {
                queue: dword10 as u16,
                cid: (dword10 >> 16) as u16,
            },
            AdminOpcode::AsyncEventRequest => Self::AsyncEventRequest,
            AdminOpcode::KeepAlive => Self::KeepAlive,
            AdminOpcode::Fabrics | AdminOpcode::Unknown(_) => Self::Unknown(command.opcode),
        }
    }
}

impl GetLogPage {
    fn parse(command: &Submission) -> Self {
        let dword10 = command.cdw10.get();
        let dword11 = command.cdw11.get();
        let dwords = u64::from(dword10 >> 16) | u64::from(dword11 & 0xFFFF) << 16;
        let dword14 = command.cdw14.get();
        Self {
            page: LogPage::from_raw(dword10 as u8),
            specific: (dword10 >> 8 & 0x7F) as u8,
            specific_id: (dword11 >> 16) as u16,
            retain_event: dword10 & 1 << 15 != 0,
            len: (dwords + 1) * 4,
            offset: u64::from(command.cdw12.get()) | u64::from(command.cdw13.get()) << 32,
            indexed: dword14 & 1 << 23 != 0,
            set: CommandSet::from_raw((dword14 >> 24) as u8),
        }
    }

    /// The part of `page` that this command gets.
    ///
    /// # Errors
    ///
    /// Invalid Field in Command for an offset that is an index, no multiple of 4, or past the end
    /// (Base §5.16).
    pub fn slice<'a>(&self, page: &'a [u8]) -> Result<&'a [u8], crate::Status> {
        let Some(from) = usize::try_from(self.offset)
            .ok()
            .filter(|&from| !self.indexed && from.is_multiple_of(4) && from <= page.len())
        else {
            return Err(crate::Status::InvalidField);
        };
        let len = usize::try_from(self.len)
            .unwrap_or(usize::MAX)
            .min(page.len() - from);
        Ok(&page[from..from + len])
    }
}
