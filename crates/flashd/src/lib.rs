//! flashd, a software-defined flash SSD that any Linux can attach.
//!
//! [`device`] joins the flash model (times), the [`store`] (bytes) and the [`pace`] (answers at
//! those times) to one SSD. It is reached over NVMe/TCP ([`serve`]), or as a file for a loop device
//! ([`mount`]). [`record`] notes all that is done to it and builds it again; [`operate`] queries
//! and controls a running daemon.
//!
//! A device is a plain value: a test opens one in memory and talks to it, without a daemon.

#![forbid(unsafe_code)]

pub mod device;
mod lock;
pub mod mount;
pub mod operate;
pub mod pace;
pub mod record;
pub mod serve;
pub mod store;
