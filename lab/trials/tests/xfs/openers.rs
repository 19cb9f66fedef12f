//! Others open a file while it moves. For a moment the donor shares blocks with it, and who opens it waits until that is over:
//! a file with shared blocks cannot be swapped to, and a write gives it another fragment.

use std::{
    fs::File,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use indef_core::{SkipReason, layout::ExtentFlags};
use indef_engine::Copier;
use indef_fs::{
    EngineOptions, Mapper, Refusal, Step, StepLimit, Target, count_ranges, detect, map, relocator,
};
use scratch_fs::{Segment, Shape};
use units::{Bytes, FileRange};

use crate::flavour::*;

const LEN: u64 = 8 << 20;
const FILES: u64 = 6;

/// Whether any of it is shared, as somebody sees who opens it now.
fn is_seen_shared(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    let whole = FileRange::new(0, LEN);
    let layout = map(&file, path, whole, false, &mut Mapper::default()).unwrap();
    let mut extents = layout.extents().iter();
    extents.any(|extent| extent.flags.contains(ExtentFlags::SHARED))
}

/// Move the first half while nobody has the file open; others open it meanwhile.
fn relocate(flavour: Flavour, path: &Path) -> Result<(), Refusal> {
    let fs = detect(File::open(path).unwrap(), path).unwrap();
    let options = EngineOptions {
        by_name: true,
        strict: true,
        ..EngineOptions::default()
    };
    let engine = relocator(flavour.engine, &fs, &options)?;
    let target = Target::open(path)?;
    engine.admit(&target)?;
    let ranges = count_ranges(&target, &[FileRange::new(0, LEN / 2)])?;
    let copier = Copier::new(32);
    let mut relocation = engine.begin(&target, &ranges, &copier)?;
    let bytes = Bytes::kib(256);
    while let Step::Working(_) = relocation.step(StepLimit { bytes })? {}
    Ok(())
}

#[test]
fn loop_who_opens_a_file_finds_nothing_shared() {
    each(
        &[SWAP, SWAP_RMAP, DEDUPE, DEDUPE_RMAP],
        Bytes::mib(512),
        |flavour, fs| {
            let (mut opened, mut shared) = (0, 0);
            for number in 0..FILES {
                let path = fs.path().join(format!("file{number}"));
                let data = Segment::Data {
                    len: Bytes(LEN),
                    piece: Bytes::kib(4),
                };
                Shape::new(number).with(data).make(&path).unwrap();
                let before = FileState::of(&path);
                let is_over = AtomicBool::new(false);
                thread::scope(|scope| {
                    let opener = scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            opened += 1;
                            shared += u64::from(is_seen_shared(&path));
                            thread::sleep(Duration::from_millis(3));
                        }
                    });
                    let in_use = |moved: &Result<(), Refusal>| {
                        matches!(moved, Err(Refusal::Skip(SkipReason::InUse)))
                    };
                    let mut tries = (0..100).map(|_| relocate(flavour, &path));
                    let moved = tries.find(|moved| !in_use(moved));
                    is_over.store(true, Ordering::Relaxed);
                    opener.join().unwrap();
                    moved.expect("it was always in use").unwrap();
                });
                // Nor is it later, when the donor has gone.
                shared += u64::from(is_seen_shared(&path));
                assert!(fragments(&path) < LEN / 4096 / 2 + 10);
                assert_eq!(FileState::of(&path), before);
            }
            let name = flavour.name;
            assert!(opened > FILES, "{name}: opened {opened} times");
            assert_eq!(shared, 0, "{name}: of {opened}");
            fs.fsck().unwrap();
        },
    );
}
