//! The gain of defragmenting that a probe predicts, against the true gain.

use indef_core::{
    layout::{Extent, ExtentFlags, Layout},
    probe::{Drive, ReadModel, probe},
};
use units::{Bytes, FileOffset, FileRange, PhysOffset};
use workloads::Numbers;

use super::{FILE, ask, devices, drive::Modelled, varied::varied, written};

/// One read of an application.
const READ: u64 = 128 << 10;
/// Reads that are timed.
const READS: u64 = 300;
/// Lengths of its pieces.
const LENGTHS: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// How far the predicted part of the time saved may be from the real one.
const NEAR: f64 = 0.1;
/// The same of pieces that take turns on the units, which share channels in a way that depends on which units
/// they are on, and of the longest ones, which begin and end in pages that the model does not know.
const FARTHER: f64 = 0.22;

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
    // At any block of a granule, as file systems place fragments.
    let first = numbers.below(room / 4096) * 4096;
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

/// The part of the time that is saved by moving, at least none: what is faster in pieces stays in pieces.
fn saved(whole: f64, apart: f64) -> f64 {
    (1.0 - whole / apart).max(0.0)
}

#[test]
fn the_gain_of_defragmenting_is_as_predicted() {
    let (mut all, mut foretold) = (0, 0);
    for name in ["fast24", "indef-femu", "indef-femu-16k", "zn540", "tlc"] {
        for seed in 1..=devices() {
            let varied = varied(name, seed);
            let mut drive = written(&varied, seed);
            let Ok(found) = probe(&mut drive, ask(seed));
            all += 1;
            let model = match ReadModel::of(&found) {
                Ok(model) => model,
                // A time of it may be unknown, and then nothing is foretold.
                Err(why) => {
                    println!("{name} {seed}: {why}");
                    continue;
                }
            };
            foretold += 1;
            let mut numbers = Numbers::new(seed);
            let whole = both(&mut drive, &model, Placed::Anywhere, READ, &mut numbers);
            for placed in [
                Placed::Anywhere,
                Placed::OnOneUnit,
                Placed::OnEachUnitInTurn,
            ] {
                for len in LENGTHS {
                    let apart = both(&mut drive, &model, placed, len, &mut numbers);
                    let (real, told) = (saved(whole.0, apart.0), saved(whole.1, apart.1));
                    let what = format!("{name} {seed}: {placed:?} in {} KiB", len >> 10);
                    println!(
                        "{what}: {:.0} and {:.0} µs, told {:.0} and {:.0}; gains {real:.3}, told {told:.3}",
                        apart.0 / 1e3,
                        whole.0 / 1e3,
                        apart.1 / 1e3,
                        whole.1 / 1e3
                    );
                    let near = match (placed, len) {
                        (_, 4096) | (Placed::Anywhere | Placed::OnOneUnit, ..=0x8000) => NEAR,
                        _ => FARTHER,
                    };
                    assert!((real - told).abs() < near, "{what}");
                }
            }
        }
    }
    assert!(foretold * 10 >= all * 9, "{foretold} of {all}");
}
