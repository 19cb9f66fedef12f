//! `--calibrate`: asks the device what contiguous reads take under the load of a profile, and what a plan leaves.
//!
//! Ranges of the profile are read with `O_DIRECT` and `O_NOATIME`, by a growing number of readers that
//! each wait for their read, as they lie, drawn by how often the profile reads them, until they take as long as in the
//! trace. By so many readers, in turns with these, ranges are read that are contiguous, in reads of the same lengths; and, where
//! a plan moves a part of what is fragmented, a mix of both: contiguous ones for what it moves. Nothing is written, also no access time, and
//! nothing enters the page cache: ranges that a file system would read through it (encoded or inline
//! extents) are left out, and so are ranges with holes, which cost the device less.
//!
//! [`Replay::Buffered`] is for programs that read through the page cache and want to know of their whole calls, which copy
//! as well. The number of readers is found by direct reads, as the trace times how long reads wait for the device. By as many
//! as have so many waiting, the kinds are then read through the cache: only ranges of which nothing is in it, and what was read
//! leaves it again.

mod source;

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet, VecDeque},
    path::Path,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use indef_core::{
    Draw,
    calibrate::{
        Asked, CannotPredict, FEWEST_CONTIGUOUS, MOST_READERS, Service, ServicePass, ServiceTurn,
        TURNS,
    },
    layout::{ExtentFlags, Layout},
    plan::{FilePlan, PlanOptions},
};
use indef_engine::Cancel;
use indef_fs::{Mapper, TargetId};
pub use source::Replay;
use source::{Answer, Source};
use units::{FileOffset, FileRange};

use crate::{
    geometry::Geometries,
    heat::Accesses,
    sync::{into_inner, lock},
    weigh::open_timed,
};

/// The time of one kind of reads in one turn: of calls, which need a processor as well, and so scatter more with what else does.
const fn long(replay: Replay) -> Duration {
    match replay {
        Replay::Direct => Duration::from_millis(100),
        Replay::Buffered => Duration::from_millis(200),
    }
}
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
/// A range is drawn so often at most where others are at it.
const TRIES: usize = 8;
/// One in so many reads may fail: files change meanwhile.
const MAY_FAIL: usize = 20;
/// Measure with reads of these files, of which these plans move something; `traced_ns` is the mean time of their traced reads.
pub(crate) fn measure(
    replay: Replay,
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
    let mut ground = Ground::of(replay, options, geometries, accesses, files, &until)?;
    ground.plan(plans);
    if ground.contiguous.len() < FEWEST_CONTIGUOUS {
        return Err(CannotPredict::NothingToRead);
    }
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let draw = Draw::new(seed.map_or(1, |since| since.as_nanos() as u64));
    let mut asking = Asking {
        ground: &ground,
        replay,
        draw,
        until,
    };
    Service::find(traced_ns, &mut asking)
}

struct Asking<'a> {
    ground: &'a Ground,
    replay: Replay,
    draw: Draw,
    until: Until<'a>,
}

impl Asking<'_> {
    /// The readers of whole calls of which one that comes to the device finds as many waiting as one of so many direct readers
    /// does: these wait all the time, the others for their part of a call (the arrival theorem of closed networks of queues).
    fn callers(&mut self, readers: u32) -> Result<u32, CannotPredict> {
        if self.replay == Replay::Direct || readers == 1 {
            return Ok(readers);
        }
        let apart = self.apart(readers);
        let drawn = self.ground.draw(&mut self.draw, apart)?;
        let [waits, calls] = [Replay::Direct, self.replay].map(|replay| {
            self.ground
                .read(&drawn.as_is, (replay, readers), &self.until)
        });
        let longer = (calls? / waits?.max(1.0)).max(1.0);
        let callers = 1.0 + f64::from(readers - 1) * longer;
        // Nobody reads what another one has brought into the cache, so there have to be ranges for all.
        let places = (self.ground.contiguous.len() / 2) as f64;
        let most = places.min(MOST_READERS.into()).max(readers.into());
        Ok(callers.round().min(most) as u32)
    }
}

impl Asking<'_> {
    /// For so many reads no contiguous range comes again in place of another one: readers through the page cache would wait for each
    /// other there, as all of them read the few that there are, with fewer requests in flight than of the other kinds. Of these,
    /// half are left to choose from.
    fn apart(&self, readers: u32) -> usize {
        match self.replay {
            Replay::Direct => 0,
            // Some reads take twice as long as others.
            Replay::Buffered => (2 * readers as usize).min(self.ground.contiguous.len() / 2),
        }
    }
}

impl Asked for Asking<'_> {
    fn waited_ns(&mut self, readers: u32) -> Result<f64, CannotPredict> {
        let drawn = self.ground.draw(&mut self.draw, 0)?;
        let direct = (Replay::Direct, readers);
        self.ground.read(&drawn.as_is, direct, &self.until)
    }

    fn pass(&mut self, readers: u32) -> Result<ServicePass, CannotPredict> {
        let callers = self.callers(readers)?;
        let apart = self.apart(callers);
        let mut turns = Vec::with_capacity(TURNS);
        for turn in 0..TURNS {
            let drawn = self.ground.draw(&mut self.draw, apart)?;
            let by = (self.replay, callers);
            let mut kinds = vec![(&drawn.as_is, by), (&drawn.contiguous, by)];
            if self.ground.moves_a_part() {
                kinds.push((&drawn.planned, by));
            }
            if self.replay != Replay::Direct {
                kinds.push((&drawn.as_is, (Replay::Direct, readers)));
            }
            let mut times = vec![0.0; kinds.len()];
            // A device that becomes slower all the time is not slower for the last kind.
            for at in (0..kinds.len()).map(|at| (at + turn) % kinds.len()) {
                let (spots, by) = kinds[at];
                times[at] = self.ground.read(spots, by, &self.until)?;
            }
            turns.push(ServiceTurn {
                waited_ns: match self.replay {
                    Replay::Direct => times[0],
                    Replay::Buffered => times[kinds.len() - 1],
                },
                as_is_ns: times[0],
                contiguous_ns: times[1],
                planned_ns: self.ground.moves_a_part().then(|| times[2]),
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

impl Spot {
    /// Its beginning.
    const fn place(&self) -> (usize, FileOffset) {
        (self.file, self.range.start)
    }
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

/// What was drawn last, where readers may still be.
struct Last {
    apart: usize,
    spots: VecDeque<[(usize, FileOffset); 2]>,
}

impl Last {
    fn new(apart: usize) -> Self {
        let spots = VecDeque::with_capacity(apart + 1);
        Self { apart, spots }
    }

    /// One that is not among them, if that is found soon.
    fn other(&self, mut any: impl FnMut() -> Spot) -> Spot {
        let is_new = |one: &Spot| !self.spots.iter().any(|spots| spots.contains(&one.place()));
        let mut tries = (0..TRIES).map(|_| any());
        tries.find(is_new).unwrap_or_else(any)
    }

    fn add(&mut self, spots: [Spot; 2]) {
        self.spots.push_back(spots.map(|spot| spot.place()));
        if self.spots.len() > self.apart {
            self.spots.pop_front();
        }
    }
}

/// All that can be read.
#[derive(Default)]
struct Ground {
    files: Vec<Source>,
    /// The ranges of the profile.
    as_is: Vec<Place>,
    contiguous: Vec<Spot>,
}

impl Ground {
    fn of(
        replay: Replay,
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
            let file = (path, id, replay);
            ground.add_file(file, options, geometries, accesses, &mut mapper);
        }
        ground.contiguous.sort_by_key(|spot| spot.range.len);
        Ok(ground)
    }

    fn add_file(
        &mut self,
        (path, id, replay): (&Path, TargetId, Replay),
        options: &PlanOptions,
        geometries: &Geometries,
        accesses: &Accesses,
        mapper: &mut Mapper,
    ) {
        let Some(opened) = open_timed(path, id) else {
            return;
        };
        let layout = opened.map(opened.whole(), false, mapper);
        let source = Source::open(&opened.file, id, replay);
        let (Some(layout), Some(source), Some(ranges)) = (layout, source, accesses.of(&id)) else {
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
        self.files.push(source);
    }

    /// Note which ranges these plans move.
    fn plan(&mut self, plans: &[FilePlan]) {
        let of_file = |plan: &FilePlan| {
            let (dev, inode) = (plan.dev, plan.inode);
            (TargetId { dev, inode }, plan.runs())
        };
        let runs: HashMap<_, _> = plans.iter().map(of_file).collect();
        for place in &mut self.as_is {
            let id = self.files.get(place.spot.file).map(|source| source.id);
            let Some(runs) = id.and_then(|id| runs.get(&id)) else {
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

    /// Reads of the profile, by its counts, and contiguous ones of the same lengths for all of them and for those that move: these
    /// so many reads apart from others of the same range, where there are enough.
    fn draw(&self, draw: &mut Draw, apart: usize) -> Result<Drawn, CannotPredict> {
        let all = self.as_is.last().map_or(0, |place| place.upto);
        let mut drawn = Drawn::default();
        let mut last = Last::new(apart);
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
            let other = last.other(|| enough[draw.below(enough.len() as u64) as usize]);
            let other = Spot {
                range: FileRange::new(other.range.start.get(), len.get()),
                ..other
            };
            last.add([spot, other]);
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
    fn read(
        &self,
        spots: &[Spot],
        (replay, readers): (Replay, u32),
        until: &Until<'_>,
    ) -> Result<f64, CannotPredict> {
        let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (failed, cached) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (under_way, is_free) = (Mutex::new(HashSet::new()), Condvar::new());
        let (enough, counting) = (AtomicBool::new(false), AtomicUsize::new(0));
        let times = Mutex::new(Vec::new());
        let began = Instant::now();
        let least = (readers as usize * LEAST).max(FEWEST);
        let long = long(replay);
        let work = || {
            let mut own = Vec::new();
            let mut buffer = Vec::new();
            while !ended.load(Ordering::Relaxed) && until.check().is_ok() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= spots.len() || (at >= least && began.elapsed() > long) {
                    enough.store(true, Ordering::Relaxed);
                    if counting.load(Ordering::Relaxed) == 0 {
                        break;
                    }
                }
                let spot = &spots[at % spots.len()];
                let place = spot.place();
                if replay == Replay::Buffered {
                    // Nobody reads what another one has brought into the cache.
                    let taken =
                        is_free.wait_while(lock(&under_way), |under_way| !under_way.insert(place));
                    drop(taken);
                }
                let counts = at >= readers as usize && !enough.load(Ordering::Relaxed);
                counting.fetch_add(usize::from(counts), Ordering::Relaxed);
                let answer = self.files[spot.file].read(spot.range, replay, &mut buffer);
                counting.fetch_sub(usize::from(counts), Ordering::Relaxed);
                if replay == Replay::Buffered {
                    lock(&under_way).remove(&place);
                    is_free.notify_all();
                }
                match answer {
                    Answer::Took(took) if counts => own.push(took.as_nanos() as f64),
                    Answer::Took(_) => {}
                    Answer::Cached => _ = cached.fetch_add(1, Ordering::Relaxed),
                    Answer::Failed => _ = failed.fetch_add(1, Ordering::Relaxed),
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
        if cached.into_inner() > times.len() {
            return Err(CannotPredict::Cached);
        }
        if times.is_empty() {
            let seconds = LONGEST.as_secs();
            return Err(CannotPredict::TooSlow { seconds });
        }
        Ok(times.iter().sum::<f64>() / times.len() as f64)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 512 ranges: a quarter is contiguous, and of the others two thirds move.
    fn ground() -> Ground {
        let mut ground = Ground::default();
        for at in 0..512 {
            let spot = Spot {
                file: 0,
                range: FileRange::new(at * 4096, 4096),
            };
            let is_fragmented = at % 4 != 0;
            if !is_fragmented {
                ground.contiguous.push(spot);
            }
            ground.as_is.push(Place {
                spot,
                upto: at + 1,
                is_fragmented,
                moves: is_fragmented && at % 2 == 1,
            });
        }
        ground
    }

    /// The part of the reads that come while one of the `near` reads before is of the same range.
    fn met(spots: &[Spot], near: usize) -> f64 {
        let places: Vec<_> = spots.iter().map(Spot::place).collect();
        let mets = places
            .windows(near + 1)
            .filter(|of| of[..near].contains(&of[near]));
        mets.count() as f64 / spots.len() as f64
    }

    #[test]
    fn no_kind_of_reads_meets_itself_more_often_than_others() {
        let ground = ground();
        let met_by = |apart| {
            let drawn = ground.draw(&mut Draw::new(1), apart).unwrap();
            [drawn.as_is, drawn.contiguous, drawn.planned].map(|spots| met(&spots, 31))
        };
        let [as_is, contiguous, planned] = met_by(64);
        assert!(
            as_is.max(planned) < 0.1 && contiguous < 0.01,
            "{as_is} {contiguous} {planned}"
        );
        // This is what it is for.
        let [as_is, contiguous, _] = met_by(0);
        assert!(as_is < 0.1 && contiguous > 0.2, "{as_is} {contiguous}");
    }

    #[test]
    fn ranges_are_drawn_by_how_often_they_are_read() {
        let mut ground = ground();
        // Half of all reads.
        let hot = ground.as_is[1].spot;
        ground.as_is[1..]
            .iter_mut()
            .for_each(|place| place.upto += 510);
        let drawn = ground.draw(&mut Draw::new(1), 64).unwrap();
        let reads = drawn
            .as_is
            .iter()
            .filter(|spot| spot.place() == hot.place());
        let part = reads.count() as f64 / drawn.as_is.len() as f64;
        assert!((0.45..0.55).contains(&part), "{part}");
    }

    #[test]
    fn reads_go_on_where_too_few_ranges_are_left() {
        let mut ground = ground();
        ground.as_is.truncate(1);
        let drawn = ground.draw(&mut Draw::new(1), 64).unwrap();
        assert_eq!(drawn.as_is.len(), MOST);
    }
}
