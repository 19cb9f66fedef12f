//! State that the workers of a run share.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};

use indef_core::SkipReason;
use indef_fs::RangeCopier;

use super::{
    along::Along,
    backend::Backend,
    extent_maps::Worst,
    limits::{Budget, Pace, Stop, Surplus},
    observe::Observer,
    options::RunOptions,
    result::FileResult,
    volume::Volumes,
};

/// A run, as all its workers see it.
pub(super) struct Run<'a> {
    pub(super) backend: &'a dyn Backend,
    pub(super) options: &'a RunOptions,
    pub(super) observer: &'a dyn Observer,
    pub(super) copier: &'a dyn RangeCopier,
    pub(super) workers: usize,
    pub(super) files: usize,
    pub(super) stop: Stop<'a>,
    pub(super) budget: Budget,
    /// The reason to tell where that is used up.
    pub(super) too_much: SkipReason,
    pub(super) surplus: Surplus,
    pub(super) pace: Pace,
    pub(super) volumes: Volumes,
    pub(super) worst: Worst,
    pub(super) along: Along,
    pub(super) longest_lock: AtomicU64,
    pub(super) stalls_over_limit: AtomicU64,
    pub(super) longest_uncommitted: AtomicU64,
    pub(super) said_stopping: AtomicBool,
    pub(super) results: Mutex<Vec<FileResult>>,
}
