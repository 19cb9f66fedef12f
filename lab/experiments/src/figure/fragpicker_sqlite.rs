//! FragPicker, §5.3.2: rows that SQLite inserted one by one on Btrfs, on a MicroSD card.

use indef_core::layout::Layout;
use lfs_sim::{
    BLOCK,
    beside::{Call, Load},
    calls::Direction,
    host::Access,
    planning,
    readers::read,
};
use units::{Bytes, FileRange};

use super::{
    database::{Aged, Beside, load, written},
    error::FigureError,
    fragpicker::{Contender, FileSystem, System, blocks},
    measured::{Measured, Unit, change},
    parameters::Parameters,
    sqlite::{PAGE, Rows},
};

/// The file that fio writes, around and around.
const FIO: Bytes = Bytes::mib(8);

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["between"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters, parameters.text("device")?)?;
    let count = parameters.count("rows")?;
    let table = Rows::of(parameters.bytes("value")?);
    let between = parameters.count("between")? as u32;
    let pieces = vec![(between, 1); table.pages(count) as usize];
    let ground = system.written(FileSystem::Btrfs, &pieces)?;
    let mut before = Aged {
        volume: ground.volume,
        disk: ground.disk,
        files: vec![ground.file],
    };
    let fio = written(&mut before.volume, blocks(FIO))?;
    let step = blocks(system.io_size);
    let calls: Vec<Call> = (0..blocks(FIO) / step)
        .map(|number| Call {
            file: fio,
            blocks: number * step..(number + 1) * step,
            direction: Direction::Update,
        })
        .collect();
    let load = load(&system, &calls, 1);
    let part = count as f64 * parameters.number("selected")? / 100.0;
    let selected = Bytes(table.pages(part as u64) * PAGE);
    let whole = beside(&before, &system, Contender::Conventional, load)?;
    let accesses = planning::sequential_reads(selected, system.io_size);
    let fragpicker = Contender::FragPicker {
        accesses: &accesses,
        hot: 100.0,
    };
    let picked = beside(&before, &system, fragpicker, load)?;
    // As much longer, and more, as the paper's table is larger.
    let scale = parameters.count("all_rows")? as f64 / count as f64;
    let mut measured = Measured::default();
    for (series, place) in [
        ("before", &before),
        ("FragPicker", &picked.after),
        ("btrfs.defragment", &whole.after),
    ] {
        let time = scale * select(&system, place, selected)?;
        measured.push(series, "select", time, Unit::Seconds);
    }
    for (series, work) in [("FragPicker", &picked), ("btrfs.defragment", &whole)] {
        // All that is moved is read, and written once.
        let moved = scale * work.bytes / 1e6;
        measured.push(series, "read", moved, Unit::Mb);
        measured.push(series, "written", moved, Unit::Mb);
    }
    let mut push = |x: &str, now: f64, then: f64| {
        measured.push("FragPicker", x, change(now, then), Unit::ChangePct);
    };
    push(
        "elapsed, from btrfs.defragment",
        picked.seconds(),
        whole.seconds(),
    );
    let fio = [&picked, &whole].map(|work| work.served.per_second());
    push("fio beside it, from btrfs.defragment", fio[0], fio[1]);
    Ok(measured)
}

fn beside(
    before: &Aged,
    system: &System,
    contender: Contender<'_>,
    fio: Load<'_>,
) -> Result<Beside, FigureError> {
    before.defragment_beside(system, |_| contender, system.io_size, fio)
}

/// Seconds in which a query reads the first bytes of the table, page by page through the page cache.
fn select(system: &System, place: &Aged, bytes: Bytes) -> Result<f64, FigureError> {
    let layout = place.volume.layout(place.files[0]);
    let rows = layout.clipped(FileRange::new(0, bytes.0)).collect();
    let access = Access::Buffered {
        call: BLOCK,
        readahead: system.io_size,
    };
    let mut disk = place.disk.clone();
    let read = read(&system.simulated, &mut disk, [Layout::new(rows)], access, 1)
        .map_err(FigureError::simulation)?;
    Ok(read.elapsed.time.0 as f64 / 1e9)
}
