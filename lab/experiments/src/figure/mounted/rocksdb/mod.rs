//! A RocksDB database in the holes of an aged ext4: reads by skewed keys, before and after each defragmenter.
//!
//! The program `db_bench` makes the database on a device that takes no time, once for each run; each contender gets a copy.
//! Those that choose by reads are told what `indef trace` has seen of earlier reads by the same law. Afterwards the files
//! are compared.

mod client;
mod holes;
mod runs;
mod state;

pub(in super::super) use self::{runs::Runs, state::State};
