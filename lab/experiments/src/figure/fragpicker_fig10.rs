//! FragPicker, Figure 10: YCSB-C on RocksDB while its files are defragmented, and after that.

use units::Bytes;

use super::{
    database::{Beside, Reads, age, files_of, load},
    error::FigureError,
    fragpicker::{Contender, System},
    measured::{Measured, Unit, change},
    parameters::Parameters,
};

/// Reads of each block, on average, by which a speed is measured.
const ROUNDS: f64 = 4.0;

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["analysed", "hole", "plug", "threads"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters, parameters.text("device")?)?;
    let database = Bytes(parameters.bytes("database")?);
    let file = Bytes(parameters.bytes("file")?);
    let sizes = files_of(database, file);
    let room = sizes.iter().sum::<u32>() / 5 * 6;
    let before = age(parameters, &system, &sizes, room)?;
    let analysed = parameters.number("analysed")? / 100.0;
    let reads = Reads::drawn(parameters, database, file, analysed + ROUNDS)?;
    let (traced, later) = reads.split(analysed);
    let accesses = traced.accesses();
    let calls = later.calls(&before.files);
    let load = load(&system, &calls, parameters.count("threads")?);
    let hot = parameters.number("hot")?;
    let copying = Bytes(parameters.bytes("copy_call")?);
    let e4defrag = before.defragment_beside(&system, |_| Contender::Conventional, copying, load)?;
    let picked = |number: usize| Contender::FragPicker {
        accesses: &accesses[number],
        hot,
    };
    let fragpicker = before.defragment_beside(&system, picked, system.io_size, load)?;
    let count = calls.len() as u64;
    let speed = before.speed(&system, load, count)?;
    let after = [&e4defrag, &fragpicker].map(|it| it.after.speed(&system, load, count));
    let [after_e4defrag, after_fragpicker] = after;
    let (after_e4defrag, after_fragpicker) = (after_e4defrag?, after_fragpicker?);
    // As much longer as the paper's database is larger.
    let scale = parameters.bytes("whole")? as f64 / database.0 as f64;
    let mut measured = Measured::default();
    for (series, work) in [("e4defrag", &e4defrag), ("FragPicker", &fragpicker)] {
        let Beside { served, .. } = work;
        let meanwhile = change(served.per_second(), speed);
        measured.push(series, "elapsed", scale * work.seconds(), Unit::Seconds);
        measured.push(series, "throughput meanwhile", meanwhile, Unit::ChangePct);
    }
    let mut push = |series: &str, x: &str, now: f64, then: f64| {
        measured.push(series, x, change(now, then), Unit::ChangePct);
    };
    let from_before = "throughput after, from before";
    push("e4defrag", from_before, after_e4defrag, speed);
    push("FragPicker", from_before, after_fragpicker, speed);
    push(
        "FragPicker",
        "throughput after, from e4defrag",
        after_fragpicker,
        after_e4defrag,
    );
    // What is moved is read once and written once, by both.
    push(
        "FragPicker",
        "all I/O, from e4defrag",
        fragpicker.bytes,
        e4defrag.bytes,
    );
    Ok(measured)
}
