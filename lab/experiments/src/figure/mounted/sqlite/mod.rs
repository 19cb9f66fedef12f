//! A SQLite database in pieces: a query and an update of a range of its rows, before and after each defragmenter.
//!
//! The program `sqlite3` makes the database on a device that takes no time, once for each run; each contender gets a copy.
//! Those that choose by reads are told what `indef trace` has seen of one such query. Afterwards the file is compared byte
//! by byte, and after the update SQLite checks it.

mod database;
mod rows;
mod runs;
mod state;

pub(in super::super) use self::{rows::rows_of, runs::Runs};
