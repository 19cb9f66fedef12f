//! What is inside of units and between them: where flash pages end, and which units share a channel.
//!
//! - **Pages.** A read of two blocks takes a sense more where it crosses from one page of a unit into the next.
//!   Such reads at all places of a granule, one after the other, show as many of those as the granule has pages,
//!   less one: where the granule itself ends, the other page is on another unit and is sensed at the same time.
//! - **Channels.** Two reads on different units are sensed at the same time, and then wait for each other if their
//!   bytes go over one channel. By how much they do is asked at distances of whole granules, each time beside
//!   the two reads alone: pages of different speed do not count.

use serde::{Deserialize, Serialize};
use units::{Bytes, FileRange};

use super::{
    BLOCK, CannotTell, Drive, Halt, Measured, Placement, Prober,
    flow::Channels,
    sample::{Mean, Times},
};

/// Scans of all places of a granule, and the part of them that have to agree.
const SCANS: usize = 8;
const AGREE: usize = 6;
/// Blocks of a granule whose places are all tried.
const MOST_PLACES: u64 = 256;
/// A place takes a sense longer than its neighbours if it takes so much longer, as a part of what they take on
/// their unit.
const A_SENSE: f64 = 1.0 / 3.0;
/// Reads that are longer than a block.
const LONGER: usize = 96;
/// Pairs, and at each distance at least.
const PAIRS: usize = 1536;
const PAIRS_EACH: usize = 32;
/// Distances at most, in granules.
const DISTANCES: u64 = 32;
/// Standard errors by which sharing a channel has to show, and the part of a read's time.
const SHOWS: f64 = 6.0;
const SHOWS_OF: f64 = 0.02;
/// The part of a read's time that its bytes take, if it does not matter who waits for them.
const LITTLE: f64 = 0.05;
/// The part of the differences between distances that the channels may leave unexplained, and the standard errors
/// by which all others have to explain them worse.
const UNEXPLAINED: f64 = 0.15;
const CLEAR: f64 = 3.0;

/// Pages and channels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inner {
    /// One flash page of a unit.
    pub page: Bytes,
    /// The units on each channel; one on each where none share any.
    pub channels: Channels,
    /// The time of each byte on its channel, in nanoseconds.
    pub transfer_ns: f64,
    /// The time of each byte on the way that all channels share, in nanoseconds, at most.
    pub link_ns: f64,
}

impl<D: Drive> Prober<'_, D> {
    /// Pages and channels. `outside` is the part of a read's time that its unit is not busy for, in nanoseconds.
    pub(super) fn inner(
        &mut self,
        placement: Placement,
        outside: f64,
    ) -> Result<Measured<Inner>, Halt<D::Error>> {
        let page = self.page(placement, outside)?;
        // Half a page: most reads do not cross into another one, and much goes over the channel.
        let len = (page.0 / 2 / BLOCK * BLOCK).max(BLOCK);
        let alone = self.per_byte(len)?;
        // Whatever waits for longer than for all of the other's bytes waits for a unit: both crossed into one.
        let most = alone.map_or(f64::MAX, |alone| 1.5 * alone * len as f64);
        let waits = self.waits(placement, len, most)?;
        let bytes_ns = alone.unwrap_or(0.0) * len as f64;
        let Shared {
            channels,
            wait,
            beside,
        } = Shared::of(placement, &waits, bytes_ns)?;
        let link_ns = (beside / len as f64).max(0.0);
        let transfer_ns = match channels.count < placement.units {
            // The link has carried the first one's bytes meanwhile.
            true => (beside + wait.value) / on_one_channel(placement, channels, len),
            false => (alone.unwrap_or(0.0) - link_ns).max(0.0),
        };
        Ok(Measured {
            value: Inner {
                page,
                channels,
                transfer_ns,
                link_ns,
            },
            confidence: (1.0 - 2.0 * wait.error / wait.value.max(1e-9)).clamp(0.0, 1.0),
        })
    }

    fn page(&mut self, placement: Placement, outside: f64) -> Result<Bytes, Halt<D::Error>> {
        let granule = placement.granule.0;
        let places = granule / BLOCK;
        if places == 1 {
            return Ok(placement.granule);
        }
        if places > MOST_PLACES {
            return Err(CannotTell::TimeUp.into());
        }
        let mut counts = Vec::new();
        for _ in 0..SCANS {
            counts.push(self.crossings(places, outside)?);
        }
        counts.sort_unstable();
        let middle = counts[SCANS / 2];
        let agree = counts.iter().filter(|count| **count == middle).count();
        let page = granule / (middle + 1);
        match agree >= AGREE && (page * (middle + 1), page % BLOCK) == (granule, 0) {
            true => Ok(Bytes(page)),
            false => Err(CannotTell::Irregular.into()),
        }
    }

    /// The places of one granule, of as many, where two blocks are on different pages of their unit.
    fn crossings(&mut self, places: u64, outside: f64) -> Result<u64, Halt<D::Error>> {
        // And a neighbour on each side.
        let first = self.place((places + 3) * BLOCK)?;
        let mut order: Vec<u64> = (0..places + 2).collect();
        self.draw.shuffle(&mut order);
        let mut times = vec![0.0; order.len()];
        for nth in order {
            let read = [FileRange::new(first + nth * BLOCK, 2 * BLOCK)];
            // The quicker of two: nobody else came in between.
            let (one, other) = (self.time(&read, 1)?, self.time(&read, 1)?);
            times[nth as usize] = one.min(other);
        }
        let crosses = |near: &&[f64]| {
            let (before, after) = (near[0], near[2]);
            let of_unit = (before.min(after) - outside).max(0.0);
            near[1] - before.max(after) > A_SENSE * of_unit
        };
        Ok(times.windows(3).filter(crosses).count() as u64)
    }

    /// The time by which each byte makes a read within a page longer; `None` where a page has no more than a block.
    fn per_byte(&mut self, len: u64) -> Result<Option<f64>, Halt<D::Error>> {
        if len == BLOCK {
            return Ok(None);
        }
        let mut longer = Times::default();
        for _ in 0..LONGER {
            let place = self.place(len)?;
            let block = self.time(&[FileRange::new(place, BLOCK)], 1)?;
            longer.push(self.time(&[FileRange::new(place, len)], 1)? - block);
        }
        // Fewer than half of them cross into another page.
        Ok(Some((longer.quantile(0.5) / (len - BLOCK) as f64).max(0.0)))
    }

    /// By how much two reads wait for each other, at distances of 1, 2, … granules, and not for longer than `most`.
    fn waits(
        &mut self,
        placement: Placement,
        len: u64,
        most: f64,
    ) -> Result<Waits, Halt<D::Error>> {
        let mut granules: Vec<u64> = (1..=DISTANCES.min(u64::from(placement.units) / 2)).collect();
        let mut waits = vec![Times::default(); granules.len()];
        let mut alone = Times::default();
        for _ in 0..(PAIRS / granules.len().max(1)).max(PAIRS_EACH) {
            self.draw.shuffle(&mut granules);
            for distance in &granules {
                let apart = distance * placement.granule.0;
                let place = self.place(apart + len)?;
                let reads = [place, place + apart].map(|at| FileRange::new(at, len));
                let together = self.time(&reads, 2)?;
                let [one, other] = reads;
                let longer = self.time(&[one], 1)?.max(self.time(&[other], 1)?);
                alone.push(longer);
                // Whatever takes longer still has waited for somebody else.
                let wait = (together - longer).clamp(-longer, longer);
                if wait <= most {
                    waits[*distance as usize - 1].push(wait);
                }
            }
        }
        Ok(Waits {
            means: waits.iter().map(|times| times.mean(f64::MAX)).collect(),
            alone: alone.quantile(0.5),
        })
    }
}

/// The bytes that two reads of `len` at any place have on one channel, if their units share it, at most: on average.
fn on_one_channel(placement: Placement, channels: Channels, len: u64) -> f64 {
    let granule = placement.granule.0;
    let mut bytes = 0;
    for unit in 0..placement.units {
        let next = (unit + 1) % placement.units;
        let is_same = channels.of(unit) == channels.of(next);
        for place in (0..granule).step_by(BLOCK as usize) {
            let here = len.min(granule - place);
            bytes += match is_same {
                true => len,
                false => here.max(len - here),
            };
        }
    }
    bytes as f64 / (u64::from(placement.units) * (granule / BLOCK)) as f64
}

/// Mean waits of pairs, by distance in granules, and the usual time of one of them alone.
struct Waits {
    means: Vec<Mean>,
    alone: f64,
}

/// Units that share channels.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shared {
    channels: Channels,
    /// Two reads on one channel wait so much longer than others.
    wait: Mean,
    /// Others wait so long.
    beside: f64,
}

impl Shared {
    /// The channels that explain these waits, of reads whose bytes take so long: one for each unit where no distance
    /// differs.
    fn of(placement: Placement, waits: &Waits, bytes_ns: f64) -> Result<Self, CannotTell> {
        let means = &waits.means;
        let error = means.iter().map(|mean| mean.error).fold(0.0, f64::max);
        let values = means.iter().map(|mean| mean.value);
        let shows = (SHOWS * error).max(SHOWS_OF * waits.alone);
        let (low, high) = values
            .clone()
            .fold((f64::MAX, f64::MIN), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let center = values.clone().sum::<f64>() / means.len().max(1) as f64;
        if high - low < shows {
            // Noise may hide them.
            if bytes_ns < 2.0 * shows && bytes_ns > LITTLE * waits.alone {
                let percent = shows / waits.alone.max(1.0) * 100.0;
                return Err(CannotTell::Noise { percent });
            }
            return Ok(Self {
                channels: Channels {
                    run: 1,
                    count: placement.units,
                },
                wait: Mean::default(),
                beside: center,
            });
        }
        let all = values.map(|value| (value - center).powi(2)).sum::<f64>();
        let mut fits: Vec<(f64, Self)> = candidates(placement.units)
            .filter_map(|channels| fit(placement.units, channels, means))
            .filter(|(_, shared)| shared.wait.value > 0.0)
            .collect();
        fits.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some(&(left, best)) = fits.first() else {
            return Err(CannotTell::Irregular);
        };
        let next = fits.get(1).map_or(f64::MAX, |fit| fit.0);
        let is_clear = next - left > (CLEAR * error).powi(2).max(left);
        match left <= UNEXPLAINED * all && is_clear {
            true => Ok(best),
            false => Err(CannotTell::Irregular),
        }
    }
}

/// The ways in which units may share channels, several channels at least.
fn candidates(units: u32) -> impl Iterator<Item = Channels> {
    let counts = (2..units).filter(move |count| units.is_multiple_of(*count));
    let of = move |count| (1..=units / count).map(move |run| Channels { run, count });
    let all = counts.flat_map(of);
    all.filter(move |channels| channels.are_possible(units))
}

/// The squares that these channels leave unexplained, and the wait on one of them: the least squares.
fn fit(units: u32, channels: Channels, means: &[Mean]) -> Option<(f64, Shared)> {
    let share = |distance: u32| {
        let on_one = |unit: &u32| channels.of(*unit) == channels.of((unit + distance) % units);
        (0..units).filter(on_one).count() as f64 / f64::from(units)
    };
    let shares: Vec<f64> = (1..=means.len() as u32).map(share).collect();
    let count = means.len() as f64;
    let share_mean = shares.iter().sum::<f64>() / count;
    let wait_mean = means.iter().map(|mean| mean.value).sum::<f64>() / count;
    let off = |(share, mean): (&f64, &Mean)| (share - share_mean, mean.value - wait_mean);
    let pairs = || shares.iter().zip(means).map(off);
    let squares: f64 = pairs().map(|(share, _)| share * share).sum();
    if squares < 1e-9 {
        return None;
    }
    let wait = pairs().map(|(share, wait)| share * wait).sum::<f64>() / squares;
    let left = pairs()
        .map(|(share, other)| (other - wait * share).powi(2))
        .sum();
    let error = means.iter().map(|mean| mean.error).fold(0.0, f64::max) / squares.sqrt();
    let shared = Shared {
        channels,
        wait: Mean { value: wait, error },
        beside: wait_mean - wait * share_mean,
    };
    Some((left, shared))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use units::Nanos;

    use super::{
        super::{Draw, Ground, flow::Flow},
        *,
    };

    /// A drive through which requests go in this way; each read takes up to so much longer by chance.
    struct Followed {
        placement: Placement,
        flow: Flow,
        jitter: u64,
        draw: Draw,
    }

    impl Drive for Followed {
        type Error = Infallible;

        fn read(&mut self, reads: &[FileRange], depth: usize) -> Result<Nanos, Infallible> {
            assert_eq!(reads.len(), depth);
            let requests = reads.iter().map(|read| (read.start.0, read.len.0));
            let ns = self.flow.read_ns(&self.placement, requests);
            Ok(Nanos(ns as u64 + self.draw.below(self.jitter)))
        }

        fn elapsed(&self) -> Nanos {
            Nanos(0)
        }
    }

    impl Followed {
        fn new(granule_kib: u64, units: u32, pages: u64, channels: Channels, holds: bool) -> Self {
            let granule = Bytes::kib(granule_kib);
            Self {
                placement: Placement { granule, units },
                flow: Flow {
                    page: Bytes(granule.0 / pages),
                    channels,
                    sense_ns: 60_000.0,
                    transfer_ns: 1.5,
                    link_ns: 0.25,
                    holds,
                    submit_ns: 500.0,
                    host_ns: 20_000.0,
                },
                jitter: 0,
                draw: Draw::new(1),
            }
        }

        fn inner(&mut self, seed: u64) -> Result<Inner, CannotTell> {
            let (placement, outside) = (self.placement, self.flow.host_ns);
            let mut prober = Prober {
                drive: self,
                ground: Ground::new([FileRange::new(0, 256 << 20)]),
                draw: Draw::new(seed),
                limit: Nanos(1),
                differing: None,
            };
            match prober.inner(placement, outside) {
                Ok(told) => Ok(told.value),
                Err(Halt::Cannot(why)) => Err(why),
                Err(Halt::Failed(never)) => match never {},
            }
        }
    }

    /// Units, and all ways in which they share several channels or none.
    fn ways() -> Vec<(u32, Channels)> {
        let unshared = |units| Channels {
            run: 1,
            count: units,
        };
        let of = |units| {
            candidates(units)
                .chain([unshared(units)])
                .map(move |it| (units, it))
        };
        [3, 4, 6, 8, 16, 24].into_iter().flat_map(of).collect()
    }

    #[test]
    fn pages_and_channels_are_found_out() {
        for (seed, (units, channels)) in (1..).zip(ways()) {
            for (granule, pages) in [(4, 1), (16, 1), (32, 2), (96, 3), (128, 4), (16, 2)] {
                let holds = seed % 2 == 0;
                let mut drive = Followed::new(granule, units, pages, channels, holds);
                let what = format!("{granule} KiB of {pages} on {units}: {channels:?}");
                let inner = drive.inner(seed);
                let inner = inner.unwrap_or_else(|why| panic!("{what}: {why}"));
                assert_eq!(inner.page, drive.flow.page, "{what}");
                assert_eq!(inner.channels, channels, "{what}");
                if granule / pages > 8 {
                    let off = inner.transfer_ns / drive.flow.transfer_ns - 1.0;
                    assert!(off.abs() < 0.25, "{what}: {off}");
                }
            }
        }
    }

    /// What chance hides is not told; nothing wrong is.
    #[test]
    fn nothing_wrong_is_said_of_a_drive_that_jitters() {
        let channels = Channels { run: 1, count: 4 };
        let mut told = 0;
        for (seed, jitter) in (1..).zip([2_000, 10_000, 50_000, 200_000]) {
            let mut drive = Followed::new(32, 16, 2, channels, false);
            drive.jitter = jitter;
            let Ok(inner) = drive.inner(seed) else {
                continue;
            };
            told += 1;
            let unseen = inner.channels.count == 16;
            assert!(inner.channels == channels || unseen, "{jitter}: {inner:?}");
            assert_eq!(inner.page, Bytes::kib(16), "{jitter}");
        }
        assert!(told >= 2, "{told}");
    }
}
