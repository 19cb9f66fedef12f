//! Files that a guest has aged, and ways of migrating them, each on a copy of that guest's SSD: the experiments of
//! `cargo lab experiment` ([`crate::migration`]) on fewer files, run by run.
//!
//! The runs are the same for all figures that want the same files and ways: they are measured once.

mod rig;
mod runs;
#[cfg(test)]
pub(in super::super) mod sample;

pub(in super::super) use rig::Rig;
pub(in super::super) use runs::{Run, Runs};
