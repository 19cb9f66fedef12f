//! Figures that are measured here: a file system on flashd, its own defragmenter and indef beside each other.
//!
//! Every contender gets a new device with a new file system and the same file, or a copy of the same files. What it does
//! to reads is told against reads of the same file just before, so that a machine that becomes slower or faster
//! meanwhile does so for both; contenders take turns. The work of a defragmenter is timed with the write-back of all that
//! it left dirty ([`work`]), and its bytes and requests are those that the device got. Afterwards contents are compared.
//!
//! FragPicker's file is here; many files (ScaleDefrag) are in [`many`], databases are in [`sqlite`] and [`rocksdb`].

mod contender;
mod file;
mod files;
mod ground;
pub(super) mod many;
mod rig;
pub(super) mod rocksdb;
mod rows;
mod runs;
pub(super) mod sqlite;
mod state;
mod tool;
mod work;

pub(super) use rig::Rig;
pub(super) use rows::{rows_of, trim_rows};
pub(super) use runs::Runs;
pub(super) use tool::Tool;
