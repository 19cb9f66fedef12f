//! FragPicker, Figure 11 with F2FS in a guest: grep over the files of a fileserver, before and after two defragmenters.

use lfs_sim::disk::Disk;
use units::Bytes;

use super::{
    error::FigureError,
    fragpicker::System,
    fragpicker_fig11::{Grep, ageing, label},
    in_guest::{
        aged::{Rig, Run, Runs},
        layout_of,
    },
    measured::{Measured, Unit, changes},
    parameters::Parameters,
    turn::Turn,
};
use crate::{ageing::Writes, image::Ssd, layout::Layout, way::Way};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let guests = parameters.text("guest_device")?;
    let ssd = Ssd::new(guests, 1, parameters.count("zones")?);
    let ssd = ssd.map_err(FigureError::machine(guests))?;
    let zoned = ssd.zoned;
    let ageing = ageing(parameters, parameters.count("files")?)?;
    let rig = Rig::new(parameters, ssd, ageing, Writes::Direct)?;
    let hosts = hosts(parameters, zoned)?;
    let runs = Runs::measure(&rig, turn)?;
    rows(&hosts, &runs)
}

/// The paper's host with one of its drives.
struct Host<'a> {
    drive: &'a str,
    grep: Grep,
    disk: Disk,
}

/// With each of the drives, on which files lie in so many bytes.
fn hosts(parameters: &Parameters, zoned: Bytes) -> Result<Vec<Host<'_>>, FigureError> {
    let hosts = parameters.texts("devices")?.iter().map(|drive| {
        let system = System::new(parameters, drive)?;
        let disk = system.full_zones(&system.profile, zoned);
        Ok(Host {
            drive: label(drive),
            disk: disk.map_err(FigureError::simulation)?,
            grep: Grep::new(parameters, system)?,
        })
    });
    hosts.collect()
}

fn rows(hosts: &[Host<'_>], runs: &Runs) -> Result<Measured, FigureError> {
    let mut measured = Measured::default();
    for host in hosts {
        rows_of_grep(runs, host, &mut measured)?;
        rows_of_places(runs, host.drive, &mut measured);
    }
    let first: Vec<f64> = runs.iter().map(|run| run.aged.first_pct()).collect();
    let x = "data that was there before the flows";
    measured.push_runs("aged", x, &first, Unit::SharePct);
    Ok(measured)
}

/// The places of a run's files: after a way, or before all.
fn places(run: &Run, way: Option<Way>) -> &Layout {
    let after = way.and_then(|way| run.way(way));
    after.map_or(&run.layout, |it| &it.layout)
}

/// The cost of grep.
fn rows_of_grep(runs: &Runs, host: &Host<'_>, measured: &mut Measured) -> Result<(), FigureError> {
    let costs = |way| -> Result<Vec<f64>, FigureError> {
        let costs = runs.iter().map(|run| {
            let files = places(run, way).files.iter();
            let files = files.map(|file| layout_of(&file.extents)).collect();
            host.grep.cost(host.disk.clone(), files)
        });
        costs.collect()
    };
    let before = costs(None)?;
    let conventional = costs(Some(Way::Conventional))?;
    let fragpicker = costs(Some(Way::FragPicker))?;
    let mut push = |series: &str, x: &str, now: &[f64], then: &[f64]| {
        let series = format!("{series}, {}", host.drive);
        measured.push_runs(&series, x, &changes(now, then), Unit::ChangePct);
    };
    push("FragPicker", "grep cost, from before", &fragpicker, &before);
    let x = "grep cost, from conventional";
    push("FragPicker", x, &fragpicker, &conventional);
    let x = "grep cost, from before";
    push("conventional", x, &conventional, &before);
    Ok(())
}

/// Writes and fragments: the same on each drive.
fn rows_of_places(runs: &Runs, drive: &str, measured: &mut Measured) {
    let moved = |way| runs.of(way, |_, it| Some(it.moved_bytes as f64));
    let less = changes(&moved(Way::FragPicker), &moved(Way::Conventional));
    let fragments = |way| -> Vec<f64> {
        let of_run = |run: &Run| {
            let places = places(run, way);
            places.extents() as f64 / places.files.len() as f64
        };
        runs.iter().map(of_run).collect()
    };
    let mut push = |series: &str, x: &str, values: &[f64], unit: Unit| {
        measured.push_runs(&format!("{series}, {drive}"), x, values, unit);
    };
    let x = "writes, from conventional";
    push("FragPicker", x, &less, Unit::ChangePct);
    let x = "fragments of a file";
    push("before", x, &fragments(None), Unit::Count);
    let after = fragments(Some(Way::FragPicker));
    push("FragPicker", x, &after, Unit::Count);
    let after = fragments(Some(Way::Conventional));
    push("conventional", x, &after, Unit::Count);
}

#[cfg(test)]
mod tests {
    use super::{
        super::{class::compare, in_guest::aged::sample, source::Figure},
        *,
    };
    use crate::layout::{BLOCK, Extent, FileLayout};

    /// A file of 64 blocks, in pieces of so many.
    fn file(blocks: u64) -> Layout {
        let extent = |piece: u64| Extent {
            at: piece * blocks * BLOCK,
            place: 2 * piece * blocks * BLOCK,
            bytes: blocks * BLOCK,
        };
        let name = "00000".to_owned();
        let extents = (0..64 / blocks).map(extent).collect();
        Layout {
            files: vec![FileLayout {
                name,
                bytes: 64 * BLOCK,
                extents,
            }],
        }
    }

    #[test]
    fn places_make_the_cost_and_every_published_value_has_a_row() {
        let figure = Figure::load(source_tree::root(), "fragpicker/fig11-guest").unwrap();
        let hosts = hosts(&figure.parameters, Bytes::mib(64)).unwrap();
        let runs = sample::runs_of_files(&file(2), [&file(64), &file(32), &file(32)]);
        let measured = rows(&hosts, &runs).unwrap();
        let at = |series: &str, x: &str| measured.at(series, &x.into()).unwrap().ours;
        assert!(at("FragPicker, Optane", "grep cost, from before") < -10.0);
        // Requests of 128 KiB are in one piece.
        let x = "grep cost, from conventional";
        assert_eq!(at("FragPicker, Flash", x), 0.0);
        assert_eq!(at("FragPicker, Flash", "writes, from conventional"), -20.0);
        assert_eq!(at("before, Optane", "fragments of a file"), 32.0);
        assert_eq!(at("FragPicker, Optane", "fragments of a file"), 2.0);
        compare(&figure, Some(&measured)).unwrap();
    }
}
