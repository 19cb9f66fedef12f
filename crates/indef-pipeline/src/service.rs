//! `--calibrate`: asks the device what contiguous reads take under the load of a profile.
//!
//! Ranges of the profile are read with `O_DIRECT` (nothing is written, and nothing enters the page
//! cache), by a growing number of readers that each wait for their read: as they lie, drawn by how
//! often the profile reads them, and then ranges that are contiguous, in reads of the same lengths.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use indef_core::{
    calibrate::{CannotPredict, FEWEST_CONTIGUOUS, Pass, Service},
    plan::PlanOptions,
};
use indef_engine::Cancel;
use indef_fs::{Mapper, TargetId};
use rustix::fs::OFlags;
use units::FileRange;

use crate::{geometry::Geometries, heat::Accesses, weigh::open_timed};

/// The time of one kind of reads by one number of readers.
const LONG: Duration = Duration::from_millis(400);
/// Reads of each reader that are done at least.
const LEAST: usize = 4;
/// Reads of all readers together that are done at least.
const FEWEST: usize = 200;
/// Reads of all readers that are done at most.
const MOST: usize = 20_000;
/// Direct I/O is aligned to this.
const ALIGNED: usize = 4096;

/// Measure with reads of these files; `traced_ns` is the mean time of their traced reads.
pub(crate) fn measure(
    traced_ns: f64,
    options: &PlanOptions,
    geometries: &Geometries,
    accesses: &Accesses,
    files: &HashSet<TargetId>,
    cancel: &Cancel,
) -> Result<Service, CannotPredict> {
    let ground = Ground::of(options, geometries, accesses, files);
    if ground.contiguous.len() < FEWEST_CONTIGUOUS {
        return Err(CannotPredict::NothingToRead);
    }
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut draw = Draw(seed.map_or(1, |since| since.as_nanos() as u64) | 1);
    Service::find(traced_ns, |readers| {
        if cancel.is_cancelled() {
            return Err(CannotPredict::NothingToRead);
        }
        let (as_is, contiguous) = ground.draw(&mut draw)?;
        let as_is = ground.read(&as_is, readers)?;
        let contiguous = ground.read(&contiguous, readers)?;
        Ok(Pass {
            as_is_ns: as_is.mean,
            contiguous_ns: contiguous.mean,
            error: as_is.error.hypot(contiguous.error),
        })
    })
}

/// A range to read.
#[derive(Clone, Copy)]
struct Spot {
    file: usize,
    range: FileRange,
}

/// All that can be read.
#[derive(Default)]
struct Ground {
    files: Vec<File>,
    /// Each range of the profile, with the number of reads of it and of those before.
    as_is: Vec<(Spot, u64)>,
    contiguous: Vec<Spot>,
}

impl Ground {
    fn of(
        options: &PlanOptions,
        geometries: &Geometries,
        accesses: &Accesses,
        files: &HashSet<TargetId>,
    ) -> Self {
        let mut ground = Self::default();
        let mut mapper = Mapper::default();
        for (id, path) in accesses.timed().filter(|(id, _)| files.contains(id)) {
            ground.add_file(path, *id, options, geometries, accesses, &mut mapper);
        }
        ground.contiguous.sort_by_key(|spot| spot.range.len);
        ground
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
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(format!("/proc/self/fd/{}", opened.file.as_raw_fd()));
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
            {
                continue;
            }
            let spot = Spot { file, range };
            let dolf = layout.measure(range, &geometry, options.max_request).dolf;
            let before = self.as_is.last().map_or(0, |(_, reads)| *reads);
            match dolf {
                0 => continue,
                1 => self.contiguous.push(spot),
                _ => {}
            }
            self.as_is.push((spot, before.saturating_add(access.reads)));
        }
        self.files.push(direct);
    }

    /// Reads of the profile, and contiguous ones of the same lengths.
    fn draw(&self, draw: &mut Draw) -> Result<(Vec<Spot>, Vec<Spot>), CannotPredict> {
        let all = self.as_is.last().map_or(0, |(_, reads)| *reads);
        let (mut as_is, mut contiguous) = (Vec::new(), Vec::new());
        for _ in 0..MOST {
            let wanted = draw.below(all);
            let at = self.as_is.partition_point(|(_, upto)| *upto <= wanted);
            let spot = self.as_is.get(at).ok_or(CannotPredict::NothingToRead)?.0;
            let len = spot.range.len;
            let shorter = self.contiguous.partition_point(|spot| spot.range.len < len);
            let enough = &self.contiguous[shorter..];
            if enough.len() < FEWEST_CONTIGUOUS {
                // Long ranges are rare; without them both kinds stay alike.
                continue;
            }
            as_is.push(spot);
            let other = enough[draw.below(enough.len() as u64) as usize];
            contiguous.push(Spot {
                range: FileRange::new(other.range.start.get(), len.get()),
                ..other
            });
        }
        match as_is.len() * 2 < MOST {
            true => Err(CannotPredict::NothingToRead),
            false => Ok((as_is, contiguous)),
        }
    }

    /// Read, each of the readers one at a time.
    fn read(&self, spots: &[Spot], readers: u32) -> Result<Mean, CannotPredict> {
        let next = AtomicUsize::new(0);
        let times = Mutex::new(Vec::new());
        let began = Instant::now();
        let least = (readers as usize * LEAST).max(FEWEST);
        let work = || {
            let mut own = Vec::new();
            let mut buffer = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= spots.len() || (at >= least && began.elapsed() > LONG) {
                    break;
                }
                let started = Instant::now();
                if self.read_one(&spots[at], &mut buffer).is_none() {
                    return false;
                }
                // The first reads find an idle device.
                if at >= readers as usize {
                    own.push(started.elapsed().as_nanos() as f64);
                }
            }
            times
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(own);
            true
        };
        let done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..readers).map(|_| scope.spawn(work)).collect();
            let own = work();
            others
                .into_iter()
                .all(|other| other.join().unwrap_or(false))
                && own
        });
        let times = times.into_inner().unwrap_or_else(PoisonError::into_inner);
        match done {
            true => Ok(Mean::of(&times)),
            false => Err(CannotPredict::NothingToRead),
        }
    }

    fn read_one(&self, spot: &Spot, buffer: &mut Vec<u8>) -> Option<()> {
        let len = usize::try_from(spot.range.len.get()).ok()?;
        if buffer.len() < len + ALIGNED {
            *buffer = vec![0; len + ALIGNED];
        }
        let shift = buffer.as_ptr().align_offset(ALIGNED);
        let into = buffer.get_mut(shift..shift + len)?;
        let file = self.files.get(spot.file)?;
        file.read_exact_at(into, spot.range.start.get()).ok()
    }
}

/// A mean, with its standard error as a part of it.
struct Mean {
    mean: f64,
    error: f64,
}

impl Mean {
    fn of(times: &[f64]) -> Self {
        let count = times.len().max(1) as f64;
        let mean = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count;
        Self {
            mean,
            error: (variance / count).sqrt() / mean.max(1.0),
        }
    }
}

/// Numbers that need not be good, only spread (xorshift64, Marsaglia 2003).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}
