//! The ground on which measurements stand: a file system on a loop device, whose file lies on this machine's disk or
//! on flashd, and the defragmenter that the file system brings along.
//!
//! Everything is undone when it is dropped, in the right order: unmounted, detached, flashd stopped. It needs root,
//! mkfs and losetup; an error names what is missing.
//!
//! It knows no files, no fragments, and nothing of what is measured.

#![forbid(unsafe_code)]

mod command;
mod daemon;
mod error;
mod fs;
mod stage;

pub use command::{path_with_sbin, text};
pub use daemon::{Loop, Mounted, Served};
pub use error::StageError;
pub use fs::Fs;
pub use stage::{Discards, Stage, Traffic};
