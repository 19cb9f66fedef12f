//! What reflinks share moves together on an XFS that does not tell who they are, if all of them are named.

use std::{
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use indef_core::{SkipReason, layout::Layout};
use indef_fs::{Moved, Refusal, Target};
use linux_abi::share::{Compared, dedupe_range};
use rustix::fs::{IFlags, ioctl_setflags};
use scratch_fs::{Segment, Shape, reflink};
use units::Bytes;

use crate::{
    flavour::*,
    share::{family, inodes, relocate_target, settled},
    unshared::{LEN, write_and_cut},
};

/// Move all of a file that was named with others.
fn relocate(
    path: &Path,
    named: &[PathBuf],
    meddle: impl FnMut() + Send,
) -> (Moved, Result<(), Refusal>) {
    let mut target = Target::open(path).unwrap();
    target.named = Some(inodes(named));
    relocate_target(&target, Bytes::mib(2), meddle)
}

fn states(paths: &[PathBuf]) -> Vec<FileState> {
    paths.iter().map(|path| FileState::of(path)).collect()
}

fn layouts(paths: &[PathBuf]) -> Vec<Layout> {
    paths.iter().map(|path| layout(path)).collect()
}

#[track_caller]
fn assert_stays(end: &Result<(), Refusal>, reason: SkipReason) {
    match end {
        Err(Refusal::Skip(found)) if *found == reason => {}
        other => panic!("{other:?}, not {reason}"),
    }
}

/// Whatever else is named changes nothing: a folder, a link, an inode that there is not, a file that shares nothing, one
/// that shares with somebody else, and the file itself.
#[test]
fn loop_what_was_named_moves_together_and_stays_shared() {
    each(&[NAMED], Bytes::mib(512), |_, fs| {
        let all = family(fs, 2);
        let [alone, folder, link] = ["alone", "folder", "link"].map(|name| fs.path().join(name));
        std::fs::write(&alone, [3; 65_536]).unwrap();
        reflink(&alone, &fs.path().join("shares it")).unwrap();
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&all[1], &link).unwrap();
        fs.sync().unwrap();
        let before = states(&all);
        let free = settled(fs);
        let mut target = Target::open(&all[0]).unwrap();
        let others = [&all[..], &[alone, folder, link]].concat();
        target.named = Some(inodes(&others).iter().copied().chain([1 << 40]).collect());
        let (moved, end) = relocate_target(&target, Bytes::mib(2), || {});
        drop(target);
        end.unwrap();
        assert_eq!((moved.relocated, moved.holders), (Bytes(LEN), 2));
        assert_eq!(moved.unshared, Bytes::ZERO);
        assert_eq!(states(&all), before);
        let now = layouts(&all);
        assert_eq!(now[0].fragments(), 1);
        assert!(now.iter().all(|layout| *layout == now[0]), "{now:?}");
        let left = settled(fs);
        assert!(left + Bytes::kib(256) >= free, "{free} free, then {left}");
        assert_eq!(states(&all), before);
        fs.fsck().unwrap();
    });
}

/// All go back to the blocks that somebody else has, and these are nobody's to write in place.
#[test]
fn loop_what_somebody_else_has_stays_where_it_is() {
    each(&[NAMED], Bytes::mib(512), |_, fs| {
        let all = family(fs, 3);
        let before = states(&all);
        let places = layouts(&all);
        let free = settled(fs);
        let (moved, end) = relocate(&all[0], &all[1..3], || {});
        assert_stays(&end, SkipReason::HoldersUnknown);
        assert_eq!(
            (moved.relocated, moved.unshared),
            (Bytes::ZERO, Bytes::ZERO)
        );
        assert_eq!(moved.host_written, Bytes(LEN));
        // To be copied, by two who were to follow, and by these and the target on the way back, with the old blocks.
        assert_eq!(moved.host_read, Bytes((1 + 2 + 3 + 1) * LEN));
        assert_eq!(states(&all), before);
        assert_eq!(layouts(&all), places);
        // Right after that, as it is known to the log or not.
        write_and_cut(fs, &all[3]);
        assert_eq!(states(&all[..3]), before[..3]);
        assert_eq!(layouts(&all[..3]), places[..3]);
        let left = settled(fs);
        // The one that was written has blocks of its own.
        assert!(
            left + Bytes(LEN) + Bytes::kib(256) >= free,
            "{free} free, then {left}"
        );
        fs.fsck().unwrap();
    });
}

/// As above, and one that went back is written at once.
#[test]
fn loop_whoever_went_back_is_not_written_before_that_is_durable() {
    each(&[NAMED], Bytes::mib(512), |_, fs| {
        for written in [0, 2] {
            let all = family(fs, 3);
            let before = states(&all);
            let (_, end) = relocate(&all[0], &all[1..3], || {});
            assert_stays(&end, SkipReason::HoldersUnknown);
            write_and_cut(fs, &all[written]);
            for (number, (path, before)) in all.iter().zip(&before).enumerate() {
                let same = FileState::of(path).has_content_of(before);
                assert!(same || number == written, "{}", path.display());
                std::fs::remove_file(path).unwrap();
            }
        }
        fs.fsck().unwrap();
    });
}

/// A clone that is made in the last moment is somebody else.
#[test]
fn loop_a_clone_made_in_the_last_moment_has_all_go_back() {
    each(&[NAMED], Bytes::mib(512), |_, fs| {
        let all = family(fs, 1);
        let (before, places) = (states(&all), layouts(&all));
        let late = fs.path().join("late");
        let (moved, end) = relocate(&all[0], &all[1..], || {
            if !late.exists() {
                reflink(&all[0], &late).unwrap();
            }
        });
        assert_stays(&end, SkipReason::HoldersUnknown);
        assert_eq!(moved.relocated, Bytes::ZERO);
        assert_eq!((states(&all), layouts(&all)), (before, places.clone()));
        assert_eq!(layout(&late), places[0]);
        write_and_cut(fs, &late);
        assert_eq!(layouts(&all), places);
        fs.fsck().unwrap();
    });
}

/// One that is written while all move, and has to go back: what was written is its own.
#[test]
fn loop_a_holder_that_is_written_before_it_goes_back_keeps_that() {
    each(&[NAMED], Bytes::mib(512), |_, fs| {
        let all = family(fs, 3);
        let before = states(&all);
        let (_, end) = relocate(&all[0], &all[1..3], || {
            let file = File::options().write(true).open(&all[1]).unwrap();
            file.write_all_at(&[1; 5000], 100_000).unwrap();
        });
        assert_stays(&end, SkipReason::HoldersUnknown);
        let mut expected = std::fs::read(&all[0]).unwrap();
        for number in [0, 2, 3] {
            assert!(FileState::of(&all[number]).has_content_of(&before[number]));
        }
        assert_eq!(layout(&all[0]), layout(&all[3]));
        assert_eq!(layout(&all[2]), layout(&all[3]));
        expected[100_000..105_000].fill(1);
        assert_eq!(std::fs::read(&all[1]).unwrap(), expected);
        fs.fsck().unwrap();
    });
}

/// Of a large file, no more than 2 MiB are copied before it is known that somebody else has it.
#[test]
fn loop_little_is_copied_in_vain() {
    each(&[NAMED], Bytes::mib(512), |_, fs| {
        let all: Vec<PathBuf> = ["file", "clone", "other"]
            .map(|name| fs.path().join(name))
            .into();
        let data = Segment::Data {
            len: Bytes::mib(12),
            piece: Bytes::kib(16),
        };
        Shape::new(5).with(data).make(&all[0]).unwrap();
        reflink(&all[0], &all[1]).unwrap();
        reflink(&all[0], &all[2]).unwrap();
        fs.sync().unwrap();
        let places = layouts(&all);
        let (moved, end) = relocate(&all[0], &all[1..2], || {});
        assert_stays(&end, SkipReason::HoldersUnknown);
        assert_eq!(moved.host_written, Bytes::mib(2));
        assert_eq!(layouts(&all), places);
        // Nobody else is named: nothing is copied at all.
        let (moved, end) = relocate(&all[0], &[], || {});
        assert_stays(&end, SkipReason::HoldersUnknown);
        assert_eq!(moved.host_written, Bytes::ZERO);
        let (moved, end) = relocate(&all[0], &all[1..], || {});
        end.unwrap();
        assert_eq!(moved.relocated, Bytes::mib(12));
        let now = layouts(&all);
        assert!(now[0].fragments() <= 8, "{}", now[0].fragments());
        assert!(now[1] == now[0] && now[2] == now[0]);
        fs.fsck().unwrap();
    });
}

/// A holder that cannot be changed keeps all where they are, and nothing is copied. One that is deleted, and whose number
/// another file has, or that was written anew since it was named, is none.
#[test]
fn loop_a_name_may_mean_something_else_by_now() {
    each(&[NAMED], Bytes::mib(512), |_, fs| {
        let all = family(fs, 3);
        let fixed = File::open(&all[3]).unwrap();
        ioctl_setflags(&fixed, IFlags::IMMUTABLE).unwrap();
        let (moved, end) = relocate(&all[0], &all[1..], || {});
        assert_stays(&end, SkipReason::HoldersUnreachable);
        assert_eq!(moved.host_written, Bytes::ZERO);
        ioctl_setflags(&fixed, IFlags::empty()).unwrap();
        drop(fixed);
        let named = inodes(&all[1..]);
        // XFS gives a number anew at once.
        let old = std::fs::metadata(&all[3]).unwrap().ino();
        std::fs::remove_file(&all[3]).unwrap();
        fs.remount().unwrap();
        let again = (0..64).any(|number| {
            let path = fs.path().join(format!("new{number}"));
            std::fs::write(&path, [9; 100_000]).unwrap();
            std::fs::metadata(&path).unwrap().ino() == old
        });
        assert!(again, "no file got the number {old}");
        let file = File::options().write(true).open(&all[2]).unwrap();
        file.write_all_at(&vec![7; LEN as usize], 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let (before, place) = (states(&all[..3]), layout(&all[2]));
        let mut target = Target::open(&all[0]).unwrap();
        target.named = Some(named);
        let (moved, end) = relocate_target(&target, Bytes::mib(2), || {});
        drop(target);
        end.unwrap();
        assert_eq!((moved.relocated, moved.holders), (Bytes(LEN), 1));
        assert_eq!(states(&all[..3]), before);
        assert_eq!(layout(&all[2]), place);
        assert_eq!(layout(&all[1]), layout(&all[0]));
        fs.fsck().unwrap();
    });
}

/// A holder that has one block of the file, at another place, follows with that.
#[test]
fn loop_a_named_file_follows_with_what_it_has() {
    each(&[NAMED], Bytes::mib(512), |_, fs| {
        let all = family(fs, 0);
        let other = fs.path().join("other");
        let (at, to_at, len) = (3 * 16_384 + 8192, 65_536, 4096);
        let mut block = [0; 4096];
        let from = File::open(&all[0]).unwrap();
        from.read_exact_at(&mut block, at).unwrap();
        let to = File::options()
            .write(true)
            .create_new(true)
            .open(&other)
            .unwrap();
        to.write_all_at(&block, to_at).unwrap();
        to.sync_all().unwrap();
        let compared = dedupe_range(&from, at, &to, to_at, len).unwrap();
        assert_eq!(compared, Compared::Shared);
        drop((from, to));
        fs.sync().unwrap();
        let files = [all[0].clone(), other];
        let before = states(&files);
        let (moved, end) = relocate(&files[0], &files[1..], || {});
        end.unwrap();
        assert_eq!((moved.relocated, moved.holders), (Bytes(LEN), 1));
        assert_eq!(states(&files), before);
        assert!(fragments(&files[0]) <= 3, "{}", fragments(&files[0]));
        settled(fs);
        fs.fsck().unwrap();
    });
}
