//! Random numbers for tests, benchmarks and experiments, and the workloads that they choose from them: the same
//! from one seed on every machine and in every version, so that what a run has shown can be shown again.
//!
//! The crate depends on nothing, and may be a dev-dependency of every other one.

#![forbid(unsafe_code)]

pub mod change;
pub mod ffsb;
pub mod filebench;
pub mod geriatrix;
pub mod mail_store;
pub mod zipf;

/// A stream of numbers from a seed: SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom
/// number generators", OOPSLA). Every seed is good, also 0, and neighbouring seeds have streams of their
/// own. It is not for secrets.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The stream of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of many streams of a seed.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut numbers = Self(seed ^ stream.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        numbers.next();
        numbers
    }

    /// The next number, of all 64 bits.
    #[expect(clippy::should_implement_trait, reason = "the stream never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ value >> 31
    }

    /// A number in `0..bound`; 0 for an empty range.
    pub fn below<N: Unsigned>(&mut self, bound: N) -> N {
        N::narrow(self.next() % bound.widen().max(1))
    }

    /// A number in `from..to`; `from` for an empty range.
    pub fn between(&mut self, from: u32, to: u32) -> u32 {
        from + self.below(to.saturating_sub(from))
    }

    /// True with this probability in percent.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100_u32) < percent
    }

    /// A number from 0 up to 1, without 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of a choice, each with its weight.
    ///
    /// # Panics
    ///
    /// Where there is no choice.
    pub fn weighted<T: Copy>(&mut self, choice: &[(u32, T)]) -> T {
        let total: u32 = choice.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, value) in choice {
            if at < *weight {
                return *value;
            }
            at -= weight;
        }
        choice[choice.len() - 1].1
    }

    /// Put these in any order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Bytes that do not compress, for contents; a last part of less than 8 bytes stays.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
    }
}

/// Numbers that can be a bound.
pub trait Unsigned: Copy {
    /// As 64 bits.
    fn widen(self) -> u64;
    /// From a number that fits.
    fn narrow(value: u64) -> Self;
}

macro_rules! unsigned {
    ($($number:ty),*) => {$(
        impl Unsigned for $number {
            fn widen(self) -> u64 {
                self as u64
            }
            fn narrow(value: u64) -> Self {
                value as Self
            }
        }
    )*};
}
unsigned!(u32, u64, usize);

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the authors' own program for seed 0 and 1234567.
    #[test]
    fn it_is_splitmix64() {
        let mut numbers = Numbers::new(0);
        assert_eq!(numbers.next(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(numbers.next(), 0x6E78_9E6A_A1B9_65F4);
        assert_eq!(Numbers::new(1_234_567).next(), 6_457_827_717_110_365_317);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut numbers = Numbers::stream(7, 3);
        for _ in 0..1000 {
            assert!(numbers.below(3_u64) < 3);
            assert!((5..9).contains(&numbers.between(5, 9)));
            assert!((0.0..1.0).contains(&numbers.fraction()));
            assert_eq!(numbers.weighted(&[(0, 'a'), (1, 'b')]), 'b');
        }
        assert_eq!(numbers.below(0_u32), 0);
        assert_eq!(numbers.between(9, 5), 9);
    }

    #[test]
    fn shuffling_keeps_all_items() {
        let mut items: Vec<u32> = (0..100).collect();
        Numbers::new(1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
