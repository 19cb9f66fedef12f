//! Bytes counted on each parallel unit of a device.

/// Bytes for each parallel unit. A part of a full round that every unit has alike may be left out:
/// DoPF does not see it.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    /// Addresses before this one lie on no known unit.
    pub(super) origin: u64,
    /// Consecutive bytes on one unit.
    pub(super) granule: u64,
    /// The mapping begins again at every multiple of this, `lanes` units further. DoPF of a piece
    /// depends on the device only by its place modulo this.
    pub(super) period: u64,
    /// Units that one period lies on.
    pub(super) lanes: u64,
    /// The block that DoPF counts in.
    pub(super) block: u64,
    /// The bytes on each unit; empty where the mapping is unknown.
    pub(super) bytes: Vec<u64>,
}

impl Spread {
    /// Whether the mapping is unknown.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reset all counts.
    pub(super) fn clear(&mut self) {
        self.bytes.fill(0);
    }

    /// Count the device bytes `phys..phys + len`; returns how many of them lie on known units. Its
    /// time depends on the number of units, not on `len`.
    pub(super) fn add(&mut self, phys: u64, len: u64) -> u64 {
        let end = phys.saturating_add(len);
        let start = phys.max(self.origin);
        if self.is_empty() || start >= end {
            return 0;
        }
        let at = start - self.origin;
        let (segment, place) = (at / self.period, at % self.period);
        let head = (end - start).min(self.period - place);
        self.add_within(segment, place, head, 1);
        let rest = end - start - head;
        self.add_segments(segment + 1, rest / self.period);
        let last = segment + 1 + rest / self.period;
        self.add_within(last, 0, rest % self.period, 1);
        end - start
    }

    /// Count `count` whole segments from `first` on.
    fn add_segments(&mut self, first: u64, count: u64) {
        // After this many segments their beginnings are on the same units again.
        let units = self.bytes.len() as u64;
        let cycle = units / gcd(self.lanes, units);
        for i in 0..cycle.min(count) {
            let times = count / cycle + u64::from(i < count % cycle);
            self.add_within(first + i, 0, self.period, times);
        }
    }

    /// Count `len` bytes from `place` of a segment, `times` over.
    fn add_within(&mut self, segment: u64, mut place: u64, mut len: u64, times: u64) {
        let units = self.bytes.len() as u64;
        let first = segment % units * self.lanes % units;
        let round = self.granule.saturating_mul(self.lanes);
        // Every full round over the lanes gives each of them one granule, wherever it begins; where
        // the lanes are all units, that makes no difference between them.
        if self.lanes < units {
            let alike = len / round * self.granule * times;
            for lane in 0..self.lanes {
                self.bytes[((first + lane) % units) as usize] += alike;
            }
        }
        len %= round;
        while len > 0 {
            let part = len.min(self.granule - place % self.granule);
            let lane = place / self.granule % self.lanes;
            self.bytes[((first + lane) % units) as usize] += part * times;
            place += part;
            len -= part;
        }
    }

    /// InDeF §II-A, eq. 1: the mean over the units of (N_i − M/L)², in blocks.
    pub(super) fn dopf(&self) -> f64 {
        if self.bytes.is_empty() {
            return 0.0;
        }
        let blocks = |bytes: u64| bytes as f64 / self.block as f64;
        let units = self.bytes.len() as f64;
        let mean = self.bytes.iter().copied().map(blocks).sum::<f64>() / units;
        let squares = self.bytes.iter().map(|&n| (blocks(n) - mean).powi(2));
        squares.sum::<f64>() / units
    }
}

#[cfg(test)]
impl Spread {
    /// The units on which some bytes were counted.
    pub(super) fn units_used(&self) -> Vec<usize> {
        let used = self.bytes.iter().enumerate().filter(|(_, n)| **n > 0);
        used.map(|(unit, _)| unit).collect()
    }
}

/// Greatest common divisor; of 0 and `a` it is `a`.
pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
