//! The bytes of namespaces, and the part of them that a power cut leaves.
//!
//! Each namespace has a durable [`base`] (memory, or a region of one backing file) under a bounded
//! volatile write [`cache`]. The rules, which [`StoredNamespace`] keeps and its tests hold against a slow
//! model:
//!
//! - A write is volatile when it returns, unless it has FUA. A flush makes all of them durable.
//! - Volatile data may become durable at any time before (the cache drains its oldest blocks when
//!   it is full), block by block: a block is never torn, a command may be.
//! - A power cut, or the end of the process by any cause, drops exactly what is still in the cache.
//! - In a zone, the durable data has no holes: it ends at the durable write pointer, where the
//!   zone's write pointer is after a power cut. Zone management is durable when it returns, as a
//!   device's firmware journals it.
//! - Reads past the data that was written in a zone return zeroes.
//!
//! The file ([`file`]) opens again after a kill at any instruction, is locked against a second
//! daemon, and reports at start which part of it is damaged: a namespace of which a part is missing
//! is reported, the others go on. Content is not checksummed, only its description is: the host's
//! disk below is trusted for data, as any block device is. Nothing here knows time or NVMe.

mod base;
mod cache;
mod change;
mod error;
mod file;
mod image;
mod kind;
mod life;
mod locked;
mod namespace;
mod superblock;
#[cfg(test)]
mod tests;
mod zones;

pub(crate) use base::touch;
pub use change::{Change, ZoneChange};
pub use error::{StoreError, StoreFault, Unusable};
pub use file::{FileOptions, Store};
pub use kind::{StoreKind, ZoneLayout};
pub use life::Life;
pub use namespace::{Health, StoredNamespace};
pub use zones::ZoneRest;
