//! The namespaces that a device can have.

use units::Bytes;

use crate::{SECTOR, ftl::FtlConfigError};

/// The way in which a namespace is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceKind {
    /// Zones that are written in order (ZNS command set).
    Zoned,
    /// Any block at any time, through a page-mapped FTL (NVM command set).
    Conventional,
}

/// The kind and size of a namespace.
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
    /// There is no namespace.
    #[error("a device needs at least one namespace")]
    NoNamespace,
    /// The size is not a whole number of zones.
    #[error("namespace {index}: size {size} is no multiple of the zone size {zone}")]
    NotWholeZones {
        /// The number of the namespace, from 0.
        index: usize,
        /// Its size.
        size: Bytes,
        /// The profile's zone size.
        zone: Bytes,
    },
    /// The size is not a whole number of sectors, or is zero.
    #[error("namespace {index}: size {size} is no multiple of {SECTOR} bytes, or zero")]
    BadSize {
        /// The number of the namespace, from 0.
        index: usize,
        /// Its size.
        size: Bytes,
    },
    /// The FTL cannot map it.
    #[error("namespace {index}: {source}")]
    Ftl {
        /// The number of the namespace, from 0.
        index: usize,
        /// The reason.
        source: FtlConfigError,
    },
}
