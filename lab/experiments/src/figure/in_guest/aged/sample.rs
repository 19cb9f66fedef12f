//! Runs that no guest has made, for tests of rows.

use super::runs::{Run, Runs};
use crate::{
    ageing::Aged,
    bench::State,
    cost::{Cost, Moves},
    inside::Memory,
    layout::Layout,
    migration::Migration,
    way::Way,
};

const MIB: u64 = 1 << 20;

/// Three runs that are the same. The files have 100 MiB, and are read in 1 s before.
///
/// | way | MiB moved | read in s | elapsed in s | chips busy in % | host memory in KiB |
/// |---|---|---|---|---|---|
/// | conventional | 100 | 0.5 | 10 | 9 | 200,000 |
/// | FragPicker | 80 | 0.5 | | | |
/// | indef | 60 | 0.5 | 1 | 80 | 50,000 |
pub(in super::super::super) fn runs(indef: Way) -> Runs {
    runs_lying(&Layout::default(), indef, [&Layout::default(); 3])
}

/// The same with files that lie so: before, and after the three ways.
pub(in super::super::super) fn runs_of_files(before: &Layout, after: [&Layout; 3]) -> Runs {
    runs_lying(before, Way::Indef { truncate: 20 }, after)
}

fn runs_lying(before: &Layout, indef: Way, after: [&Layout; 3]) -> Runs {
    let run = |_| Run {
        aged: Aged {
            files: 25,
            bytes: 100 * MIB,
            first_bytes: 10 * MIB,
            created: 50,
            deleted: 25,
            writes: 1000,
        },
        before: state(1.0),
        layout: before.clone(),
        ways: vec![
            migration(Way::Conventional, 100, after[0], Some((10.0, 9.0, 200_000))),
            migration(Way::FragPicker, 80, after[1], None),
            migration(indef, 60, after[2], Some((1.0, 80.0, 50_000))),
        ],
    };
    Runs((0..3).map(run).collect())
}

fn state(seconds: f64) -> State {
    State {
        bytes: 100 * MIB,
        extents: 1000,
        contiguous_pct: 20.0,
        dolf: 5.0 * seconds,
        read_ns: (1e9 * seconds) as u64,
    }
}

fn migration(way: Way, mib: u64, after: &Layout, cost: Option<(f64, f64, u64)>) -> Migration {
    Migration {
        way,
        engine: way.engine(),
        moved_bytes: mib * MIB,
        after: state(0.5),
        layout: after.clone(),
        cost: cost.map(|(seconds, busy_pct, used_kib)| {
            let ns = (1e9 * seconds) as u64;
            Cost {
                commands: 100,
                elapsed_ns: ns,
                busy_pct,
                one_by_one_ns: 2 * ns,
                moves: (way.engine() == "f2fs-offload").then_some(Moves {
                    commands: 50,
                    copies: 0,
                    elapsed_ns: ns / 2,
                    busy_pct: busy_pct + 5.0,
                    two_ns: ns / 2,
                    two_busy_pct: busy_pct + 10.0,
                }),
                bound_ns: 5e8,
                bus_bytes: 0,
                migrated_bytes: mib * MIB,
                host_written_bytes: 0,
                host_read_bytes: 0,
                memory: Memory {
                    process_kib: 20_000,
                    page_cache_kib: used_kib / 2,
                    kernel_kib: 1000,
                    used_kib,
                },
                load_alone: 1e8,
                load_beside: 8e7,
                beside_ns: 2e9 * seconds,
                guest_wall_ns: 0,
            }
        }),
    }
}
