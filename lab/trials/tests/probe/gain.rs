//! The gain of defragmenting that a probe predicts, against the true gain.

use indef_core::{
    layout::{Extent, ExtentFlags, Layout},
    probe::{Drive, ReadModel, probe},
};
use units::{Bytes, FileOffset, FileRange, PhysOffset};
use workloads::Numbers;

use super::{FILE, ask, drive::Modelled, varied::varied, written};

/// One read of an application.
const READ: u64 = 128 << 10;
/// Reads that are timed.
const READS: u64 = 300;
/// How far the predicted part of the time saved may be from the real one. Larger pieces than blocks share
/// channels for longer, and may be several pages, which the model does not know: they are only shown.
const NEAR: f64 = 0.1;

/// Where the pieces of a read lie.
#[derive(Clone, Copy, Debug)]
enum Placed {
    Anywhere,
    OnOneUnit,
    OnEachUnitInTurn,
}

/// The pieces of one read.
fn pieces(placed: Placed, len: u64, stripe: u64, granule: u64, numbers: &mut Numbers) -> Vec<u64> {
    let count = READ / len;
    let room = FILE.len.0 - (count + 1) * (stripe + granule);
    let first = numbers.below(room / granule) * granule;
    let place = |nth: u64, numbers: &mut Numbers| match placed {
        // As file systems place them: at any block.
        Placed::Anywhere => numbers.below((FILE.len.0 - len) / 4096) * 4096,
        Placed::OnOneUnit => first + nth * stripe,
        // Not one after the other: that would be no fragment.
        Placed::OnEachUnitInTurn => first + nth * (stripe + granule),
    };
    (0..count).map(|nth| place(nth, numbers)).collect()
}

fn layout(places: &[u64], len: u64) -> Layout {
    let extent = |(nth, place): (usize, &u64)| Extent {
        file: FileOffset(nth as u64 * len),
        phys: PhysOffset(*place),
        len: Bytes(len),
        flags: ExtentFlags::empty(),
    };
    Layout::new(places.iter().enumerate().map(extent).collect())
}

/// The mean time of reads of such pieces, and what the model says.
fn both(
    drive: &mut Modelled,
    model: &ReadModel,
    placed: Placed,
    len: u64,
    numbers: &mut Numbers,
) -> (f64, f64) {
    let (stripe, granule) = (model.placement.stripe().0, model.placement.granule.0);
    let (mut real, mut told) = (0.0, 0.0);
    for _ in 0..READS {
        let places = pieces(placed, len, stripe, granule, numbers);
        let reads: Vec<_> = places.iter().map(|at| FileRange::new(*at, len)).collect();
        let Ok(time) = drive.read(&reads, reads.len());
        real += time.0 as f64;
        told += model.read_ns(&layout(&places, len), FileRange::new(0, READ), READ);
    }
    (real / READS as f64, told / READS as f64)
}

#[test]
fn the_gain_of_defragmenting_is_as_predicted() {
    for name in ["fast24", "indef-femu", "indef-femu-16k", "zn540", "tlc"] {
        for seed in 1..=3 {
            let varied = varied(name, seed);
            let mut drive = written(&varied, seed);
            let Ok(found) = probe(&mut drive, ask(seed));
            let model = ReadModel::of(&found).expect("it is found out");
            let mut numbers = Numbers::new(seed);
            let whole = both(&mut drive, &model, Placed::Anywhere, READ, &mut numbers);
            for placed in [
                Placed::Anywhere,
                Placed::OnOneUnit,
                Placed::OnEachUnitInTurn,
            ] {
                for len in [4096, 16 << 10] {
                    let apart = both(&mut drive, &model, placed, len, &mut numbers);
                    let gain = |whole: f64, apart: f64| 1.0 - whole / apart;
                    let (real, told) = (gain(whole.0, apart.0), gain(whole.1, apart.1));
                    println!(
                        "{name} {seed}: {placed:?} in {} KiB: {:.0} and {:.0} µs, told {:.0} and {:.0}; gains {real:.3}, told {told:.3}",
                        len >> 10,
                        apart.0 / 1e3,
                        whole.0 / 1e3,
                        apart.1 / 1e3,
                        whole.1 / 1e3
                    );
                    // Where next to nothing is gained, it need only say so.
                    let near = match real < 0.1 && told < 0.1 {
                        true => 3.0 * NEAR,
                        false => NEAR,
                    };
                    assert!(
                        len > 4096 || (real - told).abs() < near,
                        "{name} {seed} {placed:?}"
                    );
                }
            }
        }
    }
}
