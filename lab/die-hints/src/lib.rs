//! FAST'24's experiments with a file system: ext4 in a guest, whose kernel (`kernel/die-hints`) tells
//! flashd with each write where it lies in its file.
//!
//! The guest writes files in pieces, with other writes between them ([`inside`]). The reads are the
//! model's own: a copy of the device's model, idle, is asked how long it takes to read the files'
//! extents ([`read`]), where on the flash they lie ([`place`]), and what is left of that once all else on
//! the device was overwritten ([`age`]). So times are virtual, the guest's clock plays no part, and the
//! device runs as fast as it can while it is written. Where the kernel gives no hints, the commands of a run
//! are done again in a model of their own, with the hints that it would have given ([`Lab::foresee`]).
//!
//! As published (FAST'24 §5.1), the journal is on a device of its own, so that metadata is not written
//! between the pieces: flashd's second namespace, which has a mapping of its own. [`FileSystem::Ext4`] is
//! the usual file system.

#![forbid(unsafe_code)]

pub mod age;
mod case;
mod compare;
pub mod inside;
mod lab;
mod model;
pub mod place;
pub mod read;
mod replay;
mod system;

pub use case::{Case, words};
pub use compare::{Comparison, Outcome};
pub use lab::{FOLDER, Files, Lab, options};
pub use system::FileSystem;
