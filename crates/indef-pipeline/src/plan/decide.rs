//! One file's plan: its chunks, their decisions and prices, and the reason if nothing of it moves.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use indef_core::{
    SkipReason,
    access::AccessRange,
    layout::{ExtentFlags, Layout},
    plan::{Chunk, Decision, FileFacts, FilePlan, PlanOptions, plan_file, reclaim_file},
};
use indef_engine::collect::FoundFile;
use indef_fs::{EngineKind, FsKind, Refusal};
use units::Bytes;

use super::named::Sharers;
use crate::{
    engines::{Chosen, Engines},
    geometry::Geometries,
    heat::Accesses,
    sync::lock,
    weigh::{Rankings, ReadTimes},
};

/// Everything that a decision depends on, beside the file.
pub(super) struct Basis<'a> {
    pub(super) options: &'a PlanOptions,
    pub(super) geometries: &'a Geometries,
    pub(super) engines: &'a Engines,
    /// Gets the shared extents of each file, where the file system does not tell who has them.
    pub(super) sharers: &'a Sharers,
    pub(super) accesses: Option<&'a Accesses>,
    /// Where to compare measured weights with the paper's.
    pub(super) rankings: Option<&'a Rankings>,
    /// The time of all reads, where the times of the profile are used.
    pub(super) times: Option<&'a ReadTimes>,
    /// Reads were timed, and fragments cost them nothing: no range moves.
    pub(super) nothing_to_gain: bool,
    pub(super) names: Names,
    /// Whether an engine keeps to the rows of its device.
    pub(super) on_rows: AtomicBool,
    /// Gets each file with the ranges of it in the profile.
    pub(super) see: &'a (dyn Fn(&FoundFile, &[AccessRange]) + Sync),
}

impl Basis<'_> {
    /// The plan of one file, and the reason if nothing of it moves.
    pub(super) fn decide(
        &self,
        found: FoundFile,
    ) -> Result<(FilePlan, Option<SkipReason>), Refusal> {
        let read = self.accesses.and_then(|profile| profile.of(&found.id));
        (self.see)(&found, read.unwrap_or_default());
        let Chosen {
            mut engine,
            whole_files,
            refused: no_engine,
            sharing,
            needs_names,
        } = self.engines.of(&found.fs);
        let (layout, refused) = match found.result {
            Ok(layout) => (layout, None),
            Err(Refusal::Skip(reason)) => (Layout::default(), Some(reason)),
            Err(failed) => return Err(failed),
        };
        if needs_names {
            self.sharers.add(found.id, &layout);
        }
        let stays = found.fs.moves_nothing();
        // On Btrfs these are asked for as root, and a file may have gone since.
        let untold = found.held.is_none() && self.options.reclaim_ratio.is_some();
        let untold = untold.then_some(SkipReason::NotPermitted);
        let skip = refused.or(stays).or(no_engine).or(untold);
        let accesses = self.accesses.map(|profile| profile.of(&found.id));
        let unread = matches!(accesses, Some(None));
        if let (Some(times), Some(accesses)) = (self.times, accesses.flatten()) {
            let options = self.geometries.options(self.options, found.fs.dev);
            let unseen = self.accesses.map(|profile| profile.unseen(&found.id));
            let unseen = unseen.unwrap_or_default();
            times.add(&options, found.id, &layout, accesses, unseen);
        }
        let chunks = if skip.is_some() || unread {
            Vec::new()
        } else if let Some(ratio) = self.options.reclaim_ratio {
            let facts = FileFacts {
                size: found.size,
                block_size: found.block_size,
                layout: &layout,
                accesses: None,
            };
            reclaim_file(ratio, &facts, found.held.as_deref().unwrap_or_default())
        } else {
            let facts = FileFacts {
                size: found.size,
                block_size: found.block_size,
                layout: &layout,
                accesses: accesses.flatten(),
            };
            if let Some(sharing) = sharing
                && is_shared(&layout)
            {
                engine = Some(sharing);
            }
            let mut options = self.geometries.options(self.options, found.fs.dev);
            // A probe tells how long rows are, not where they begin.
            let are_told = !self.geometries.is_probed(found.fs.dev);
            let keeps_rows = engine.is_some_and(EngineKind::keeps_rows);
            if keeps_rows && are_told && self.geometries.is_uniform() && options.row().is_some() {
                options.to_mut().on_rows = true;
                self.on_rows.store(true, Ordering::Relaxed);
            }
            if engine.is_some_and(EngineKind::keeps_sharing) {
                options.to_mut().keeps_sharing = true;
            }
            let mut chunks = plan_file(&options, &facts);
            if self.nothing_to_gain {
                for chunk in chunks.iter_mut().filter(|chunk| chunk.migrates()) {
                    chunk.decision = Decision::Skip(SkipReason::NoTimeLost);
                }
            }
            let writes = engine.map_or(1, EngineKind::writes_per_byte);
            for chunk in &mut chunks {
                chunk.cost = Bytes(chunk.cost.get().saturating_mul(writes));
            }
            if whole_files {
                cost_of_whole_file(&mut chunks, &layout);
            }
            if let Some(rankings) = self.rankings {
                rankings.add(&options, &facts, &found.path, &chunks);
            }
            chunks
        };
        let reason = skip
            .or(unread.then_some(SkipReason::NotRead))
            .or((self.options.reclaim_ratio.is_some() && chunks.is_empty())
                .then_some(SkipReason::AllReached))
            .or_else(|| untouched_reason(&chunks));
        let (fs, engine) = self.names.of(found.fs.kind, engine);
        let plan = FilePlan {
            path: found.path,
            root_len: Some(found.root_len),
            dev: found.id.dev,
            inode: found.id.inode,
            born: found.born,
            size: found.size,
            block_size: found.block_size,
            fs,
            engine,
            extents_before: layout.fragments(),
            named: None,
            skip,
            chunks,
        };
        Ok((plan, reason))
    }
}

/// Whether anybody else has any part of the file: upon which a run takes another engine.
fn is_shared(layout: &Layout) -> bool {
    let mut extents = layout.extents().iter();
    extents.any(|extent| extent.flags.contains(ExtentFlags::SHARED))
}

/// The few names that all plans share.
#[derive(Default)]
pub(super) struct Names(Mutex<HashMap<(FsKind, Option<EngineKind>), Shared>>);

type Shared = (Arc<str>, Option<Arc<str>>);

impl Names {
    fn of(&self, fs: FsKind, engine: Option<EngineKind>) -> Shared {
        let new = || (fs.to_string().into(), engine.map(|kind| kind.name().into()));
        lock(&self.0)
            .entry((fs, engine))
            .or_insert_with(new)
            .clone()
    }
}

/// All data of the file is written, whichever chunk of it moves: the first one that does pays for
/// it.
fn cost_of_whole_file(chunks: &mut [Chunk], layout: &Layout) {
    let data = layout
        .extents()
        .iter()
        .filter(|extent| !extent.flags.contains(ExtentFlags::UNWRITTEN))
        .map(|extent| extent.len)
        .sum();
    let mut cost = Some(data);
    for chunk in chunks.iter_mut().filter(|chunk| chunk.migrates()) {
        chunk.cost = cost.take().unwrap_or(Bytes::ZERO);
    }
}

/// The reason for which nothing of a file moves, where nothing does: the most informative reason of
/// its chunks.
#[must_use]
pub fn untouched_reason(chunks: &[Chunk]) -> Option<SkipReason> {
    let mut told = SkipReason::Empty;
    for chunk in chunks {
        match chunk.decision {
            Decision::Migrate => return None,
            Decision::Skip(reason) if weight(reason) > weight(told) => told = reason,
            Decision::Skip(_) => {}
        }
    }
    Some(told)
}

fn weight(reason: SkipReason) -> u8 {
    match reason {
        SkipReason::Empty => 0,
        SkipReason::Unwritten | SkipReason::Inline => 1,
        SkipReason::Contiguous | SkipReason::AllReached => 2,
        SkipReason::NotRead => 3,
        SkipReason::Cold | SkipReason::Truncated => 4,
        SkipReason::OverBudget
        | SkipReason::GainReached
        | SkipReason::PaysTooLate
        | SkipReason::FreesLittle => 5,
        _ => 6,
    }
}

/// Whether a skipped file is in its best state already, or is skipped at the user's request.
#[must_use]
pub fn is_fine(reason: SkipReason) -> bool {
    weight(reason) < 6
}

#[cfg(test)]
mod tests {
    use units::{Bytes, FileRange};

    use super::*;

    fn chunk(decision: Decision) -> Chunk {
        Chunk {
            range: FileRange::new(0, 4096),
            reads: 1,
            writes: 0,
            dolf: 1,
            dopf: 0.0,
            iodp: 4.0,
            decision,
            cost: Bytes::ZERO,
            gain: 0.0,
            edges: indef_core::plan::Edges::default(),
            lets_go: None,
            shared: None,
        }
    }

    #[test]
    fn a_file_is_skipped_for_its_most_telling_reason() {
        let skip = |reason| chunk(Decision::Skip(reason));
        assert_eq!(untouched_reason(&[]), Some(SkipReason::Empty));
        assert_eq!(
            untouched_reason(&[skip(SkipReason::Contiguous), skip(SkipReason::Shared)]),
            Some(SkipReason::Shared)
        );
        assert_eq!(
            untouched_reason(&[skip(SkipReason::Shared), chunk(Decision::Migrate)]),
            None
        );
        assert!(is_fine(SkipReason::Contiguous) && !is_fine(SkipReason::Shared));
    }
}
