//! Which part of the programs' cost is that of accesses that are not chosen.
//!
//! A program runs for each access, and at layer fs four run for each of its requests, whether or not the coin
//! chooses it. So an access costs `a + b x` where a part `x` of them is chosen, and a larger `k` spares only `b x`. Both
//! follow from measurements with different `k`, by least squares; as long as `k` never changed they cannot be told
//! from each other, and all of the cost counts as that of chosen ones.

/// What an older measurement counts for after each further one: some minutes of a steady load.
const MEMORY: f64 = 0.98;
/// In measurements: the weight of the belief that `a` is nothing.
const BELIEF: f64 = 0.02;
/// A measurement of fewer accesses says little of the cost of one.
const FEWEST: u64 = 20;

/// Sums over measurements of the part that was chosen, and the cost of an access.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Split {
    weight: f64,
    x: f64,
    xx: f64,
    y: f64,
    xy: f64,
}

impl Split {
    /// Take a measurement, in which programs took this share of a processor for so many seconds: `seen` accesses of
    /// `made` were chosen. Returns the part of that share that accesses which are not chosen would cost, too.
    pub(super) fn measured(&mut self, share: f64, seconds: f64, seen: u64, made: u64) -> f64 {
        if made >= FEWEST && share > 0.0 {
            let x = (seen as f64 / made as f64).min(1.0);
            let y = share * seconds / made as f64;
            for (sum, value) in [
                (&mut self.weight, 1.0),
                (&mut self.x, x),
                (&mut self.xx, x * x),
                (&mut self.y, y),
                (&mut self.xy, x * y),
            ] {
                *sum = *sum * MEMORY + value;
            }
        }
        (self.unchosen() * made as f64 / seconds.max(f64::MIN_POSITIVE)).clamp(0.0, share)
    }

    /// `a`.
    fn unchosen(&self) -> f64 {
        let weight = self.weight + BELIEF;
        let determinant = weight * self.xx - self.x * self.x;
        if determinant <= 0.0 {
            return 0.0;
        }
        let a = (self.y * self.xx - self.xy * self.x) / determinant;
        let b = (weight * self.xy - self.x * self.y) / determinant;
        match b < 0.0 {
            // Chosen ones cost no less than others.
            true => self.y / self.weight,
            false => a.max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_once_k_has_changed() {
        let mut split = Split::default();
        // Accesses in a slot, which may be a long one.
        let mut measured = |made: u64, seen: u64, seconds: f64| {
            let share = (made as f64 * 6e-6 + seen as f64 * 4e-6) / seconds;
            split.measured(share, seconds, seen, made) * seconds
        };
        // All are chosen: nothing is told of the others.
        for made in [900, 1100, 50] {
            assert!(measured(made, made, 1.0) < 0.05 * made as f64 * 10e-6);
        }
        let mut fixed = 0.0;
        for (made, seconds) in [(1000, 1.0), (1200, 0.5), (800, 0.2), (1000, 1.0)] {
            fixed = measured(made, made / 4, seconds);
        }
        assert!((fixed - 6e-3).abs() < 3e-4, "{fixed}");
        // A load of few accesses is told by what is known of others.
        let fixed = measured(10, 1, 1.0);
        assert!((fixed - 6e-5).abs() < 3e-6, "{fixed}");
    }

    #[test]
    fn what_costs_nothing_or_does_not_depend_on_k_is_told_so() {
        let mut split = Split::default();
        assert_eq!(split.measured(0.0, 1.0, 0, 0), 0.0);
        assert_eq!(split.measured(0.01, 1.0, 3, 3), 0.0);
        for (seen, share) in [(1000, 0.005), (200, 0.0052), (50, 0.0055)] {
            split.measured(share, 1.0, seen, 1000);
        }
        // The cost rises while fewer are chosen: it is that of all of them.
        assert_eq!(split.measured(0.005, 1.0, 50, 1000), 0.005);
    }
}
