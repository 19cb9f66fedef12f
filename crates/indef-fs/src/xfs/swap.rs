//! `xfs-swap-extents`: exchange all blocks of the file and of a donor (`XFS_IOC_SWAPEXT`).
//!
//! ```text
//! look ─▶ wait ─▶ barrier ─▶ map ─▶ allocate ─▶ copy ─▶ … ─▶ sync ─▶ share ─▶ check ─▶ exchange
//! ```
//!
//! Data that is not to move is shared with the donor by reference at the very end, so that the
//! exchange leaves it where it is. While it is shared, a write to it would go to another place;
//! therefore a file that somebody else has open is only moved as a whole, and a lease keeps others from opening it meanwhile.
//!
//! With reverse mapping (`rmapbt`) the kernel exchanges extent by extent under the file's locks,
//! which takes its time: there, too, heavily fragmented files must not be open elsewhere.

use std::{collections::VecDeque, fs::File};

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, Layout, Row},
};
use linux_abi::{
    fiemap::Mapper,
    fsxattr::{Attributes, Flags},
    share::clone_range,
    xfs::{self, Features, XfsGeometry},
};
use rustix::{fs::OFlags, io::Errno};
use units::{Bytes, FileOffset, FileRange, Nanos};

use super::{
    cached::{Cached, is_dirty},
    commit::take_bytes,
    donor::{Donor, allocated_runs, runs},
    file::{admit, map_file, open_direct, refuse, refuse_data, timed, whole},
    freshness::{Sample, barrier, is_sole},
    select::{choose, coverage, gain, others, replaced},
    turn::Turns,
};
use crate::{
    CountedRange, EngineKind, Finding, Moved, RangeCopier, Refusal, Relocation, Relocator, Step,
    StepLimit, Target,
    aim::Aim,
    hold::{Hold, Holds, NAPS},
    map,
};

/// Extents that are shared by one call: it holds the file's locks.
const SHARED_AT_ONCE: usize = 256;

/// With reverse mapping, more extents than this are not exchanged while others use the file: each
/// takes some tens of microseconds under its locks.
const MOST_REMAPPED_IN_USE: u64 = 2048;

/// The least and the most that a step copies; no lock is held meanwhile.
const COPY_STEP: (u64, u64) = (16 << 20, 64 << 20);

/// The engine.
#[derive(Debug)]
pub(super) struct SwapExtents {
    pub(super) allow_unshare: bool,
    /// Also without reverse mapping.
    pub(super) by_name: bool,
    /// Extents can be shared, so that parts of a file stay where they are.
    pub(super) reflink: bool,
    /// Rows of the device that data is placed in.
    pub(super) row: Option<Row>,
    pub(super) turns: Turns,
    pub(super) holds: Holds,
}

impl Relocator for SwapExtents {
    fn name(&self) -> &'static str {
        EngineKind::XfsSwapExtents.name()
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        let geometry = admit(target)?;
        if !self.by_name && !geometry.features.contains(Features::RMAPBT) {
            return Err(SkipReason::NoRmap.into());
        }
        Ok(())
    }

    fn splits(&self) -> bool {
        false
    }

    fn moves_whole_files(&self) -> bool {
        !self.reflink
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let geometry = admit(target)?;
        let sample = Sample::take(target)?;
        let ranges: Vec<_> = ranges.iter().map(|counted| counted.range).collect();
        self.prepare(target, &ranges, copier, geometry, sample)
            .map(|swap| Box::new(swap) as Box<dyn Relocation + 'a>)
            .map_err(|refusal| sample.explain(target, refusal))
    }
}

impl SwapExtents {
    fn prepare<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[FileRange],
        copier: &'a dyn RangeCopier,
        geometry: XfsGeometry,
        sample: Sample,
    ) -> Result<Swap<'a>, Refusal> {
        sample.settle();
        let file = whole(sample.size, target.block_size);
        // Mapped once more below, when it is written back.
        let cached = Cached::of(target, &map_file(target, file, false)?, file);
        let sole = is_sole(target);
        if !sole {
            barrier(target, &geometry)?;
        }
        let everything = FileRange::between(FileOffset(0), FileOffset(u64::MAX));
        let layout = map(
            &target.file,
            &target.path,
            everything,
            true,
            &mut Mapper::default(),
        )?;
        // Shared data stays: this exchange cannot be made durable before it returns, and a process
        // that is killed then gives the blocks back; see (5) in the module.
        let mut chosen = choose(&layout, ranges, file, target.block_size, false, Aim::Join)
            .map_err(|reason| match reason {
                SkipReason::Shared if self.allow_unshare => SkipReason::KeepsSharing,
                reason => reason,
            })?;
        if !geometry.features.contains(Features::REFLINK) {
            // Nothing can be shared with the donor, so all has to be copied.
            chosen = vec![file];
        }
        if !sole {
            let remapped = geometry.features.contains(Features::RMAPBT)
                && layout.extents().len() as u64 > MOST_REMAPPED_IN_USE;
            if remapped || !kept(&layout, &chosen, file).is_empty() {
                return Err(SkipReason::InUse.into());
            }
        }
        let donor = Donor::new(target, OFlags::DIRECT)?;
        // Who may not do that is told before anything is copied.
        drop(donor.lend(&geometry)?);
        let attributes = Attributes::get(&target.file)
            .map_err(|error| refuse(target, "look at the inode", None, error))?;
        if attributes.flags().contains(Flags::HASATTR)
            && !geometry.features.contains(Features::RMAPBT)
        {
            donor.match_room(&geometry);
        }
        donor.open_up(sample.size)?;
        let moved = allocate(&donor, &layout, chosen, file, self.row)?;
        let kept = kept(&layout, &moved, file);
        if !sole && !kept.is_empty() {
            return Err(SkipReason::InUse.into());
        }
        allocate_unwritten(&donor, &layout, &moved, file)?;
        let copies: Vec<FileRange> = moved
            .iter()
            .flat_map(|range| runs(&layout, *range, true))
            .collect();
        Ok(Swap {
            source: Some(open_direct(target)?),
            turns: &self.turns,
            holds: &self.holds,
            target,
            copier,
            geometry,
            sample,
            sole,
            cached,
            behind: behind(&layout, &geometry, attributes, file),
            file,
            layout,
            relocated: copies.iter().map(|range| range.len).sum(),
            copies: copies.into(),
            kept,
            donor,
        })
    }
}

/// The written runs that are not moved.
fn kept(layout: &Layout, moved: &[FileRange], file: FileRange) -> Vec<FileRange> {
    others(moved, file)
        .into_iter()
        .flat_map(|range| runs(layout, range, true))
        .collect()
}

/// Give the donor blocks for `chosen`. Returns the ranges that improve; the blocks of the others
/// are released.
fn allocate(
    donor: &Donor<'_>,
    layout: &Layout,
    mut chosen: Vec<FileRange>,
    file: FileRange,
    row: Option<Row>,
) -> Result<Vec<FileRange>, Refusal> {
    for range in &chosen {
        for run in allocated_runs(layout, *range) {
            donor.allocate_in_row(run, row)?;
        }
    }
    let new = donor.layout(file)?;
    let mut result = Ok(());
    chosen.retain(|range| {
        let better = gain(layout, &new, *range) > 0;
        if !better && result.is_ok() {
            result = donor.release(*range);
        }
        better
    });
    result?;
    let fewer = replaced(layout, &new, &chosen, file).fragments() < fragments(layout, file);
    if chosen.is_empty() || !fewer {
        return Err(SkipReason::NoGain.into());
    }
    Ok(chosen)
}

fn fragments(layout: &Layout, file: FileRange) -> u64 {
    layout.fragments_in(file)
}

/// Give the donor unwritten ranges of its own: they cannot be shared, and this costs no write.
fn allocate_unwritten(
    donor: &Donor<'_>,
    layout: &Layout,
    moved: &[FileRange],
    file: FileRange,
) -> Result<(), Refusal> {
    for range in others(moved, file) {
        for run in runs(layout, range, false) {
            donor.allocate(run)?;
        }
    }
    Ok(())
}

/// The ranges past the end that were allocated on purpose, and would be exchanged away.
fn behind(
    layout: &Layout,
    geometry: &XfsGeometry,
    attributes: Attributes,
    file: FileRange,
) -> Vec<FileRange> {
    // With reverse mapping only the part before the end is exchanged.
    if attributes.flags().contains(Flags::PREALLOC) && !geometry.features.contains(Features::RMAPBT)
    {
        let end = FileOffset(u64::MAX);
        allocated_runs(layout, FileRange::between(file.end(), end))
    } else {
        Vec::new()
    }
}

/// A file on its way.
struct Swap<'a> {
    target: &'a Target,
    turns: &'a Turns,
    holds: &'a Holds,
    copier: &'a dyn RangeCopier,
    geometry: XfsGeometry,
    sample: Sample,
    /// Nobody else had the file open when we looked.
    sole: bool,
    /// The part of it that was in the page cache then.
    cached: Cached,
    file: FileRange,
    /// The ranges past the end that the donor gets once it has its final size.
    behind: Vec<FileRange>,
    layout: Layout,
    donor: Donor<'a>,
    /// For direct reads; closed before anybody asks whether others have the file open.
    source: Option<File>,
    /// Ranges that are still to be copied.
    copies: VecDeque<FileRange>,
    /// Ranges that are shared instead.
    kept: Vec<FileRange>,
    relocated: Bytes,
}

impl Relocation for Swap<'_> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        let step = if self.copies.is_empty() {
            self.exchange().map(Step::Done)
        } else {
            self.copy(limit).map(Step::Working)
        };
        step.map_err(|refusal| self.sample.explain(self.target, refusal))
    }
}

impl Swap<'_> {
    fn copy(&mut self, limit: StepLimit) -> Result<Moved, Refusal> {
        let batch = take_bytes(
            &mut self.copies,
            limit.bytes.get().clamp(COPY_STEP.0, COPY_STEP.1),
        );
        let bytes: Bytes = batch.iter().map(|range| range.len).sum();
        let source = self.source.as_ref().unwrap_or(&self.target.file);
        self.copier
            .copy(source, &self.donor.file, &batch)
            .map_err(|error| refuse_data(self.target, &batch, error))?;
        self.sample.verify(self.target)?;
        Ok(Moved {
            host_read: bytes,
            host_written: bytes,
            ..Moved::default()
        })
    }

    fn exchange(&mut self) -> Result<Moved, Refusal> {
        self.donor.set_size(self.sample.size)?;
        for run in &self.behind {
            self.donor.allocate(*run)?;
        }
        self.donor.sync()?;
        self.source = None;
        let turn = self.turns.wait(&self.geometry, &self.layout, self.file);
        let hold = self.hold()?;
        let done = self.exchange_held();
        if hold.is_some() || turn.is_wanted() {
            self.donor.give_back(self.file);
        }
        // Whoever waits for the file finds nothing shared, which cannot be swapped to, and is not written in place.
        drop(hold);
        drop(turn);
        done
    }

    /// Nobody else may open the file while the donor shares some of it.
    fn hold(&self) -> Result<Option<Hold<'_>>, Refusal> {
        if self.kept.is_empty() {
            return Ok(None);
        }
        let hold = self.holds.take(self.target, NAPS);
        match hold.is_leased() {
            true => Ok(Some(hold)),
            false => Err(SkipReason::InUse.into()),
        }
    }

    fn exchange_held(&self) -> Result<Moved, Refusal> {
        self.sample.verify(self.target)?;
        let mut locked = self.share()?;
        let lent = self.donor.lend(&self.geometry)?;
        self.check()?;
        let (swapped, time) = timed(|| {
            xfs::swap_extents(
                &self.target.file,
                &self.donor.file,
                self.sample.size.get(),
                self.sample.modified,
                self.sample.changed,
            )
        });
        drop(lent);
        locked = locked.max(time);
        self.cached.restore(self.target);
        swapped.map_err(|error| match Errno::from_io_error(&error) {
            // Another size.
            Some(Errno::FAULT) => SkipReason::Changed.into(),
            // The inodes' formats do not fit.
            Some(Errno::INVAL) => SkipReason::Unsupported.into(),
            _ => refuse(self.target, "exchange extents", None, error),
        })?;
        // The next call needs space, and may fail.
        self.donor.settle(self.file)?;
        if !self.sole {
            // Direct reads of the old blocks may be under way; they end before the blocks are freed.
            barrier(self.target, &self.geometry)?;
        }
        Ok(Moved {
            relocated: self.relocated,
            locked,
            locked_bytes: self.file.len,
            ..Moved::default()
        })
    }

    /// Share the ranges that are not moved with the donor. Returns the longest time under the
    /// file's locks.
    fn share(&self) -> Result<Nanos, Refusal> {
        let mut longest = Nanos(0);
        for run in &self.kept {
            for part in self.portions(*run) {
                // The last block may be cut by the end of the file.
                let length = part.end().get().min(self.sample.size.get()) - part.start.get();
                let (shared, time) = timed(|| {
                    clone_range(
                        &self.target.file,
                        &self.donor.file,
                        part.start.get(),
                        length,
                    )
                });
                longest = longest.max(time);
                shared.map_err(|error| {
                    refuse(self.target, "share extents", Some(part.start), error)
                })?;
            }
        }
        Ok(longest)
    }

    /// `run` in portions of a bounded number of extents.
    fn portions(&self, run: FileRange) -> Vec<FileRange> {
        let starts: Vec<FileOffset> = self
            .layout
            .clipped(run)
            .step_by(SHARED_AT_ONCE)
            .map(|extent| extent.file)
            .collect();
        let ends = starts.iter().skip(1).copied().chain([run.end()]);
        starts
            .iter()
            .zip(ends)
            .map(|(start, end)| FileRange::between(*start, end))
            .collect()
    }

    /// The last look before the exchange: the donor has the same bytes written and allocated, in
    /// fewer fragments, and no fault has made a page dirty meanwhile.
    fn check(&self) -> Result<(), Refusal> {
        let new = self.donor.layout(self.file)?;
        if coverage(&new, self.file) != coverage(&self.layout, self.file) {
            let differs = Finding::OtherRanges;
            return Err(self.target.error("compare the donor", None, differs).into());
        }
        if new.fragments() >= fragments(&self.layout, self.file) {
            return Err(SkipReason::NoGain.into());
        }
        if !self.sole {
            match is_dirty(self.target, self.file) {
                Some(false) => {}
                Some(true) => return Err(SkipReason::Changed.into()),
                None => return Err(SkipReason::InUse.into()),
            }
        }
        let unplaced = |e: &indef_core::layout::Extent| e.flags.contains(ExtentFlags::UNPLACED);
        if new.extents().iter().any(unplaced) {
            return Err(SkipReason::Changed.into());
        }
        Ok(())
    }
}
