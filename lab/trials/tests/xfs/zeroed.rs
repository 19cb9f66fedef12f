//! Data that is zeroed while it is moved must not reappear.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use indef_engine::Copier;
use indef_fs::{Refusal, Step, StepLimit, Target, count_ranges};
use rustix::fs::{FallocateFlags, fallocate};
use scratch_fs::{Segment, Shape};
use units::{Bytes, FileRange};

use crate::flavour::*;

const MIB: u64 = 1 << 20;

/// Longer than one step copies, so that there is a moment between copy and exchange.
const LEN: u64 = 48 * MIB;

/// The ranges that are zeroed between the first and the second step: in the part that is copied
/// by then.
const ZEROED: [(FallocateFlags, FileRange); 3] = [
    (
        FallocateFlags::PUNCH_HOLE,
        FileRange::new(4 * MIB, 64 << 10),
    ),
    (
        FallocateFlags::ZERO_RANGE,
        FileRange::new(9 * MIB, 256 << 10),
    ),
    (
        FallocateFlags::PUNCH_HOLE,
        FileRange::new(17 * MIB + 4096, 4096),
    ),
];

fn make(path: &Path) {
    let data = Segment::Data {
        len: Bytes(LEN),
        piece: Bytes::kib(16),
    };
    Shape::new(3).with(data).make(path).unwrap();
}

fn zero(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    for (mode, range) in ZEROED {
        let mode = mode | FallocateFlags::KEEP_SIZE;
        fallocate(&file, mode, range.start.get(), range.len.get()).unwrap();
    }
    file.sync_all().unwrap();
}

fn assert_zero(path: &Path, when: &str) {
    let file = File::open(path).unwrap();
    for (_, range) in ZEROED {
        let mut bytes = vec![0xff; range.len.get() as usize];
        file.read_exact_at(&mut bytes, range.start.get()).unwrap();
        let data = bytes
            .chunks(4096)
            .filter(|block| block.iter().any(|b| *b != 0));
        assert_eq!(data.count(), 0, "{when}: blocks with old data in {range:?}");
    }
}

#[test]
fn loop_what_is_made_zero_between_two_tries_stays_zero() {
    each(&[COMMIT, SWAP, DEDUPE], Bytes::mib(512), |flavour, fs| {
        let (path, twin) = (fs.path().join("file"), fs.path().join("twin"));
        make(&path);
        make(&twin);
        let relocator = Move::with(flavour).relocator(&path);
        let copier = Copier::new(32);
        {
            let target = Target::open(&path).unwrap();
            let whole = count_ranges(&target, &[FileRange::new(0, LEN)]).unwrap();
            let mut relocation = relocator.begin(&target, &whole, &copier).unwrap();
            let limit = StepLimit { bytes: Bytes(LEN) };
            assert!(matches!(relocation.step(limit), Ok(Step::Working(_))));
            zero(&path);
            let end = loop {
                match relocation.step(limit) {
                    Ok(Step::Working(_)) => {}
                    end => break end,
                }
            };
            match end {
                // The engine that exchanges ranges tries again, and must succeed.
                Ok(Step::Done(_)) => {}
                Err(Refusal::Skip(_)) if flavour.engine != COMMIT.engine => {}
                other => panic!("{other:?}"),
            }
        }
        assert_zero(&path, "in the cache");
        zero(&twin);
        let (is, wanted) = (FileState::of(&path), FileState::of(&twin));
        assert_eq!(is.allocated(), wanted.allocated());
        fs.remount().unwrap();
        assert_zero(&path, "on the device");
        assert!(FileState::of(&path).has_content_of(&FileState::of(&twin)));
        fs.fsck().unwrap();
    });
}
