//! The search for the stripe.
//!
//! 1. Every distance up to 1 MiB, then longer ones, an octave at a time: a few pairs of each. The slowest
//!    ones are candidates.
//! 2. Fresh pairs at the candidates and at the fastest distances: only what is slower by far in these counts.
//! 3. The shortest distance that is as slow: shorter than that, no multiple of the stripe is left out.
//! 4. Granule and stripe from the triangles around it and around its double (`triangle`).
//! 5. Fresh pairs at further multiples, and between them, have to be as the result foretells.

use units::Bytes;

use super::{
    BLOCK, CannotTell, Drive, Halt, Measured, Placement, Prober,
    pairs::Pairs,
    speed::Single,
    triangle::{self, Fit, LagTime},
};

/// The longest distance of the first octave, and of all.
const FIRST: u64 = 1 << 20;
const LONGEST: u64 = 32 << 20;
/// Distances in an octave at most.
const STEPS: u64 = 256;
/// Pairs of each distance to begin with, and fresh ones of each candidate.
const SCREENED: u64 = 8;
const FRESH: u64 = 24;
/// Candidates by each measure.
const BEST: usize = 5;
/// Standard errors by which a candidate has to be slower than the fastest distances.
const SIGNIFICANT: f64 = 6.0;
/// Standard errors with which it is worth taking more pairs, and how often.
const PROMISING: f64 = 2.5;
const MORE: usize = 8;
/// The part of a single read's time by which it has to be slower. Transfers that share a channel make less
/// of a difference.
const LEAST_HEIGHT: f64 = 0.15;
/// Pairs of each distance of a triangle, and how often as many more are taken where that leaves more than
/// one answer.
const FITTED: u64 = 24;
const TIMES: usize = 12;
/// Searches, where one ends in something irregular.
const TRIES: usize = 3;
/// Multiples of the stripe at which the result has to hold.
const MULTIPLES: [u64; 4] = [2, 3, 4, 5];
/// The relative error of that, to which pairs are taken.
const SURE: f64 = 0.05;
/// The share of pairs on one unit that has to show at these, at least, and between them, at most.
const HOLDS: (f64, f64) = (0.75, 0.35);

/// A distance at which pairs are slow for certain.
struct Peak {
    lag: u64,
    levels: Levels,
    /// The octave in which it was found.
    seen: Screened,
    /// Distances up to this are on one unit because they are short.
    valley: u64,
}

/// The times of pairs on different units, and on one.
#[derive(Clone, Copy, Debug)]
struct Levels {
    apart: f64,
    together: f64,
}

impl Levels {
    /// The share on one unit that a time shows.
    fn share(&self, time: f64) -> f64 {
        (time - self.apart) / self.height().max(1e-9)
    }

    fn height(&self) -> f64 {
        self.together - self.apart
    }
}

impl<D: Drive> Prober<'_, D> {
    /// How data lies on the units.
    pub(super) fn placement(
        &mut self,
        single: &Single,
    ) -> Result<Measured<Placement>, Halt<D::Error>> {
        let beside_alone = Some(single.mean);
        let ways = match (single.by_place, single.differs) {
            (true, _) => vec![beside_alone, None],
            // What a drive keeps in a cache it has read alone in no time, and others' load hits each read for itself.
            (false, true) => vec![None, beside_alone],
            (false, false) => vec![None],
        };
        let mut why_not = CannotTell::TimeUp;
        for way in ways {
            self.differing = way;
            let found = self.placement_by_tries(single);
            self.differing = None;
            let Err(Halt::Cannot(why)) = found else {
                return found;
            };
            // The other way may find nothing for its own reasons.
            if way.is_none() {
                why_not = why;
            }
        }
        Err(why_not.into())
    }

    fn placement_by_tries(
        &mut self,
        single: &Single,
    ) -> Result<Measured<Placement>, Halt<D::Error>> {
        // Other places, and other chances: what misled it may not be there. The evidence that counts is
        // fresh each time.
        let mut tries = 1;
        loop {
            match self.try_placement(single) {
                Err(Halt::Cannot(CannotTell::Irregular)) if tries < TRIES => tries += 1,
                other => return other,
            }
        }
    }

    fn try_placement(&mut self, single: &Single) -> Result<Measured<Placement>, Halt<D::Error>> {
        let peak = self.first_peak(single)?;
        let peak = self.ascend(peak, single.cap)?;
        let about = self.shortest(&peak, single.cap)?;
        let placement = self.triangles(about, &peak, single.cap)?;
        let confidence = self.hold(placement, peak.levels, single.cap)?;
        Ok(Measured {
            value: placement,
            confidence,
        })
    }

    /// Search octave by octave.
    fn first_peak(&mut self, single: &Single) -> Result<Peak, Halt<D::Error>> {
        // Fresh pairs reach to the fifth multiple.
        let longest = LONGEST.min(self.ground.longest().0 / 4);
        if longest < 16 * BLOCK {
            return Err(CannotTell::NoGround.into());
        }
        let (mut from, mut to) = (0, FIRST.min(longest));
        let mut valley = 0;
        let mut fastest = f64::INFINITY;
        while from < to {
            let step = (to - from).div_ceil(STEPS).next_multiple_of(BLOCK);
            let lags: Vec<u64> = (1..=(to - from) / step).map(|i| from + i * step).collect();
            let mut pairs = Pairs::new(lags);
            pairs.gather(self, SCREENED, None)?;
            let seen = Screened::new(pairs, step, single.cap);
            if from == 0 {
                valley = seen.first_valley();
            }
            fastest = seen.smooth.iter().copied().fold(fastest, f64::min);
            if let Some((lag, levels)) = self.confirm(&seen, valley, single)? {
                return Ok(Peak {
                    lag,
                    levels,
                    seen,
                    valley,
                });
            }
            (from, to) = (to, (2 * to).min(longest));
        }
        let serial = fastest > 1.75 * single.mean;
        Err(match serial {
            true => CannotTell::Serial,
            false => CannotTell::NoContrast {
                up_to: Bytes(longest),
            },
        }
        .into())
    }

    /// Whether the slowest distances are slow with fresh pairs, too.
    fn confirm(
        &mut self,
        seen: &Screened,
        valley: u64,
        single: &Single,
    ) -> Result<Option<(u64, Levels)>, Halt<D::Error>> {
        let candidates = seen.candidates(valley);
        let lags = candidates.iter().flat_map(Candidate::lags);
        let mut fresh = Pairs::new(lags.collect());
        for _ in 0..MORE {
            fresh.gather(self, FRESH, None)?;
            let mut promising = false;
            let mut best: Option<(u64, Levels)> = None;
            for candidate in &candidates {
                let time = fresh.mean_at(|lag| lag == candidate.lag, single.cap);
                let apart = fresh.mean_at(|lag| candidate.is_flank(lag), single.cap);
                let levels = Levels {
                    apart: apart.value,
                    together: time.value,
                };
                let clear = time.above(&apart, 1.0);
                if levels.height() < LEAST_HEIGHT * single.mean || clear < PROMISING {
                    continue;
                }
                promising = true;
                let highest = best.as_ref().map_or(0.0, |(_, levels)| levels.height());
                if clear >= SIGNIFICANT && levels.height() > highest {
                    best = Some((candidate.lag, levels));
                }
            }
            if best.is_some() || !promising {
                return Ok(best);
            }
        }
        Ok(None)
    }

    /// Where dies share channels, their distance may show before that of the die with itself: look
    /// whether a multiple is slower still.
    fn ascend(&mut self, peak: Peak, cap: f64) -> Result<Peak, Halt<D::Error>> {
        let longest = self.ground.longest().0 / 4;
        let multiples: Vec<u64> = (1..=8)
            .map(|times| times * peak.lag)
            .filter(|lag| *lag <= longest)
            .collect();
        let mut pairs = Pairs::new(multiples);
        pairs.gather(self, FRESH, None)?;
        let shares: Vec<f64> = (0..pairs.lags.len())
            .map(|nth| peak.levels.share(pairs.mean(nth, cap).value))
            .collect();
        let highest = shares.iter().copied().fold(1.0, f64::max);
        if highest < 1.5 {
            return Ok(peak);
        }
        let nth = shares.iter().position(|share| *share >= 0.8 * highest);
        let levels = Levels {
            together: peak.levels.apart + highest * peak.levels.height(),
            ..peak.levels
        };
        Ok(Peak {
            lag: nth.map_or(peak.lag, |nth| pairs.lags[nth]),
            levels,
            ..peak
        })
    }

    /// The shortest distance that is as slow as the peak.
    fn shortest(&mut self, peak: &Peak, cap: f64) -> Result<u64, Halt<D::Error>> {
        let levels = peak.levels;
        let Screened {
            lags, raw, smooth, ..
        } = &peak.seen;
        let shows = |nth: usize| {
            let slow = levels.share(raw[nth]) > 0.55 || levels.share(smooth[nth]) > 0.45;
            lags[nth] > peak.valley && lags[nth] < peak.lag && slow
        };
        let slow: Vec<usize> = (0..lags.len()).filter(|nth| shows(*nth)).collect();
        // Neighbours show one triangle.
        let runs = slow.chunk_by(|a, b| a + 1 == *b);
        let tops: Vec<u64> = runs
            .filter_map(|run| {
                let top = run
                    .iter()
                    .max_by(|a, b| smooth[**a].total_cmp(&smooth[**b]));
                Some(lags[*top?])
            })
            .take(24)
            .collect();
        // A shorter octave may have hidden it.
        let parts = (2..=8).map(|part| (peak.lag / part).next_multiple_of(BLOCK));
        let parts = parts.filter(|lag| *lag > peak.valley);
        let mut pairs = Pairs::new(tops.into_iter().chain(parts).collect());
        pairs.gather(self, FRESH, None)?;
        let holds = |nth: &usize| levels.share(pairs.mean(*nth, cap).value) >= 0.65;
        let first = (0..pairs.lags.len()).find(holds);
        Ok(first.map_or(peak.lag, |nth| pairs.lags[nth]))
    }

    /// Granule and stripe, from the distances around the first and the second multiple.
    fn triangles(
        &mut self,
        about: u64,
        peak: &Peak,
        cap: f64,
    ) -> Result<Placement, Halt<D::Error>> {
        // A valley is seen where most of the triangle has fallen, so the granule is hardly longer; but
        // where a drive reads a page once for both of a pair, the first triangle is cut short.
        let most = about / 2 + 2 * BLOCK;
        let mut widest = (2 * peak.valley).max(4 * BLOCK).min(most);
        loop {
            match self.triangle(about, widest, peak, cap)? {
                // It has to be seen as a whole.
                Fit::Clear(placement) if placement.granule.0 <= widest => return Ok(placement),
                _ if widest < most => widest = (2 * widest).min(most),
                _ => return Err(CannotTell::Irregular.into()),
            }
        }
    }

    /// The same, from distances that show granules up to a width as a whole.
    fn triangle(
        &mut self,
        about: u64,
        widest: u64,
        peak: &Peak,
        cap: f64,
    ) -> Result<Fit, Halt<D::Error>> {
        let reach = (widest + widest / 4).min(about - BLOCK);
        let step = (reach / 12).next_multiple_of(BLOCK).max(BLOCK);
        let longest = self.ground.longest().0 / 2;
        let centres: Vec<u64> = [about, 2 * about]
            .into_iter()
            .filter(|centre| centre + reach <= longest)
            .collect();
        let around = |centre: u64| {
            (0..=2 * (reach / step)).map(move |i| centre - reach / step * step + i * step)
        };
        let lags: Vec<u64> = centres.iter().flat_map(|centre| around(*centre)).collect();
        let candidates = triangle::candidates(about, step.max(widest / 4));
        let mut pairs = Pairs::new(lags);
        let mut fit = Fit::Open;
        for _ in 0..TIMES {
            pairs.gather(self, FITTED, Some(about))?;
            let group = |centre: &u64| {
                let near = |nth: &usize| pairs.lags[*nth].abs_diff(*centre) <= reach;
                let value = |nth: usize| LagTime {
                    lag: pairs.lags[nth],
                    time: pairs.mean(nth, cap),
                };
                (0..pairs.lags.len()).filter(near).map(value).collect()
            };
            let groups: Vec<Vec<LagTime>> = centres.iter().map(group).collect();
            fit = triangle::fit(&groups, &candidates, peak.levels.height());
            if fit != Fit::Open {
                break;
            }
        }
        Ok(fit)
    }

    /// Whether fresh pairs are as the placement foretells; returns the share of them that certainly are.
    fn hold(
        &mut self,
        placement: Placement,
        levels: Levels,
        cap: f64,
    ) -> Result<f64, Halt<D::Error>> {
        let (stripe, granule) = (placement.stripe().0, placement.granule.0);
        let longest = self.ground.longest().0 / 2;
        let middle = u64::from(placement.units / 2) * granule;
        let same: Vec<u64> = MULTIPLES
            .into_iter()
            .map(|times| times * stripe)
            .filter(|lag| lag + middle <= longest)
            .collect();
        if same.len() < 2 {
            return Err(CannotTell::NoGround.into());
        }
        let apart: Vec<u64> = same.iter().map(|lag| lag + middle).collect();
        // Were the stripe a part of this one, they would be on one unit.
        let parts: Vec<u64> = (primes_of(placement.units).into_iter())
            .map(|part| stripe + stripe / u64::from(part))
            .collect();
        let mut pairs = Pairs::new([same.clone(), apart.clone(), parts.clone()].concat());
        let (mut difference, mut apart_share, mut error) = (0.0, 1.0, 1.0);
        for _ in 0..TIMES {
            pairs.gather(self, FRESH, Some(stripe))?;
            let times = |wanted: &[u64]| pairs.mean_at(|lag| wanted.contains(&lag), cap);
            let (same, between) = (times(&same), times(&apart));
            apart_share = levels.share(between.value);
            difference = levels.share(same.value) - apart_share;
            error = same.error.hypot(between.error) / levels.height().max(1e-9);
            if error < SURE * difference {
                break;
            }
        }
        // Between them it may be a little slower or faster than where it was found: see `triangle`.
        if difference < HOLDS.0 || apart_share > HOLDS.1 {
            return Err(CannotTell::Irregular.into());
        }
        let is_shorter = |lag: u64| {
            let time = pairs.mean_at(|other| other == lag, cap);
            levels.share(time.value) - apart_share > difference / 2.0
        };
        if parts.into_iter().any(is_shorter) {
            return Err(CannotTell::Irregular.into());
        }
        Ok((difference.min(1.0) * (1.0 - 2.0 * error / difference)).clamp(0.0, 1.0))
    }
}

/// The prime numbers that divide a number.
fn primes_of(number: u32) -> Vec<u32> {
    let (mut rest, mut primes) = (number, Vec::new());
    for prime in 2..=number {
        if rest.is_multiple_of(prime) && rest > 0 {
            primes.push(prime);
            while rest.is_multiple_of(prime) {
                rest /= prime;
            }
        }
    }
    primes
}

/// A distance that may be a multiple of the stripe, and how far from it pairs are apart if it is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    lag: u64,
    flank: u64,
}

impl Candidate {
    fn lags(&self) -> [u64; 3] {
        [self.lag - self.flank, self.lag, self.lag + self.flank]
    }

    fn is_flank(&self, lag: u64) -> bool {
        lag.abs_diff(self.lag) == self.flank
    }
}

/// Some pairs of every distance of an octave.
struct Screened {
    lags: Vec<u64>,
    step: u64,
    /// Their mean times, and those of three neighbours.
    raw: Vec<f64>,
    smooth: Vec<f64>,
}

impl Screened {
    fn new(pairs: Pairs, step: u64, cap: f64) -> Self {
        let raw: Vec<f64> = (0..pairs.lags.len())
            .map(|nth| pairs.mean(nth, cap).value)
            .collect();
        let near = |nth: usize| {
            let near = &raw[nth.saturating_sub(1)..(nth + 2).min(raw.len())];
            near.iter().sum::<f64>() / near.len() as f64
        };
        Self {
            smooth: (0..raw.len()).map(near).collect(),
            lags: pairs.lags,
            step,
            raw,
        }
    }

    /// The distances that are slower by most than those on both sides of them. Pages of different speed
    /// make times rise and fall slowly with the distance; a triangle stands out of that.
    fn candidates(&self, valley: u64) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        // A granule is about as long as the first valley is away; but that may have come too early.
        for width in [valley, 3 * valley] {
            let flank = (width + width / 4).next_multiple_of(BLOCK).max(BLOCK);
            let off = usize::try_from(flank.div_ceil(self.step))
                .unwrap_or(usize::MAX)
                .max(1);
            let score = |of: &[f64], nth: usize| {
                let below = of.get(nth.checked_sub(off)?)?;
                let above = of.get(nth + off);
                Some(of[nth] - (below + above.unwrap_or(below)) / 2.0)
            };
            for of in [&self.raw, &self.smooth] {
                let eligible = |nth: &usize| self.lags[*nth] > valley.max(flank);
                let scored = (0..self.lags.len())
                    .filter(eligible)
                    .filter_map(|nth| Some((score(of, nth)?, self.lags[nth])));
                let mut scored: Vec<(f64, u64)> = scored.collect();
                scored.sort_by(|a, b| b.0.total_cmp(&a.0));
                let best = scored.into_iter().take(BEST);
                candidates.extend(best.map(|(_, lag)| Candidate { lag, flank }));
            }
        }
        candidates
    }

    /// The first distance that is not slow: shorter ones may lie in one granule.
    fn first_valley(&self) -> u64 {
        let mut sorted = self.smooth.clone();
        sorted.sort_by(f64::total_cmp);
        let fastest = &sorted[..(sorted.len() / 8).max(1)];
        let low = fastest.iter().sum::<f64>() / fastest.len() as f64;
        let high = sorted.last().copied().unwrap_or(low);
        let line = low + 0.35 * (high - low);
        let fast = self.smooth.iter().position(|time| *time < line);
        fast.map_or(BLOCK, |nth| self.lags[nth])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_divide() {
        for (number, primes) in [
            (1, vec![]),
            (2, vec![2]),
            (422, vec![2, 211]),
            (360, vec![2, 3, 5]),
        ] {
            assert_eq!(primes_of(number), primes, "{number}");
        }
    }

    #[test]
    fn flanks_are_on_both_sides() {
        let step = |nth| Candidate {
            lag: 8 * BLOCK,
            flank: nth * BLOCK,
        };
        assert!(step(2).is_flank(10 * BLOCK) && step(2).is_flank(6 * BLOCK));
        assert!(!step(2).is_flank(8 * BLOCK) && !step(2).is_flank(9 * BLOCK));
    }
}
