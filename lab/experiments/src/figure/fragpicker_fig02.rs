//! FragPicker, Figure 2: YCSB-A on RocksDB while e4defrag works on other files.

use lfs_sim::{beside::Call, calls::Direction};
use units::Bytes;

use super::{
    database::{Reads, age, load, written},
    error::FigureError,
    fragpicker::{Contender, System, blocks},
    measured::{Measured, Unit, change},
    parameters::Parameters,
};

/// Reads of each block of the database, on average.
const ROUNDS: f64 = 1.0;
/// Bytes that RocksDB writes at once.
const WRITE: Bytes = Bytes::mib(1);
/// The room in which it writes its log and new tables, around and around.
const WRITTEN: Bytes = Bytes::mib(64);

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let free = ["block", "compaction", "hole", "plug", "threads"];
    parameters.measure(&free, rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters, parameters.text("device")?)?;
    let count = parameters.count("files")?;
    let sizes = vec![blocks(Bytes(parameters.bytes("file")?)); count as usize];
    let database = Bytes(parameters.bytes("database")?);
    let room = sizes.iter().sum::<u32>() / 5 * 6 + blocks(database) + blocks(WRITTEN);
    let mut before = age(parameters, &system, &sizes, room)?;
    let own = [database, WRITTEN].map(|size| written(&mut before.volume, blocks(size)));
    let [tables, new] = own;
    let (tables, new) = (tables?, new?);
    let reads = Reads::drawn(parameters, database, database, ROUNDS)?.calls(&[tables]);
    // Half of the operations are updates; what RocksDB writes for these is due after so many of them.
    let due = parameters.bytes("record")? as f64 * parameters.number("compaction")? / 100.0;
    let updates = ((WRITE.0 as f64 / due) as usize).max(1);
    let mut calls = Vec::new();
    let mut at = 0;
    for some in reads.chunks(updates) {
        calls.extend_from_slice(some);
        calls.push(Call {
            file: new,
            blocks: at..at + blocks(WRITE),
            direction: Direction::Update,
        });
        at = (at + blocks(WRITE)) % blocks(WRITTEN);
    }
    let load = load(&system, &calls, parameters.count("threads")?);
    let copying = Bytes(parameters.bytes("copy_call")?);
    let alone = before.speed(&system, load, calls.len() as u64)?;
    let work = before.defragment_beside(&system, |_| Contender::Conventional, copying, load)?;
    let scale = parameters.count("all_files")? as f64 / count as f64;
    let mut measured = Measured::default();
    let lost = change(work.served.per_second(), alone);
    measured.push("e4defrag", "throughput of YCSB-A", lost, Unit::ChangePct);
    let time = scale * work.seconds();
    measured.push("e4defrag", "time for 30 GB", time, Unit::Seconds);
    Ok(measured)
}
