//! Figures that are measured with F2FS in a guest, on flashd's zones: Linux's own F2FS, its own tool, and indef.
//!
//! Guests are emulated, so no time is a guest's. The device logs the commands that the kernel gives it. Those of reads are
//! done again in the model, call by call, those of a migration as they overlapped ([`crate::virtual_time`]). Which commands a
//! call has does not depend on how busy this machine is; how those of a migration overlap does, a little.
//!
//! A run is a new device with a new F2FS. Every contender gets a file of its own there, made in the same way, and what it
//! does to reads is told against the same reads of that file just before. Where the files of a whole file system are aged
//! ([`aged`]), every contender gets a copy of the device. Contents are compared, and fsck.f2fs has to find nothing.

pub(super) mod aged;
mod commands;
mod contender;
mod drives;
mod dump;
mod guests;
mod rig;
mod rows;
mod runs;
mod state;
mod times;

pub(super) use rig::Rig;
pub(super) use rows::rows_of;
pub(super) use runs::Runs;
pub(super) use times::layout_of;
