//! What is inside of units and between them: where flash pages end, and which units share a channel.
//!
//! - **Pages.** A read of two blocks takes a sense more than its blocks alone where it crosses from one page of a unit
//!   into the next. Such reads at all places of a granule show as many of those as the granule has pages, less one:
//!   where the granule itself ends, the other page is on another unit and is sensed at the same time.
//! - **Channels.** Two reads on different units are sensed at the same time, and then wait for each other if their
//!   bytes go over one channel. By how much they do is asked at distances of whole granules, each time beside
//!   the two reads alone. Each lies in one page, so that it is on one unit and one channel; for that, the
//!   beginning of a granule is found first (module `region`).
//!
//! All bytes go over one link as well, and who waits there may not wait for the channel. Two kinds of pairs differ in that:
//!
//! ```text
//! (C, L: the time of a page on its channel, and on the link; S: from one request to the next; c, l: of a block)
//!                       on one channel          on two                                on one, it takes longer by
//! two whole pages       wait max(C, L)          max(L, S)                             what C is above L and S
//! a page, then a block  max(L, c) + l           0: the block has passed the page      l at least
//! ```

use serde::{Deserialize, Serialize};
use units::{Bytes, FileRange};

use super::{
    BLOCK, CannotTell, Drive, Halt, Known, Measured, Placement, Prober,
    flow::Channels,
    region::Region,
    sample::{Mean, Times},
};

/// Scans of all places of a granule, and the part of them that have to agree.
const SCANS: usize = 8;
const AGREE: usize = 6;
/// Blocks of a granule whose places are all tried.
const MOST_PLACES: u64 = 256;
/// A place takes a sense longer if it takes so much longer than the place that takes the least, as a part of what its
/// blocks take on their unit.
const A_SENSE: f64 = 0.5;
/// Reads that are longer than a block.
const LONGER: usize = 96;
/// Reads of which the same are done once more.
const AGAIN: usize = 96;
/// Regions whose granules are looked for, and those that have to be found.
const REGIONS: usize = 8;
const FOUND: usize = 4;
/// Pairs of each kind, and at each distance at least; how many of those have to be of use; and how often as many are
/// read while chance hides the answer.
const PAIRS: usize = 1536;
const PAIRS_EACH: usize = 32;
const OF_USE: usize = 8;
const MORE: usize = 8;
/// Distances at most, in granules.
const DISTANCES: u64 = 32;
/// Reads whose pages are sensed in times further apart than this, as a part of the shorter one, do not meet.
const ALIKE: f64 = 0.15;
/// Standard errors by which sharing a channel has to show, and the part of a read's time.
const SHOWS: f64 = 6.0;
const SHOWS_OF: f64 = 0.02;
/// The part of a read's time that sharing a channel may cost unseen, as it then does not matter.
const LITTLE: f64 = 0.05;
/// The part of pairs that have to behave as the placement foretells, where no distance differs.
const IN_ORDER: f64 = 0.85;
/// The part of the differences between distances that the channels may leave unexplained, and the standard errors
/// by which all others have to explain them worse, and by which sharing may cost more than it seems to.
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
    /// Pages and channels.
    pub(super) fn inner(
        &mut self,
        placement: Placement,
        known: Known,
    ) -> Result<Measured<Inner>, Halt<D::Error>> {
        // The drive may have been busy when single reads were timed.
        let known = Known {
            outside: known.outside.min(self.alone_again(known)? - known.service),
            ..known
        };
        let page = self.page(placement, known)?;
        // Half a page: most reads do not cross into another one, and much goes over the channel.
        let alone = self.per_byte((page.0 / 2 / BLOCK * BLOCK).max(BLOCK))?;
        let mut regions = Vec::new();
        for _ in 0..REGIONS {
            regions.extend(self.region(placement, known)?);
        }
        if regions.len() < FOUND {
            return Err(CannotTell::Irregular.into());
        }
        let per_byte = alone.unwrap_or_default();
        let mut gathered = [Gathered::default(), Gathered::default()];
        let mut shared = Err(CannotTell::TimeUp);
        for _ in 0..MORE {
            for (gathered, second) in gathered.iter_mut().zip([page.0, BLOCK]) {
                self.gather(placement, &regions, [page.0, second], alone, gathered)?;
            }
            let [pages, block] = [gathered[0].waits(), gathered[1].waits()];
            shared = pages.and_then(|pages| {
                let block = block?;
                Shared::of(placement, page, per_byte, [&pages, &block])
            });
            if !matches!(shared, Err(CannotTell::Noise { .. })) {
                break;
            }
        }
        let mut shared = shared?;
        // Data that does not lie in order looks as if no distance differed.
        if shared.channels.count == placement.units {
            if alone.is_some() && known.in_order < IN_ORDER {
                return Err(CannotTell::Irregular.into());
            }
            shared.confidence = shared.confidence.min(known.in_order);
        }
        let whole = page.0 as f64;
        let link_ns = (shared.beside / whole).max(0.0);
        let transfer_ns = match shared.by_pages {
            // The link has carried the first one's bytes meanwhile.
            true => (shared.beside + shared.wait) / whole,
            false => (per_byte.value - link_ns).max(0.0),
        };
        Ok(Measured {
            value: Inner {
                page,
                channels: shared.channels,
                transfer_ns,
                link_ns,
            },
            confidence: shared.confidence,
        })
    }

    /// The time of a read alone; none where it is shorter once more, as what follows reads the same places again. A drive
    /// may keep in a cache what was read.
    fn alone_again(&mut self, known: Known) -> Result<f64, Halt<D::Error>> {
        let (mut quicker, mut alone) = (Times::default(), Times::default());
        for _ in 0..AGAIN {
            let read = [FileRange::new(self.place(BLOCK)?, BLOCK)];
            let (one, other) = (self.time(&read, 1)?, self.time(&read, 1)?);
            quicker.push(one - other);
            alone.push(one);
        }
        let alone = alone.all().value;
        match quicker.quantile(0.5) < known.service / 4.0 {
            true => Ok(alone),
            false => Err(CannotTell::Noise {
                percent: 100.0 * quicker.quantile(0.5) / alone.max(1.0),
            }
            .into()),
        }
    }

    fn page(&mut self, placement: Placement, known: Known) -> Result<Bytes, Halt<D::Error>> {
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
            counts.extend(self.crossings(places, known)?);
        }
        counts.sort_unstable();
        let Some(&middle) = counts.get(counts.len() / 2) else {
            return Err(CannotTell::Irregular.into());
        };
        let agree = counts.iter().filter(|count| **count == middle).count();
        match agree >= AGREE {
            true => Ok(Bytes(granule / (middle + 1))),
            false => Err(CannotTell::Irregular.into()),
        }
    }

    /// The number of places of one granule, of as many, where two blocks are on different pages of their unit; `None`
    /// where these are not as far from each other as pages of one length are.
    fn crossings(&mut self, places: u64, known: Known) -> Result<Option<u64>, Halt<D::Error>> {
        let first = self.place((places + 1) * BLOCK)?;
        let blocks = self.quickest(first, places + 1, BLOCK)?;
        let pairs = self.quickest(first, places, 2 * BLOCK)?;
        let longer = |nth: usize| pairs[nth] - blocks[nth].max(blocks[nth + 1]);
        let all = 0..places as usize;
        // At the end of the granule, at least, there is no further sense; and no block is there before itself.
        let least = all.clone().map(longer).fold(f64::MAX, f64::min).max(0.0);
        let crosses = |nth: &usize| {
            let of_unit = blocks[*nth].min(blocks[nth + 1]) - known.outside;
            // Even the quickest pages take a part of what all take.
            let of_unit = of_unit.max(known.service / 4.0);
            longer(*nth) - least > A_SENSE * of_unit
        };
        let crossing: Vec<u64> = all.filter(crosses).map(|nth| nth as u64).collect();
        let pages = crossing.len() as u64 + 1;
        let page = places / pages;
        let in_step = crossing
            .iter()
            .all(|nth| nth.abs_diff(crossing[0]).is_multiple_of(page.max(1)));
        Ok((pages * page == places && in_step).then_some(pages - 1))
    }

    /// The times of reads that begin at so many consecutive blocks: of each the quickest of three, between which the
    /// others are read. What disturbs one of them is over by then.
    fn quickest(&mut self, first: u64, count: u64, len: u64) -> Result<Vec<f64>, Halt<D::Error>> {
        let mut order: Vec<u64> = (0..count).collect();
        let mut times = vec![f64::MAX; order.len()];
        for _ in 0..3 {
            self.draw.shuffle(&mut order);
            for nth in &order {
                let read = [FileRange::new(first + nth * BLOCK, len)];
                let time = self.time(&read, 1)?;
                times[*nth as usize] = times[*nth as usize].min(time);
            }
        }
        Ok(times)
    }

    /// The time by which each byte makes a read within a page longer; `None` where a page has no more than a block.
    fn per_byte(&mut self, len: u64) -> Result<Option<Mean>, Halt<D::Error>> {
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
        let (longer, bytes) = (longer.median(), (len - BLOCK) as f64);
        Ok(Some(Mean {
            value: (longer.value / bytes).max(0.0),
            error: longer.error / bytes,
        }))
    }

    /// By how much two reads of these lengths wait for each other, at distances of 1, 2, … granules.
    fn gather(
        &mut self,
        placement: Placement,
        regions: &[Region],
        [first, second]: [u64; 2],
        per_byte: Option<Mean>,
        gathered: &mut Gathered,
    ) -> Result<(), Halt<D::Error>> {
        let granule = placement.granule.0;
        let mut distances: Vec<u64> = (1..=DISTANCES.min(u64::from(placement.units) / 2)).collect();
        gathered.waits.resize_with(distances.len(), Times::default);
        // Whatever waits for longer than for all of the other's bytes waits for somebody else.
        let most = per_byte.map_or(f64::MAX, |each| 1.5 * each.most() * first as f64);
        let of_length = per_byte.unwrap_or_default().value * (first - second) as f64;
        for _ in 0..(PAIRS / distances.len().max(1)).max(PAIRS_EACH) {
            let round = gathered.rounds;
            gathered.rounds += 1;
            let region = &regions[round % regions.len()];
            self.draw.shuffle(&mut distances);
            for distance in &distances {
                let Some(room) = region.granules.checked_sub(*distance).filter(|it| *it > 0) else {
                    return Err(CannotTell::NoGround.into());
                };
                // One granule after the other, so that units of all places among those of their channel count alike.
                let nth = (round / regions.len()) as u64 % room;
                let place = region.first + nth * granule + self.draw.below(granule / first) * first;
                let reads = [
                    FileRange::new(place, first),
                    FileRange::new(place + distance * granule, second),
                ];
                let together = self.time(&reads, 2)?;
                let [one, other] = reads;
                let (one, other) = (self.time(&[one], 1)?, self.time(&[other], 1)?);
                gathered.alone.push(one.max(other));
                let apart = (one - other - of_length).abs();
                let wait = together - one.max(other);
                if apart <= ALIKE * one.min(other) && wait.abs() <= most {
                    gathered.waits[*distance as usize - 1].push(wait);
                }
            }
        }
        Ok(())
    }
}

/// Waits of pairs, by distance in granules, and the times of the longer one alone.
#[derive(Default)]
struct Gathered {
    rounds: usize,
    waits: Vec<Times>,
    alone: Times,
}

impl Gathered {
    fn waits(&self) -> Result<Waits, CannotTell> {
        if self.waits.iter().any(|times| times.count() < OF_USE) {
            let percent = self.alone.scatter() * 100.0;
            return Err(CannotTell::Noise { percent });
        }
        let means = self.waits.iter().map(|times| times.mean(f64::MAX));
        Ok(Waits {
            means: means.collect(),
            alone: self.alone.quantile(0.5),
        })
    }
}

/// Mean waits of pairs, by distance in granules, and the usual time of the longer one alone.
struct Waits {
    means: Vec<Mean>,
    alone: f64,
}

impl Waits {
    fn error(&self) -> f64 {
        self.means.iter().map(|mean| mean.error).fold(0.0, f64::max)
    }

    /// A difference that is none of chance.
    fn shows(&self) -> f64 {
        (SHOWS * self.error()).max(SHOWS_OF * self.alone)
    }

    /// Between the shortest and the longest.
    fn contrast(&self) -> f64 {
        let values = self.means.iter().map(|mean| mean.value);
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        (high - low).max(0.0)
    }

    /// A difference that chance may hide.
    fn hidden(&self) -> f64 {
        self.contrast() + SHOWS * self.error()
    }

    fn center(&self) -> f64 {
        let sum: f64 = self.means.iter().map(|mean| mean.value).sum();
        sum / self.means.len().max(1) as f64
    }

    /// What sharing a channel may cost, in any way of it, and chance hide.
    fn may_cost(&self, units: u32) -> f64 {
        let fits = candidates(units).filter_map(|channels| fit(units, channels, &self.means));
        let costs = fits.map(|(_, fit)| fit.wait.value.max(0.0) + CLEAR * fit.wait.error);
        costs.fold(0.0, f64::max)
    }
}

/// Units that share channels.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shared {
    channels: Channels,
    confidence: f64,
    /// Two reads on one channel wait so much longer than others.
    wait: f64,
    /// Two whole pages on different channels wait so long.
    beside: f64,
    /// Whether two whole pages show the channels.
    by_pages: bool,
}

impl Shared {
    /// The channels that explain these waits, of two pages and of a page and a block, where each byte makes a read so
    /// much longer: one for each unit where no distance differs.
    fn of(
        placement: Placement,
        page: Bytes,
        per_byte: Mean,
        [pages, block]: [&Waits; 2],
    ) -> Result<Self, CannotTell> {
        let clear = |waits: &Waits| waits.contrast() / waits.shows().max(1e-9);
        let by_pages = clear(pages) >= clear(block);
        let waits = if by_pages { pages } else { block };
        if clear(waits) < 1.0 {
            return Self::none(placement, page, per_byte, [pages, block]);
        }
        let means = &waits.means;
        let (error, center) = (waits.error(), waits.center());
        let all = means.iter().map(|mean| (mean.value - center).powi(2));
        let all = all.sum::<f64>();
        let mut fits: Vec<(f64, Fit)> = candidates(placement.units)
            .filter_map(|channels| fit(placement.units, channels, means))
            .filter(|(_, fit)| fit.wait.value > 0.0)
            .collect();
        fits.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some(&(left, best)) = fits.first() else {
            return Err(CannotTell::Irregular);
        };
        let next = fits.get(1).map_or(f64::MAX, |fit| fit.0);
        let is_clear = next - left > (CLEAR * error).powi(2).max(left);
        if left > UNEXPLAINED * all || !is_clear {
            return Err(CannotTell::Irregular);
        }
        let beside = match by_pages {
            true => best.beside,
            // The channel adds nothing to what they wait for the link.
            false => pages.center(),
        };
        Ok(Self {
            channels: best.channels,
            confidence: (1.0 - 2.0 * best.wait.error / best.wait.value).clamp(0.0, 1.0),
            wait: best.wait.value,
            beside,
            by_pages,
        })
    }

    /// No units share any, unless the difference may be too small to show.
    fn none(
        placement: Placement,
        page: Bytes,
        per_byte: Mean,
        [pages, block]: [&Waits; 2],
    ) -> Result<Self, CannotTell> {
        let (whole, one) = (page.0 as f64, BLOCK as f64);
        let beside = pages.center();
        let least = per_byte.least();
        let link = (beside / whole).clamp(0.0, least);
        // Had the pages shared a channel, they would wait so much longer; and so would the block.
        let of_pages = (least - link) * whole - beside;
        let of_block = link * one;
        // Half of the pairs do at some distance, at least: of two units on a channel, one has the other next to it.
        let excluded = [(pages, of_pages), (block, of_block)]
            .into_iter()
            .filter(|(waits, longer)| longer / 2.0 >= 2.0 * waits.hidden())
            .map(|(waits, longer)| 1.0 - 4.0 * waits.error() / longer.max(1e-9))
            .reduce(f64::max);
        // Where it would not show, it may cost so much.
        let units = placement.units;
        let cost = pages.may_cost(units).max(block.may_cost(units));
        let cost = cost.max(per_byte.most() * whole) / pages.alone.max(1.0);
        let confidence = match excluded {
            Some(confidence) => confidence,
            None if cost <= LITTLE => 1.0 - cost,
            None => {
                let percent = pages.hidden() / pages.alone.max(1.0) * 100.0;
                return Err(CannotTell::Noise { percent });
            }
        };
        Ok(Self {
            channels: Channels {
                run: 1,
                count: units,
            },
            confidence: confidence.clamp(0.0, 1.0),
            wait: 0.0,
            beside,
            by_pages: false,
        })
    }
}

/// The ways in which units may share channels, several channels at least.
fn candidates(units: u32) -> impl Iterator<Item = Channels> {
    let counts = (2..units).filter(move |count| units.is_multiple_of(*count));
    let of = move |count| (1..=units / count).map(move |run| Channels { run, count });
    let all = counts.flat_map(of);
    all.filter(move |channels| channels.are_possible(units))
}

/// The waits on one of these channels, longer by `wait`, and on different ones.
#[derive(Clone, Copy, Debug)]
struct Fit {
    channels: Channels,
    wait: Mean,
    beside: f64,
}

/// The squares that these channels leave unexplained, and the wait on one of them: the least squares.
fn fit(units: u32, channels: Channels, means: &[Mean]) -> Option<(f64, Fit)> {
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
    let fit = Fit {
        channels,
        wait: Mean { value: wait, error },
        beside: wait_mean - wait * share_mean,
    };
    Some((left, fit))
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

        fn inner(&mut self, seed: u64) -> Result<Measured<Inner>, CannotTell> {
            let placement = self.placement;
            let known = Known {
                outside: self.flow.host_ns,
                further: self.flow.submit_ns,
                service: self.flow.sense_ns,
                in_order: 1.0,
            };
            let mut prober = Prober {
                drive: self,
                ground: Ground::new([FileRange::new(0, 256 << 20)]),
                draw: Draw::new(seed),
                limit: Nanos(1),
                differing: None,
            };
            match prober.inner(placement, known) {
                Ok(told) => Ok(told),
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
                let inner = inner.unwrap_or_else(|why| panic!("{what}: {why}")).value;
                assert_eq!(inner.page, drive.flow.page, "{what}");
                assert_eq!(inner.channels, channels, "{what}");
                if granule / pages > 8 {
                    let off = inner.transfer_ns / drive.flow.transfer_ns - 1.0;
                    assert!(off.abs() < 0.25, "{what}: {off}");
                }
            }
        }
    }

    /// What chance hides is not told; nothing wrong is. Of pages of one block, too, whose bytes nothing else shows.
    #[test]
    fn nothing_wrong_is_said_of_a_drive_that_jitters() {
        let channels = Channels { run: 1, count: 4 };
        for (granule, pages, least) in [(32, 2, 6), (4, 1, 6)] {
            let mut told = 0;
            for jitter in [2_000, 10_000, 50_000, 100_000, 200_000] {
                for seed in 1..=3 {
                    let mut drive = Followed::new(granule, 16, pages, channels, false);
                    drive.jitter = jitter;
                    let what = format!("{granule} KiB, {jitter}, {seed}");
                    let Ok(Measured { value, confidence }) = drive.inner(seed) else {
                        continue;
                    };
                    told += 1;
                    assert_eq!(value.channels, channels, "{what}: {confidence}");
                    assert_eq!(value.page, Bytes::kib(granule / pages), "{what}");
                }
            }
            assert!(told >= least, "{granule} KiB: {told}");
        }
    }

    /// That no unit shares a channel is told where noise is less than what it would cost, and for as sure as that is.
    #[test]
    fn that_none_share_a_channel_is_no_surer_than_noise_allows() {
        let own = Channels { run: 1, count: 16 };
        let sure = |jitter, seed| {
            let mut drive = Followed::new(4, 16, 1, own, false);
            drive.jitter = jitter;
            let told = drive.inner(seed).ok()?;
            assert_eq!(told.value.channels, own, "{jitter}, {seed}");
            Some(told.confidence)
        };
        assert_eq!(sure(0, 1), Some(1.0));
        for seed in 1..=3 {
            let little = sure(2_000, seed).expect("little noise hides little");
            assert!((0.94..1.0).contains(&little), "{seed}: {little}");
            assert_eq!(sure(100_000, seed), None, "{seed}");
        }
    }
}
