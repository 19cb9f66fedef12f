//! `--calibrate`: asks the device what contiguous reads take under the load of a profile, and what a plan leaves.
//!
//! Ranges of the profile are read with `O_DIRECT` and `O_NOATIME`, by a growing number of readers that
//! each wait for their read, as they lie, drawn by how often the profile reads them, until they take as long as in the
//! trace. By so many readers, in turns with these, ranges are read that are contiguous, in reads of the same lengths; and, where
//! a plan moves a part of what is fragmented, a mix of both: contiguous ones for what it moves. Nothing is written, also no access time, and
//! nothing enters the page cache: ranges that a file system would read through it (encoded or inline
//! extents) are left out, and so are ranges with holes, which cost the device less.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use indef_core::{
    Draw,
    calibrate::{
        Asked, CannotPredict, FEWEST_CONTIGUOUS, Service, ServicePass, ServiceTurn, TURNS,
    },
    layout::{ExtentFlags, Layout},
    plan::{FilePlan, PlanOptions},
};
use indef_engine::Cancel;
use indef_fs::{Mapper, TargetId, reopen};
use rustix::fs::OFlags;
use units::FileRange;

use crate::{
    geometry::Geometries,
    heat::Accesses,
    sync::{into_inner, lock},
    weigh::open_timed,
};

/// The time of one kind of reads in one turn.
const LONG: Duration = Duration::from_millis(100);
/// Reads of each reader that are done at least in this time.
const LEAST: usize = 4;
/// Reads of all readers together that are done at least in this time.
const FEWEST: usize = 40;
/// Reads of all readers that are done at most.
const MOST: usize = 20_000;
/// The time of everything.
const LONGEST: Duration = Duration::from_secs(30);
/// Files that are read, those with the most reads: each takes a descriptor.
const FILES: usize = 256;
/// One in so many reads may fail: files change meanwhile.
const MAY_FAIL: usize = 20;
/// Direct I/O is aligned to this.
const ALIGNED: usize = 4096;

/// Measure with reads of these files, of which these plans move something; `traced_ns` is the mean time of their traced reads.
pub(crate) fn measure(
    traced_ns: f64,
    options: &PlanOptions,
    geometries: &Geometries,
    accesses: &Accesses,
    (files, plans): (&HashSet<TargetId>, &[FilePlan]),
    cancel: &Cancel,
) -> Result<Service, CannotPredict> {
    let until = Until {
        deadline: Instant::now() + LONGEST,
        cancel,
    };
    let mut ground = Ground::of(options, geometries, accesses, files, &until)?;
    ground.plan(plans);
    if ground.contiguous.len() < FEWEST_CONTIGUOUS {
        return Err(CannotPredict::NothingToRead);
    }
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let draw = Draw::new(seed.map_or(1, |since| since.as_nanos() as u64));
    let mut asking = Asking {
        ground: &ground,
        draw,
        until,
    };
    Service::find(traced_ns, &mut asking)
}

struct Asking<'a> {
    ground: &'a Ground,
    draw: Draw,
    until: Until<'a>,
}

impl Asked for Asking<'_> {
    fn as_is_ns(&mut self, readers: u32) -> Result<f64, CannotPredict> {
        let drawn = self.ground.draw(&mut self.draw)?;
        self.ground.read(&drawn.as_is, readers, &self.until)
    }

    fn pass(&mut self, readers: u32) -> Result<ServicePass, CannotPredict> {
        let mut turns = Vec::with_capacity(TURNS);
        for turn in 0..TURNS {
            let drawn = self.ground.draw(&mut self.draw)?;
            let kinds = [&drawn.as_is, &drawn.contiguous, &drawn.planned];
            let kinds = &kinds[..if self.ground.moves_a_part() { 3 } else { 2 }];
            let mut times = [0.0; 3];
            // A device that becomes slower all the time is not slower for the last kind.
            for at in (0..kinds.len()).map(|at| (at + turn) % kinds.len()) {
                times[at] = self.ground.read(kinds[at], readers, &self.until)?;
            }
            let [as_is_ns, contiguous_ns, planned_ns] = times;
            turns.push(ServiceTurn {
                as_is_ns,
                contiguous_ns,
                planned_ns: (kinds.len() == 3).then_some(planned_ns),
            });
        }
        Ok(ServicePass::of(&turns))
    }
}

/// How long it may go on.
struct Until<'a> {
    deadline: Instant,
    cancel: &'a Cancel,
}

impl Until<'_> {
    fn check(&self) -> Result<(), CannotPredict> {
        if self.cancel.is_cancelled() {
            return Err(CannotPredict::Stopped);
        }
        if Instant::now() > self.deadline {
            let seconds = LONGEST.as_secs();
            return Err(CannotPredict::TooSlow { seconds });
        }
        Ok(())
    }
}

/// A range to read.
#[derive(Clone, Copy)]
struct Spot {
    file: usize,
    range: FileRange,
}

/// A range of the profile.
struct Place {
    spot: Spot,
    /// Reads of it and of those before.
    upto: u64,
    is_fragmented: bool,
    /// The plan moves it.
    moves: bool,
}

/// Reads of all kinds, in the same order.
#[derive(Default)]
struct Drawn {
    as_is: Vec<Spot>,
    contiguous: Vec<Spot>,
    planned: Vec<Spot>,
}

/// All that can be read.
#[derive(Default)]
struct Ground {
    files: Vec<(File, TargetId)>,
    /// The ranges of the profile.
    as_is: Vec<Place>,
    contiguous: Vec<Spot>,
}

impl Ground {
    fn of(
        options: &PlanOptions,
        geometries: &Geometries,
        accesses: &Accesses,
        files: &HashSet<TargetId>,
        until: &Until<'_>,
    ) -> Result<Self, CannotPredict> {
        let mut ground = Self::default();
        let mut mapper = Mapper::default();
        let timed = accesses.timed().filter(|(id, _)| files.contains(id));
        let mut timed: Vec<_> = timed
            .map(|(id, path)| {
                let ranges = accesses.of(id).unwrap_or_default();
                let reads: u64 = ranges.iter().map(|range| range.reads).sum();
                (Reverse(reads), *id, path)
            })
            .collect();
        timed.sort_unstable_by_key(|(reads, _, path)| (*reads, *path));
        for (_, id, path) in timed.into_iter().take(FILES) {
            until.check()?;
            ground.add_file(path, id, options, geometries, accesses, &mut mapper);
        }
        ground.contiguous.sort_by_key(|spot| spot.range.len);
        Ok(ground)
    }

    fn add_file(
        &mut self,
        path: &Path,
        id: TargetId,
        options: &PlanOptions,
        geometries: &Geometries,
        accesses: &Accesses,
        mapper: &mut Mapper,
    ) {
        let Some(opened) = open_timed(path, id) else {
            return;
        };
        let layout = opened.map(opened.whole(), false, mapper);
        // Without O_NOATIME, which only the owner and root get, it would not be left as it was.
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::NOATIME;
        let direct = reopen(&opened.file, flags).map(File::from);
        let (Some(layout), Ok(direct), Some(ranges)) = (layout, direct, accesses.of(&id)) else {
            return;
        };
        let file = self.files.len();
        let geometry = geometries.of(id.dev);
        for access in ranges {
            let range = access.range;
            // Reads of longer ranges were of parts of them, and none goes past the end of the file.
            if access.reads == 0
                || range.len > options.max_request
                || range.end().get() > opened.size.get()
                || !is_all_read_directly(&layout, range)
            {
                continue;
            }
            let spot = Spot { file, range };
            let dolf = layout.measure(range, &geometry, options.max_request).dolf;
            let before = self.as_is.last().map_or(0, |place| place.upto);
            match dolf {
                0 => continue,
                1 => self.contiguous.push(spot),
                _ => {}
            }
            self.as_is.push(Place {
                spot,
                upto: before.saturating_add(access.reads),
                is_fragmented: dolf > 1,
                moves: false,
            });
        }
        self.files.push((direct, id));
    }

    /// Note which ranges these plans move.
    fn plan(&mut self, plans: &[FilePlan]) {
        let of_file = |plan: &FilePlan| {
            let (dev, inode) = (plan.dev, plan.inode);
            (TargetId { dev, inode }, plan.runs())
        };
        let runs: HashMap<_, _> = plans.iter().map(of_file).collect();
        for place in &mut self.as_is {
            let id = self.files.get(place.spot.file).map(|(_, id)| id);
            let Some(runs) = id.and_then(|id| runs.get(id)) else {
                continue;
            };
            let range = place.spot.range;
            let after = runs.partition_point(|run| run.start <= range.start);
            let run = after.checked_sub(1).and_then(|at| runs.get(at));
            place.moves = place.is_fragmented && run.is_some_and(|run| run.contains(range));
        }
    }

    /// Whether the plan moves something of what is fragmented, and not all of it.
    fn moves_a_part(&self) -> bool {
        let fragmented = || self.as_is.iter().filter(|place| place.is_fragmented);
        fragmented().any(|place| place.moves) && fragmented().any(|place| !place.moves)
    }

    /// Reads of the profile, and contiguous ones of the same lengths for all of them and for those that move.
    fn draw(&self, draw: &mut Draw) -> Result<Drawn, CannotPredict> {
        let all = self.as_is.last().map_or(0, |place| place.upto);
        let mut drawn = Drawn::default();
        for _ in 0..MOST {
            let wanted = draw.below(all);
            let at = self.as_is.partition_point(|place| place.upto <= wanted);
            let place = self.as_is.get(at).ok_or(CannotPredict::NothingToRead)?;
            let spot = place.spot;
            let len = spot.range.len;
            let shorter = self.contiguous.partition_point(|spot| spot.range.len < len);
            let enough = &self.contiguous[shorter..];
            if enough.len() < FEWEST_CONTIGUOUS {
                // Long ranges are rare; without them both kinds stay alike.
                continue;
            }
            let other = enough[draw.below(enough.len() as u64) as usize];
            let other = Spot {
                range: FileRange::new(other.range.start.get(), len.get()),
                ..other
            };
            drawn.as_is.push(spot);
            drawn.contiguous.push(other);
            drawn.planned.push(if place.moves { other } else { spot });
        }
        match drawn.as_is.len() * 2 < MOST {
            true => Err(CannotPredict::NothingToRead),
            false => Ok(drawn),
        }
    }

    /// Read, each of the readers one at a time: the mean time of a read, in nanoseconds. Neither the first reads count, which find
    /// an idle device, nor those that are done while the last ones that count go on: without them these would end with
    /// fewer and fewer readers beside them, and where a turn has few reads, that is a part of all.
    fn read(&self, spots: &[Spot], readers: u32, until: &Until<'_>) -> Result<f64, CannotPredict> {
        let (next, failed, ended) = (
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicBool::new(false),
        );
        let (enough, counting) = (AtomicBool::new(false), AtomicUsize::new(0));
        let times = Mutex::new(Vec::new());
        let began = Instant::now();
        let least = (readers as usize * LEAST).max(FEWEST);
        let work = || {
            let mut own = Vec::new();
            let mut buffer = Vec::new();
            while !ended.load(Ordering::Relaxed) && until.check().is_ok() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= spots.len() || (at >= least && began.elapsed() > LONG) {
                    enough.store(true, Ordering::Relaxed);
                    if counting.load(Ordering::Relaxed) == 0 {
                        break;
                    }
                }
                let counts = at >= readers as usize && !enough.load(Ordering::Relaxed);
                counting.fetch_add(usize::from(counts), Ordering::Relaxed);
                let started = Instant::now();
                let is_read = self.read_one(&spots[at % spots.len()], &mut buffer);
                let took = started.elapsed();
                counting.fetch_sub(usize::from(counts), Ordering::Relaxed);
                match is_read {
                    Some(()) if counts => own.push(took.as_nanos() as f64),
                    Some(()) => {}
                    None => _ = failed.fetch_add(1, Ordering::Relaxed),
                }
            }
            let mut times = lock(&times);
            times.extend(own);
        };
        let has_all = thread::scope(|scope| {
            for _ in 1..readers {
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    ended.store(true, Ordering::Relaxed);
                    return false;
                }
            }
            work();
            true
        });
        until.check()?;
        if !has_all {
            return Err(CannotPredict::NoThreads { readers });
        }
        let times = into_inner(times);
        if failed.into_inner() * MAY_FAIL > times.len() {
            return Err(CannotPredict::ReadsFail);
        }
        Ok(times.iter().sum::<f64>() / times.len().max(1) as f64)
    }

    fn read_one(&self, spot: &Spot, buffer: &mut Vec<u8>) -> Option<()> {
        let len = usize::try_from(spot.range.len.get()).ok()?;
        if buffer.len() < len + ALIGNED {
            *buffer = vec![0; len + ALIGNED];
        }
        let shift = buffer.as_ptr().align_offset(ALIGNED);
        let into = buffer.get_mut(shift..shift + len)?;
        let (file, _) = self.files.get(spot.file)?;
        file.read_exact_at(into, spot.range.start.get()).ok()
    }
}

/// Whether a direct read of the range reads all of it from the device, and none through the page cache.
fn is_all_read_directly(layout: &Layout, range: FileRange) -> bool {
    let elsewhere =
        ExtentFlags::UNWRITTEN | ExtentFlags::ENCODED | ExtentFlags::INLINE | ExtentFlags::UNPLACED;
    let direct = layout
        .clipped(range)
        .filter(|extent| !extent.flags.intersects(elsewhere));
    direct.map(|extent| extent.len.get()).sum::<u64>() == range.len.get()
}
