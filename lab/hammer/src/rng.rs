//! Numbers from a seed: the same on every machine and in every version.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// An independent generator for each `stream` of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ value >> 31
    }

    /// A number in `0..bound`; 0 for an empty range.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound.max(1))) as u32
    }

    /// A number in `from..to`.
    pub(crate) fn between(&mut self, from: u32, to: u32) -> u32 {
        from + self.below(to.saturating_sub(from))
    }

    /// True with this probability in percent.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of the choices, each with its weight.
    pub(crate) fn weighted<T: Copy>(&mut self, choice: &[(u32, T)]) -> T {
        let total = choice.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, value) in choice {
            if at < *weight {
                return *value;
            }
            at -= weight;
        }
        choice[choice.len() - 1].1
    }
}
