//! Many files at once: ScaleDefrag's workloads on ext4, beside `e4defrag`.
//!
//! The files of a workload are made by threads on a device that takes no time, once for each run; each contender gets a copy
//! of that file system on the device of the figure, with nothing in the page cache. Afterwards the contents of all files
//! are compared with those that they had when they were made.

mod contender;
mod fio;
mod made;
mod runs;
mod setup;

pub(in super::super) use self::{
    contender::Contender,
    fio::Fio,
    runs::{Beside, Runs, beside, runs},
    setup::Setup,
};
