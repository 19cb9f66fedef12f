//! The time that bytes take.

/// A number of nanoseconds for a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    nanos: u64,
    bytes: u64,
}

impl Rate {
    /// No time at all.
    pub(crate) const UNLIMITED: Self = Self { nanos: 0, bytes: 1 };

    /// Returns the rate of `bytes` in each `nanos`.
    pub(crate) const fn new(bytes: u64, nanos: u64) -> Self {
        Self { nanos, bytes }
    }

    /// Returns the time for `bytes`, rounded up to whole nanoseconds.
    pub(crate) const fn time(self, bytes: u64) -> u64 {
        match bytes.checked_mul(self.nanos) {
            Some(product) => product.div_ceil(self.bytes),
            None => (bytes as u128 * self.nanos as u128).div_ceil(self.bytes as u128) as u64,
        }
    }
}
