//! What reflinks share moves together, and no power cut mixes the files.

use std::{
    cell::RefCell,
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use indef_core::SkipReason;
use indef_engine::Copier;
use indef_fs::{Beyond, Moved, RangeCopier, Refusal, Step, StepLimit, Target, count_ranges};
use linux_abi::share::{Compared, dedupe_range};
use scratch_fs::{ScratchFs, reflink};
use units::{Bytes, FileRange};

use crate::{
    flavour::*,
    unshared::{LEN, make, write_and_cut},
};

/// A run that does something each time when a unit is about to move, after its holders were asked for.
struct Meddler<F>(Copier, Mutex<RefCell<F>>);

impl<F: FnMut() + Send> RangeCopier for Meddler<F> {
    fn copy(&self, from: &File, to: &File, ranges: &[FileRange]) -> io::Result<()> {
        self.0.copy(from, to, ranges)
    }

    fn allow(&self, _: Beyond) -> Result<(), SkipReason> {
        (self.1.lock().unwrap().borrow_mut())();
        Ok(())
    }
}

/// Move all of a file, in steps of `step`. Returns the moved bytes.
fn relocate(path: &Path, step: Bytes, meddle: impl FnMut() + Send) -> Result<Bytes, Refusal> {
    let target = Target::open(path).unwrap();
    let (moved, end) = relocate_target(&target, step, meddle);
    end.map(|()| moved.relocated)
}

/// The same, with all that was done up to the end, and how that was.
pub(crate) fn relocate_target(
    target: &Target,
    step: Bytes,
    meddle: impl FnMut() + Send,
) -> (Moved, Result<(), Refusal>) {
    let mut moved = Moved::default();
    let end = try_relocate(target, step, meddle, &mut moved);
    (moved, end)
}

fn try_relocate(
    target: &Target,
    step: Bytes,
    meddle: impl FnMut() + Send,
    moved: &mut Moved,
) -> Result<(), Refusal> {
    let relocator = Move::with(SHARE).relocator(&target.path);
    let run = Meddler(Copier::new(32), Mutex::new(RefCell::new(meddle)));
    relocator.admit(target)?;
    let whole = [FileRange::new(0, target.size.get())];
    let whole = count_ranges(target, &whole).unwrap();
    let mut relocation = relocator.begin(target, &whole, &run)?;
    loop {
        match relocation.step(StepLimit { bytes: step })? {
            Step::Working(more) => *moved += more,
            Step::Done(more) => {
                *moved += more;
                return Ok(());
            }
        }
    }
}

/// The inode numbers of files.
pub(crate) fn inodes(paths: &[PathBuf]) -> Arc<[u64]> {
    let inode = |path: &PathBuf| std::fs::symlink_metadata(path).unwrap().ino();
    paths.iter().map(inode).collect()
}

/// A file, and clones of it.
pub(crate) fn family(fs: &ScratchFs, clones: usize) -> Vec<PathBuf> {
    let path = fs.path().join("file");
    make(&path);
    let mut all = vec![path];
    for number in 0..clones {
        all.push(fs.path().join(format!("clone{number}")));
        reflink(&all[0], &all[number + 1]).unwrap();
    }
    fs.sync().unwrap();
    all
}

/// A clone that is made in the last moment keeps the old blocks, alone, and is written in place at once. The others have
/// left them for good by then.
#[test]
fn loop_a_clone_made_in_the_last_moment_is_not_written_before_the_moves_are_durable() {
    each(&[SHARE], Bytes::mib(512), |_, fs| {
        let all = family(fs, 1);
        let before: Vec<_> = all.iter().map(|path| FileState::of(path)).collect();
        let (path, late) = (&all[0], fs.path().join("late"));
        let moved = relocate(path, Bytes(LEN), || {
            if !late.exists() {
                reflink(path, &late).unwrap();
            }
        });
        assert_eq!(moved.unwrap(), Bytes(LEN));
        assert!(fragments(path) <= 2 && fragments(&late) > 32);
        write_and_cut(fs, &late);
        for (path, before) in all.iter().zip(&before) {
            let now = FileState::of(path);
            assert!(now.has_content_of(before), "{}", path.display());
        }
    });
}

/// Each holder is written, cut off, punched or removed right before it is compared: it keeps what it has, and all others
/// move. Nothing else of it changes.
#[test]
fn loop_holders_that_change_in_the_last_moment_keep_what_they_have() {
    each(&[SHARE, NAMED], Bytes::mib(512), |_, fs| {
        let all = family(fs, 4);
        let before = FileState::of(&all[0]);
        let mut done = false;
        let mut target = Target::open(&all[0]).unwrap();
        // Asked for by those alone that the file system does not tell.
        target.named = Some(inodes(&all[1..]));
        let (moved, end) = relocate_target(&target, Bytes(LEN), || {
            if std::mem::replace(&mut done, true) {
                return;
            }
            let open = |path| File::options().write(true).open(path).unwrap();
            open(&all[1]).write_all_at(&[1; 5000], 100_000).unwrap();
            open(&all[2]).set_len(LEN / 2 + 7).unwrap();
            let punch =
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(open(&all[3]), punch, 65_536, 65_536).unwrap();
            std::fs::remove_file(&all[4]).unwrap();
        });
        end.unwrap();
        assert!(moved.relocated > Bytes(LEN / 2), "{moved:?}");
        drop(target);
        fs.remount().unwrap();
        assert!(FileState::of(&all[0]).has_content_of(&before));
        let mut original = std::fs::read(&all[0]).unwrap();
        let written = std::fs::read(&all[1]).unwrap();
        let cut_off = std::fs::read(&all[2]).unwrap();
        let punched = std::fs::read(&all[3]).unwrap();
        assert_eq!(cut_off, original[..LEN as usize / 2 + 7]);
        let mut expected = original.clone();
        expected[100_000..105_000].fill(1);
        assert_eq!(written, expected);
        original[65_536..131_072].fill(0);
        assert_eq!(punched, original);
        assert!(fragments(&all[1]) <= 8, "{}", fragments(&all[1]));
        fs.fsck().unwrap();
    });
}

/// Parts that a file shares at another place, and a piece that a holder has from the midst of an extent.
#[test]
fn loop_parts_that_are_shared_elsewhere_move_along() {
    each(&[SHARE], Bytes::mib(512), |_, fs| {
        let all = family(fs, 0);
        let other = fs.path().join("other");
        let from = File::open(&all[0]).unwrap();
        let mut content = vec![0; LEN as usize];
        from.read_exact_at(&mut content, 0).unwrap();
        // Each second piece, in reverse order, and one that is cut out of two pieces.
        let places: Vec<(u64, u64, u64)> = (0..16)
            .map(|n| (n * 2 * 16_384, (15 - n) * 16_384, 16_384))
            .chain([(3 * 16_384 + 8192, 20 * 16_384, 8192 + 4096)])
            .collect();
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        let to = options.open(&other).unwrap();
        for (at, to_at, len) in &places {
            let bytes = &content[*at as usize..(at + len) as usize];
            to.write_all_at(bytes, *to_at).unwrap();
            to.sync_all().unwrap();
            let compared = dedupe_range(&from, *at, &to, *to_at, *len).unwrap();
            assert_eq!(compared, Compared::Shared);
        }
        drop((from, to));
        fs.sync().unwrap();
        let files = [&all[0], &other];
        let before = files.map(|path| FileState::of(path));
        let free = settled(fs);
        let moved = relocate(&all[0], Bytes::kib(256), || {}).unwrap();
        assert_eq!(moved, Bytes(LEN));
        assert_eq!(files.map(|path| FileState::of(path)), before);
        assert!(fragments(&all[0]) <= 2, "{}", fragments(&all[0]));
        let now = settled(fs);
        assert!(now + Bytes::kib(256) >= free, "{free} free, then {now}");
        fs.fsck().unwrap();
    });
}

/// What a file has twice stays: a copy of it could not be shared between both places.
#[test]
fn loop_what_a_file_has_twice_stays() {
    each(&[SHARE], Bytes::mib(512), |_, fs| {
        let all = family(fs, 1);
        let file = File::options()
            .read(true)
            .write(true)
            .open(&all[0])
            .unwrap();
        let half = LEN / 2;
        let mut first = vec![0; half as usize];
        file.read_exact_at(&mut first, 0).unwrap();
        file.write_all_at(&first, half).unwrap();
        file.sync_all().unwrap();
        let compared = dedupe_range(&file, 0, &file, half, half).unwrap();
        assert_eq!(compared, Compared::Shared);
        drop(file);
        fs.sync().unwrap();
        let before = FileState::of(&all[0]);
        let free = settled(fs);
        match relocate(&all[0], Bytes(LEN), || {}) {
            Err(Refusal::Skip(SkipReason::HoldersDiffer)) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(FileState::of(&all[0]), before);
        assert!(settled(fs) + Bytes::kib(256) >= free);
        fs.fsck().unwrap();
    });
}

/// Free bytes once deleted files are gone.
pub(crate) fn settled(fs: &mut ScratchFs) -> Bytes {
    fs.remount().unwrap();
    fs.free().unwrap()
}
