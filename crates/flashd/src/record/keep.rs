//! The changes that a state keeps, and the numbers that choose among them.

/// The part of the changes before a mark that a state keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of them: the device as a host saw it then.
    Everything,
    /// Only what a flush or FUA covered: the least that a power cut leaves.
    Durable,
    /// One of the legal states between these two, by this seed.
    Reordered(u64),
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
pub(super) struct SplitMix(u64);

impl SplitMix {
    /// The numbers that choose the changes that are kept.
    pub(super) fn of(keep: Keep) -> Self {
        Self(match keep {
            Keep::Reordered(seed) => seed,
            Keep::Everything | Keep::Durable => 0,
        })
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}
