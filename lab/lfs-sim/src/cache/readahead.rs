//! The windows that the kernel reads ahead of a sequential reader.

use std::ops::Range;

/// The windows of one reader, in blocks: each at the end of the one before, and twice as long (from the shortest
/// ones: four times) up to the longest (`get_init_ra_size`, `get_next_ra_size`, mm/readahead.c, v6.12). With calls of
/// 4 KiB and a limit of 128 KiB they have 16, 32, 64, 128, 128 … KiB.
#[derive(Clone, Debug)]
pub struct Windows {
    next: u32,
    end: u32,
    size: u32,
    longest: u32,
}

impl Windows {
    /// Of a reader of the blocks in `file`, whose first call takes `call` blocks.
    #[must_use]
    pub fn new(file: Range<u32>, call: u32, longest: u32) -> Self {
        let call = call.max(1).next_power_of_two();
        let size = match call {
            _ if call <= longest / 32 => call * 4,
            _ if call <= longest / 4 => call * 2,
            _ => longest,
        };
        Self {
            next: file.start,
            end: file.end,
            size: size.max(1),
            longest: longest.max(1),
        }
    }

    /// Windows that all have one size: a program that reads past the cache, call by call.
    #[must_use]
    pub fn of_calls(file: Range<u32>, call: u32) -> Self {
        Self {
            next: file.start,
            end: file.end,
            size: call.max(1),
            longest: call.max(1),
        }
    }
}

impl Iterator for Windows {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        let start = self.next;
        if start >= self.end {
            return None;
        }
        self.next = start.saturating_add(self.size).min(self.end);
        self.size = match self.size {
            size if size < self.longest / 16 => size * 4,
            size if size <= self.longest / 2 => size * 2,
            _ => self.longest,
        };
        Some(start..self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(windows: Windows) -> Vec<u32> {
        windows.map(|window| window.end - window.start).collect()
    }

    #[test]
    fn windows_grow_from_16_to_128_kib() {
        assert_eq!(sizes(Windows::new(0..100, 1, 32)), [4, 8, 16, 32, 32, 8]);
        // grep reads 32 KiB with each call.
        assert_eq!(sizes(Windows::new(3..80, 8, 32)), [16, 32, 29]);
        assert_eq!(sizes(Windows::new(0..70, 64, 32)), [32, 32, 6]);
        assert_eq!(
            sizes(Windows::new(0..700, 1, 512)),
            [4, 16, 64, 128, 256, 232]
        );
        assert_eq!(sizes(Windows::of_calls(0..130, 64)), [64, 64, 2]);
        assert!(sizes(Windows::new(5..5, 1, 32)).is_empty());
    }
}
