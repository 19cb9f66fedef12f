//! Tests of read-ahead and merging, and that neither depends on the order of the records.

use proptest::prelude::*;
use units::{FileOffset, FileRange, Nanos};

use super::*;

const BLOCK: u64 = 4096;

fn record(op: Op, direct: bool, offset: u64, len: u64, time: u64) -> AccessRecord {
    AccessRecord {
        file: 0,
        offset: FileOffset(offset),
        len: Bytes(len),
        op,
        direct,
        time: Nanos(time),
    }
}

/// Reads in the order of their time.
fn reads(direct: bool, places: &[(u64, u64)]) -> Vec<AccessRecord> {
    let one = |(time, &(offset, len))| record(Op::Read, direct, offset, len, time as u64);
    places.iter().enumerate().map(one).collect()
}

/// (first byte, bytes, reads) of file 0.
fn shown(records: Vec<AccessRecord>) -> Vec<(u64, u64, u64)> {
    ranges(records, &AccessOptions::default())
        .of(0)
        .iter()
        .map(|r| (r.range.start.0, r.range.len.0, r.reads))
        .collect()
}

const KIB: u64 = 1024;

#[test]
fn a_sequential_buffered_reader_becomes_read_ahead_windows() {
    let grep: Vec<_> = (0..16).map(|i| (i * 32 * KIB, 32 * KIB)).collect();
    let windows: Vec<_> = (0..4).map(|i| (i * 128 * KIB, 128 * KIB, 1)).collect();
    assert_eq!(shown(reads(false, &grep)), windows);
    // Line by line makes no difference.
    let lines: Vec<_> = (0..5242).map(|i| (i * 100, 100)).collect();
    assert_eq!(shown(reads(false, &lines)), windows[..4]);
    // Direct reads reach the device unchanged.
    assert_eq!(shown(reads(true, &grep)).len(), 16);
}

#[test]
fn each_file_may_have_a_window_of_its_own() {
    let options = AccessOptions::default();
    let mut model = ReadAhead::new(&options);
    model.set_window(1, Bytes(512 * KIB));
    model.set_window(2, Bytes::ZERO);
    let sequential: Vec<_> = (0..16).map(|i| (i * 64 * KIB, 64 * KIB)).collect();
    let of = |file| {
        let records = reads(false, &sequential).into_iter();
        records.map(move |record| AccessRecord { file, ..record })
    };
    let records = (0..3).flat_map(of).collect();
    let joined = join_with(records, Vec::new(), &options, model);
    let lengths = |file| -> Vec<u64> {
        let ranges = joined.of(file).iter();
        ranges.map(|r| r.range.len.0 / KIB).collect()
    };
    assert_eq!(lengths(0), [128; 8]);
    assert_eq!(lengths(1), [512; 2]);
    assert_eq!(lengths(2), [64; 16]);
}

#[test]
fn windows_begin_where_the_reader_began() {
    let from_64k: Vec<_> = (2..10).map(|i| (i * 32 * KIB, 32 * KIB)).collect();
    let expected = [(64 * KIB, 128 * KIB, 1), (192 * KIB, 128 * KIB, 1)];
    assert_eq!(shown(reads(false, &from_64k)), expected);
}

#[test]
fn large_sequential_reads_stay_whole() {
    let large = [(0, 1024 * KIB), (1024 * KIB, 1024 * KIB)];
    let expected = [(0, 1024 * KIB, 1), (1024 * KIB, 1024 * KIB, 1)];
    assert_eq!(shown(reads(false, &large)), expected);
    // 100 KiB at a time: a window begins where the last one ended.
    let uneven: Vec<_> = (0..4).map(|i| (i * 100 * KIB, 100 * KIB)).collect();
    let windows: Vec<_> = (0..4).map(|i| (i * 128 * KIB, 128 * KIB, 1)).collect();
    assert_eq!(shown(reads(false, &uneven)), windows[..4]);
}

#[test]
fn random_and_repeated_reads_do_not_grow() {
    let random = [
        (40_960, 4096),
        (0, 100),
        (1_000_000, 8192),
        (0, 100),
        (20_480, 1),
    ];
    let expected = [
        (0, 4096, 2),
        (20_480, 4096, 1),
        (40_960, 4096, 1),
        (999_424, 12_288, 1),
    ];
    assert_eq!(shown(reads(false, &random)), expected);
}

#[test]
fn interleaved_readers_are_told_apart() {
    let mut places = Vec::new();
    for step in 0..32 {
        for reader in 0..4 {
            places.push((reader * 1024 * KIB + step * 4 * KIB, 4 * KIB));
        }
    }
    let expected: Vec<_> = (0..4).map(|r| (r * 1024 * KIB, 128 * KIB, 1)).collect();
    assert_eq!(shown(reads(false, &places)), expected);
}

#[test]
fn reading_a_file_twice_counts_twice() {
    let once: Vec<_> = (0..8).map(|i| (i * 32 * KIB, 32 * KIB)).collect();
    let twice = [&once[..], &once[..]].concat();
    let expected = [(0, 128 * KIB, 2), (128 * KIB, 128 * KIB, 2)];
    assert_eq!(shown(reads(false, &twice)), expected);
}

#[test]
fn the_model_can_be_turned_off() {
    let options = AccessOptions {
        readahead: Bytes::ZERO,
        ..AccessOptions::default()
    };
    let sequential = reads(false, &[(0, 4096), (4096, 4096), (8192, 4096)]);
    assert_eq!(ranges(sequential, &options).of(0).len(), 3);
}

#[test]
fn overlapping_requests_merge_to_the_widest_range() {
    // FragPicker §4.1.2: 1–40 and 31–60 become 1–60, here in blocks.
    let overlapping = reads(true, &[(BLOCK, 40 * BLOCK), (31 * BLOCK, 30 * BLOCK)]);
    assert_eq!(shown(overlapping), [(BLOCK, 60 * BLOCK, 2)]);
    let touching = reads(true, &[(0, BLOCK), (BLOCK, BLOCK)]);
    assert_eq!(shown(touching).len(), 2);
}

#[test]
fn writes_are_counted_apart_and_files_kept_apart() {
    let mut records = reads(true, &[(0, BLOCK), (0, BLOCK)]);
    records.push(record(Op::Write, false, 100, 200, 9));
    records.push(AccessRecord {
        file: 7,
        ..records[0]
    });
    records.push(record(Op::Read, true, 50, 0, 10));
    let accesses = ranges(records, &AccessOptions::default());
    let expected = AccessRange {
        range: FileRange::new(0, BLOCK),
        reads: 2,
        writes: 1,
        ..AccessRange::default()
    };
    assert_eq!(accesses.of(0), [expected]);
    assert_eq!(accesses.of(7).len(), 1);
    assert!(accesses.of(3).is_empty());
    assert_eq!(
        accesses.iter().map(|(file, _)| file).collect::<Vec<_>>(),
        [0, 7]
    );
    assert_eq!(accesses.len(), 2);
}

#[test]
fn records_at_the_end_of_the_number_line_do_not_wrap() {
    let absurd = reads(
        false,
        &[(u64::MAX - 1, u64::MAX), (u64::MAX - 10, 3), (0, u64::MAX)],
    );
    let accesses = ranges(absurd, &AccessOptions::default());
    assert_eq!(accesses.of(0).iter().map(|r| r.reads).sum::<u64>(), 3);
}

#[test]
fn a_chain_of_small_reads_keeps_the_heat_of_its_parts() {
    // 8 KiB reads at every block of 4 MiB, and a hot one among them.
    let mut places: Vec<_> = (0..1023).map(|i| (i * BLOCK, 2 * BLOCK)).collect();
    places.extend([(512 * BLOCK, 2 * BLOCK); 1000]);
    let accesses = ranges(reads(true, &places), &AccessOptions::default());
    // Pieces of four requests, 32 KiB.
    assert_eq!(accesses.len(), 128);
    for range in accesses.of(0) {
        assert_eq!(range.range.len, Bytes::kib(32));
        let hot = range.range.start.0 == 512 * BLOCK;
        // Eight begin in it, and one before; at the ends of the file it is eight in all.
        let reads = match range.range.start.0 / BLOCK {
            0 | 1016 => 8,
            _ => 9,
        };
        assert_eq!(range.reads, if hot { 1000 } else { 0 } + reads);
    }
    let papers = AccessOptions {
        max_range: Bytes::ZERO,
        ..AccessOptions::default()
    };
    let whole = ranges(reads(true, &places), &papers);
    assert_eq!(whole.len(), 1);
    assert_eq!(whole.of(0)[0].reads, 2023);
}

#[test]
fn a_long_read_over_hot_ones_stays_long_between_them() {
    let hot = (300 * KIB, 16 * KIB);
    let places = [(0, 1 << 30), hot, hot];
    assert_eq!(
        shown(reads(true, &places)),
        [
            (0, 256 * KIB, 1),
            (256 * KIB, 256 * KIB, 3),
            (512 * KIB, (1 << 30) - 512 * KIB, 1),
        ]
    );
    // Equal ones are one range, however long.
    assert_eq!(shown(reads(true, &[(0, 1 << 30); 3])), [(0, 1 << 30, 3)]);
}

#[test]
fn ranges_that_were_counted_join_as_they_are() {
    let observed = Observed {
        requests: 20,
        timed: 5,
        time: Nanos(500),
        ahead: Some(35),
    };
    let counted = |file, start, len| {
        let range = AccessRange {
            range: FileRange::new(start, len),
            reads: 10,
            writes: 1,
            observed,
        };
        (file, range)
    };
    // Sequential, and yet no read-ahead; one grows to its blocks; one has no bytes.
    let counted = vec![
        counted(1, 16 * KIB, 16 * KIB),
        counted(1, 0, 16 * KIB),
        counted(0, 100, 100),
        counted(0, 4 * KIB, 0),
    ];
    let records = reads(true, &[(0, 1), (8 * KIB, 1)]);
    let joined = join(records, counted, &AccessOptions::default());
    let places = |file: u32| -> Vec<_> {
        let ranges = joined.of(file).iter();
        ranges
            .map(|r| (r.range.start.0, r.range.len.0, r.reads, r.writes))
            .collect()
    };
    assert_eq!(places(0), [(0, 4096, 11, 1), (8 * KIB, 4096, 1, 0)]);
    let both = [(0, 16 * KIB, 10, 1), (16 * KIB, 16 * KIB, 10, 1)];
    assert_eq!(places(1), both);
    assert!(joined.of(1).iter().all(|r| r.observed == observed));
}

fn any_ranges() -> impl Strategy<Value = Vec<(u32, AccessRange)>> {
    let one = (0u32..3, 0u64..400_000, 0u64..50_000, 0u64..9, 0u64..9);
    let one = one.prop_map(|(file, start, len, reads, writes)| {
        let range = AccessRange {
            range: FileRange::new(start, len),
            reads,
            writes,
            observed: Observed {
                requests: reads * 3,
                timed: reads,
                time: Nanos(reads * 7),
                ahead: Some(reads * 5),
            },
        };
        (file, range)
    });
    prop::collection::vec(one, 0..60)
}

fn any_records() -> impl Strategy<Value = Vec<AccessRecord>> {
    let one = (
        0u32..3,
        0u64..400_000,
        0u64..50_000,
        any::<bool>(),
        any::<bool>(),
        0u64..50,
    );
    let records = prop::collection::vec(one, 0..120);
    records.prop_map(|all| {
        let build = |(file, offset, len, write, direct, time)| AccessRecord {
            file,
            ..record(
                if write { Op::Write } else { Op::Read },
                direct,
                offset,
                len,
                time,
            )
        };
        all.into_iter().map(build).collect()
    })
}

#[test]
fn a_counted_range_of_no_bytes_is_no_access() {
    let nothing = AccessRange {
        range: FileRange::new(1, 0),
        reads: 3,
        ..AccessRange::default()
    };
    let joined = join(Vec::new(), vec![(0, nothing)], &AccessOptions::default());
    assert_eq!(joined.iter().count(), 0);
}

/// The blocks of a file that are in some range.
fn covered(ranges: impl IntoIterator<Item = FileRange>) -> Vec<u64> {
    let mut blocks: Vec<u64> = ranges
        .into_iter()
        .flat_map(|r| r.start.0 / BLOCK..r.end().0 / BLOCK)
        .collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

proptest! {
    #[test]
    fn merging_keeps_every_byte_and_every_count(records in any_records()) {
        let options = AccessOptions { readahead: Bytes::ZERO, max_range: Bytes::ZERO, ..AccessOptions::default() };
        let merged = ranges(records.clone(), &options);
        for file in 0..3 {
            let of_file = || records.iter().filter(|r| r.file == file && !r.len.is_zero());
            let requested = of_file().map(|r| {
                FileRange { start: r.offset, len: r.len }.align_outward(options.block_size)
            });
            prop_assert_eq!(covered(merged.of(file).iter().map(|r| r.range)), covered(requested));
            let count = |op| of_file().filter(|r| r.op == op).count() as u64;
            prop_assert_eq!(merged.of(file).iter().map(|r| r.reads).sum::<u64>(), count(Op::Read));
            prop_assert_eq!(merged.of(file).iter().map(|r| r.writes).sum::<u64>(), count(Op::Write));
        }
    }

    #[test]
    fn ranges_are_ordered_aligned_and_disjoint(records in any_records()) {
        let accesses = ranges(records, &AccessOptions::default());
        for (_, ranges) in accesses.iter() {
            prop_assert!(ranges.windows(2).all(|w| w[0].range.end() <= w[1].range.start));
            for r in ranges {
                prop_assert!(!r.range.is_empty() && r.reads + r.writes > 0);
                prop_assert_eq!(r.range, r.range.align_outward(Bytes(BLOCK)));
            }
        }
    }

    #[test]
    fn read_ahead_only_adds_bytes_and_only_takes_counts(records in any_records()) {
        let whole = AccessOptions { max_range: Bytes::ZERO, ..AccessOptions::default() };
        let off = AccessOptions { readahead: Bytes::ZERO, ..whole };
        let plain = ranges(records.clone(), &off);
        let grown = ranges(records, &whole);
        for file in 0..3 {
            let wide = covered(grown.of(file).iter().map(|r| r.range));
            let narrow = covered(plain.of(file).iter().map(|r| r.range));
            prop_assert!(narrow.iter().all(|block| wide.binary_search(block).is_ok()));
            let reads = |a: &FileAccesses| a.of(file).iter().map(|r| r.reads).sum::<u64>();
            prop_assert!(reads(&grown) <= reads(&plain));
        }
    }

    #[test]
    fn the_order_of_records_does_not_matter(records in any_records(), shuffled in any::<prop::sample::Index>()) {
        let mut other = records.clone();
        other.reverse();
        if !other.is_empty() {
            let middle = shuffled.index(other.len());
            other.rotate_left(middle);
        }
        let options = AccessOptions::default();
        prop_assert_eq!(ranges(records, &options), ranges(other, &options));
    }

    #[test]
    fn cutting_loses_no_byte_and_no_count(records in any_records(), counted in any_ranges(), most in 0u64..40) {
        let options = AccessOptions { readahead: Bytes::ZERO, max_range: Bytes(most * BLOCK), ..AccessOptions::default() };
        let joined = join(records.clone(), counted.clone(), &options);
        for file in 0..3 {
            let requests: Vec<(FileRange, u64, u64)> = records
                .iter()
                .filter(|r| r.file == file)
                .map(|r| {
                    let range = FileRange { start: r.offset, len: r.len };
                    (range, u64::from(r.op == Op::Read), u64::from(r.op == Op::Write))
                })
                .chain(counted.iter().filter(|(f, _)| *f == file).map(|(_, r)| (r.range, r.reads, r.writes)))
                .filter(|(range, reads, writes)| !range.is_empty() && reads + writes > 0)
                .map(|(range, reads, writes)| (range.align_outward(Bytes(BLOCK)), reads, writes))
                .collect();
            let of = joined.of(file);
            prop_assert!(of.windows(2).all(|w| w[0].range.end() <= w[1].range.start));
            prop_assert_eq!(covered(of.iter().map(|r| r.range)), covered(requests.iter().map(|r| r.0)));
            let longest = requests.iter().map(|r| r.0.len.0).max().unwrap_or(0);
            for piece in of {
                let touching: Vec<_> = requests.iter().filter(|r| r.0.overlaps(piece.range)).collect();
                // Never fewer than at the hottest byte, and never more than touch the range.
                let hottest = (piece.range.start.0 / BLOCK..piece.range.end().0 / BLOCK)
                    .map(|block| {
                        let block = FileRange::new(block * BLOCK, BLOCK);
                        touching.iter().filter(|r| r.0.overlaps(block)).map(|r| r.1).sum::<u64>()
                    })
                    .max()
                    .unwrap();
                prop_assert!(piece.reads >= hottest);
                prop_assert!(piece.reads <= touching.iter().map(|r| r.1).sum::<u64>());
                // Observations stay with their reads.
                prop_assert_eq!(piece.observed.requests, piece.observed.timed * 3);
                prop_assert_eq!(piece.observed.time.0, piece.observed.timed * 7);
                let ahead = piece.observed.timed * 5;
                prop_assert_eq!(piece.observed.ahead.unwrap_or(0), ahead);
                // No chains: each request spans a range that is longer than a piece.
                let limit = (longest * 4 / BLOCK).next_power_of_two().min(most.max(1)) * BLOCK;
                let through = |r: &FileRange| {
                    r.start.0 < piece.range.start.0 + limit && r.end().0 + limit > piece.range.end().0
                };
                prop_assert!(most == 0 || piece.range.len.0 <= limit || touching.iter().all(|r| through(&r.0)));
            }
        }
    }

    #[test]
    fn what_does_not_overlap_stays_as_it_is(places in prop::collection::btree_map(0u64..1000, (1u64..200, 1u64..5), 0..20), most in 0u64..9) {
        let mut end = 0;
        let mut expected = Vec::new();
        let mut records = Vec::new();
        for (gap, (blocks, times)) in places {
            let start = end + gap * BLOCK;
            end = start + blocks * BLOCK;
            expected.push((start, blocks * BLOCK, times));
            records.extend((0..times).map(|_| record(Op::Read, true, start, blocks * BLOCK, 0)));
        }
        let options = AccessOptions { max_range: Bytes(most * BLOCK), ..AccessOptions::default() };
        let found: Vec<_> = ranges(records, &options).of(0).iter().map(|r| (r.range.start.0, r.range.len.0, r.reads)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn read_ahead_follows_readers_from_batch_to_batch(places in prop::collection::vec((0u64..4, 1u64..40), 1..60), cut in any::<prop::sample::Index>()) {
        // Each of four readers continues where it was.
        let mut at = [0, 100 << 20, 200 << 20, 300 << 20];
        let all: Vec<_> = places.iter().enumerate().map(|(time, &(reader, kib))| {
            let offset = at[reader as usize];
            at[reader as usize] += kib * KIB;
            record(Op::Read, false, offset, kib * KIB, time as u64)
        }).collect();
        let options = AccessOptions::default();
        let mut whole = all.clone();
        ReadAhead::new(&options).apply(&mut whole);
        let (one, two) = all.split_at(cut.index(all.len()));
        let (mut one, mut two) = (one.to_vec(), two.to_vec());
        let mut model = ReadAhead::new(&options);
        model.apply(&mut one);
        model.apply(&mut two);
        // At most the first window of each reader differs.
        prop_assert!(whole.len().abs_diff(one.len() + two.len()) <= 4);
        let bytes = |records: &[AccessRecord]| records.iter().map(|r| r.len.0).sum::<u64>();
        prop_assert!(bytes(&whole).abs_diff(bytes(&one) + bytes(&two)) <= 4 * 128 * KIB);
    }
}
