//! All figures, as rows of the committed result.

use figures::{Row, Value};
use flash_model::{NamespaceKind, Profile, ZoneAction, ftl::VictimChoice};

use super::{
    collection,
    drive::{KIB, MIB, device},
    indef_femu::{
        busy_with_scattered_blocks, copyback, in_commands_of, one_read, read, read_from,
        sequential_write, with_read_cache,
    },
    qlc, tlc,
    zn540::{self, FINISHES, RESETS},
};

/// The pages of a word line.
const PAGES: [&str; 3] = ["LSB", "CSB", "MSB"];

pub(crate) fn all() -> Vec<Row> {
    [
        of_indef_femu(),
        by_interleave(),
        by_commands(),
        of_zn540(),
        spare(),
        write_amplification(),
        of_tlc(),
        of_qlc(),
    ]
    .concat()
}

/// A figure beside a published one, or one in closed form; both in the unit of `quantity`.
fn beside(case: &str, what: &str, quantity: &str, here: f64, wanted: f64) -> Row {
    Row::new(case, what)
        .with(quantity, Value::rounded(here))
        .with(&format!("wanted_{quantity}"), Value::rounded(wanted))
        .with("off_pct", Value::rounded((here / wanted - 1.0) * 100.0))
}

fn of_indef_femu() -> Vec<Row> {
    let case = "indef-femu";
    let row_bytes = 16.0 * 16.0 * 1024.0;
    let per_second = |nanos: f64| row_bytes / nanos * 1e3;
    let gib = 1024 * MIB;
    let copied = gib as f64 / copyback(gib) * 1e3;
    vec![
        beside(case, "read", "rate_mb_per_s", read(), per_second(80_000.0)),
        beside(
            case,
            "write",
            "rate_mb_per_s",
            sequential_write(),
            per_second(700_000.0),
        ),
        beside(
            case,
            "copyback",
            "rate_mb_per_s",
            copied,
            per_second(780_000.0),
        ),
        Row::new(case, "4 GiB migrated").with("time_ns", Value::rounded(copyback(4 * gib))),
        beside(
            case,
            "one 4 KiB read",
            "time_ns",
            one_read(case, 4 * KIB).0,
            86_000.0,
        ),
    ]
}

fn by_interleave() -> Vec<Row> {
    let of = |name: &str| {
        let profile = Profile::builtin(name).expect("it is built in");
        let (time, pages) = one_read(name, 16 * KIB);
        let cached = with_read_cache(name);
        let starts = [0, 128 * KIB, 4 * KIB];
        let slowest = starts.map(|start| read_from(&cached, start));
        let slowest = slowest.into_iter().fold(f64::INFINITY, f64::min);
        Row::new("interleave", name)
            .with(
                "from_a_row_mb_per_s",
                Value::rounded(read_from(&profile, 0)),
            )
            .with(
                "from_its_middle_mb_per_s",
                Value::rounded(read_from(&profile, 128 * KIB)),
            )
            .with(
                "from_a_block_mb_per_s",
                Value::rounded(read_from(&profile, 4 * KIB)),
            )
            .with("slowest_cached_mb_per_s", Value::rounded(slowest))
            .with("read_16_kib_ns", Value::rounded(time))
            .with("sensed_pages", Value::rounded(pages))
            .with("busy_pct", Value::rounded(busy_with_scattered_blocks(name)))
    };
    vec![of("indef-femu"), of("indef-femu-16k")]
}

/// The same data by few large commands and by many small ones.
fn by_commands() -> Vec<Row> {
    [
        ("one of 32 MiB", 32 * MIB),
        ("16 of 2 MiB", 2 * MIB),
        ("32 of 1 MiB", MIB),
        ("512 of 64 KiB", 64 * KIB),
    ]
    .into_iter()
    .map(|(what, len)| {
        let (time, busy) = in_commands_of(len);
        Row::new("commands", what)
            .with("time_ns", Value::rounded(time))
            .with("busy_pct", Value::rounded(busy))
    })
    .collect()
}

/// Published: see the sources in the profile.
fn of_zn540() -> Vec<Row> {
    let row = |what: &str, quantity: &str, here: f64, published: f64| {
        beside("zn540", what, quantity, here, published)
    };
    let iops = |nanos: f64| 1e9 / nanos;
    let mut rows = vec![
        row(
            "write 4 KiB, depth 1",
            "time_ns",
            zn540::one_write(),
            11_400.0,
        ),
        row(
            "append 4 KiB, depth 1",
            "time_ns",
            zn540::append(1),
            14_800.0,
        ),
        row(
            "append 4 KiB, depth 4",
            "rate_iops",
            iops(zn540::append(4)),
            132_000.0,
        ),
        row(
            "append 4 KiB, depth 16",
            "rate_iops",
            iops(zn540::append(16)),
            132_000.0,
        ),
        // The middle of 1146 to 1157.
        row(
            "write 128 KiB, 1 zone",
            "rate_mib_per_s",
            zn540::write_zones(1),
            1151.5,
        ),
        row(
            "write 128 KiB, 14 zones",
            "rate_mib_per_s",
            zn540::write_zones(14),
            1151.5,
        ),
        row(
            "random read 4 KiB, depth 1",
            "time_ns",
            zn540::random_read(1, 1000),
            72_600.0,
        ),
        row(
            "random read 4 KiB, depth 256",
            "rate_iops",
            iops(zn540::random_read(256, 100_000)),
            437_000.0,
        ),
        row(
            "sequential read 128 KiB, depth 64",
            "rate_mib_per_s",
            zn540::sequential_read(),
            3103.0,
        ),
    ];
    for ((state, written), published) in RESETS.into_iter().zip([16.9, 12.2, 8.7]) {
        let here = zn540::zone_action(ZoneAction::Reset, written);
        rows.push(row(
            &format!("reset, {state}"),
            "time_ns",
            here,
            published * 1e6,
        ));
    }
    for ((state, written), published) in FINISHES.into_iter().zip([908.0, 457.0, 4.1]) {
        let here = zn540::zone_action(ZoneAction::Finish, written);
        rows.push(row(
            &format!("finish at {state}"),
            "time_ns",
            here,
            published * 1e6,
        ));
    }
    rows
}

/// The effective spare flash of conventional namespaces, in percent.
fn spare() -> Vec<Row> {
    let of = |name: &str| {
        let spare = |size: u64| {
            let device = device(name, NamespaceKind::Conventional, size);
            device.spare(0).expect("the namespace is conventional")
        };
        let percent = |size| Value::rounded(spare(size).percent);
        Row::new("effective spare flash", name)
            .with("of_512_mib_pct", percent(512 * MIB))
            .with("of_2_gib_pct", percent(2048 * MIB))
            .with("of_8_gib_pct", percent(8192 * MIB))
            .with(
                "enough_bytes",
                Value::Exact(spare(512 * MIB).enough.0 as f64),
            )
    };
    vec![of("fast24"), of("indef-femu"), of("zn540")]
}

/// Of garbage collection, with 10 % to spare.
fn write_amplification() -> Vec<Row> {
    [
        (
            "greedy",
            collection::with_hot_and_cold_pages(VictimChoice::Greedy),
        ),
        (
            "cost-benefit",
            collection::with_hot_and_cold_pages(VictimChoice::CostBenefit),
        ),
        ("one handle", collection::with_a_log(false)),
        ("two handles", collection::with_a_log(true)),
    ]
    .into_iter()
    .map(|(what, times)| Row::new("write amplification", what).with("times", Value::rounded(times)))
    .collect()
}

fn of_tlc() -> Vec<Row> {
    let case = "tlc";
    let mut rows = Vec::new();
    // The sense, a command's time in the controller, and 4 KiB over channel and link.
    let around = 6_000.0 + 13_109.0 + 1_163.0;
    let reads = tlc::read_of_each_page().into_iter();
    for ((page, sense), here) in PAGES
        .into_iter()
        .zip([56_500.0, 77_500.0, 106_000.0])
        .zip(reads)
    {
        rows.push(beside(
            case,
            &format!("read, {page}"),
            "time_ns",
            here,
            sense + around,
        ));
    }
    let programs = [820_500.0, 2_225_000.0, 5_734_000.0];
    let each = tlc::program_of_each_page().into_iter();
    for ((page, program), here) in PAGES.into_iter().zip(programs).zip(each) {
        rows.push(beside(
            case,
            &format!("program, {page}"),
            "time_ns",
            here,
            program,
        ));
    }
    let row_bytes = 8.0 * 32.0 * 1024.0;
    let mean = programs.iter().sum::<f64>() / 3.0;
    let [program, erase] = tlc::longer_during_a_program_and_an_erase();
    let slowest = |suspends| Value::rounded(tlc::slowest_read_beside_writes(suspends));
    rows.extend([
        beside(
            case,
            "sequential write",
            "rate_mb_per_s",
            tlc::sequential_write(),
            row_bytes / mean * 1e3,
        ),
        beside(
            case,
            "longer during a program",
            "time_ns",
            program,
            100_000.0,
        ),
        beside(case, "longer during an erase", "time_ns", erase, 700_000.0),
        Row::new(case, "slowest read beside writes")
            .with("time_ns", slowest(true))
            .with("without_suspension_ns", slowest(false)),
        Row::new(case, "reads by planes on their own")
            .with("times", Value::rounded(tlc::gain_by_planes())),
    ]);
    rows
}

fn of_qlc() -> Vec<Row> {
    let case = "qlc";
    let cliff = qlc::cliff();
    // Of each page a program of both kinds and a sense of one, and twice the way over the channel.
    let each_row = 1_860_000.0 + 40_000.0 + 200_000.0 + 2.0 * 20_480.0;
    let closed_form = 8.0 * 32.0 * 1024.0 / each_row * 1e3;
    vec![
        beside(case, "full", "rate_mb_per_s", cliff.full, closed_form),
        Row::new(case, "fall")
            .with("written_bytes", Value::rounded(cliff.fall))
            .with("cache_bytes", Value::rounded(0.06 * (1024 * MIB) as f64)),
        Row::new(case, "32 MiB")
            .with("first_mb_per_s", Value::rounded(cliff.first))
            .with("after_idle_mb_per_s", Value::rounded(cliff.after_idle)),
    ]
}
