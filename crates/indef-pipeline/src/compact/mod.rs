//! Free space made whole: a region of the device is emptied, so that what is free in it becomes one run.
//!
//! ```text
//! survey ─▶ region ─▶ hold its free space ─▶ move what lies in it ─▶ let go ─▶ survey …
//! (walk,    (fewest    (a file without        (run, with engines     │
//!  free      bytes)     a name)                that keep out of it)  └▶ long enough, or nothing moves any more
//!  runs)
//! ```
//!
//! A round begins with a survey and keeps nothing afterwards: the state is in the file system alone, so a run that
//! was stopped is continued by another one. An error ends the run; what the rounds before it did is in the result.
//! The region is chosen by the bytes that have to be moved
//! ([`cheapest_region`]), of files below the given path. Files that refuse, and fragments for which there is no
//! free run elsewhere, are found by a dry run before anything moves, and the region is then chosen without them.
//!
//! While a region is emptied, its free space is held where the file system allows it ([`Grounds`]), the engines
//! put no data there, and keep what they moved away until the round ends. That is space which others miss meanwhile:
//! a region is no longer than what is free beyond the share that stays free, and all of it is let go when half of that
//! share is used up ([`Pressure`]).
//!
//! On Btrfs and F2FS the kernel moves what lies in the region, part by part ([`parts`]).

mod parts;
mod pressure;
mod region;
mod result;
mod survey;

use std::{
    collections::HashSet,
    fs::File,
    io,
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use indef_core::SkipReason;
use indef_engine::{
    Cancel,
    claim::Claim,
    collect::{Excluded, Select},
    run::{Observer, Reason, RunOptions, StopCause, run_beneath},
};
use indef_fs::{
    Balloon, Emptier, EngineOptions, FileSystemKey, Filesystem, Finding, FsKind, Grounds, Refusal,
    Roots, Space, SpaceMap, emptier, relocator, space_map,
};
use linux_abi::xfs::wait_for_frees;
use rustix::{
    fs::syncfs,
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, capabilities},
};
use units::{Bytes, PhysRange};

pub use self::result::{CompactEnd, Compacted, InTheWay, Staying};
use self::{
    pressure::Pressure,
    region::{Chosen, Limits, NoRegion},
    survey::Survey,
};
use crate::{
    error::{CannotCompact, Error},
    geometry::look_up,
    note::{Note, Notes},
    run::{OnYield, claim_file_systems},
};

/// Rounds, each of which begins with a walk.
const ROUNDS: u32 = 16;
/// Files that may be open beside those that hold blocks.
const OTHER_FILES: u64 = 512;
/// The most files of a round, and open ones: each that moves can leave two open, and as many may lie there.
const MOST_FILES: u64 = 16_384;
const MOST_OPEN: u64 = 4 * MOST_FILES;
/// Bytes that are written at most for each byte of the wanted run.
const MOST_PER_BYTE: u64 = 2;

/// XFS frees the blocks of files in the background, which takes long of somebody's file with a billion extents.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The longest time for which it goes unnoticed meanwhile that the run shall stop.
const GLANCE: Duration = Duration::from_millis(100);
/// What others still held open is freed later: as long as less is free in one piece than is to be, XFS is looked at this often
/// again, each time after a [`GLANCE`].
const LOOKS: u32 = 10;

/// Makes free space whole.
pub struct Compactor<'a> {
    /// A path on the file system: files below it may be moved.
    pub path: PathBuf,
    /// What to leave where it is.
    pub select: Select,
    /// The length of the free run that there shall be. `None`: ten times the longest that there is, half of all
    /// free space at most.
    pub want: Option<Bytes>,
    /// Threads that walk; 0 for one on each processor.
    pub walkers: usize,
    /// Limits and workers.
    pub options: RunOptions,
    /// Stops after the current files.
    pub cancel: &'a Cancel,
    /// Sees every file that moves.
    pub observer: &'a dyn Observer,
    /// Receives other messages.
    pub notes: &'a dyn Notes,
    /// Called, on a thread of its own, when this run ends because root's begins.
    pub on_yield: Option<OnYield>,
}

impl Compactor<'_> {
    /// Make a free run of the wanted length, as far as that goes.
    ///
    /// # Errors
    ///
    /// The file system is not one for which that is known, or cannot tell its free space; less is free than is wanted;
    /// this is not root; another run works on the file system. Nothing was done: an error after the first round is in the result.
    pub fn compact(&self) -> Result<Compacted, Error> {
        let began = Instant::now();
        let (fs, emptier) = self.file_system()?;
        let _claim = match self.options.dry_run {
            true => None,
            false => self.claim(&fs)?,
        };
        let round_files = open_more_files();
        let space = self
            .space(&fs, emptier.as_deref())
            .map_err(|why| self.cannot(&fs, why))?;
        let free = self.free(&fs, &space)?;
        self.ensure_possible(&fs, free)?;
        let mut done = Compacted {
            kind: fs.kind,
            wanted: self.wanted(free, &space),
            free,
            largest_before: space.longest(),
            largest_after: space.longest(),
            region: None,
            files: 0,
            files_moved: 0,
            bytes_relocated: Bytes::ZERO,
            bytes_written: Bytes::ZERO,
            held: None,
            rounds: 0,
            parts: emptier.as_ref().map(|emptier| (emptier.kind(), 0)),
            parts_emptied: 0,
            in_the_way: InTheWay::default(),
            excluded: Excluded::default(),
            end: CompactEnd::Whole,
            error: None,
            files_failed: 0,
            duration: Duration::ZERO,
        };
        if done.largest_before < done.wanted {
            let ended = match &emptier {
                Some(emptier) => self.empty_parts(&fs, &**emptier, &mut done, began),
                None => self.rounds(&fs, &mut done, began, round_files),
            };
            if let Err(error) = ended {
                if done.rounds == 0 {
                    return Err(error);
                }
                done.end = CompactEnd::Failed;
                done.error = Some(error);
            }
        }
        done.duration = began.elapsed();
        Ok(done)
    }

    fn rounds(
        &self,
        fs: &Filesystem,
        done: &mut Compacted,
        began: Instant,
        round_files: usize,
    ) -> Result<(), Error> {
        let most = Bytes(done.wanted.get().saturating_mul(MOST_PER_BYTE));
        let budget = self.options.budget.map_or(most, |budget| budget.min(most));
        let root = self.root(fs)?;
        // Files that refused.
        let mut stuck = HashSet::new();
        done.end = CompactEnd::NoRegion;
        for _ in 0..ROUNDS {
            let roots = Roots::new();
            let mut survey = self.survey(fs, &roots, &stuck)?;
            let grounds = Grounds::of(fs).map_err(|error| self.cannot(fs, error.into()))?;
            let left = budget.saturating_sub(done.bytes_written);
            let space = (fs, &root, grounds.as_ref());
            let chosen = self.choose(space, &roots, &mut survey, done.wanted, left);
            done.in_the_way = survey.in_the_way;
            done.excluded = survey.excluded;
            if self.cancel.is_cancelled() {
                done.end = CompactEnd::Stopped(StopCause::Cancelled);
                return Ok(());
            }
            let mut chosen = match chosen {
                Ok(chosen) => chosen,
                Err(why) => {
                    done.end = why.into();
                    return Ok(());
                }
            };
            let region = chosen.region;
            if done.region.is_none() {
                done.region = Some(region);
                done.files = chosen.files.len() as u64;
            }
            if self.options.dry_run {
                done.rounds += 1;
                done.largest_after = region.place.len;
                done.end = CompactEnd::DryRun;
                return Ok(());
            }
            let balloon = match grounds {
                Some(grounds) => grounds
                    .hold(&chosen.free)
                    .map_err(|error| self.cannot(fs, error.into()))?,
                None => None,
            };
            done.held = balloon.as_ref().map(Balloon::held);
            let limit = self.options.time_limit;
            let options = RunOptions {
                vacate: Some(region.place),
                budget: Some(left),
                time_limit: limit.map(|limit| limit.saturating_sub(began.elapsed())),
                ..self.options
            };
            chosen.files.truncate(round_files);
            let pressure = Pressure {
                root: &root,
                least_pct: self.options.min_free_pct / 2.0,
                cancel: self.cancel,
            };
            let (result, is_short) = pressure
                .beside(balloon, |cancel| {
                    run_beneath(&roots, chosen.files, &options, cancel, self.observer)
                })
                .map_err(|error| self.cannot(fs, error.into()))?;
            let refused = done.add(&result, &mut stuck);
            let space = self
                .settled(fs, region.place.len)
                .map_err(|why| self.cannot(fs, why))?;
            done.largest_after = space.largest();
            if done.largest_after >= done.wanted {
                done.end = CompactEnd::Reached;
                return Ok(());
            }
            if is_short && !self.cancel.is_cancelled() {
                done.end = CompactEnd::Short;
                return Ok(());
            }
            if let Some(cause) = result.stopped {
                if cause == StopCause::DeviceFull {
                    let full = Finding::DeviceFull.into();
                    return Err(self.cannot(fs, CannotCompact::Unwritten(full)));
                }
                done.end = CompactEnd::Stopped(cause);
                return Ok(());
            }
            if result.totals.bytes_relocated.is_zero() && !refused {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The region to empty: chosen again without the files that refuse, until all of it can move.
    fn choose(
        &self,
        (fs, root, grounds): (&Filesystem, &File, Option<&Grounds>),
        roots: &Roots,
        survey: &mut Survey,
        wanted: Bytes,
        budget: Bytes,
    ) -> Result<Chosen, NoRegion> {
        loop {
            let limits = Limits {
                wanted,
                budget,
                spare: self.spare(root),
            };
            let chosen = region::choose(fs, survey, grounds, &limits)?;
            let options = RunOptions {
                vacate: Some(chosen.region.place),
                budget: None,
                time_limit: None,
                dry_run: true,
                ..self.options
            };
            let files = chosen.files.clone();
            let looked = run_beneath(roots, files, &options, self.cancel, &());
            let mut refused = chosen.unfit.clone();
            for file in &looked.files {
                match file.reason {
                    Some(Reason::Skip(reason)) => refused.push((file.id.inode, reason)),
                    Some(Reason::Failed(_)) => refused.push((file.id.inode, SkipReason::Changed)),
                    Some(Reason::DryRun) | None => {}
                }
            }
            if refused.is_empty() || self.cancel.is_cancelled() {
                return Ok(chosen);
            }
            survey.leave(refused);
        }
    }

    /// Refuse what no file system of this size, or with so much free, can have.
    fn ensure_possible(&self, fs: &Filesystem, free: Bytes) -> Result<(), Error> {
        if free.is_zero() {
            return Err(self.cannot(fs, CannotCompact::Full));
        }
        let Some(wanted) = self.want.filter(|wanted| *wanted > free) else {
            return Ok(());
        };
        let root = self.root(fs)?;
        let size = Space::of(&root).map_err(|error| self.cannot(fs, error.into()))?;
        let why = CannotCompact::WantsMore {
            wanted,
            free,
            size: size.total,
            most: self.spare(&root).min(free),
            min_free_pct: self.options.min_free_pct,
        };
        Err(self.cannot(fs, why))
    }

    /// All that is free. Where all runs are as one, what is free in sections in use is none of them, and becomes part of it.
    fn free(&self, fs: &Filesystem, space: &SpaceMap) -> Result<Bytes, Error> {
        if space.unit.is_none() {
            return Ok(space.total());
        }
        let now = Space::of(self.root(fs)?);
        now.map(|space| space.free)
            .map_err(|error| self.cannot(fs, error.into()))
    }

    /// The root of the file system.
    fn root(&self, fs: &Filesystem) -> Result<File, Error> {
        let mount = fs.mount.as_ref().ok_or(Errno::OPNOTSUPP);
        let root = mount.and_then(|mount| mount.open(fs.dev));
        root.map_err(|errno| self.cannot(fs, io::Error::from(errno).into()))
    }

    /// What may be held or taken now.
    fn spare(&self, root: &File) -> Bytes {
        let space = Space::of(root);
        space.map_or(Bytes::ZERO, |space| {
            space.to_take(self.options.min_free_pct)
        })
    }

    fn survey(
        &self,
        fs: &Filesystem,
        roots: &Roots,
        stuck: &HashSet<(u64, SkipReason)>,
    ) -> Result<Survey, Error> {
        self.notes.note(Note::Walk);
        let mut survey = Survey::take(
            fs,
            &self.path,
            &self.select,
            roots,
            self.walkers,
            self.cancel,
            self.notes,
        )
        .map_err(|error| self.cannot(fs, error.into()))?;
        survey.leave(stuck.iter().copied());
        Ok(survey)
    }

    /// The length of the run that there shall be.
    fn wanted(&self, free: Bytes, space: &SpaceMap) -> Bytes {
        let half = Bytes(free.get() / 2);
        // All that is free in whole sections may be the file system's own.
        let longest = space.longest().max(space.unit.unwrap_or_default());
        let tenfold = Bytes(longest.get().saturating_mul(10));
        self.want.unwrap_or(tenfold.min(half))
    }

    /// The file system, if its free space can be made whole, by this user; with what empties parts of it, where the kernel
    /// does that.
    fn file_system(&self) -> Result<(Filesystem, Option<Box<dyn Emptier>>), Error> {
        let fs = look_up(&self.path).map_err(|source| Error::Open {
            path: self.path.clone(),
            source,
        })?;
        match fs.kind {
            FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs | FsKind::F2fs => {}
            kind @ FsKind::Other(_) => return Err(self.cannot(&fs, CannotCompact::Kind(kind))),
        }
        let is_root = capabilities(None).is_ok_and(|sets| {
            let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH;
            sets.effective.contains(needed)
        });
        if !is_root {
            return Err(self.cannot(&fs, CannotCompact::NotRoot));
        }
        if matches!(fs.kind, FsKind::Btrfs | FsKind::F2fs) {
            if !self.select.is_everything() || self.options.engine.is_some() {
                return Err(self.cannot(&fs, CannotCompact::NotByFile));
            }
            if let Some(why) = fs.moves_nothing() {
                return Err(self.cannot(&fs, CannotCompact::Refused(why)));
            }
            let emptier = emptier(&fs).map_err(|error| self.cannot(&fs, error.into()))?;
            return match emptier {
                Ok(emptier) => Ok((fs, Some(emptier))),
                Err(why) => Err(self.cannot(&fs, CannotCompact::Parts(why))),
            };
        }
        let options = EngineOptions {
            vacate: Some(PhysRange::default()),
            ..EngineOptions::default()
        };
        let mut reason = SkipReason::NoEngine;
        let mut kinds = fs.engines();
        kinds.retain(|kind| kind.can_vacate());
        if let Some(engine) = self.options.engine {
            if !kinds.contains(&engine) {
                let (kind, others) = (fs.kind, kinds);
                let why = CannotCompact::Engine {
                    engine,
                    kind,
                    others,
                };
                return Err(self.cannot(&fs, why));
            }
            kinds = vec![engine];
        }
        for kind in kinds {
            match relocator(kind, &fs, &options) {
                Ok(_) => return Ok((fs, None)),
                Err(Refusal::Skip(SkipReason::NoEngine) | Refusal::Failed(_)) => {}
                Err(Refusal::Skip(why)) => reason = why,
            }
        }
        Err(self.cannot(&fs, CannotCompact::Refused(reason)))
    }

    /// The space of a file system once so much of it is free in one piece, as it is to be.
    fn settled(&self, fs: &Filesystem, awaited: Bytes) -> Result<SpaceMap, CannotCompact> {
        let mut space = self.space(fs, None)?;
        for _ in 0..LOOKS {
            if fs.kind != FsKind::Xfs || space.largest() >= awaited || self.cancel.is_cancelled() {
                break;
            }
            thread::sleep(GLANCE);
            space = self.space(fs, None)?;
        }
        Ok(space)
    }

    /// The space of a file system once everything is written back and what was deleted is freed.
    fn space(
        &self,
        fs: &Filesystem,
        emptier: Option<&dyn Emptier>,
    ) -> Result<SpaceMap, CannotCompact> {
        if let Some(Ok(root)) = fs.mount.as_ref().map(|mount| mount.open(fs.dev)) {
            if fs.kind == FsKind::Xfs {
                self.wait_for_frees(root.try_clone()?)?;
            }
            syncfs(root).map_err(|errno| {
                CannotCompact::Unwritten(match errno {
                    // What was written has its blocks; but a commit of Btrfs may want more for its trees.
                    Errno::NOSPC if fs.kind != FsKind::Btrfs => Finding::DeviceFull.into(),
                    errno => errno.into(),
                })
            })?;
        }
        Ok(match emptier {
            Some(emptier) => emptier.look()?.space,
            None => space_map(fs)?,
        })
    }

    /// Wait until XFS has freed what was deleted, or the run shall stop.
    fn wait_for_frees(&self, root: File) -> io::Result<()> {
        let (tells, freed) = mpsc::channel();
        let wait = move || tells.send(wait_for_frees(&root));
        let _waits = thread::Builder::new().spawn(wait)?;
        let until = Instant::now() + LONGEST_WAIT;
        loop {
            match freed.recv_timeout(GLANCE) {
                Err(RecvTimeoutError::Timeout)
                    if Instant::now() < until && !self.cancel.is_cancelled() => {}
                Ok(Ok(())) => return Ok(()),
                unknown => {
                    tracing::warn!(?unknown, "not all that was deleted may be free yet");
                    return Ok(());
                }
            }
        }
    }

    fn cannot(&self, fs: &Filesystem, why: CannotCompact) -> Error {
        Error::CannotCompact {
            path: self.path.clone(),
            kind: fs.kind,
            why,
        }
    }

    /// No other run works there meanwhile.
    fn claim(&self, fs: &Filesystem) -> Result<Option<Claim>, Error> {
        let mount = fs.mount.as_ref().and_then(|mount| mount.open(fs.dev).ok());
        let Some(Ok(key)) = mount.map(FileSystemKey::of) else {
            return Ok(None);
        };
        let place = (key, self.path.clone());
        claim_file_systems(&[place], self.cancel, self.on_yield.clone(), self.notes)
    }
}

/// Let this program open many files: donors stay open to the end of a round.
/// Returns how many may move in a round.
fn open_more_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(MOST_OPEN, |most| most.min(MOST_OPEN));
    let more = Rlimit {
        current: Some(limit.current.unwrap_or(wanted).max(wanted)),
        ..limit
    };
    let now = match setrlimit(Resource::Nofile, more) {
        Ok(()) => wanted,
        Err(_) => limit.current.unwrap_or(OTHER_FILES),
    };
    (now.saturating_sub(OTHER_FILES) / 4).clamp(64, MOST_FILES) as usize
}
