//! Measures the time and the memory for ten million access records, and for planning a file of two
//! million extents. Prints one JSON object.
//!
//! ```text
//! cargo run --release -p indef-core --example access_bench [RECORDS]
//! ```
//!
//! Targets: 10,000,000 records in under 10 s and under 1 GiB; planning two million extents with a
//! million ranges in under 2 s. A tenth of the records is measured first: linear-logarithmic growth
//! makes ten times as many cost 11.7 times as much (n·log n), quadratic growth 100 times.

use std::{fs, time::Instant};

use indef_core::{
    access::{self, AccessOptions, AccessRange, AccessRecord, Op},
    layout::{Extent, ExtentFlags, Layout},
    plan::{self, FileFacts, FilePlan, PlanOptions, Policy},
    profile::{Profile, ProfileFile},
};
use serde_json::json;
use units::{Bytes, FileOffset, FileRange, Nanos, PhysOffset};
use workloads::Numbers;

const DEFAULT_RECORDS: u64 = 10_000_000;
const FILES: u64 = 1000;
const RANGES: u64 = 1_000_000;
const EXTENTS: u64 = 2 * RANGES;
const BLOCK: u64 = 4096;

fn main() {
    let argument = std::env::args().nth(1);
    let records = match argument.map(|text| text.parse()) {
        None => DEFAULT_RECORDS,
        Some(Ok(records)) => records,
        Some(Err(_)) => {
            eprintln!("access_bench: the argument is the number of records");
            std::process::exit(2);
        }
    };
    let small = measure_access(records / 10);
    let large = measure_access(records);
    let access_peak = peak_rss();
    let profile_read = measure_profile();
    let planned: Vec<_> = Policy::ALL.into_iter().map(measure_plan).collect();
    let report = json!({
        "schema": 1,
        "records": records,
        "access_ns": large.nanos,
        "access_tenth_ns": small.nanos,
        "growth_for_ten_times": large.nanos as f64 / small.nanos.max(1) as f64,
        "ranges": large.ranges,
        "profile_read_ns_per_record": profile_read,
        "peak_rss_bytes": access_peak,
        "bytes_per_record": access_peak as f64 / records.max(1) as f64,
        "plans": planned,
        "met": {
            "time": large.nanos < 10_000_000_000,
            "memory": access_peak < 1 << 30,
        },
    });
    println!("{report}");
}

struct Measured {
    nanos: u64,
    ranges: usize,
}

/// Records in random order of time: half random direct reads, a quarter sequential buffered readers,
/// a quarter writes.
fn measure_access(count: u64) -> Measured {
    let mut numbers = Numbers::new(1);
    let mut records: Vec<AccessRecord> = Vec::with_capacity(count as usize);
    let mut readers = vec![0u64; FILES as usize];
    for time in 0..count {
        let file = numbers.below(FILES);
        let kind = numbers.below(4_u64);
        let offset = match kind {
            0 => {
                let next = &mut readers[file as usize];
                *next += 16 << 10;
                *next - (16 << 10)
            }
            _ => numbers.below(1 << 36),
        };
        records.push(AccessRecord {
            file: file as u32,
            offset: FileOffset(offset),
            len: Bytes(16 << 10),
            op: if kind == 1 { Op::Write } else { Op::Read },
            direct: kind > 1,
            time: Nanos(time),
        });
    }
    // A profile gathered on several processors is not ordered.
    numbers.shuffle(&mut records);
    let start = Instant::now();
    let ranges = access::ranges(records, &AccessOptions::default());
    Measured {
        nanos: nanos_since(start),
        ranges: ranges.len(),
    }
}

/// Nanoseconds to read one record of a profile from memory.
fn measure_profile() -> f64 {
    const RECORDS: u64 = 500_000;
    let record = |time| AccessRecord {
        file: 0,
        offset: FileOffset(time * 123_456),
        len: Bytes(16 << 10),
        op: Op::Read,
        direct: time % 2 == 0,
        time: Nanos(1_700_000_000_000_000_000 + time),
    };
    let profile = Profile {
        files: vec![ProfileFile {
            path: "/srv/db/table.dat".into(),
            dev: Some(2049),
            inode: Some(131),
        }],
        records: (0..RECORDS).map(record).collect(),
        ranges: Vec::new(),
    };
    let text = profile.write(Vec::new()).unwrap_or_default();
    let start = Instant::now();
    let read = Profile::read(&text[..]);
    let nanos = nanos_since(start);
    assert!(
        read.is_ok_and(|read| read == profile),
        "a profile comes back as it was"
    );
    nanos as f64 / RECORDS as f64
}

/// Two million extents of one block, and a million access ranges of two blocks.
fn measure_plan(policy: Policy) -> serde_json::Value {
    let extent = |i| Extent {
        file: FileOffset(i * BLOCK),
        phys: PhysOffset((i * 7919 % EXTENTS) * BLOCK * 2),
        len: Bytes(BLOCK),
        flags: ExtentFlags::empty(),
    };
    let layout = Layout::new((0..EXTENTS).map(extent).collect());
    let range = |i| AccessRange {
        range: FileRange::new(i * 2 * BLOCK, 2 * BLOCK),
        reads: i % 17,
        writes: 0,
        ..AccessRange::default()
    };
    let accesses: Vec<AccessRange> = (0..RANGES).map(range).collect();
    let options = PlanOptions {
        policy,
        geometry: "zoned:chips=16".parse().unwrap_or_default(),
        budget: Some(Bytes::mib(512)),
        ..PlanOptions::default()
    };
    let start = Instant::now();
    let chunks = plan::plan_file(
        &options,
        &FileFacts {
            size: Bytes(EXTENTS * BLOCK),
            block_size: Bytes(BLOCK),
            layout: &layout,
            accesses: (policy == Policy::Indef || policy == Policy::Fragpicker)
                .then_some(&accesses[..]),
        },
    );
    let mut files = [FilePlan {
        root_len: None,
        born: None,
        path: "/file".into(),
        dev: 0,
        inode: 0,
        size: Bytes(EXTENTS * BLOCK),
        block_size: Bytes(BLOCK),
        fs: "ext4".into(),
        engine: None,
        extents_before: EXTENTS,
        named: None,
        skip: None,
        chunks,
    }];
    plan::limit(&mut files, &options);
    let predicted = plan::predicted_fragments(&layout, &files[0].runs());
    json!({
        "policy": policy.as_str(),
        "plan_ns": nanos_since(start),
        "chunks": files[0].chunks.len(),
        "fragments_before": layout.fragments(),
        "fragments_predicted": predicted,
    })
}

fn nanos_since(start: Instant) -> u64 {
    Nanos::from(start.elapsed()).0
}

/// The most memory that this process ever had resident (`VmHWM` of proc(5)); 0 if unknown.
fn peak_rss() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|value| value.trim().strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .unwrap_or(0)
        << 10
}
