//! One file of a run: open it, look at it again, cut it into pieces, and say how it ended.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use indef_core::SkipReason;
use indef_fs::{CountedRange, Mapper, Moved, Relocator, Target};
use units::{Bytes, FileOffset, FileRange};

use super::{
    ExtentMaps, FileError, FileResult, Reason, RunEvent, Status,
    extent_maps::MapEntry,
    job::{FileJob, status_of},
    reclaim::{LetGo, came_free, groups, still_held},
    shared::Run,
    survey::{Judged, Survey, survey},
    volume::Volume,
};
use crate::sync::lock;

/// A run of bytes longer than twice this is cut into parts of at least this, so that several
/// workers can help and the room for donors stays bounded. One more fragment for each GiB costs
/// a reader nothing that could be measured.
const CUT: u64 = 1 << 30;
/// It is cut into no more parts than this: where a plan has a whole file as one run, that has the file's holes, too, of up
/// to 8 EiB on XFS.
const MOST_PARTS: u64 = 16 << 10;
/// Separate runs of one file are shared out among workers in groups of at least this.
const GROUP: u64 = 64 << 20;

/// A file that is being moved.
pub(super) struct OpenFile {
    job: FileJob,
    pub(super) target: Target,
    pub(super) volume: Arc<Volume>,
    engine: usize,
    /// The part of it that is looked at: up to its size, in whole blocks.
    end: Bytes,
    extents_before: u64,
    /// What garbage collection had moved by then.
    collected_before: Option<u64>,
    /// Written bytes of the whole file.
    written: Bytes,
    map_before: Vec<MapEntry>,
    planned: Bytes,
    /// The extents to let go.
    lets_go: Vec<LetGo>,
    /// Workers that move pieces of it right now.
    pub(super) sharers: AtomicU64,
    progress: Mutex<FileProgress>,
}

#[derive(Default)]
struct FileProgress {
    moved: Moved,
    reason: Option<Reason>,
    pieces_left: usize,
}

/// A part of a file that one worker moves.
pub(super) struct Piece {
    pub(super) file: Arc<OpenFile>,
    pub(super) ranges: Vec<CountedRange>,
    /// Reserved in the budget.
    pub(super) cost: Bytes,
    /// Bytes of new blocks that it needs.
    pub(super) allocated: Bytes,
}

impl OpenFile {
    pub(super) fn relocator(&self) -> &dyn Relocator {
        self.volume.engine(self.engine)
    }

    /// Bytes that the engine writes when it moves these ranges.
    fn cost(&self, ranges: &[Judged]) -> Bytes {
        let asked = ranges.iter().map(|judged| judged.written).sum();
        self.relocator().cost(asked, self.written)
    }

    fn result(
        &self,
        status: Status,
        reason: Option<Reason>,
        extents_after: u64,
        moved: &Moved,
        reclaimed: Bytes,
    ) -> FileResult {
        FileResult {
            path: self.job.path.clone(),
            id: self.job.id,
            fs: Arc::clone(&self.volume.name),
            engine: Some(self.relocator().name()),
            status,
            reason,
            extents_before: self.extents_before,
            extents_after,
            bytes_planned: self.planned,
            bytes_relocated: moved.relocated,
            bytes_host_read: moved.host_read,
            bytes_host_written: moved.host_written,
            bytes_offloaded: moved.offloaded,
            bytes_reclaimed: reclaimed,
            holders: moved.holders,
            bytes_unshared: moved.unshared,
        }
    }

    /// The result where the fragments afterwards are not known.
    pub(super) fn failed(&self, reason: Reason) -> FileResult {
        let moved = lock(&self.progress).moved;
        let fragments = self.extents_before;
        self.result(Status::Failed, Some(reason), fragments, &moved, Bytes::ZERO)
    }

    /// Note that a piece is done. Returns whether it was the last one, with which the file's result
    /// is due.
    pub(super) fn piece_done(&self, moved: &Moved, reason: Option<Reason>) -> bool {
        let mut progress = lock(&self.progress);
        progress.moved += *moved;
        progress.add_reason(reason);
        progress.pieces_left -= 1;
        progress.pieces_left == 0
    }
}

impl FileProgress {
    /// Of several reasons an error counts most, then that the run was stopped, then the first.
    fn add_reason(&mut self, reason: Option<Reason>) {
        let weight = |reason: &Reason| match reason {
            Reason::Failed(_) => 3,
            Reason::Skip(SkipReason::Stopped) => 2,
            Reason::Skip(_) | Reason::DryRun => 1,
        };
        if let Some(new) = reason
            && self
                .reason
                .as_ref()
                .is_none_or(|old| weight(&new) > weight(old))
        {
            self.reason = Some(new);
        }
    }
}

/// A file after it was looked at.
pub(super) enum Opened {
    /// There is something to move.
    Pieces(Vec<Piece>),
    /// There is not.
    Finished(Box<FileResult>),
}

impl Run<'_> {
    /// Look at a file as it is now.
    pub(super) fn open(&self, job: FileJob, mapper: &mut Mapper) -> Opened {
        if let Some(reason) = job.skip {
            return finished(job, Reason::Skip(reason));
        }
        if self.volumes.is_device_full(job.id.dev) {
            return finished(job, Reason::Skip(SkipReason::Stopped));
        }
        self.observer.on(RunEvent::FileStarted { path: &job.path });
        let mut target = match self.backend.open(&job) {
            Ok(target) => target,
            Err(refusal) => return finished(job, refusal.into()),
        };
        if target.id != job.id {
            return finished(job, Reason::Skip(SkipReason::Changed));
        }
        let volume = (self.volumes).of(self.backend, &target, self.options, self.observer);
        let volume = match volume {
            Ok(volume) => volume,
            Err(reason) => return finished(job, reason),
        };
        let end = FileOffset(target.size.get()).align_up(target.block_size) - FileOffset(0);
        let to_let_go = match self.options.reclaim_ratio {
            Some(ratio) => match self.to_let_go(&job, &target, end, ratio, mapper) {
                Ok(found) => Some(found),
                Err(refusal) => return finished(job, refusal.into()),
            },
            None => None,
        };
        let reclaims = to_let_go.is_some();
        let mut ways = match &to_let_go {
            Some((extents, _)) => vec![parts_of(extents)],
            // Long runs are judged cut and whole in one look, as it may be what tells which engine takes the file.
            None => vec![
                clip_and_cut(&job.runs, end, true),
                clip_and_cut(&job.runs, end, false),
            ],
        };
        ways.dedup();
        let (sync, wants_map) = (!reclaims, self.worst.wants(job.extents_before));
        let collected_before = self.backend.collected(&volume.fs);
        let mut look =
            |target: &Target| survey(self.backend, target, end, sync, &ways, wants_map, mapper);
        let mut looked = None;
        if volume.asks_sharing {
            match look(&target) {
                Ok(survey) => {
                    target.is_shared = Some(survey.is_shared);
                    looked = Some(survey);
                }
                Err(refusal) => return finished(job, refusal.into()),
            }
        }
        let engine = match volume.choose(&target) {
            Ok(engine) => engine,
            Err(reason) => return finished(job, reason),
        };
        if ways.iter().all(Vec::is_empty) && !reclaims {
            return finished(job, Reason::Skip(SkipReason::OutOfRange));
        }
        let looked = match looked {
            Some(survey) => Ok(survey),
            None => look(&target),
        };
        let Survey {
            fragments,
            written,
            ways: mut judged,
            map,
            ..
        } = match looked {
            Ok(survey) => survey,
            Err(refusal) => return finished(job, refusal.into()),
        };
        let splits = volume.engine(engine).splits();
        let ranges = match splits {
            true => judged.swap_remove(0),
            false => judged.pop().unwrap_or_default(),
        };
        let file = OpenFile {
            collected_before,
            job,
            target,
            volume,
            engine,
            end,
            extents_before: fragments,
            written,
            map_before: map,
            planned: Bytes::ZERO,
            lets_go: Vec::new(),
            sharers: AtomicU64::new(0),
            progress: Mutex::default(),
        };
        match to_let_go {
            Some((extents, reason)) => self.select_extents(file, extents, reason, ranges),
            None => self.select(file, ranges),
        }
    }

    /// Write the file back, and find which extents that were to be let go it still holds, and a reason for which others
    /// stay.
    fn to_let_go(
        &self,
        job: &FileJob,
        target: &Target,
        end: Bytes,
        ratio: f64,
        mapper: &mut Mapper,
    ) -> Result<(Vec<LetGo>, Option<SkipReason>), indef_fs::Refusal> {
        // A look at any of it has all of it written back.
        let block = FileRange::new(0, target.block_size.get());
        self.backend.map(target, block, true, mapper)?;
        let held = self.backend.held(target)?;
        Ok(still_held(&job.runs, held, FileOffset(0) + end, ratio))
    }

    /// Of the ranges as they are now, take those that are worth moving and within the budget.
    fn select(&self, mut file: OpenFile, ranges: Vec<Judged>) -> Opened {
        let mut progress = FileProgress::default();
        let mut worth = Vec::with_capacity(ranges.len());
        if ranges.is_empty() {
            progress.add_reason(Some(Reason::Skip(SkipReason::Empty)));
        }
        // Something has moved since the plan was made, and may have been stopped within a range. What moved of that is not
        // written again: of work in short portions nothing would come, and a stop within it would cut it in two.
        let goes_on = file.extents_before < file.job.extents_before
            && !file.relocator().moves_whole_files()
            && self.options.vacate.is_none();
        for judged in ranges {
            let begun = goes_on && judged.has_long_lead();
            let judged = match judged.without_lead() {
                Some(tail) if begun => tail,
                _ => judged,
            };
            let has_left = |region| !judged.hull.overlaps(region);
            if self.options.vacate.is_some_and(has_left) {
                progress.add_reason(Some(Reason::Skip(SkipReason::Changed)));
            } else if judged.count.is_contiguous() && self.options.vacate.is_none() {
                progress.add_reason(Some(Reason::Skip(SkipReason::Contiguous)));
            } else if !judged.is_safe() || begun && judged.is_long() {
                progress.add_reason(Some(Reason::Skip(SkipReason::NoGain)));
            } else {
                worth.push(judged);
            }
        }
        if worth.is_empty() {
            return self.untouched(&file, progress.reason);
        }
        // Ranges that are contiguous already need no mention when the rest is moved.
        progress.reason = None;
        let groups = self.group(&file, worth);
        file.planned = groups.iter().map(|group| group.cost).sum();
        if self.options.dry_run {
            return self.untouched(&file, Some(Reason::DryRun));
        }
        let planned: usize = groups.iter().map(|group| group.parts.len()).sum();
        let affordable: Vec<_> = groups
            .into_iter()
            .filter_map(|group| self.afford(&file, group))
            .collect();
        if affordable
            .iter()
            .map(|group| group.parts.len())
            .sum::<usize>()
            < planned
        {
            progress.add_reason(Some(Reason::Skip(self.too_much)));
        }
        self.begin(file, progress, affordable)
    }

    /// Of the extents to let go, take those of which all is judged, and that are within the budget.
    fn select_extents(
        &self,
        mut file: OpenFile,
        extents: Vec<LetGo>,
        reason: Option<SkipReason>,
        judged: Vec<Judged>,
    ) -> Opened {
        let mut progress = FileProgress::default();
        progress.add_reason(reason.map(Reason::Skip));
        let judged: HashMap<_, _> = judged.into_iter().map(|one| (one.range, one)).collect();
        let group = |extent: LetGo| {
            let parts = extent.parts.iter().map(|part| judged.get(part).copied());
            let parts: Option<Vec<_>> = parts.collect();
            Some((extent, Group::new(&file, parts?)))
        };
        let extents: Vec<_> = extents.into_iter().filter_map(group).collect();
        if extents.is_empty() {
            progress.add_reason(Some(Reason::Skip(SkipReason::Changed)));
            return self.untouched(&file, progress.reason);
        }
        file.planned = extents.iter().map(|(_, group)| group.cost).sum();
        if self.options.dry_run {
            return self.untouched(&file, Some(Reason::DryRun));
        }
        let mut affordable = Vec::new();
        for (extent, group) in extents {
            if self.budget.reserve(group.cost) {
                file.lets_go.push(extent);
                let cost = group.cost;
                affordable.push((group, cost));
            } else {
                progress.add_reason(Some(Reason::Skip(self.too_much)));
            }
        }
        let room = match self.backend.space(&file.target) {
            Ok(space) => space.to_take(self.options.min_free_pct),
            Err(error) => {
                let error = file.target.error("look at the free space", None, error);
                return self.untouched(&file, Some(error.into()));
            }
        };
        let affordable = groups(affordable, room).into_iter();
        let affordable = affordable.map(Group::joined).collect();
        self.begin(file, progress, affordable)
    }

    /// The pieces of a file, of which these groups move.
    fn begin(&self, mut file: OpenFile, mut progress: FileProgress, groups: Vec<Group>) -> Opened {
        if groups.is_empty() {
            return self.untouched(&file, progress.reason);
        }
        progress.pieces_left = groups.len();
        file.progress = Mutex::new(progress);
        let file = Arc::new(file);
        let pieces = groups
            .into_iter()
            .map(|group| Piece {
                file: Arc::clone(&file),
                cost: group.cost,
                allocated: group.parts.iter().map(|judged| judged.allocated).sum(),
                ranges: group.parts.iter().map(Judged::counted).collect(),
            })
            .collect();
        Opened::Pieces(pieces)
    }

    /// The ranges that are worth moving, in groups that can be moved independently of each other.
    fn group(&self, file: &OpenFile, worth: Vec<Judged>) -> Vec<Group> {
        if !file.relocator().splits() {
            return vec![Group::new(file, worth)];
        }
        let total: u64 = worth.iter().map(|judged| judged.written.get()).sum();
        // Two pieces for each worker, so that no one waits long for the last.
        let share = (total / (2 * self.workers as u64)).clamp(GROUP, CUT);
        let mut groups = Vec::new();
        let mut open = Vec::new();
        let mut size = 0;
        for judged in worth {
            if size > 0 && size + judged.written.get() > share {
                groups.push(Group::new(file, std::mem::take(&mut open)));
                size = 0;
            }
            size += judged.written.get();
            open.push(judged);
        }
        groups.push(Group::new(file, open));
        groups
    }

    /// Reserve the cost of a group in the budget; where not all of it fits, that of each range that
    /// does, or of the part of a range that is not in one piece already (as a killed run leaves
    /// it).
    fn afford(&self, file: &OpenFile, group: Group) -> Option<Group> {
        if self.budget.reserve(group.cost) {
            return Some(group);
        }
        if !file.relocator().splits() {
            return None;
        }
        let mut affordable = Group::default();
        for judged in group.parts {
            let tail = judged.without_lead();
            for part in std::iter::once(judged).chain(tail) {
                let cost = file.cost(&[part]);
                if self.budget.reserve(cost) {
                    affordable.cost += cost;
                    affordable.parts.push(part);
                    break;
                }
            }
        }
        (!affordable.parts.is_empty()).then_some(affordable)
    }

    /// The result of an open file of which nothing moves.
    fn untouched(&self, file: &OpenFile, reason: Option<Reason>) -> Opened {
        let status = reason.as_ref().map_or(Status::Skipped, status_of);
        let (fragments, moved) = (file.extents_before, Moved::default());
        let result = file.result(status, reason, fragments, &moved, Bytes::ZERO);
        Opened::Finished(Box::new(result))
    }

    /// The result of a file whose last piece is done.
    pub(super) fn close(&self, file: &OpenFile, mapper: &mut Mapper) -> FileResult {
        let (moved, mut reason) = {
            let mut progress = lock(&file.progress);
            (progress.moved, progress.reason.take())
        };
        let mut extents_after = file.extents_before;
        let wants_map = !file.map_before.is_empty() && self.worst.wants(file.extents_before);
        match self.survey_after(file, wants_map, mapper) {
            Ok(after) => {
                extents_after = after.fragments;
                if wants_map {
                    self.worst.add(ExtentMaps {
                        path: file.job.path.clone(),
                        size: file.target.size,
                        extents_before: file.extents_before,
                        extents_after,
                        before: file.map_before.clone(),
                        after: after.map,
                    });
                }
            }
            Err(refusal) => {
                reason.get_or_insert(refusal.into());
            }
        }
        let reclaims = !file.lets_go.is_empty();
        // What failed explains them, and matters more.
        let failed = matches!(reason, Some(Reason::Failed(_)));
        let has_more = extents_after > file.extents_before && !reclaims;
        // If somebody has changed the file, its fragments are not ours to answer for.
        if !failed && has_more && file.target.is_as_opened() {
            reason = Some(match self.was_collected(file) {
                true => Reason::Skip(SkipReason::Collected),
                false => Reason::from(FileError::MoreFragments {
                    path: file.job.path.clone(),
                    before: file.extents_before,
                    after: extents_after,
                }),
            });
        }
        let failed = matches!(reason, Some(Reason::Failed(_)));
        let status = if failed {
            Status::Failed
        } else if moved.relocated.is_zero() {
            reason.get_or_insert(Reason::Skip(SkipReason::NoGain));
            Status::Skipped
        } else {
            Status::Moved
        };
        let reclaimed = self.reclaimed(file);
        file.result(status, reason, extents_after, &moved, reclaimed)
    }

    /// Whether the file system has moved blocks by itself since the file was opened.
    fn was_collected(&self, file: &OpenFile) -> bool {
        self.backend.collected(&file.volume.fs) != file.collected_before
    }

    /// The bytes that came free with the extents that the file does not hold any more.
    fn reclaimed(&self, file: &OpenFile) -> Bytes {
        if file.lets_go.is_empty() {
            return Bytes::ZERO;
        }
        match self.backend.held(&file.target) {
            Ok(held) => came_free(&file.lets_go, &held),
            Err(_) => Bytes::ZERO,
        }
    }

    /// Map the file again. Waiting for its data to reach the device is needed only where data has
    /// no place before.
    fn survey_after(
        &self,
        file: &OpenFile,
        keep_map: bool,
        mapper: &mut Mapper,
    ) -> Result<Survey, indef_fs::Refusal> {
        let (target, end) = (&file.target, file.end);
        // What was let go is not in the tree any more.
        let sync = !file.lets_go.is_empty();
        let first = survey(self.backend, target, end, sync, &[], keep_map, mapper)?;
        if first.unplaced {
            return survey(self.backend, target, end, true, &[], keep_map, mapper);
        }
        Ok(first)
    }
}

fn finished(job: FileJob, reason: Reason) -> Opened {
    Opened::Finished(Box::new(job.result(status_of(&reason), Some(reason))))
}

/// Ranges of a file that one worker moves, with their cost.
#[derive(Default)]
struct Group {
    parts: Vec<Judged>,
    cost: Bytes,
}

impl Group {
    fn new(file: &OpenFile, parts: Vec<Judged>) -> Self {
        Self {
            cost: file.cost(&parts),
            parts,
        }
    }

    /// The parts of all, in the order of the file.
    fn joined(groups: Vec<Self>) -> Self {
        let mut joined = Self::default();
        for group in groups {
            joined.cost += group.cost;
            joined.parts.extend(group.parts);
        }
        joined.parts.sort_unstable_by_key(|judged| judged.range);
        joined
    }
}

/// The parts of all extents, in the order of the file.
fn parts_of(extents: &[LetGo]) -> Vec<FileRange> {
    let parts = extents.iter().flat_map(|extent| &extent.parts);
    let mut parts: Vec<_> = parts.copied().collect();
    parts.sort_unstable();
    parts
}

/// The parts of `runs` that the file has, with long ones cut where the engine allows it.
fn clip_and_cut(runs: &[FileRange], end: Bytes, splits: bool) -> Vec<FileRange> {
    let file = FileRange::new(0, end.get());
    let mut cut = Vec::with_capacity(runs.len());
    for run in runs {
        let mut rest = run.intersect(file);
        let len = rest.len.get().div_ceil(MOST_PARTS);
        let len = len.next_multiple_of(CUT).max(CUT);
        while splits && rest.len.get() >= 2 * len {
            let part = FileRange {
                len: Bytes(len),
                ..rest
            };
            rest = FileRange::between(part.end(), rest.end());
            cut.push(part);
        }
        if !rest.is_empty() {
            cut.push(rest);
        }
    }
    cut
}

/// Counts a worker among those of a file.
pub(super) struct Sharing<'a>(&'a AtomicU64);

impl<'a> Sharing<'a> {
    pub(super) fn of(file: &'a OpenFile) -> Self {
        file.sharers.fetch_add(1, Ordering::Relaxed);
        Self(&file.sharers)
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Sharing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_cut_into_a_bounded_number_of_parts() {
        let cut = |len, splits| {
            let parts = clip_and_cut(&[FileRange::new(0, u64::MAX)], Bytes(len), splits);
            assert_eq!(parts.iter().map(|part| part.len.get()).sum::<u64>(), len);
            (parts.len(), parts[0].len.get())
        };
        assert_eq!(cut(2 * CUT - 1, true), (1, 2 * CUT - 1));
        assert_eq!(cut(5 * CUT, true), (5, CUT));
        // The longest file of ext4, and that of XFS.
        assert_eq!(cut(16 << 40, true), (16 << 10, CUT));
        assert_eq!(cut(1 << 63, true), (16 << 10, 1 << 49));
        assert_eq!(cut(1 << 63, false), (1, 1 << 63));
    }
}
