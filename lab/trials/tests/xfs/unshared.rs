//! Blocks that a file shared, and no longer shares, are not given to another file before that is
//! durable.

use std::{
    fs::File,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use indef_core::SkipReason;
use indef_engine::Copier;
use indef_fs::{Moved, Refusal, Step, StepLimit, Target, count_ranges};
use linux_abi::shutdown;
use rustix::fs::OFlags;
use scratch_fs::{AlignedBuffer, ScratchFs, Segment, Shape, reflink};
use units::{Bytes, FileRange};

use crate::flavour::*;

pub(crate) const LEN: u64 = 1 << 20;

/// The time in which XFS frees the blocks of a deleted file in the background.
const GIVEN_BACK: Duration = Duration::from_millis(500);

pub(crate) fn make(path: &Path) {
    let data = Segment::Data {
        len: Bytes(LEN),
        piece: Bytes::kib(16),
    };
    Shape::new(5).with(data).make(path).unwrap();
}

fn write_in_place(path: &Path) {
    let mut buffer = AlignedBuffer::new(LEN as usize);
    buffer.slice().fill(0x5a);
    let file = File::options()
        .write(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(path)
        .unwrap();
    file.write_all_at(buffer.slice(), 0).unwrap();
}

/// Write to the clone once the mover's blocks are freed; then shut down without a flush, as a power
/// cut does, and remount.
pub(crate) fn write_and_cut(fs: &mut ScratchFs, clone: &Path) {
    std::thread::sleep(GIVEN_BACK);
    write_in_place(clone);
    shutdown::without_flush(File::open(fs.path()).unwrap()).unwrap();
    fs.remount().unwrap();
}

/// XFS writes a block in place as soon as no other file shares it, also if that is not yet durable.
/// So if a file moves away from blocks that it shares with another one, that one's next write must
/// not reach the device before the move has.
#[test]
fn loop_what_was_shared_is_not_written_before_the_move_is_durable() {
    each(
        &[SWAP_RMAP, COMMIT, DEDUPE],
        Bytes::mib(512),
        |flavour, fs| {
            let (path, clone) = (fs.path().join("file"), fs.path().join("clone"));
            make(&path);
            reflink(&path, &clone).unwrap();
            fs.sync().unwrap();
            let before = FileState::of(&path);
            let how = Move {
                allow_unshare: true,
                ..Move::with(flavour)
            };
            let moved = how.whole(&path);
            if flavour.engine != COMMIT.engine {
                let refused: Result<Moved, _> = Err(Refusal::Skip(SkipReason::KeepsSharing));
                assert_eq!(format!("{moved:?}"), format!("{refused:?}"));
                return;
            }
            assert_eq!(moved.unwrap().relocated, Bytes(LEN));
            write_and_cut(fs, &clone);
            assert!(
                FileState::of(&path).has_content_of(&before),
                "the clone's bytes"
            );
        },
    );
}

/// Times do not show a clone, so one may be made up to the end.
#[test]
fn loop_a_clone_made_meanwhile_is_not_written_before_the_move_is_durable() {
    each(
        &[SWAP_RMAP, COMMIT, DEDUPE],
        Bytes::mib(512),
        |flavour, fs| {
            let (path, clone) = (fs.path().join("file"), fs.path().join("clone"));
            make(&path);
            fs.sync().unwrap();
            let before = FileState::of(&path);
            let relocator = Move::with(flavour).relocator(&path);
            let target = Target::open(&path).unwrap();
            let copier = Copier::new(32);
            let whole = count_ranges(&target, &[FileRange::new(0, LEN)]).unwrap();
            let mut relocation = relocator.begin(&target, &whole, &copier).unwrap();
            let limit = StepLimit { bytes: Bytes(LEN) };
            if flavour.engine == SWAP.engine {
                // Copied; only the exchange remains.
                assert!(matches!(relocation.step(limit), Ok(Step::Working(_))));
            }
            reflink(&path, &clone).unwrap();
            let last = relocation.step(limit);
            if flavour.engine != SWAP.engine {
                assert!(matches!(last, Err(Refusal::Skip(SkipReason::Shared))));
                return;
            }
            assert!(matches!(last, Ok(Step::Done(moved)) if moved.relocated == Bytes(LEN)));
            drop(relocation);
            drop(target);
            write_and_cut(fs, &clone);
            assert!(
                FileState::of(&path).has_content_of(&before),
                "the clone's bytes"
            );
        },
    );
}
