//! The times of reads: alone, many at a time, of all sizes, on one unit and on several.

use units::{FileRange, Nanos};

use super::{
    BLOCK, CannotTell, Drive, Halt, Measured, Placement, Point, Prober, Sweep, Told, USUAL_READ,
    sample::{Mean, Times},
};

/// Single reads.
const SINGLES: u64 = 192;
/// Equal reads whose quarters are further apart than this, as a part of the median, tell nothing.
const SCATTER: f64 = 1.5;
/// Unless three of four that are of one place are no further apart than this.
const ALIKE: f64 = 0.2;
/// The part of the median by which the slowest tenth of single reads is slower than the quickest tenth, where pages may
/// differ by more than a collision costs.
const DIFFERING: f64 = 0.4;
/// Reads at a time.
const DEPTHS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Reads at a time where that is not what is asked: FAST'24's Figure 8 has as many.
const USUAL_DEPTH: usize = 32;
/// Bytes in flight at most.
const IN_FLIGHT: u64 = 16 << 20;
/// Repetitions of a chain or spread.
pub(super) const CHAINS: usize = 96;
/// Stripes on which the reads of a chain may lie: near each other, where nothing has come between.
const WINDOW: u64 = 16;
/// Reads of a chain.
pub(super) const CHAIN: u64 = 8;
/// Repetitions of all of these, until the relative standard error is as good.
const MORE: usize = 12;
const GOOD: f64 = 0.02;
/// The part of the highest rate from which more does not count.
const KNEE: f64 = 0.9;
/// Passes of a sweep, and how far apart they may be, as a part of their median.
const PASSES: usize = 3;
const PASSES_APART: f64 = 0.35;
/// A relative standard error above this makes a time or rate worthless.
const WORTHLESS: f64 = 0.25;

/// Single reads.
pub(super) struct Single {
    pub(super) latency: Told<Nanos>,
    pub(super) mean: f64,
    /// Whether they differ by more than a collision may cost.
    pub(super) differs: bool,
    /// Whether they do so by the places alone: pages of different speed.
    pub(super) by_place: bool,
    /// No pair that only waits for itself takes longer.
    pub(super) cap: f64,
}

/// A time with its confidence, or none.
pub(super) fn time(mean: Mean) -> Told<Nanos> {
    match value(mean) {
        Ok(told) => Ok(Measured {
            value: Nanos(told.value.round() as u64),
            confidence: told.confidence,
        }),
        Err(why) => Err(why),
    }
}

fn value(mean: Mean) -> Told<f64> {
    let relative = mean.error / mean.value.abs().max(1e-9);
    if relative > WORTHLESS {
        return Err(CannotTell::Noise {
            percent: relative * 100.0,
        });
    }
    Ok(Measured {
        value: mean.value.max(0.0),
        confidence: (1.0 - 2.0 * relative).clamp(0.0, 1.0),
    })
}

impl Sweep {
    pub(super) fn none(why: CannotTell) -> Self {
        Self {
            points: Vec::new(),
            apart: 0.0,
            knee: Err(why),
        }
    }

    /// The medians of several passes over the same steps.
    fn new(passes: &[Vec<Point>]) -> Self {
        let steps = passes.iter().map(Vec::len).min().unwrap_or(0);
        let of = |step: usize| {
            let mut rates: Vec<f64> = passes.iter().map(|pass| pass[step].bytes_per_s).collect();
            rates.sort_by(f64::total_cmp);
            let median = rates[rates.len() / 2];
            let apart = rates[rates.len() - 1] - rates[0];
            (median, apart / median.max(1e-9))
        };
        let medians: Vec<(f64, f64)> = (0..steps).map(of).collect();
        let points: Vec<Point> = (medians.iter().enumerate())
            .map(|(step, (median, _))| Point {
                at: passes[0][step].at,
                bytes_per_s: *median,
            })
            .collect();
        let highest = medians.iter().map(|it| it.0).fold(0.0, f64::max);
        let apart = medians.iter().map(|it| it.1).fold(0.0, f64::max);
        let knee = points
            .iter()
            .find(|point| point.bytes_per_s >= KNEE * highest);
        Self {
            knee: match knee {
                Some(_) if apart > PASSES_APART => Err(CannotTell::Noise {
                    percent: apart * 100.0,
                }),
                Some(point) if highest > 0.0 => Ok(Measured {
                    value: point.at,
                    confidence: distance_of_knee(&points, point.at, highest),
                }),
                _ => Err(CannotTell::Instant),
            },
            points,
            apart,
        }
    }

    /// The highest rate.
    pub(super) fn highest(&self) -> Told<u64> {
        let highest = self.points.iter().map(|point| point.bytes_per_s);
        let highest = highest.fold(0.0, f64::max);
        match highest > 0.0 {
            true if self.apart < 1.0 => Ok(Measured {
                value: highest as u64,
                confidence: 1.0 - self.apart / 2.0,
            }),
            true => Err(CannotTell::Noise {
                percent: self.apart * 100.0,
            }),
            false => Err(self.knee.err().unwrap_or(CannotTell::Instant)),
        }
    }
}

/// How far the neighbours of a knee are from the line that makes it one: 1 where noise of a tenth could
/// not move it.
fn distance_of_knee(points: &[Point], at: u64, highest: f64) -> f64 {
    let line = KNEE * highest;
    let off = points
        .iter()
        .filter(|point| point.at <= at)
        .map(|point| (point.bytes_per_s - line).abs() / highest);
    (0.5 + 5.0 * off.fold(1.0, f64::min)).clamp(0.0, 1.0)
}

/// The length of longer reads in a chain, and the bytes of each, beyond a block, that are on one unit.
///
/// Reads of a granule that begin anywhere lie on two units, the larger part on one of them: three
/// quarters of a granule on average. Shorter ones of a granule that is too long for a chain cross into
/// another unit less often.
pub(super) fn longer_chain(placement: Placement) -> (u64, f64) {
    let granule = placement.granule.0;
    let len = granule.min(IN_FLIGHT / CHAIN);
    let crossing = len as f64 / granule as f64;
    let on_one = len as f64 * (1.0 - crossing / 4.0);
    (len, on_one - BLOCK as f64)
}

/// Reads that go to units of their own.
pub(super) fn in_turn(placement: Placement) -> u64 {
    u64::from(placement.units).min(16)
}

impl<D: Drive> Prober<'_, D> {
    /// Reads of 4 KiB, one at a time.
    pub(super) fn single_reads(&mut self) -> Result<Single, Halt<D::Error>> {
        let mut times = Times::default();
        for nth in 0..SINGLES + 16 {
            let place = self.place(BLOCK)?;
            let time = self.time(&[FileRange::new(place, BLOCK)], 1)?;
            // The first ones find an idle device and cold code.
            if nth >= 16 {
                times.push(time);
            }
        }
        let median = times.quantile(0.5);
        if median < 100.0 {
            return Err(CannotTell::Instant.into());
        }
        let scatter = times.scatter();
        let differs = times.quantile(0.9) - times.quantile(0.1) > DIFFERING * median;
        let by_place = differs && self.is_by_place(median)?;
        if scatter > SCATTER && !by_place {
            return Err(CannotTell::Noise {
                percent: scatter * 100.0,
            }
            .into());
        }
        // Twice the slowest of the ordinary ones, as two of those may wait for each other.
        let cap = (2.2 * times.quantile(0.95)).min(8.0 * median);
        let mean = times.mean(cap / 2.0);
        Ok(Single {
            latency: time(mean),
            mean: mean.value,
            differs,
            by_place,
            cap,
        })
    }

    /// Whether a read of one place takes as long each time, so that times scatter by the places alone.
    fn is_by_place(&mut self, median: f64) -> Result<bool, Halt<D::Error>> {
        let mut apart = Times::default();
        for _ in 0..SINGLES / 2 {
            let read = [FileRange::new(self.place(BLOCK)?, BLOCK)];
            let (one, other) = (self.time(&read, 1)?, self.time(&read, 1)?);
            apart.push((one - other).abs());
        }
        Ok(apart.quantile(0.75) < ALIKE * median)
    }

    /// Repeats a group of reads that go out together.
    pub(super) fn bursts(
        &mut self,
        count: usize,
        mut reads: impl FnMut(&mut Self) -> Result<Vec<FileRange>, CannotTell>,
    ) -> Result<Times, Halt<D::Error>> {
        let mut times = Times::default();
        for _ in 0..count {
            let reads = reads(self)?;
            let depth = reads.len();
            times.push(self.time(&reads, depth)?);
        }
        Ok(times)
    }

    /// One contiguous read of the usual size.
    pub(super) fn contiguous(&mut self) -> Result<Measured<Nanos>, Halt<D::Error>> {
        let len = USUAL_READ.0;
        let times = self.bursts(CHAINS, |prober| {
            Ok(vec![FileRange::new(prober.place(len)?, len)])
        })?;
        Ok(time(times.middle())?)
    }

    /// The same bytes in blocks at random places, all at once.
    pub(super) fn scattered(&mut self) -> Result<Measured<Nanos>, Halt<D::Error>> {
        let times = self.bursts(CHAINS, |prober| {
            (0..USUAL_READ.0 / BLOCK)
                .map(|_| Ok(FileRange::new(prober.place(BLOCK)?, BLOCK)))
                .collect()
        })?;
        Ok(time(times.middle())?)
    }

    /// Random reads over the number of them in flight.
    pub(super) fn depths(&mut self) -> Result<Sweep, Halt<D::Error>> {
        self.sweep(|prober| {
            let mut points = Vec::new();
            for depth in DEPTHS {
                let count = (16 * depth).clamp(64, 1024);
                let reads = (0..count)
                    .map(|_| Ok(FileRange::new(prober.place(BLOCK)?, BLOCK)))
                    .collect::<Result<Vec<_>, CannotTell>>()?;
                points.push(prober.rate(depth as u64, &reads, depth)?);
            }
            Ok(points)
        })
    }

    /// Consecutive reads over their size.
    pub(super) fn sizes(&mut self) -> Result<Sweep, Halt<D::Error>> {
        self.sweep(|prober| {
            let mut points = Vec::new();
            for shift in 0..9 {
                let len = BLOCK << shift;
                let depth = USUAL_DEPTH.min((IN_FLIGHT / len) as usize);
                let all = (len * 6 * depth as u64).min(32 << 20);
                let all = all.min(prober.ground.longest().0) / len * len;
                let first = prober.place(all)?;
                let reads: Vec<_> = (0..all / len)
                    .map(|i| FileRange::new(first + i * len, len))
                    .collect();
                points.push(prober.rate(len, &reads, depth)?);
            }
            Ok(points)
        })
    }

    fn sweep(
        &mut self,
        mut pass: impl FnMut(&mut Self) -> Result<Vec<Point>, Halt<D::Error>>,
    ) -> Result<Sweep, Halt<D::Error>> {
        let passes: Result<Vec<_>, _> = (0..PASSES).map(|_| pass(self)).collect();
        Ok(Sweep::new(&passes?))
    }

    /// The rate at which reads are done.
    fn rate(
        &mut self,
        at: u64,
        reads: &[FileRange],
        depth: usize,
    ) -> Result<Point, Halt<D::Error>> {
        let time = self.time(reads, depth)?.max(1.0);
        let bytes: u64 = reads.iter().map(|read| read.len.0).sum();
        Ok(Point {
            at,
            bytes_per_s: bytes as f64 / time * 1e9,
        })
    }

    /// Number of stripes that reads which belong together may lie on.
    fn window(&self, stripe: u64) -> Result<u64, CannotTell> {
        match WINDOW.min(self.ground.longest().0 / stripe / 2) {
            few if few < CHAIN => Err(CannotTell::NoGround),
            window => Ok(window),
        }
    }

    /// Several stripes of the window, any of them, none twice.
    fn stripes(&mut self, window: u64, count: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (0..window).collect();
        self.draw.shuffle(&mut all);
        all.truncate(count as usize);
        all
    }

    /// The time by which each further read of `len` bytes on one unit makes a chain longer.
    fn chain(&mut self, placement: Placement, len: u64) -> Result<Mean, Halt<D::Error>> {
        let stripe = placement.stripe().0;
        let window = self.window(stripe)?;
        let slowest = self.slowest(len)?;
        let mut of = |count: u64| {
            self.bursts(CHAINS, move |prober| {
                let first = prober.around(window * stripe + len)?;
                let stripes = prober.stripes(window, count);
                let read = |nth| FileRange::new(first + nth * stripe, len);
                Ok(stripes.into_iter().map(read).collect())
            })
        };
        // All of a chain may be slow pages, and takes no longer by itself than one after the other.
        let mean = |times: &Times, count: u64| times.mean(count as f64 * slowest);
        let further = (CHAIN - CHAIN / 2) as f64;
        let (mut half, mut whole) = (Times::default(), Times::default());
        // Pages of different speed take more of them.
        let mut each = Mean::default();
        for _ in 0..MORE {
            half.extend(&of(CHAIN / 2)?);
            whole.extend(&of(CHAIN)?);
            let (half, whole) = (mean(&half, CHAIN / 2), mean(&whole, CHAIN));
            each = Mean {
                value: (whole.value - half.value) / further,
                error: whole.error.hypot(half.error) / further,
            };
            if each.error < GOOD * each.value {
                break;
            }
        }
        Ok(each)
    }

    /// The time of one read of a slow page alone: none takes longer by itself.
    fn slowest(&mut self, len: u64) -> Result<f64, Halt<D::Error>> {
        let times = self.bursts(CHAINS, |prober| {
            Ok(vec![FileRange::new(prober.place(len)?, len)])
        })?;
        Ok(1.1 * times.quantile(0.95))
    }

    /// The time for which a read keeps its unit busy.
    pub(super) fn service(
        &mut self,
        placement: Placement,
        len: u64,
    ) -> Result<Measured<Nanos>, Halt<D::Error>> {
        Ok(time(self.chain(placement, len)?)?)
    }

    /// The time that a unit needs for each further KiB.
    pub(super) fn per_kib(
        &mut self,
        placement: Placement,
        service: &Told<Nanos>,
    ) -> Result<Measured<Nanos>, Halt<D::Error>> {
        let service = service.as_ref().map_err(|why| *why)?;
        let (len, further) = longer_chain(placement);
        let further = further / 1024.0;
        if further <= 0.0 {
            return Ok(Measured {
                value: Nanos(0),
                confidence: service.confidence,
            });
        }
        let whole = self.chain(placement, len)?;
        let more = (whole.value - service.value.0 as f64).max(0.0);
        // Small beside the service time, and then no matter.
        let sure = (1.0 - 2.0 * whole.error / whole.value.max(1.0)).clamp(0.0, 1.0);
        Ok(Measured {
            value: Nanos((more / further).round() as u64),
            confidence: sure.min(service.confidence),
        })
    }

    /// The time by which each further request delays a read, on units of their own.
    pub(super) fn per_request(
        &mut self,
        placement: Placement,
    ) -> Result<Measured<Nanos>, Halt<D::Error>> {
        let (granule, count) = (placement.granule.0, in_turn(placement));
        let mut of = |count: u64| {
            self.bursts(CHAINS, move |prober| {
                let first = prober.place(count * granule + BLOCK)?;
                let read = |nth| FileRange::new(first + nth * granule, BLOCK);
                Ok((0..count).map(read).collect())
            })
        };
        let (one, all) = (of(1)?.middle(), of(count)?.middle());
        let further = (count.max(2) - 1) as f64;
        let each = Mean {
            value: ((all.value - one.value) / further).max(0.0),
            error: all.error.hypot(one.error) / further,
        };
        // It is little beside a single read; the error counts as a part of that.
        let sure = (1.0 - 2.0 * each.error / one.value.max(1.0)).clamp(0.0, 1.0);
        Ok(Measured {
            value: Nanos(each.value.round() as u64),
            confidence: sure,
        })
    }

    /// Reads over the number of units that they go to.
    pub(super) fn spread(&mut self, placement: Placement) -> Result<Sweep, Halt<D::Error>> {
        let (stripe, granule) = (placement.stripe().0, placement.granule.0);
        let window = self.window(stripe)?;
        let units = u64::from(placement.units);
        let mut counts: Vec<u64> = (0..)
            .map(|shift| 1 << shift)
            .take_while(|n| *n < units)
            .collect();
        counts.push(units);
        self.sweep(|prober| {
            let mut points = Vec::new();
            for count in &counts {
                let times = prober.bursts(CHAINS / 6, |prober| {
                    let first = prober.place((window + 1) * stripe)?;
                    let place = |nth: u64| {
                        let of = prober.draw.below(window) * stripe;
                        FileRange::new(first + of + nth % count * granule, BLOCK)
                    };
                    Ok((0..USUAL_DEPTH as u64).map(place).collect())
                })?;
                let bytes = (USUAL_DEPTH as u64 * BLOCK) as f64;
                points.push(Point {
                    at: *count,
                    bytes_per_s: bytes / times.middle().value.max(1.0) * 1e9,
                });
            }
            Ok(points)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use units::Bytes;

    use super::{
        super::{Draw, Ground},
        *,
    };

    /// Each piece of a read keeps its unit busy for so long, and as many nanoseconds more as it has bytes.
    const PIECE: u64 = 50_000;

    impl Drive for Placement {
        type Error = Infallible;

        fn read(&mut self, reads: &[FileRange], depth: usize) -> Result<Nanos, Infallible> {
            let longest = reads.iter().map(|read| read.len.0).max().unwrap_or(0);
            assert!(longest * depth as u64 <= IN_FLIGHT, "{longest} × {depth}");
            let granule = self.granule.0;
            let mut busy = vec![0; self.units as usize];
            for read in reads {
                let mut at = read.start.0;
                while at < read.end().0 {
                    let end = (at / granule + 1) * granule;
                    let end = end.min(read.end().0);
                    busy[(at / granule % u64::from(self.units)) as usize] += PIECE + end - at;
                    at = end;
                }
            }
            Ok(Nanos(busy.into_iter().max().unwrap_or(0)))
        }

        fn elapsed(&self) -> Nanos {
            Nanos(0)
        }
    }

    #[test]
    fn a_chain_on_long_granules_stays_within_what_may_be_in_flight() {
        for granule in [64 << 10, 2 << 20, 4 << 20, 16 << 20] {
            let placement = Placement {
                granule: Bytes(granule),
                units: 2,
            };
            let mut drive = placement;
            let mut prober = Prober {
                drive: &mut drive,
                ground: Ground::new([FileRange::new(0, 4 << 30)]),
                draw: Draw::new(1),
                limit: Nanos(1),
                differing: None,
            };
            let Ok(service) = prober.service(placement, BLOCK) else {
                panic!("{granule}");
            };
            let Ok(per_kib) = prober.per_kib(placement, &Ok(service)) else {
                panic!("{granule}");
            };
            let off = per_kib.value.0 as f64 / 1024.0 - 1.0;
            assert!(off.abs() < 0.1, "{granule}: {per_kib:?}");
        }
    }
}
