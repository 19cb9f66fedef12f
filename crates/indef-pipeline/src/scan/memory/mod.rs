//! The memory of scans: the next one opens only files whose layouts have changed.
//!
//! A walk learns most files in bulk, from the inodes alone. It has to open the others, which are fragmented for
//! the most part, and these are what a memory is for: it maps [`Evidence`] of a file's layout to the findings
//! that follow from this layout, and from nothing else that may change (the I/O size is in the memory's
//! name, the version of indef in its head; a scan with a profile or with a geometry has no memory, and neither
//! names nor sizes come from it). So there is nothing to be believed: not a time, not a
//! number of an inode, not that nobody else has moved blocks. Names, links, and which files there are come from the
//! walk, which reads all directories in any case.
//!
//! Not kept are findings about
//!
//! - files without evidence (`evidence.rs` of indef-fs has which file systems have any; it takes the right to
//!   read the inodes in bulk, so that users without it have no memory),
//! - files whose layout changed between two looks at the evidence, one before the map was taken and one after it,
//! - layouts with data that has no place yet, which their evidence does not cover,
//! - files that were refused, by the kernel or by the engine.
//!
//! A memory is one file for the paths of a scan, what it leaves out of them, and its I/O size. Each scan leaves what it
//! saw itself, so that files that are gone are forgotten. A scan that was stopped leaves the memory as it is.

pub(crate) mod error;
mod file;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use indef_core::layout::{ExtentFlags, Layout};
use indef_engine::collect::Select;
use indef_fs::Evidence;
use units::Bytes;

use super::findings::Findings;
use crate::{
    note::{Note, Notes},
    sync::{into_inner, lock},
};
pub use error::MemoryError;

/// The use that a scan makes of the memory of earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remembering {
    /// None: neither read nor written.
    #[default]
    Off,
    /// Files whose layout is the same are not looked at; the findings are kept for the next scan.
    On,
    /// All files are looked at; the findings are kept for the next scan.
    Anew,
}

/// The findings of the last scan and of this one, by evidence.
#[derive(Debug)]
pub(super) struct Memory {
    paths: Vec<PathBuf>,
    select: Select,
    io_size: Bytes,
    last: HashMap<Evidence, Kept>,
    new: Mutex<HashMap<Evidence, Findings>>,
    recalled: AtomicU64,
}

/// Findings of the last scan.
#[derive(Debug)]
struct Kept {
    findings: Findings,
    /// They are of this scan, too.
    is_recalled: AtomicBool,
}

impl Memory {
    /// The memory of earlier scans of the same paths; `None` for a scan without one.
    pub(super) fn open(
        remembering: Remembering,
        paths: &[PathBuf],
        select: &Select,
        io_size: Bytes,
        notes: &dyn Notes,
    ) -> Option<Self> {
        let last = match remembering {
            Remembering::Off => return None,
            Remembering::Anew => Vec::new(),
            Remembering::On => file::read(paths, select, io_size).unwrap_or_else(|why| {
                notes.note(Note::MemoryIgnored(&why));
                Vec::new()
            }),
        };
        let kept = |(evidence, findings)| {
            let is_recalled = AtomicBool::new(false);
            let kept = Kept {
                findings,
                is_recalled,
            };
            (evidence, kept)
        };
        Some(Self {
            paths: paths.to_vec(),
            select: select.clone(),
            io_size,
            last: last.into_iter().map(kept).collect(),
            new: Mutex::default(),
            recalled: AtomicU64::new(0),
        })
    }

    /// The findings about a file with this evidence.
    pub(super) fn recall(&self, evidence: &Evidence) -> Option<Findings> {
        let kept = self.last.get(evidence)?;
        kept.is_recalled.store(true, Ordering::Relaxed);
        self.recalled.fetch_add(1, Ordering::Relaxed);
        Some(kept.findings)
    }

    /// Keep the findings that follow from this layout.
    pub(super) fn keep(&self, evidence: Evidence, layout: &Layout, findings: Findings) {
        let mut extents = layout.extents().iter();
        if extents.any(|extent| extent.flags.contains(ExtentFlags::UNPLACED)) {
            return;
        }
        let mut new = lock(&self.new);
        if new.len() < file::MOST {
            new.insert(evidence, findings);
        }
    }

    /// Write what a scan has kept, in place of what the last one did, unless it was stopped. Returns the
    /// number of files that were not looked at.
    pub(super) fn close(self, stopped: bool, notes: &dyn Notes) -> u64 {
        let new = into_inner(self.new);
        let last = self.last.len();
        let again = self.last.into_iter();
        let again = again.filter(|(_, kept)| kept.is_recalled.load(Ordering::Relaxed));
        let again = again.map(|(evidence, kept)| (evidence, kept.findings));
        let is_new = !new.is_empty();
        let all: Vec<_> = again.chain(new).take(file::MOST).collect();
        let is_same = !is_new && all.len() == last;
        if !stopped
            && !is_same
            && let Err(why) = file::write(&self.paths, &self.select, self.io_size, &all)
        {
            notes.note(Note::NotRemembered(&why));
        }
        self.recalled.into_inner()
    }
}
