//! Tests of policies, the promise about fragments, and limits.

use proptest::prelude::*;
use units::{Bytes, FileOffset, FileRange, Nanos, PhysOffset};

use super::*;
use crate::{
    SkipReason,
    access::{AccessRange, Observed},
    calibrate::Weights,
    layout::{
        DeviceTimes, Extent, ExtentFlags, Geometry, Layout,
        tests::{PLAIN, any_layout, blocks, layout},
    },
    probe::ReadModel,
};

const BLOCK: u64 = 4096;

fn options(policy: Policy) -> PlanOptions {
    PlanOptions {
        policy,
        truncate_pct: 0.0,
        ..PlanOptions::default()
    }
}

fn plan(options: &PlanOptions, layout: &Layout) -> Vec<Chunk> {
    plan_with(options, layout, None)
}

fn plan_with(
    options: &PlanOptions,
    layout: &Layout,
    accesses: Option<&[AccessRange]>,
) -> Vec<Chunk> {
    let size = layout.extents().last().map_or(0, |e| e.file_end().0);
    plan_file(
        options,
        &FileFacts {
            size: Bytes(size),
            block_size: Bytes(BLOCK),
            layout,
            accesses,
        },
    )
}

fn file(chunks: Vec<Chunk>) -> FilePlan {
    FilePlan {
        root_len: None,
        born: None,
        path: "/data/file".into(),
        dev: 1,
        inode: 2,
        size: Bytes::gib(1),
        block_size: Bytes(BLOCK),
        fs: "ext4".into(),
        engine: Some("ext4-move-extent".into()),
        extents_before: 9,
        named: None,
        skip: None,
        chunks,
    }
}

fn access(start: u64, len: u64, reads: u64) -> AccessRange {
    AccessRange {
        range: blocks(start, len),
        reads,
        writes: 0,
        ..AccessRange::default()
    }
}

/// `count` blocks from `file`, each on its own.
fn scattered(file: u64, count: u64) -> Vec<(u64, u64, u64)> {
    (0..count)
        .map(|i| (file + i, 100_000 + (file + i) * 2, 1))
        .collect()
}

fn decisions(chunks: &[Chunk]) -> Vec<Decision> {
    chunks.iter().map(|c| c.decision).collect()
}

use Decision::{Migrate, Skip};

/// FragPicker §5.2: 32 × 4 KiB, then 128 KiB, repeating.
fn half_contiguous(repeats: u64) -> Layout {
    let part = |i: u64| {
        let mut part = scattered(i * 64, 32);
        part.push((i * 64 + 32, 1000 + i * 100, 32));
        part
    };
    layout(&(0..repeats).flat_map(part).collect::<Vec<_>>())
}

#[test]
fn sequential_leaves_contiguous_windows_alone_and_halves_the_writes() {
    let layout = half_contiguous(4);
    let sequential = file(plan(&options(Policy::Sequential), &layout));
    assert_eq!(sequential.cost(), Bytes::kib(512));
    assert_eq!(sequential.runs().len(), 4);
    let whole = file(plan(&options(Policy::Whole), &layout));
    assert_eq!(whole.cost(), Bytes::mib(1));
    assert_eq!(whole.runs(), [blocks(0, 256)]);
    assert_eq!(predicted_fragments(&layout, &sequential.runs()), 8);
    assert_eq!(predicted_fragments(&layout, &whole.runs()), 1);
}

#[test]
fn neighbouring_chunks_become_one_run() {
    let fragmented = layout(&scattered(0, 100));
    let chunks = plan(&options(Policy::Sequential), &fragmented);
    assert_eq!(chunks.len(), 4);
    let file = file(chunks);
    assert_eq!(file.runs(), [blocks(0, 100)]);
    assert_eq!(file.cost(), Bytes(100 * BLOCK));
    // Ideal: α·1 for each of four windows; now α·100.
    assert_eq!(file.gain(), 4.0 * 96.0);
}

#[test]
fn huge_files_are_not_walked_window_by_window() {
    let tib = 1 << 28;
    let contiguous = layout(&[(0, 0, 4 * tib)]);
    let chunks = plan(&options(Policy::Sequential), &contiguous);
    assert_eq!(decisions(&chunks), [Skip(SkipReason::Contiguous)]);
    assert_eq!(chunks[0].range, blocks(0, 4 * tib));
    let mebibytes: Vec<_> = (0..4096).map(|i| (i * 256, i * 300, 256)).collect();
    assert_eq!(
        plan(&options(Policy::Sequential), &layout(&mebibytes)).len(),
        1
    );
    let mut sparse = scattered(1_000_000 * 32, 32);
    sparse.push((1000 * tib + 5, 7, 3));
    let chunks = plan(&options(Policy::Sequential), &layout(&sparse));
    assert_eq!(decisions(&chunks), [Migrate, Skip(SkipReason::Contiguous)]);
}

#[test]
fn what_costs_no_reads_is_skipped_by_name() {
    let flagged = |flags: ExtentFlags| {
        let one = |i: u64| Extent {
            file: FileOffset(i * BLOCK),
            phys: PhysOffset((50 + i * 2) * BLOCK),
            len: Bytes(BLOCK),
            flags,
        };
        Layout::new((0..8).map(one).collect())
    };
    for (flags, reason) in [
        (ExtentFlags::UNWRITTEN, SkipReason::Unwritten),
        (ExtentFlags::INLINE, SkipReason::Inline),
        (ExtentFlags::SHARED, SkipReason::Shared),
    ] {
        for policy in Policy::ALL {
            let chunks = plan(&options(policy), &flagged(flags));
            assert_eq!(decisions(&chunks), [Skip(reason)], "{policy} {flags:?}");
            assert!(!chunks[0].migrates());
        }
    }
    let unshare = PlanOptions {
        allow_unshare: true,
        ..options(Policy::Sequential)
    };
    assert_eq!(
        decisions(&plan(&unshare, &flagged(ExtentFlags::SHARED))),
        [Migrate]
    );
    // Where all that share it move together; compressed data does not.
    let together = PlanOptions {
        keeps_sharing: true,
        ..options(Policy::Sequential)
    };
    let chunks = plan(&together, &flagged(ExtentFlags::SHARED));
    assert_eq!(decisions(&chunks), [Migrate]);
    assert_eq!(chunks[0].cost, Bytes(8 * BLOCK), "once for all");
    let encoded = ExtentFlags::SHARED | ExtentFlags::ENCODED;
    assert!(!plan(&together, &flagged(encoded))[0].migrates());
    assert_eq!(plan(&options(Policy::Whole), &Layout::default()), []);
    assert_eq!(plan(&options(Policy::Sequential), &Layout::default()), []);
    let hole = plan_with(
        &options(Policy::Indef),
        &layout(&[(99, 5, 1)]),
        Some(&[access(0, 4, 9)]),
    );
    assert_eq!(decisions(&hole), [Skip(SkipReason::Empty)]);
}

#[test]
fn compressed_files_move_only_for_their_short_extents() {
    let compressed = |each: u64| {
        let one = |i: u64| Extent {
            file: FileOffset(i * each * BLOCK),
            phys: PhysOffset((50 + i * 100) * BLOCK),
            len: Bytes(each * BLOCK),
            flags: ExtentFlags::ENCODED,
        };
        Layout::new((0..64 / each).map(one).collect())
    };
    let whole = |each| decisions(&plan(&options(Policy::Whole), &compressed(each)));
    assert_eq!(whole(32), [Skip(SkipReason::Compressed)]);
    assert_eq!(whole(1), [Migrate]);
}

#[test]
fn a_move_that_would_add_a_fragment_is_no_gain() {
    // Two halves of a large file: moving the window over their border would make three.
    let halves = layout(&[(0, 100, 48), (48, 500, 48)]);
    let chunks = plan(&options(Policy::Sequential), &halves);
    assert_eq!(
        decisions(&chunks),
        [
            Skip(SkipReason::Contiguous),
            Skip(SkipReason::NoGain),
            Skip(SkipReason::Contiguous)
        ]
    );
    assert_eq!(predicted_fragments(&halves, &[blocks(32, 32)]), 3);
    // With one border more inside, it leaves as many as there were.
    let thirds = layout(&[(0, 100, 48), (48, 500, 8), (56, 900, 40)]);
    let chunks = plan(&options(Policy::Sequential), &thirds);
    assert_eq!(chunks[1].decision, Migrate);
    assert_eq!(predicted_fragments(&thirds, &[blocks(32, 32)]), 3);
}

#[test]
fn file_a_of_indef() {
    // §IV-A: 64 × 4 KiB, 2 × 128 KiB, 256 KiB, repeated; 256 KiB reads; truncated by 60 %.
    let part = |i: u64| {
        let base = i * 192;
        let mut part = scattered(base, 64);
        part.extend([
            (base + 64, 1_000_000 + base, 32),
            (base + 96, 2_000_000 + base, 32),
            (base + 128, 3_000_000 + base, 64),
        ]);
        part
    };
    let file_a = layout(&(0..100).flat_map(part).collect::<Vec<_>>());
    let mut options = PlanOptions {
        io_size: Bytes::kib(256),
        ..options(Policy::Indef)
    };
    let cost = |options: &PlanOptions| file(plan(options, &file_a)).cost();
    let conventional = cost(&PlanOptions {
        policy: Policy::Whole,
        ..options.clone()
    });
    let fragpicker = cost(&PlanOptions {
        policy: Policy::Fragpicker,
        ..options.clone()
    });
    // "FragPicker moves 33.3 % less than conventional".
    assert_eq!(fragpicker.0 * 3, conventional.0 * 2);
    options.truncate_pct = 60.0;
    let chunks = plan(&options, &file_a);
    let moved = file(chunks.clone()).cost();
    // 300 entries less 180: all of the 100 worst, 20 of those in two fragments.
    assert_eq!(moved, Bytes::kib(256) * 120);
    assert!(chunks.iter().all(|c| c.dolf < 64 || c.migrates()));
    let truncated = chunks
        .iter()
        .filter(|c| c.decision == Skip(SkipReason::Truncated));
    assert_eq!(truncated.count(), 80);
}

#[test]
fn indef_moves_the_uneven_pieces_that_no_other_policy_sees() {
    // Pieces between holes, all on one chip: nothing to join, but relocation evens them out.
    let one_chip: Vec<_> = (0..16).map(|i| (i * 2, i * 16, 1)).collect();
    let all_chips: Vec<_> = (0..16).map(|i| (i * 2, i * 17, 1)).collect();
    let geometry: Geometry = "zoned:chips=16".parse().unwrap();
    let decision = |policy, layout: &Layout, geometry| {
        let options = PlanOptions {
            geometry,
            ..options(policy)
        };
        plan(&options, layout)[0].decision
    };
    let (bad, good) = (layout(&one_chip), layout(&all_chips));
    assert_eq!(decision(Policy::Indef, &bad, geometry), Migrate);
    assert_eq!(
        decision(Policy::Indef, &good, geometry),
        Skip(SkipReason::Contiguous)
    );
    assert_eq!(
        decision(Policy::Indef, &bad, Geometry::Unknown),
        Skip(SkipReason::Contiguous)
    );
    assert_eq!(
        decision(Policy::Fragpicker, &bad, geometry),
        Skip(SkipReason::Contiguous)
    );
}

#[test]
fn fragpicker_keeps_the_hottest_share() {
    let fragmented = layout(&scattered(0, 40));
    let accesses: Vec<_> = (0..10)
        .map(|i| access(i * 4, 4, 10 + (i * 7) % 10))
        .collect();
    let options = PlanOptions {
        hot_pct: 30.0,
        ..options(Policy::Fragpicker)
    };
    let chunks = plan_with(&options, &fragmented, Some(&accesses));
    let mut kept: Vec<u64> = chunks
        .iter()
        .filter(|c| c.migrates())
        .map(|c| c.reads)
        .collect();
    kept.sort_unstable();
    assert_eq!(kept, [17, 18, 19]);
    let cold = chunks
        .iter()
        .filter(|c| c.decision == Skip(SkipReason::Cold));
    assert_eq!(cold.count(), 7);
}

#[test]
fn indef_counts_reads_and_fragpicker_counts_writes_too() {
    let fragmented = layout(&scattered(0, 8));
    let written = [AccessRange {
        range: blocks(0, 8),
        reads: 0,
        writes: 5,
        ..AccessRange::default()
    }];
    let indef = plan_with(&options(Policy::Indef), &fragmented, Some(&written));
    assert_eq!(decisions(&indef), [Skip(SkipReason::NotRead)]);
    let fragpicker = plan_with(&options(Policy::Fragpicker), &fragmented, Some(&written));
    assert_eq!(decisions(&fragpicker), [Migrate]);
    assert_eq!(fragpicker[0].gain, 4.0 * 7.0 * 5.0);
}

#[test]
fn long_access_ranges_move_only_where_they_are_fragmented() {
    // 4 MiB, 256 KiB in pieces, 60 MiB: all of it read in one merged range.
    let mut extents = vec![(0, 10, 1024)];
    extents.extend(scattered(1024, 64));
    extents.push((1088, 1_000_000, 15_360));
    let layout = layout(&extents);
    let all = [access(0, 16_448, 100)];
    for policy in [Policy::Indef, Policy::Fragpicker] {
        let chunks = plan_with(&options(policy), &layout, Some(&all));
        let contiguous = Skip(SkipReason::Contiguous);
        assert_eq!(decisions(&chunks), [contiguous, Migrate, contiguous]);
        assert!(chunks.iter().all(|chunk| chunk.reads == 100));
        assert_eq!(file(chunks).runs(), [blocks(1024, 64)]);
    }
    // The contiguous pieces count: 256 of 257, so the one that matters stays.
    let truncated = PlanOptions {
        truncate_pct: 99.6,
        ..options(Policy::Indef)
    };
    let chunks = plan_with(&truncated, &layout, Some(&all));
    assert_eq!(file(chunks).runs(), [blocks(1024, 64)]);
}

#[test]
fn ranges_behind_the_end_are_cut_and_overlaps_are_tolerated() {
    let fragmented = layout(&scattered(0, 8));
    let accesses = [access(0, 6, 1), access(4, 100, 1), access(500, 4, 1)];
    let chunks = plan_with(&options(Policy::Indef), &fragmented, Some(&accesses));
    let ranges: Vec<_> = chunks.iter().map(|c| c.range).collect();
    assert_eq!(ranges, [blocks(0, 6), blocks(6, 2)]);
}

#[test]
fn the_budget_takes_the_best_gain_for_each_byte_of_all_files() {
    let hot = layout(&scattered(0, 32));
    let cold = layout(&[(0, 10, 16), (16, 90, 16)]);
    let sequential = options(Policy::Sequential);
    let mut files = [
        file(plan(&sequential, &cold)),
        file(plan(&sequential, &hot)),
        file(plan(&sequential, &hot)),
    ];
    let possible = PlanTotals::of(&files);
    assert_eq!(
        (possible.files_to_move, possible.cost),
        (3, Bytes::kib(384))
    );
    let budget = PlanOptions {
        budget: Some(Bytes::kib(200)),
        ..sequential.clone()
    };
    limit(&mut files, &budget);
    assert_eq!(files[0].chunks[0].decision, Skip(SkipReason::OverBudget));
    assert_eq!(files[1].chunks[0].decision, Migrate);
    assert_eq!(files[2].chunks[0].decision, Skip(SkipReason::OverBudget));
    let totals = PlanTotals::of(&files);
    assert_eq!((totals.chunks, totals.chunks_to_move), (3, 1));
    assert_eq!(totals.total_gain, possible.total_gain);

    let mut files = [
        file(plan(&sequential, &cold)),
        file(plan(&sequential, &hot)),
    ];
    let target = PlanOptions {
        target_gain_pct: Some(90.0),
        ..sequential
    };
    limit(&mut files, &target);
    assert_eq!(files[0].chunks[0].decision, Skip(SkipReason::GainReached));
    assert_eq!(files[1].chunks[0].decision, Migrate);
}

/// A chunk of its own, far from others.
fn lone(index: u64, gain: f64, cost_blocks: u64) -> Chunk {
    Chunk {
        range: blocks(index * 1000, cost_blocks),
        reads: 1,
        writes: 0,
        dolf: 9,
        dopf: 0.0,
        iodp: gain,
        decision: Migrate,
        cost: Bytes(cost_blocks * BLOCK),
        gain,
        edges: Edges {
            excess: 8,
            ..Edges::default()
        },
        lets_go: None,
        shared: None,
    }
}

fn to_target(chunks: Vec<Chunk>, pct: f64) -> (Limited, FilePlan) {
    let mut files = [file(chunks)];
    let options = PlanOptions {
        target_gain_pct: Some(pct),
        ..options(Policy::Indef)
    };
    let limited = limit(&mut files, &options);
    let [file] = files;
    (limited, file)
}

#[test]
fn a_target_gain_is_reached_with_the_fewest_bytes_and_predicted() {
    // Ten times as hot as the other nine together.
    let mut chunks: Vec<_> = (1..10).map(|i| lone(i, 1.0, 32)).collect();
    chunks.push(lone(10, 90.0, 32));
    let (limited, plan) = to_target(chunks, 90.0);
    assert_eq!(plan.runs(), [blocks(10_000, 32)]);
    assert!((limited.gain_pct() - 90.0 / 99.0 * 100.0).abs() < 1e-9);
    assert_eq!(limited.cost_pct(), 10.0);
    // The last step needs little: the small chunk is as good as the large one before it.
    let chunks = vec![lone(0, 100.0, 10), lone(1, 90.0, 100), lone(2, 10.0, 20)];
    let (_, plan) = to_target(chunks, 55.0);
    assert_eq!(plan.cost(), Bytes(30 * BLOCK));
    // A small chunk that came first is superfluous once a large one is in.
    let chunks = vec![lone(0, 1.0, 1), lone(1, 50.0, 60)];
    let (limited, plan) = to_target(chunks, 98.0);
    assert_eq!(
        (plan.cost(), limited.cost),
        (Bytes(60 * BLOCK), Bytes(60 * BLOCK))
    );
    let all = to_target(vec![lone(0, 0.1, 7), lone(1, 0.2, 9)], 100.0).0;
    assert_eq!((all.gain_pct(), all.cost_pct()), (100.0, 100.0));
    assert_eq!(to_target(vec![], 50.0).0.gain_pct(), 100.0);
}

#[test]
fn what_the_promise_takes_from_a_target_is_made_up_for() {
    // Alone, the best chunk would cut two fragments and join only one.
    let mut best = lone(0, 100.0, 8);
    best.edges.excess = 1;
    let others = (1..20).map(|i| lone(i, 10.0, 8));
    let chunks = std::iter::once(best).chain(others).collect();
    let (limited, plan) = to_target(chunks, 50.0);
    assert!(limited.gain_pct() >= 50.0, "{limited:?}");
    assert_eq!(plan.cost(), Bytes(15 * 8 * BLOCK));
}

#[test]
fn measured_weights_rank_by_time_lost() {
    let weights = Weights {
        base_ns: 80_000.0,
        per_byte_ns: 0.5,
        per_fragment_ns: 20_000.0,
        free_fragments: 0,
        split_ns: 0.0,
        per_dopf_ns: 0.0,
        per_ahead_ns: 0.0,
        mean_ahead: 0.0,
        ahead_per_request: 0.0,
        spread_ns: 30_000.0,
        prior_reads: 8.0,
        other_reasons: 0.0,
    };
    let fragmented = layout(&scattered(0, 96));
    let measured = PlanOptions {
        weight: Weight::Measured(weights),
        ..options(Policy::Indef)
    };
    let timed = |start, mean_ns: u64| AccessRange {
        observed: Observed {
            requests: 0,
            timed: 1000,
            time: Nanos(mean_ns * 1000),
            ahead: None,
        },
        ..access(start, 32, 1000)
    };
    // By the model 80 µs + 65 µs + 31 · 20 µs = 765 µs; one is as predicted, one slower, one as
    // fast as if it were contiguous.
    let model_ns = 765_536;
    let accesses = [
        access(0, 32, 10),
        timed(32, model_ns + 50_000),
        timed(64, 50_000),
    ];
    let chunks = plan_with(&measured, &fragmented, Some(&accesses));
    assert_eq!(decisions(&chunks)[..2], [Migrate, Migrate]);
    assert_eq!(chunks[0].gain, 31.0 * 20_000.0 * 10.0);
    assert_eq!(chunks[0].iodp, 32.0 * 20_000.0 * 10.0);
    let lost = chunks[1].gain / 1000.0;
    assert!((669_000.0..670_000.0).contains(&lost), "{lost}");
    // A thousand reads of 50 µs have no 620 µs to give.
    assert_eq!(chunks[2].decision, Skip(SkipReason::NoTimeLost));
    assert_eq!(chunks[2].gain, 0.0);
    // A range that is slower than the model counts as that up to three deviations, and as far as that is due to fragments.
    let accesses = [timed(32, model_ns + 1_000_000)];
    let lost = |weights: Weights| {
        let measured = PlanOptions {
            weight: Weight::Measured(weights),
            ..measured.clone()
        };
        plan_with(&measured, &fragmented, Some(&accesses))[0].gain / 1000.0
    };
    assert!((709_000.0..711_000.0).contains(&lost(weights)));
    let half = lost(Weights {
        other_reasons: 0.5,
        ..weights
    });
    assert!((664_000.0..666_000.0).contains(&half), "{half}");
}

#[test]
fn the_weight_device_sees_the_pages_that_dopf_does_not() {
    let device = |times| PlanOptions {
        weight: Weight::Device(times),
        geometry: "zoned:chips=16".parse().unwrap(),
        ..options(Policy::Indef)
    };
    let times = DeviceTimes::default();
    let accesses = [access(0, 64, 10)];
    // Four fragments of 64 KiB, each on all 16 chips alike.
    let four = layout(&[(0, 0, 16), (16, 1024, 16), (32, 2048, 16), (48, 3072, 16)]);
    let chunk = plan_with(&device(times), &four, Some(&accesses))[0];
    assert_eq!((chunk.dolf, chunk.dopf), (4, 0.0));
    assert_eq!(chunk.decision, Migrate);
    // Four pages of a chip now, at most two afterwards; a page of data from each chip, and maybe a
    // block more from the first.
    let now = 4.0 * 10_000.0 + 4.0 * 80_000.0 + 24_000.0;
    let afterwards = 10_000.0 + 2.0 * 80_000.0 + 24_000.0;
    assert_eq!(chunk.iodp, now * 10.0);
    assert_eq!(chunk.gain, (now - afterwards) * 10.0);
    // An engine that keeps to the rows: one page of each chip, as far as reads begin with a row.
    let mut on_rows = device(times);
    on_rows.on_rows = true;
    let chunk = plan_with(&on_rows, &four, Some(&accesses))[0];
    let one_row = 10_000.0 + 80_000.0 + 24_000.0;
    assert_eq!(chunk.gain, (now - one_row) * 10.0);
    // Halves of one row, in turn on half of the chips: the senses are the same in one piece, and
    // commands cost nothing.
    let free = DeviceTimes {
        command_ns: 0,
        ..times
    };
    let two = layout(&[(0, 0, 8), (8, 1032, 8)]);
    let chunk = plan_with(&device(free), &two, Some(&[access(0, 16, 10)]))[0];
    assert_eq!(chunk.decision, Skip(SkipReason::NoTimeLost));
    assert_eq!(chunk.gain, 0.0);
    let wrong = DeviceTimes {
        page_bytes: Bytes::ZERO,
        ..times
    };
    assert!(device(wrong).check().is_err());
}

#[test]
fn the_remainder_of_truncation_is_carried_from_file_to_file() {
    // 16 files of 4 fragmented ranges each, with a gap between them.
    let fragmented = layout(&scattered(0, 256));
    let accesses: Vec<_> = (0..4).map(|i| access(i * 64, 32, 10 + i)).collect();
    for (pct, dropped) in [
        (0.0, 0),
        (20.0, 12),
        (24.0, 15),
        (25.0, 16),
        (99.0, 63),
        (100.0, 64),
    ] {
        let options = PlanOptions {
            truncate_pct: pct,
            ..options(Policy::Indef)
        };
        let mut files = vec![file(plan_with(&options, &fragmented, Some(&accesses))); 16];
        truncate_on(&mut files, &options, true);
        let left = |file: &FilePlan| {
            let is_left = |c: &&Chunk| c.decision == Skip(SkipReason::Truncated);
            file.chunks.iter().filter(is_left).count()
        };
        let counts: Vec<_> = files.iter().map(left).collect();
        assert_eq!(counts.iter().sum::<usize>(), dropped, "{pct}: {counts:?}");
        // No file is cut by more than its share, rounded up, and the lowest go first.
        let most = (4.0 * pct / 100.0_f64).ceil() as usize;
        assert!(
            counts
                .iter()
                .all(|n| (most.saturating_sub(1)..=most).contains(n))
        );
        for file in &files {
            let kept: Vec<_> = file.migrating().map(|chunk| chunk.reads).collect();
            assert_eq!(kept[..], [10, 11, 12, 13][4 - kept.len()..]);
        }
    }
}

#[test]
fn the_cost_of_a_whole_file_stays_when_its_first_range_is_truncated() {
    let fragmented = layout(&scattered(0, 256));
    let accesses: Vec<_> = (0..4).map(|i| access(i * 64, 32, 10 + i)).collect();
    let options = PlanOptions {
        truncate_pct: 24.0,
        ..options(Policy::Indef)
    };
    let mut one = file(plan_with(&options, &fragmented, Some(&accesses)));
    for (i, chunk) in one.chunks.iter_mut().enumerate() {
        chunk.cost = Bytes(if i == 0 { 1 << 20 } else { 0 });
    }
    let mut files = vec![one; 2];
    truncate_on(&mut files, &options, true);
    assert_eq!(files[0].migrating().count(), 4);
    assert_eq!(files[1].migrating().count(), 3);
    assert!(files.iter().all(|file| file.cost() == Bytes::mib(1)));
}

/// The chunk that pays for a whole file may be the one of least use: it was left out, and the others
/// then moved for nothing.
#[test]
fn a_limit_takes_a_whole_file_or_leaves_it() {
    let fragmented = layout(&scattered(0, 256));
    let accesses: Vec<_> = (0..4).map(|i| access(i * 64, 32, 10 + i)).collect();
    let no_limit = options(Policy::Indef);
    let mut one = file(plan_with(&no_limit, &fragmented, Some(&accesses)));
    for (i, chunk) in one.chunks.iter_mut().enumerate() {
        chunk.cost = Bytes(if i == 0 { 1 << 20 } else { 0 });
    }
    let moved = one.migrating().count();
    assert_eq!(moved, 4);
    for (budget, target, expected) in [
        (Some(Bytes::kib(1023)), None, 0),
        (Some(Bytes::mib(1)), None, 1),
        (Some(Bytes::mib(2)), None, 2),
        (None, Some(10.0), 1),
        (None, Some(60.0), 2),
    ] {
        let limits = PlanOptions {
            budget,
            target_gain_pct: target,
            ..no_limit.clone()
        };
        let mut files = vec![one.clone(), one.clone()];
        let limited = limit(&mut files, &limits);
        let moving = |file: &&FilePlan| file.migrating().count() == moved;
        assert_eq!(files.iter().filter(moving).count(), expected);
        let still = files.iter().filter(|file| file.migrating().count() == 0);
        assert_eq!(still.count(), 2 - expected);
        assert_eq!(limited.cost, Bytes::mib(expected as u64));
    }
}

/// Chunks of a file that moves with others: the first pays for the metadata of all.
fn with_holders(gain: f64, metadata_blocks: u64) -> FilePlan {
    let mut chunks: Vec<_> = (0..4).map(|index| lone(index, gain, 8)).collect();
    for chunk in &mut chunks {
        chunk.shared = Some(SharedMove {
            holders: 2,
            metadata: Bytes::ZERO,
        });
    }
    let metadata = Bytes(metadata_blocks * BLOCK);
    chunks[0].cost += metadata;
    chunks[0].shared = Some(SharedMove {
        holders: 2,
        metadata,
    });
    file(chunks)
}

#[test]
fn nothing_moves_with_others_unless_their_metadata_is_paid_for() {
    let limited = |budget_blocks, target| {
        let mut files = [with_holders(10.0, 20), file(vec![lone(0, 3.0, 8)])];
        let options = PlanOptions {
            budget: budget_blocks,
            target_gain_pct: target,
            ..options(Policy::Indef)
        };
        limit(&mut files, &options);
        let blocks = |file: &FilePlan| {
            let moving = file.migrating().count();
            (
                moving,
                file.cost().get() / BLOCK,
                file.metadata().get() / BLOCK,
            )
        };
        files.each_ref().map(blocks)
    };
    let budget = |blocks: u64| limited(Some(Bytes(blocks * BLOCK)), None);
    // 52 blocks for a gain of 40, 8 for a gain of 3.
    assert_eq!(budget(60), [(4, 52, 20), (1, 8, 0)]);
    assert_eq!(budget(37), [(2, 36, 20), (0, 0, 0)]);
    // Not even the first: none of the others moves in its place.
    assert_eq!(budget(27), [(0, 0, 0), (1, 8, 0)]);
    let [shared, _] = limited(None, Some(50.0));
    assert!(shared.0 == 3 && shared.2 == 20, "{shared:?}");
}

#[test]
fn what_a_limit_leaves_of_a_run_never_adds_fragments() {
    // Fragments of 32 blocks, shifted against the windows: each window alone would cut two.
    let shifted: Vec<_> = (0..16).map(|i| (i * 32 + 16, 1000 + i * 100, 32)).collect();
    let layout = layout(&[&[(0, 7, 16)], &shifted[..]].concat());
    let sequential = options(Policy::Sequential);
    let mut files = [file(plan(&sequential, &layout))];
    assert_eq!(files[0].runs().len(), 1);
    limit(
        &mut files,
        &PlanOptions {
            budget: Some(Bytes::kib(130)),
            ..sequential
        },
    );
    assert!(predicted_fragments(&layout, &files[0].runs()) <= layout.fragments());
}

#[test]
fn a_skipped_file_moves_nothing() {
    let mut skipped = file(plan(
        &options(Policy::Sequential),
        &layout(&scattered(0, 32)),
    ));
    assert!(!skipped.runs().is_empty());
    skipped.skip = Some(SkipReason::SwapFile);
    assert!(skipped.runs().is_empty());
    assert_eq!((skipped.cost(), skipped.gain()), (Bytes::ZERO, 0.0));
}

#[test]
fn options_out_of_range_are_named() {
    let checked = |change: fn(&mut PlanOptions)| {
        let mut options = PlanOptions::default();
        change(&mut options);
        options.check().map_err(|error| error.to_string())
    };
    assert_eq!(checked(|_| {}), Ok(()));
    for (change, name) in [
        (
            (|o| o.truncate_pct = 101.0) as fn(&mut PlanOptions),
            "truncate",
        ),
        (|o| o.hot_pct = -1.0, "hot"),
        (|o| o.alpha = f64::NAN, "alpha"),
        (|o| o.beta = f64::INFINITY, "beta"),
        (|o| o.target_gain_pct = Some(1e9), "target gain"),
        (|o| o.io_size = Bytes::ZERO, "I/O size"),
        (|o| o.max_request = Bytes(1), "largest request"),
    ] {
        assert!(checked(change).unwrap_err().starts_with(name));
    }
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert!("best".parse::<Policy>().is_err());
}

#[test]
fn paths_that_are_no_text_survive_json() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};
    for bytes in [&b"/a b\nc"[..], b"/\xff\xfe/x", "/ü".as_bytes()] {
        let path = Path::new(OsStr::from_bytes(bytes));
        let json = PathJson::from(path);
        assert_eq!(json.path_bytes.is_some(), path.to_str().is_none());
        assert_eq!(json.to_path().unwrap(), path);
    }
    for (path, path_bytes) in [("", None), ("x", Some("*")), ("x", Some("AA=="))] {
        let json = PathJson {
            path: path.to_owned(),
            path_bytes: path_bytes.map(str::to_owned),
        };
        assert!(json.to_path().is_err());
    }
}

/// The layout after each run has become contiguous, far away from everything.
fn relocated(layout: &Layout, runs: &[FileRange]) -> Layout {
    let mut place = 1 << 40;
    runs.iter().fold(layout.clone(), |layout, run| {
        let mut end = None;
        let moved = layout
            .clipped(*run)
            .map(|mut extent| {
                // A hole, and a new run, begin at another place.
                place += if end == Some(extent.file) { 0 } else { BLOCK };
                end = Some(extent.file_end());
                extent.phys = PhysOffset(place);
                place += extent.len.0;
                extent
            })
            .collect();
        layout.replaced(*run, &Layout::new(moved))
    })
}

const WRITTEN_OR_NOT: &[ExtentFlags] = &[ExtentFlags::empty(), ExtentFlags::UNWRITTEN];

fn any_accesses() -> impl Strategy<Value = Vec<AccessRange>> {
    let observed = (0u64..4, 0u64..2_000_000).prop_map(|(timed, time)| Observed {
        requests: 0,
        timed,
        time: Nanos(time),
        ahead: None,
    });
    let one = (0u64..30, 1u64..60, 0u64..20, 0u64..5, observed);
    prop::collection::vec(one, 0..30).prop_map(|parts| {
        let mut at = 0;
        let mut build = |(gap, len, reads, writes, observed)| {
            let range = blocks(at + gap, len);
            at += gap + len;
            AccessRange {
                range,
                reads,
                writes,
                observed,
            }
        };
        parts.into_iter().map(&mut build).collect()
    })
}

fn any_options() -> impl Strategy<Value = PlanOptions> {
    let geometry = prop_oneof![
        Just("unknown"),
        Just("zoned:chips=4"),
        Just("striped:granule=32KiB,dies=8")
    ];
    let weight = prop_oneof![
        Just(Weight::Paper),
        Just(Weight::Device(DeviceTimes::default())),
        Just(Weight::Probed(ReadModel::example())),
        (0.0f64..1e5, 0.0f64..1e5).prop_map(|(fragment, dopf)| {
            Weight::Measured(Weights {
                base_ns: 1e5,
                per_byte_ns: 0.5,
                per_fragment_ns: fragment,
                free_fragments: 3,
                split_ns: 500.0,
                per_dopf_ns: dopf,
                per_ahead_ns: 100.0,
                mean_ahead: 8.0,
                ahead_per_request: 2.0,
                spread_ns: 1e4,
                prior_reads: 8.0,
                other_reasons: 0.25,
            })
        })
    ];
    let shares = (0u32..=100, 0u32..=100);
    (0usize..4, shares, 1u64..40, geometry, weight).prop_map(
        |(policy, (truncate, hot), io_blocks, geometry, weight)| PlanOptions {
            weight,
            policy: Policy::ALL[policy],
            truncate_pct: f64::from(truncate),
            hot_pct: f64::from(hot),
            io_size: Bytes(io_blocks * BLOCK),
            geometry: geometry.parse().unwrap(),
            ..PlanOptions::default()
        },
    )
}

proptest! {
    #[test]
    fn predictions_are_what_relocating_gives(layout in any_layout(WRITTEN_OR_NOT), accesses in any_accesses()) {
        let mut runs: Vec<FileRange> = Vec::new();
        for access in accesses {
            match runs.last_mut() {
                Some(run) if run.end() == access.range.start => run.len += access.range.len,
                _ => runs.push(access.range),
            }
        }
        prop_assert_eq!(predicted_fragments(&layout, &runs), relocated(&layout, &runs).fragments());
    }

    #[test]
    fn plans_keep_their_promises(options in any_options(), layout in any_layout(WRITTEN_OR_NOT), accesses in prop::option::of(any_accesses())) {
        let chunks = plan_with(&options, &layout, accesses.as_deref());
        prop_assert!(chunks.windows(2).all(|w| w[0].range.end() <= w[1].range.start));
        for chunk in &chunks {
            prop_assert_eq!(chunk.range, chunk.range.align_outward(Bytes(BLOCK)));
            prop_assert!(chunk.cost <= chunk.range.len);
            if chunk.migrates() {
                prop_assert!(chunk.dolf > 1 && chunk.gain > 0.0);
            }
        }
        let file = file(chunks);
        let after = relocated(&layout, &file.runs());
        prop_assert!(after.fragments() <= layout.fragments());
        prop_assert_eq!(after.fragments(), predicted_fragments(&layout, &file.runs()));
    }

    #[test]
    fn a_second_run_has_nothing_to_do(options in any_options(), layout in any_layout(WRITTEN_OR_NOT)) {
        let options = PlanOptions { geometry: Geometry::Unknown, truncate_pct: 0.0, ..options };
        let runs = file(plan(&options, &layout)).runs();
        let again = file(plan(&options, &relocated(&layout, &runs)));
        prop_assert_eq!(again.cost(), Bytes::ZERO);
    }

    #[test]
    fn no_solution_is_cheaper_by_more_than_one_chunk(items in prop::collection::vec((1u64..100, 1u64..50), 1..10), pct in 1u32..=100) {
        let chunks: Vec<_> = items.iter().zip(0..).map(|((gain, cost), i)| lone(i, *gain as f64, *cost)).collect();
        let (limited, plan) = to_target(chunks.clone(), f64::from(pct));
        let wanted = limited.possible_gain * f64::from(pct) / 100.0 * (1.0 - 1e-9);
        prop_assert!(plan.gain() >= wanted);
        let best = (0u32..1 << chunks.len())
            .map(|set| {
                let chosen = chunks.iter().enumerate().filter(|(i, _)| set & (1 << i) != 0);
                chosen.fold((0.0, Bytes::ZERO), |sum, (_, c)| (sum.0 + c.gain, sum.1 + c.cost))
            })
            .filter(|(gain, _)| *gain >= wanted)
            .map(|(_, cost)| cost)
            .min()
            .unwrap();
        let largest = chunks.iter().map(|c| c.cost).max().unwrap();
        prop_assert!(plan.cost() < best + largest, "{} instead of {}", plan.cost(), best);
    }

    #[test]
    fn limits_are_kept_and_so_are_promises(options in any_options(), layouts in prop::collection::vec(any_layout(PLAIN), 1..5), budget in 0u64..400, target in prop::option::of(0u32..=100)) {
        let mut files: Vec<_> = layouts.iter().map(|layout| file(plan(&options, layout))).collect();
        let before = PlanTotals::of(&files);
        let limited = PlanOptions {
            budget: Some(Bytes(budget * BLOCK)),
            target_gain_pct: target.map(f64::from),
            ..options
        };
        limit(&mut files, &limited);
        let after = PlanTotals::of(&files);
        prop_assert!(after.cost <= Bytes(budget * BLOCK));
        prop_assert!(after.gain <= before.gain * (1.0 + 1e-9));
        prop_assert!((after.total_gain - before.total_gain).abs() <= 1e-9 * before.total_gain);
        for (file, layout) in files.iter().zip(&layouts) {
            prop_assert!(predicted_fragments(layout, &file.runs()) <= layout.fragments());
        }
    }
}

#[test]
fn a_path_has_a_root_and_what_is_beneath() {
    let place = |path: &str, root_len| {
        let plan = FilePlan {
            path: path.into(),
            root_len,
            ..file(Vec::new())
        };
        let (root, below) = plan.place()?;
        Some([root, below].map(|part| part.to_str().unwrap().to_owned()))
    };
    for (path, root_len, root, below) in [
        ("/srv/db/file", Some(4), "/srv", "db/file"),
        ("/srv//db/file", Some(5), "/srv/", "db/file"),
        ("/file", Some(1), "/", "file"),
        ("file", Some(0), "", "file"),
        ("../a/file", Some(4), "../a", "file"),
        // As in plans of format 1.
        ("/srv/db/file", None, "/", "srv/db/file"),
        ("a/file", None, "", "a/file"),
        ("./a/file", None, "./", "a/file"),
        ("../../a/file", None, "../../", "a/file"),
        ("/a/../b/file", None, "/a/../", "b/file"),
    ] {
        let found = place(path, root_len);
        assert_eq!(found, Some([root.to_owned(), below.to_owned()]), "{path}");
    }
    for (path, root_len) in [
        ("/srv/db", Some(3)),
        ("/srv/db", Some(7)),
        ("/srv/db", Some(8)),
        ("/srv/db/", Some(7)),
        ("/srv/db", Some(0)),
        ("", None),
        ("..", None),
    ] {
        assert_eq!(place(path, root_len), None, "{path}");
    }
    let plan = FilePlan {
        path: "db/file".into(),
        root_len: Some(2),
        ..file(Vec::new())
    };
    let moved = plan.with_root("/srv/db".as_ref()).unwrap();
    assert_eq!(
        (moved.path.to_str(), moved.root_len),
        (Some("/srv/db/file"), Some(7))
    );
}
