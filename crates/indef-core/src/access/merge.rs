//! Merging of overlapping requests (FragPicker Algorithm 1; InDeF §III-A: "preserves the largest
//! address range"), without the chains that this makes of small unaligned requests.
//!
//! Requests that overlap, directly or through others, form one *cluster*. The papers turn it into one
//! range, with the sum of the counts. If small reads that are not aligned lie all over a file, the
//! cluster is the file, and one count for all of it does not tell which part is hot. So:
//!
//! - A cluster of equal requests, or no longer than a *piece*, is one range with the sums, as in the
//!   papers.
//! - Any other is cut at multiples of the piece, and each access counts for every piece that it
//!   touches: no piece has fewer than the accesses of its hottest byte. Neighbouring pieces that the
//!   same accesses touch stay together.
//! - A piece is [`PIECE_OF_REQUESTS`] times the longest request of the cluster, rounded up to a power
//!   of two of blocks, and at most [`AccessOptions::max_range`]. It follows the requests because DoLF
//!   is about the data of one request, and because one limit for all would rank a short cluster of
//!   small reads, which sums up, before the same reads in a long one.
//!
//! The observations of a request that touches several pieces count in each of them, so that the means
//! (time for each timed read, requests for each read) hold.
//!
//! Both inputs are ordered by file and offset; time is O(n log n) in the worst case, linear if few
//! requests overlap at a time, and memory besides the result is proportional to that number.

use std::collections::BTreeMap;

use units::{Bytes, FileOffset, FileRange};

use super::{
    range::{AccessRange, FileAccesses, Observed},
    record::{AccessOptions, AccessRecord, Op},
};

/// How many of the longest requests a piece holds: of evenly spread ones, at most a quarter crosses a
/// cut, where a fragment's boundary is in neither piece.
const PIECE_OF_REQUESTS: u64 = 4;

/// Merge aligned records and ranges. Requests that only touch stay apart: each is a request of its
/// own for the device.
pub(super) fn merge(
    records: &[AccessRecord],
    ranges: &[(u32, AccessRange)],
    options: &AccessOptions,
) -> FileAccesses {
    let requests = Requests { records, ranges };
    // Counted first, so that the result is allocated once: at ten million records the doubling of a
    // growing vector would be the peak of the program's memory.
    let mut count = 0;
    clusters(requests, options, |_, _| count += 1);
    let mut merged = FileAccesses {
        files: Vec::new(),
        ranges: Vec::with_capacity(count),
    };
    clusters(requests, options, |file, range| {
        merged.ranges.push(range);
        let end = merged.ranges.len();
        match merged.files.last_mut() {
            Some(last) if last.0 == file => last.1 = end,
            _ => merged.files.push((file, end)),
        }
    });
    merged
}

/// The rest of both inputs. A copy of it walks the same requests again.
#[derive(Clone, Copy)]
struct Requests<'a> {
    records: &'a [AccessRecord],
    ranges: &'a [(u32, AccessRange)],
}

impl Iterator for Requests<'_> {
    type Item = (u32, AccessRange);

    /// The next request of either input, by file and offset.
    fn next(&mut self) -> Option<Self::Item> {
        let by_record = match (self.records.first(), self.ranges.first()) {
            (Some(record), Some((file, range))) => {
                (record.file, record.offset) <= (*file, range.range.start)
            }
            (record, _) => record.is_some(),
        };
        if by_record {
            let (record, rest) = self.records.split_first()?;
            self.records = rest;
            Some((record.file, of_record(record)))
        } else {
            let (range, rest) = self.ranges.split_first()?;
            self.ranges = rest;
            Some(*range)
        }
    }
}

fn of_record(record: &AccessRecord) -> AccessRange {
    let end = FileOffset(record.offset.0.saturating_add(record.len.0));
    AccessRange {
        range: FileRange::between(record.offset, end),
        reads: u64::from(record.op == Op::Read),
        writes: u64::from(record.op == Op::Write),
        observed: Observed::default(),
    }
}

/// Requests that overlap.
struct Cluster<'a> {
    /// From its first request on.
    requests: Requests<'a>,
    /// Number of requests.
    len: usize,
    /// The longest of them, in bytes.
    longest: u64,
    /// The range into which the papers would merge it.
    merged: AccessRange,
}

/// Call `emit` with each resulting range.
fn clusters(
    mut requests: Requests<'_>,
    options: &AccessOptions,
    mut emit: impl FnMut(u32, AccessRange),
) {
    let mut here = requests;
    let mut next = requests.next();
    while let Some((file, merged)) = next {
        let mut cluster = Cluster {
            requests: here,
            len: 1,
            longest: merged.range.len.0,
            merged,
        };
        let mut equal = true;
        loop {
            here = requests;
            next = requests.next();
            let Some((other, request)) = next else { break };
            if other != file || request.range.start >= cluster.merged.range.end() {
                break;
            }
            equal &= request.range == cluster.merged.range;
            cluster.add(&request);
        }
        let piece = cluster.piece(options);
        if equal || options.max_range.is_zero() || cluster.merged.range.len <= piece {
            emit(file, cluster.merged);
        } else {
            cluster.cut(piece, |range| emit(file, range));
        }
    }
}

impl Cluster<'_> {
    fn add(&mut self, request: &AccessRange) {
        let merged = &mut self.merged;
        let widest = merged.range.end().max(request.range.end());
        merged.range = FileRange::between(merged.range.start, widest);
        merged.reads = merged.reads.saturating_add(request.reads);
        merged.writes = merged.writes.saturating_add(request.writes);
        merged.observed += request.observed;
        self.len += 1;
        self.longest = self.longest.max(request.range.len.0);
    }

    /// The length of its pieces.
    fn piece(&self, options: &AccessOptions) -> Bytes {
        let block = options.block_size.0;
        let several = self.longest.saturating_mul(PIECE_OF_REQUESTS) / block;
        let blocks = several.checked_next_power_of_two().unwrap_or(u64::MAX);
        let most = FileOffset(options.max_range.0.max(1)).align_up(options.block_size);
        Bytes(blocks.saturating_mul(block).min(most.0))
    }

    /// Emit its pieces. Only the borders of pieces in which a request begins or ends are visited:
    /// between two of them, the same requests are touched.
    fn cut(&self, piece: Bytes, mut emit: impl FnMut(AccessRange)) {
        let all = self.merged.range;
        let mut sums = Sums::default();
        // The counts that end at each offset.
        let mut ends: BTreeMap<u64, Sums> = BTreeMap::new();
        let mut from = all.start.0;
        let mut emit_to = |from: &mut u64, to: u64, sums: &Sums| {
            if to > *from {
                let range = FileRange::between(FileOffset(*from), FileOffset(to));
                emit(sums.over(range));
                *from = to;
            }
        };
        for (_, request) in self.requests.take(self.len) {
            let begin = request.range.start.align_down(piece).max(all.start).0;
            while let Some(first) = ends.first_entry()
                && *first.key() <= begin
            {
                let (end, ended) = first.remove_entry();
                emit_to(&mut from, end, &sums);
                sums.take(&ended);
            }
            emit_to(&mut from, begin, &sums);
            let counts = Sums::of(&request);
            sums.add(&counts);
            // Rounding up saturates at the top; there the end itself is used.
            let end = request.range.end().align_up(piece).max(request.range.end());
            ends.entry(end.min(all.end()).0).or_default().add(&counts);
        }
        for (end, ended) in ends {
            emit_to(&mut from, end, &sums);
            sums.take(&ended);
        }
    }
}

/// Counts that can be subtracted again, which saturating ones cannot.
#[derive(Clone, Copy, Default)]
struct Sums([u128; 7]);

impl Sums {
    fn of(request: &AccessRange) -> Self {
        let Observed {
            requests,
            timed,
            time,
            ahead,
        } = request.observed;
        let unknown = if ahead.is_none() { timed } else { 0 };
        let ahead = ahead.unwrap_or(0);
        let AccessRange { reads, writes, .. } = *request;
        Self([reads, writes, requests, timed, time.0, ahead, unknown].map(u128::from))
    }

    fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    fn take(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum -= count;
        }
    }

    fn over(&self, range: FileRange) -> AccessRange {
        let [reads, writes, requests, timed, time, ahead, unknown] =
            self.0.map(|sum| u64::try_from(sum).unwrap_or(u64::MAX));
        AccessRange {
            range,
            reads,
            writes,
            observed: Observed {
                requests,
                timed,
                time: units::Nanos(time),
                ahead: (timed > 0 && unknown == 0).then_some(ahead),
            },
        }
    }
}
