//! Free space: how much there is, in what runs.

use units::Bytes;

/// The free runs of a file system, by their lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// By the number of bits of a run's length: runs, and their bytes.
    buckets: [(u64, u64); 65],
    largest: u64,
    /// The run that was added last.
    open: Option<(u64, u64)>,
}

/// Free runs of about the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeRuns {
    /// Each has this many bytes or more, and less than twice as many.
    pub least: Bytes,
    /// Their number.
    pub runs: u64,
    /// All their bytes.
    pub bytes: Bytes,
}

impl Default for FreeSpace {
    fn default() -> Self {
        Self {
            buckets: [(0, 0); 65],
            largest: 0,
            open: None,
        }
    }
}

impl FreeSpace {
    /// Add free runs in the order of the device. Neighbours that touch are one run.
    pub fn add(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = start.saturating_add(len);
        match &mut self.open {
            Some((_, open_end)) if *open_end == start => *open_end = end,
            _ => {
                self.close();
                self.open = Some((start, end));
            }
        }
    }

    /// End the run that was added last: what is added next does not touch it.
    pub fn close(&mut self) {
        if let Some((start, end)) = self.open.take() {
            let len = end - start;
            let bucket = &mut self.buckets[len.ilog2() as usize];
            bucket.0 += 1;
            bucket.1 = bucket.1.saturating_add(len);
            self.largest = self.largest.max(len);
        }
    }

    /// Add the runs of another device.
    pub fn add_all(&mut self, other: &Self) {
        let mut other = other.clone();
        other.close();
        self.close();
        for (ours, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            ours.0 += theirs.0;
            ours.1 = ours.1.saturating_add(theirs.1);
        }
        self.largest = self.largest.max(other.largest);
    }

    /// Free bytes.
    #[must_use]
    pub fn total(&self) -> Bytes {
        let open = self.open.map_or(0, |(start, end)| end - start);
        let closed = self.buckets.iter().map(|(_, bytes)| bytes);
        Bytes(closed.fold(open, |sum, bytes| sum.saturating_add(*bytes)))
    }

    /// The longest run: a larger file cannot get one piece.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        let open = self.open.map_or(0, |(start, end)| end - start);
        Bytes(self.largest.max(open))
    }

    /// Runs.
    #[must_use]
    pub fn runs(&self) -> u64 {
        u64::from(self.open.is_some()) + self.buckets.iter().map(|(runs, _)| runs).sum::<u64>()
    }

    /// The runs by length, the shortest first.
    pub fn histogram(&self) -> impl Iterator<Item = FreeRuns> {
        let mut all = self.clone();
        all.close();
        (all.buckets.into_iter().enumerate())
            .filter(|(_, (runs, _))| *runs > 0)
            .map(|(bits, (runs, bytes))| FreeRuns {
                least: Bytes(1 << bits),
                runs,
                bytes: Bytes(bytes),
            })
    }

    /// About how many pieces a new file of this size gets at best, when the longest runs are taken first;
    /// `None` where there is no room for it. Runs of about the same length count as equally long.
    #[must_use]
    pub fn pieces(&self, size: Bytes) -> Option<u64> {
        let mut left = size.get();
        if left <= self.largest().get() {
            return Some(u64::from(left > 0));
        }
        let runs: Vec<_> = self.histogram().collect();
        let mut pieces = 0;
        for like in runs.iter().rev() {
            if left <= like.bytes.get() {
                let share = u128::from(left) * u128::from(like.runs);
                return Some(pieces + share.div_ceil(like.bytes.get().into()) as u64);
            }
            left -= like.bytes.get();
            pieces += like.runs;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(runs: &[(u64, u64)]) -> FreeSpace {
        let mut free = FreeSpace::default();
        runs.iter().for_each(|(start, len)| free.add(*start, *len));
        free
    }

    #[test]
    fn runs_that_touch_are_one() {
        let free = of(&[(0, 4), (4, 4), (16, 0), (16, 2), (100, 5)]);
        assert_eq!(
            (free.runs(), free.total(), free.largest()),
            (3, Bytes(15), Bytes(8))
        );
        let histogram: Vec<_> = free
            .histogram()
            .map(|like| (like.least.get(), like.runs))
            .collect();
        assert_eq!(histogram, [(2, 1), (4, 1), (8, 1)]);
        let mut two = free.clone();
        two.add_all(&of(&[(105, 8)]));
        assert_eq!((two.runs(), two.largest()), (4, Bytes(8)), "another device");
    }

    #[test]
    fn a_large_file_gets_the_longest_runs() {
        let free = of(&[(0, 8), (10, 8), (20, 8), (30, 2), (40, 2), (50, 2)]);
        let pieces = |size| free.pieces(Bytes(size));
        assert_eq!([0, 1, 8].map(pieces), [Some(0), Some(1), Some(1)]);
        assert_eq!([9, 17, 24, 25, 30].map(pieces), [2, 3, 3, 4, 6].map(Some));
        assert_eq!(pieces(31), None);
    }

    proptest! {
        #[test]
        fn sums_agree(runs in proptest::collection::vec((1_u64..1000, 1_u64..1 << 40), 0..40)) {
            let (mut free, mut at, mut total) = (FreeSpace::default(), 0, 0);
            for (gap, len) in &runs {
                at += gap;
                free.add(at, *len);
                at += len;
                total += len;
            }
            prop_assert_eq!(free.total(), Bytes(total));
            prop_assert_eq!(free.runs(), runs.len() as u64);
            prop_assert_eq!(free.histogram().map(|like| like.bytes).sum::<Bytes>(), Bytes(total));
            let all = free.pieces(Bytes(total));
            prop_assert_eq!(all, Some(runs.len() as u64));
            prop_assert_eq!(free.pieces(Bytes(total + 1)), None);
        }
    }
}
