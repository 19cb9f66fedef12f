//! Asynchronous events (Base §5.2): results of Asynchronous Event Request.

use crate::log::LogPage;

/// The event that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AsyncEvent {
    /// SMART / Health: the subsystem's reliability is degraded.
    Reliability,
    /// Notice: a namespace has changed; which one is in the Changed Namespace List.
    NamespaceChanged,
    /// ZNS: a zone's descriptor has changed; which one is in the Changed Zone List.
    ZoneChanged,
    /// Notice: the discovery log page has changed.
    DiscoveryChanged,
}

impl AsyncEvent {
    /// The result's dword 0: type in bits 2:0, information in 15:8, log page in 23:16.
    #[must_use]
    pub const fn result(self) -> u32 {
        let (kind, information) = match self {
            Self::Reliability => (1, 0x00),
            Self::NamespaceChanged => (2, 0x00),
            Self::DiscoveryChanged => (2, 0xF0),
            Self::ZoneChanged => (6, 0x00),
        };
        kind | information << 8 | (self.log_page().raw() as u32) << 16
    }

    /// The log page; reading it (without RAE) makes room for the next event of its kind.
    #[must_use]
    pub const fn log_page(self) -> LogPage {
        match self {
            Self::Reliability => LogPage::Smart,
            Self::NamespaceChanged => LogPage::ChangedNamespaces,
            Self::DiscoveryChanged => LogPage::Discovery,
            Self::ZoneChanged => LogPage::ChangedZones,
        }
    }

    /// The bit of Asynchronous Event Configuration that a host sets to be notified of it (Base
    /// §5.27.1.8).
    #[must_use]
    pub const fn enabled_by(self) -> u32 {
        match self {
            Self::Reliability => crate::log::SMART_DEGRADED as u32,
            Self::NamespaceChanged => crate::identify::OAES_NAMESPACE,
            Self::ZoneChanged => crate::identify::OAES_ZONE,
            Self::DiscoveryChanged => 1 << 31,
        }
    }
}
