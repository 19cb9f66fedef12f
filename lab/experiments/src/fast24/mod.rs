//! FAST'24's host and programs ("We Ain't Afraid of No File Fragmentation") on flash-model: files that are
//! appended to and overwritten between writes to others, read with direct I/O, with and without the hints.
//!
//! The figures' modules (`crate::figure`, `fast24_*`) and `examples/fast24-collecting.rs` measure with it;
//! docs/fast24.md explains the device and where this FTL differs.

pub mod collecting;
pub mod device;
pub mod dummy;
pub mod fileset;
pub mod host;
pub mod placement;
pub mod results;
pub mod table;
