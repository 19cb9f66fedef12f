//! What a device can be made of.

use units::Bytes;

use crate::{SECTOR, ftl::FtlConfigError};

/// How a namespace is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceKind {
    /// Zones that are written in order (ZNS command set).
    Zoned,
    /// Any block at any time, through a page-mapped FTL (NVM command set).
    Conventional,
}

/// What a namespace should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceSpec {
    /// How it is addressed.
    pub kind: NamespaceKind,
    /// Address space; a multiple of the zone size where it has zones.
    pub size: Bytes,
}

/// Namespaces that the profile's device cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No device without.
    #[error("a device needs at least one namespace")]
    NoNamespace,
    /// Zones come whole.
    #[error("namespace {index}: size {size} is no multiple of the zone size {zone}")]
    NotWholeZones {
        /// Which one, from 0.
        index: usize,
        /// Its size.
        size: Bytes,
        /// The profile's zone size.
        zone: Bytes,
    },
    /// Addresses are counted in sectors.
    #[error("namespace {index}: size {size} is no multiple of {SECTOR} bytes, or zero")]
    BadSize {
        /// Which one, from 0.
        index: usize,
        /// Its size.
        size: Bytes,
    },
    /// The FTL cannot map it.
    #[error("namespace {index}: {source}")]
    Ftl {
        /// Which one, from 0.
        index: usize,
        /// Why.
        source: FtlConfigError,
    },
}
