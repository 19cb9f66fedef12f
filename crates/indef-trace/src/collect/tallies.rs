//! From the kernel's counters to tallies: ranges grow to whole blocks, and runs become read-ahead
//! windows.

use indef_core::access::Observed;
use units::{Bytes, FileOffset, FileRange, Nanos};

use super::contract::{
    BLOCK_BITS, Counters, EVENT_RANGE, Fault, KIND_BITS, KIND_READ, KIND_READ_RUN, KIND_WRITE,
    RangeEvent, RangeKey, Run,
};
use crate::tally::{FileKey, Tally};

/// Ranges are handed out in whole blocks of this size.
const BLOCK: Bytes = Bytes(1 << BLOCK_BITS);

/// The range and counts of a run that went on when the programs were detached, as `end_run` of syscall.bpf.c counts it.
pub(super) fn of_run(run: &Run) -> (RangeKey, Counters) {
    let kind = match run.reads > 1 {
        true => KIND_READ_RUN,
        false => KIND_READ,
    };
    let key = RangeKey {
        start: run.start,
        len: run.end - run.start,
        file: run.file,
        kind: kind | run.process << KIND_BITS,
    };
    let counters = Counters {
        count: run.weight,
        reads: run.reads * run.weight,
        ..Counters::default()
    };
    (key, counters)
}

/// How a task's last fault counts.
pub(super) fn counts_of_fault(fault: &Fault) -> Counters {
    Counters {
        count: fault.weight,
        reads: fault.weight,
        ..Counters::default()
    }
}

/// The read that a task's last fault is, as `end_fault` of syscall.bpf.c sends it.
pub(super) fn of_fault(fault: &Fault) -> RangeEvent {
    RangeEvent {
        kind: EVENT_RANGE,
        requests: 0,
        range: RangeKey {
            start: fault.start,
            len: fault.end - fault.start,
            file: fault.file,
            kind: KIND_READ,
        },
        time: fault.time,
        pid: fault.pid,
        direct: 0,
    }
}

/// Add the tallies of one range with its counts.
pub(super) fn expand(
    file: FileKey,
    range: &RangeKey,
    counted: &Counters,
    readahead: Bytes,
    into: &mut Vec<Tally>,
) {
    let bytes = FileRange::new(range.start, range.len);
    let count = u64::from(counted.count);
    let tally = |range: FileRange| Tally {
        file,
        range,
        reads: 0,
        writes: 0,
        observed: Observed::default(),
    };
    match range.kind {
        KIND_WRITE => into.push(Tally {
            writes: count,
            ..tally(bytes.align_outward(BLOCK))
        }),
        KIND_READ_RUN => into.extend(windows(bytes, window_of(bytes, counted, readahead)).map(
            |window| Tally {
                reads: count,
                ..tally(window)
            },
        )),
        _ => into.push(Tally {
            reads: count,
            observed: Observed {
                requests: counted.requests.into(),
                timed: counted.timed.into(),
                time: Nanos(counted.time),
                ahead: counted.depth.checked_sub(counted.timed.into()),
            },
            ..tally(bytes.align_outward(BLOCK))
        }),
    }
}

/// The window of a run: reads that are longer than read-ahead are fetched as they are.
fn window_of(run: FileRange, counted: &Counters, readahead: Bytes) -> Bytes {
    let bytes = run.len.0.saturating_mul(counted.count.into());
    readahead.max(Bytes(bytes / u64::from(counted.reads).max(1)))
}

/// The windows that read-ahead fetches for a run of reads, one after the other, from the block in
/// which the run begins (as `indef_core::access` models it).
fn windows(run: FileRange, window: Bytes) -> impl Iterator<Item = FileRange> {
    let step = window.0.max(BLOCK.0);
    let mut start = run.start.align_down(BLOCK);
    std::iter::from_fn(move || {
        if start >= run.end() {
            return None;
        }
        let end = FileOffset(start.0.saturating_add(step)).align_up(BLOCK);
        let window = FileRange::between(start, end);
        start = end;
        Some(window)
    })
}

#[cfg(test)]
mod tests {
    use indef_core::access::{AccessOptions, AccessRecord, Op, ranges};
    use proptest::prelude::*;

    use super::*;

    const KEY: FileKey = FileKey {
        dev: 1,
        inode: 2,
        generation: 3,
        subvolume: 0,
    };

    fn key(start: u64, len: u64, kind: u32) -> RangeKey {
        RangeKey {
            start,
            len,
            file: 1,
            kind,
        }
    }

    /// Three runs of this many reads each.
    fn counted(reads: u32) -> Counters {
        Counters {
            count: 3,
            requests: 7,
            timed: 2,
            time: 50,
            depth: 9,
            reads: 3 * reads,
        }
    }

    /// Its calls are on the other side of its process's factor.
    #[test]
    fn a_run_that_is_cut_counts_with_its_process() {
        let run = Run {
            start: 4096,
            end: 12288,
            reads: 2,
            weight: 64,
            process: 7,
            ..Run::default()
        };
        let (range, counters) = of_run(&run);
        assert_eq!((range.start, range.len), (4096, 8192));
        assert_eq!(range.kind, KIND_READ_RUN | 7 << KIND_BITS);
        assert_eq!((counters.count, counters.reads), (64, 128));
    }

    fn expanded(range: &RangeKey, reads: u32, readahead: Bytes) -> Vec<Tally> {
        let mut tallies = Vec::new();
        expand(KEY, range, &counted(reads), readahead, &mut tallies);
        tallies
    }

    #[test]
    fn single_accesses_grow_to_blocks() {
        let [read] = expanded(&key(5000, 100, 0), 1, Bytes::kib(128))[..] else {
            panic!("one");
        };
        assert_eq!(read.range, FileRange::new(4096, 4096));
        assert_eq!((read.reads, read.writes), (3, 0));
        assert_eq!((read.observed.requests, read.observed.ahead), (7, Some(7)));
        // It is not known of one of the two.
        let mut tallies = Vec::new();
        let depth = 1;
        let unknown = Counters {
            depth,
            ..counted(1)
        };
        expand(KEY, &key(0, 9, 0), &unknown, Bytes::kib(128), &mut tallies);
        assert_eq!(tallies[0].observed.ahead, None);
        let [write] = expanded(&key(4095, 2, 1), 1, Bytes::kib(128))[..] else {
            panic!("one");
        };
        assert_eq!(write.range, FileRange::new(0, 8192));
        assert_eq!((write.reads, write.writes), (0, 3));
    }

    proptest! {
        #[test]
        fn a_run_is_what_the_model_makes_of_its_reads(start in 0u64..100_000, sizes in prop_oneof![prop::collection::vec(1u64..20_000, 2..60), (131_072u64..1_000_000, 2usize..9).prop_map(|(size, n)| vec![size.next_multiple_of(4096); n])]) {
            // Long reads that are not aligned overlap by a block, and merge.
            let start = if sizes[0] > 131_071 { start & !4095 } else { start };
            let mut offset = start;
            let record = |len: &u64| {
                let at = offset;
                offset += len;
                AccessRecord { file: 0, offset: FileOffset(at), len: Bytes(*len), op: Op::Read, direct: false, time: Nanos(at) }
            };
            let records: Vec<_> = sizes.iter().map(record).collect();
            let modelled = ranges(records, &AccessOptions::default());
            let run = expanded(&key(start, offset - start, KIND_READ_RUN), sizes.len() as u32, Bytes::kib(128));
            let windows: Vec<_> = run.iter().map(|t| t.range).collect();
            let expected: Vec<_> = modelled.of(0).iter().map(|r| r.range).collect();
            prop_assert_eq!(windows, expected);
        }
    }
}
