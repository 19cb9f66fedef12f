//! Pairs of reads at given distances.

use units::FileRange;

use super::{
    BLOCK, CannotTell, Drive, Halt, Prober,
    sample::{Mean, Times},
};

/// Times of pairs, lag by lag.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    pub(super) lags: Vec<u64>,
    times: Vec<Times>,
    /// Rounds done.
    rounds: u64,
}

impl Pairs {
    pub(super) fn new(mut lags: Vec<u64>) -> Self {
        lags.sort_unstable();
        lags.dedup();
        Self {
            times: vec![Times::default(); lags.len()],
            lags,
            rounds: 0,
        }
    }

    /// The mean of a lag.
    pub(super) fn mean(&self, nth: usize, cap: f64) -> Mean {
        self.times[nth].mean(cap)
    }

    /// The mean of all pairs at these lags.
    pub(super) fn mean_at(&self, is_wanted: impl Fn(u64) -> bool, cap: f64) -> Mean {
        let mut all = Times::default();
        for (lag, times) in self.lags.iter().zip(&self.times) {
            if is_wanted(*lag) {
                all.extend(times);
            }
        }
        all.mean(cap)
    }

    /// One more pair of each lag in each round, in any order: a slow moment of the device hits all lags
    /// alike. With a period, beginnings are spread evenly over it.
    pub(super) fn gather<D: Drive>(
        &mut self,
        prober: &mut Prober<'_, D>,
        rounds: u64,
        period: Option<u64>,
    ) -> Result<(), Halt<D::Error>> {
        let mut order: Vec<usize> = (0..self.lags.len()).collect();
        for _ in 0..rounds {
            prober.draw.shuffle(&mut order);
            let phase = period.map(|period| (evenly(self.rounds, period), period));
            for nth in &order {
                let time = prober.pair(self.lags[*nth], phase)?;
                self.times[*nth].push(time);
            }
            self.rounds += 1;
        }
        Ok(())
    }
}

/// The nth of phases that are spread evenly over a period, however many they are: multiples of the
/// golden section.
fn evenly(nth: u64, period: u64) -> u64 {
    let part = nth.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let blocks = u128::from(period / BLOCK);
    ((u128::from(part) * blocks) >> 64) as u64 * BLOCK
}

impl<D: Drive> Prober<'_, D> {
    /// The time until two reads are done that begin together, this far apart; where pages differ, as if
    /// both were of an ordinary page.
    fn pair(&mut self, lag: u64, phase: Option<(u64, u64)>) -> Result<f64, Halt<D::Error>> {
        let span = lag + BLOCK;
        let place = self
            .ground
            .place_in_phase(&mut self.draw, span, phase)
            .ok_or(CannotTell::NoGround)?;
        let mut reads = [place, place + lag].map(|at| FileRange::new(at, BLOCK));
        // Neither of them is always the first.
        self.draw.shuffle(&mut reads);
        let together = self.time(&reads, 2)?;
        let Some(ordinary) = self.differing else {
            return Ok(together);
        };
        let [one, other] = reads;
        let (one, other) = (self.time(&[one], 1)?, self.time(&[other], 1)?);
        // One after the other they take the time of both.
        let waited = (together - one.max(other)) / one.min(other).max(1.0);
        Ok(ordinary * (1.0 + waited.clamp(-1.0, 2.0)))
    }
}
