//! InDeF, Figure 16: the host's memory while data migrates.

use workloads::filebench::Personality;

use super::{
    error::FigureError,
    in_guest::aged::{Rig, Runs},
    measured::{Measured, Unit},
    parameters::Parameters,
    turn::Turn,
};
use crate::{inside::Memory, way::Way};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let truncate = parameters.number("truncate")? as u32;
    let rig = Rig::of_indef(parameters, Personality::Fileserver, truncate)?;
    let runs = Runs::measure(&rig, turn)?;
    Ok(rows(&runs, Way::Indef { truncate }))
}

/// A part of the memory.
type Part = fn(&Memory) -> u64;

fn rows(runs: &Runs, indef: Way) -> Measured {
    let parts: [(&str, Part); 4] = [
        ("memory", |it| it.used_kib),
        ("of the process", |it| it.process_kib),
        ("of the page cache", |it| it.page_cache_kib),
        ("of the kernel itself", |it| it.kernel_kib),
    ];
    let mut measured = Measured::default();
    for (series, way) in [("InDeF", indef), ("conventional", Way::Conventional)] {
        for (x, part) in parts {
            let megabytes = runs.of(way, |_, it| {
                Some(part(&it.cost.as_ref()?.memory) as f64 * 1024.0 / 1e6)
            });
            measured.push_runs(series, x, &megabytes, Unit::Mb);
        }
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::{
        super::{class::compare, in_guest::aged::sample, source::Figure},
        *,
    };

    #[test]
    fn memory_is_all_that_is_in_use_and_its_parts() {
        let indef = Way::Indef { truncate: 30 };
        let measured = rows(&sample::runs(indef), indef);
        let at = |series: &str, x: &str| measured.at(series, &x.into()).unwrap().ours;
        assert_eq!(at("InDeF", "memory"), 51.2);
        assert_eq!(at("conventional", "memory"), 204.8);
        assert_eq!(at("conventional", "of the page cache"), 102.4);
        assert_eq!(at("InDeF", "of the process"), 20.48);
        let figure = Figure::load(source_tree::root(), "indef/fig16").unwrap();
        compare(&figure, Some(&measured)).unwrap();
    }
}
