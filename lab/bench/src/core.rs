//! The access analysis: 10 million records to per-file ranges.

use std::{
    ffi::OsString,
    hint::black_box,
    time::{Duration, Instant},
};

use anyhow::Result;
use indef_core::access::{AccessOptions, AccessRecord, Op, ranges};
use units::{Bytes, FileOffset, Nanos};
use workloads::Numbers;

use super::{
    common::Common,
    measure,
    report::{ContenderRuns, Report, Sample, Verdict},
};

const RECORDS: u64 = 10_000_000;
const FILES: u64 = 1_000;

/// Measure: this program is run for it, so that its peak memory is its own.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    let program = common.own_program()?;
    let inner = ["bench", "core-inner"].map(OsString::from);
    let records = OsString::from(RECORDS.to_string());
    let command = [vec![program.into()], inner.to_vec(), vec![records]].concat();
    let mut row = ContenderRuns {
        case: "core, 10 million records".into(),
        contender: "indef-core".into(),
        command: measure::describe(&command),
        extents_before: None,
        samples: Vec::new(),
    };
    for run in 1..=common.runs {
        eprintln!("{}: run {run} of {}", row.case, common.runs);
        let started = Instant::now();
        let used = measure::run(&command)?;
        row.samples.push(Sample {
            duration_ns: started.elapsed().as_nanos() as u64,
            device_read_bytes: 0,
            device_written_bytes: 0,
            max_resident_bytes: Some(used.max_resident.get()),
            extents_after: None,
        });
    }
    report.verdicts.push(Verdict::at_most(
        format!("{}, with making them up", row.case),
        row.duration().as_secs_f64(),
        Duration::from_secs(10).as_secs_f64(),
        " s",
    ));
    let peak = row.memory().unwrap_or_default();
    report.verdicts.push(Verdict::at_most(
        format!("{}, peak memory", row.case),
        peak.get() as f64 / Bytes::mib(1).get() as f64,
        1024.0,
        " MiB",
    ));
    report.rows.push(row);
    Ok(())
}

/// The work itself: half of the records are sequential reads of a few streams in each file, half
/// are scattered reads and writes.
pub(super) fn inner(records: u64) -> Result<()> {
    let mut numbers = Numbers::new(1);
    let mut streams = vec![0_u64; FILES as usize];
    let made: Vec<AccessRecord> = (0..records)
        .map(|i| {
            let file = numbers.below(FILES);
            let sequential = i % 2 == 0;
            let offset = if sequential {
                let at = &mut streams[file as usize];
                *at += 16 << 10;
                *at
            } else {
                numbers.below(1 << 34)
            };
            AccessRecord {
                file: file as u32,
                offset: FileOffset(offset),
                len: Bytes(if sequential {
                    16 << 10
                } else {
                    1 + numbers.below(64 << 10)
                }),
                op: if !sequential && i % 7 == 0 {
                    Op::Write
                } else {
                    Op::Read
                },
                direct: i % 5 == 1,
                time: Nanos(i * 1000),
            }
        })
        .collect();
    let found = black_box(ranges(made, &AccessOptions::default()));
    eprintln!("{records} records, {} ranges", found.len());
    Ok(())
}
