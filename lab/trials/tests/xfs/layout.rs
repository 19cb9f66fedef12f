//! Files of all shapes, moved as a whole and in part.

use std::fs::File;

use rustix::fs::{FallocateFlags, fallocate};
use scratch_fs::{Segment, Shape, reflink};
use units::{Bytes, FileRange, Nanos};

use crate::flavour::*;

/// Move it, and check everything after a remount and a check of the file system.
fn check(
    flavour: Flavour,
    fs: &mut scratch_fs::ScratchFs,
    shape: &Shape,
    ranges: Option<&[FileRange]>,
) {
    let path = fs.path().join("file");
    shape.make(&path).unwrap();
    fs.remount().unwrap();
    let (before, before_fragments) = (FileState::of(&path), fragments(&path));
    let how = Move::with(flavour);
    let moved = match ranges {
        Some(ranges) => how.ranges(&path, ranges),
        None => how.whole(&path),
    }
    .unwrap();
    assert_eq!(FileState::of(&path), before, "{}", flavour.name);
    fs.remount().unwrap();
    assert_eq!(
        FileState::of(&path),
        before,
        "{} after a remount",
        flavour.name
    );
    let after = fragments(&path);
    eprintln!(
        "{}: {before_fragments} -> {after} fragments, {moved:?}",
        flavour.name
    );
    assert!(after < before_fragments);
    assert!(moved.host_written >= moved.relocated && !moved.relocated.is_zero());
    assert!(moved.locked > Nanos(0));
    assert_nothing_left(fs, &[&path]);
    fs.fsck().unwrap();
}

fn data(len: Bytes, piece: Bytes) -> Segment {
    Segment::Data { len, piece }
}

#[test]
fn loop_a_fragmented_file_becomes_one_extent() {
    each(&ALL, Bytes::gib(1), |flavour, fs| {
        let shape = Shape::new(1).with(data(Bytes::mib(32), Bytes::kib(4)));
        check(flavour, fs, &shape, None);
        assert_eq!(fragments(&fs.path().join("file")), 1);
    });
}

#[test]
fn loop_an_odd_size_is_kept() {
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let shape = Shape::new(2).with(data(Bytes(5 * 1024 * 1024 + 12_345), Bytes::kib(64)));
        check(flavour, fs, &shape, None);
    });
}

#[test]
fn loop_holes_and_unwritten_ranges_are_kept() {
    each(&ALL, Bytes::gib(1), |flavour, fs| {
        let piece = Bytes::kib(16);
        let shape = Shape::new(3)
            .with(data(Bytes::mib(2), piece))
            .with(Segment::Hole(Bytes::mib(1)))
            .with(data(Bytes::mib(1), piece))
            .with(Segment::Unwritten {
                len: Bytes::mib(1),
                piece,
            })
            .with(data(Bytes::kib(300), piece))
            .with(Segment::Hole(Bytes::mib(3)))
            .with(data(Bytes::mib(1), piece))
            .repeated(3);
        check(flavour, fs, &shape, None);
    });
}

/// A hole may be as long as a file can be: nothing is done for each window of it.
#[test]
fn loop_a_hole_of_exbibytes_takes_no_time() {
    use std::os::unix::fs::FileExt;
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let path = fs.path().join("file");
        let shape = Shape::new(5).with(data(Bytes::mib(1), Bytes::kib(4)));
        shape.make(&path).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let far = (1 << 62) - 4096;
        open().write_all_at(&[7; 4096], far).unwrap();
        fs.remount().unwrap();
        let ends = || {
            let (file, mut near, mut last) = (open(), vec![0; 1 << 20], vec![0; 4096]);
            file.read_exact_at(&mut near, 0).unwrap();
            file.read_exact_at(&mut last, far).unwrap();
            (near, last, file.metadata().unwrap().len())
        };
        // They are cached from now on.
        let before = ends();
        let moved = Move::with(flavour).whole(&path).unwrap();
        assert!(moved.relocated >= Bytes::mib(1), "{}", flavour.name);
        fs.remount().unwrap();
        assert_eq!(ends(), before, "{}", flavour.name);
        assert_eq!(fragments(&path), 2, "{}", flavour.name);
        fs.fsck().unwrap();
    });
}

#[test]
fn loop_only_what_was_asked_for_is_written() {
    each(
        &[SWAP, SWAP_RMAP, COMMIT, DEDUPE],
        Bytes::gib(1),
        |flavour, fs| {
            let shape = Shape::half_contiguous(4, Bytes::mib(32));
            let ranges: Vec<_> = (0..128)
                .map(|i| FileRange::new(i * 256 * 1024, 128 * 1024))
                .collect();
            let path = fs.path().join("file");
            shape.make(&path).unwrap();
            fs.remount().unwrap();
            let before = FileState::of(&path);
            let kept = layout(&path);
            let moved = Move::with(flavour).ranges(&path, &ranges).unwrap();
            assert_eq!(moved.host_written, Bytes::mib(16), "{}", flavour.name);
            assert_eq!(moved.relocated, Bytes::mib(16));
            fs.remount().unwrap();
            assert_eq!(FileState::of(&path), before);
            let after = layout(&path);
            for (i, range) in ranges.iter().enumerate() {
                assert_eq!(after.fragments_in(*range), 1, "range {i}");
                let next = FileRange::new(range.end().get(), 128 * 1024);
                assert!(
                    after
                        .clipped(next)
                        .map(|e| e.phys)
                        .eq(kept.clipped(next).map(|e| e.phys)),
                    "{}: the good half stays where it was",
                    flavour.name
                );
            }
            // A second run finds nothing to do.
            let again = Move::with(flavour).ranges(&path, &ranges).map(drop);
            assert!(format!("{again:?}").contains("Contiguous"), "{again:?}");
            fs.fsck().unwrap();
        },
    );
}

#[test]
fn loop_small_steps_never_make_more_fragments() {
    each(
        &[COMMIT, DEDUPE, DEDUPE_RMAP],
        Bytes::gib(1),
        |flavour, fs| {
            let path = fs.path().join("file");
            Shape::new(5)
                .with(data(Bytes::mib(8), Bytes::kib(12)))
                .with(data(Bytes::mib(8), Bytes::mib(3)))
                .make(&path)
                .unwrap();
            let before = FileState::of(&path);
            let how = Move {
                limit: Bytes::kib(64),
                ..Move::with(flavour)
            };
            let relocator = how.relocator(&path);
            let target = indef_fs::Target::open(&path).unwrap();
            let copier = indef_engine::Copier::new(8);
            let range = [FileRange::new(4096, (16 << 20) - 8192)];
            let range = indef_fs::count_ranges(&target, &range).unwrap();
            let mut relocation = relocator.begin(&target, &range, &copier).unwrap();
            let mut last = fragments(&path);
            let first = last;
            loop {
                let step = relocation
                    .step(indef_fs::StepLimit { bytes: how.limit })
                    .unwrap();
                let now = fragments(&path);
                assert!(now <= last.max(first), "{last} -> {now}");
                last = now;
                if matches!(step, indef_fs::Step::Done(_)) {
                    break;
                }
            }
            drop(relocation);
            drop(target);
            assert!(last <= 3, "{last}");
            assert_eq!(FileState::of(&path), before);
            fs.fsck().unwrap();
        },
    );
}

#[test]
fn loop_sharing_is_kept_unless_allowed() {
    each(
        &[SWAP, SWAP_RMAP, COMMIT, DEDUPE],
        Bytes::gib(1),
        |flavour, fs| {
            let (path, copy) = (fs.path().join("file"), fs.path().join("copy"));
            Shape::new(6)
                .with(data(Bytes::mib(8), Bytes::kib(16)))
                .make(&path)
                .unwrap();
            reflink(&path, &copy).unwrap();
            // One half is unshared again, in fragments.
            Shape::new(7)
                .with(data(Bytes::mib(4), Bytes::kib(16)))
                .make(&fs.path().join("half"))
                .unwrap();
            let (before, before_copy) = (FileState::of(&path), FileState::of(&copy));
            let refused = Move::with(flavour).whole(&path).map(drop);
            assert!(format!("{refused:?}").contains("Shared"), "{refused:?}");
            assert_eq!(FileState::of(&path), before);
            let how = Move {
                allow_unshare: true,
                ..Move::with(flavour)
            };
            let moved = how.whole(&path);
            fs.remount().unwrap();
            assert_eq!(FileState::of(&path), before);
            assert_eq!(FileState::of(&copy), before_copy);
            assert_eq!(fragments(&copy), 512);
            if flavour.engine == COMMIT.engine {
                assert_eq!(moved.unwrap().relocated, Bytes::mib(8));
                assert_eq!(fragments(&path), 1);
            } else {
                assert!(format!("{moved:?}").contains("KeepsSharing"), "{moved:?}");
                assert_eq!(fragments(&path), 512);
            }
            fs.fsck().unwrap();
        },
    );
}

#[test]
fn loop_space_behind_the_end_stays() {
    use rustix::fs::{FallocateFlags, fallocate};
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let path = fs.path().join("file");
        Shape::new(8)
            .with(data(Bytes::mib(4), Bytes::kib(16)))
            .make(&path)
            .unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        fallocate(&file, FallocateFlags::KEEP_SIZE, 4 << 20, 3 << 20).unwrap();
        drop(file);
        fs.remount().unwrap();
        let before = FileState::of(&path);
        Move::with(flavour).whole(&path).unwrap();
        fs.remount().unwrap();
        assert_eq!(FileState::of(&path), before);
        assert_eq!(layout(&path).allocated(), Bytes::mib(7), "{}", flavour.name);
        fs.fsck().unwrap();
    });
}

/// Whether the move was refused because the two inodes have too different room for extents;
/// false if it succeeded. Panics on any other error.
fn is_refused_for_room(moved: Result<indef_fs::Moved, indef_fs::Refusal>) -> bool {
    match moved {
        Ok(_) => false,
        Err(indef_fs::Refusal::Skip(indef_core::SkipReason::Unsupported)) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn loop_attributes_in_the_inode_are_no_obstacle() {
    use rustix::fs::{XattrFlags, setxattr};
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        // From so few extents that they fit into the inode to so many that they do not; and a
        // move leaves the same number.
        let mut refused = 0;
        for (number, pieces) in [3_u64, 8, 12, 17, 20, 25, 40].into_iter().enumerate() {
            for (length, value) in [(10, "small"), (100, "medium"), (250, "large")] {
                let path = fs.path().join(format!("{value}-{pieces}"));
                Shape::new(9 + number as u64)
                    .with(data(Bytes::kib(16) * pieces, Bytes::kib(16)))
                    .make(&path)
                    .unwrap();
                setxattr(&path, "user.test", &vec![7; length], XattrFlags::empty()).unwrap();
                let before = FileState::of(&path);
                let half = FileRange::new(0, (16 << 10) * pieces / 2);
                let moved = Move::with(flavour).ranges(&path, &[half]);
                if half.len >= Bytes::kib(32) {
                    refused += u32::from(is_refused_for_room(moved));
                }
                assert_eq!(FileState::of(&path), before);
                let mut read = vec![0; 300];
                let got = rustix::fs::getxattr(&path, "user.test", &mut read[..]).unwrap();
                assert_eq!(&read[..got], vec![7; length]);
            }
        }
        // Where there are only just more than fit into the inode, no donor may fit.
        assert!(refused == 0, "{}: {refused} refused", flavour.name);
        fs.fsck().unwrap();
    });
}

/// XFS frees in the background, later on a busy machine. `indef compact` looks at free space after each round.
#[test]
fn loop_what_was_deleted_is_free_once_it_was_waited_for() {
    each(&[DEDUPE, SWAP_RMAP], Bytes::mib(512), |flavour, fs| {
        let root = File::open(fs.path()).unwrap();
        let places = ["one", "other"].map(|name| fs.path().join(name));
        for _ in 0..4 {
            let files = [0, 1].map(|index: usize| File::create(&places[index]).unwrap());
            for at in 0..4096 {
                for file in &files {
                    fallocate(file, FallocateFlags::empty(), at << 14, 1 << 14).unwrap();
                }
            }
            drop(files);
            fs.sync().unwrap();
            for place in &places {
                let with = fs.free().unwrap();
                std::fs::remove_file(place).unwrap();
                linux_abi::xfs::wait_for_frees(&root).unwrap();
                let free = fs.free().unwrap();
                let name = flavour.name;
                assert!(free >= with + Bytes::mib(60), "{name}: {with}, then {free}");
            }
        }
    });
}
