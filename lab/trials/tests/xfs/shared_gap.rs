//! A file that keeps shared blocks after an exchange must still be known to share.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use linux_abi::share::clone_range;
use scratch_fs::{Segment, Shape};
use units::{Bytes, FileRange};

use crate::flavour::*;

const KIB: u64 = 1 << 10;
const LEN: u64 = 1 << 20;

/// Shared with another file. The moved ranges lie before and after it.
const SHARED: FileRange = FileRange::new(512 * KIB, 16 * KIB);

fn make(path: &Path, len: u64) {
    let data = Segment::Data {
        len: Bytes(len),
        piece: Bytes::kib(16),
    };
    Shape::new(5).with(data).make(path).unwrap();
}

/// An exchange of two files from their beginnings to their ends also exchanges the flags that tell
/// whether they share blocks (`xmi_can_exchange_reflink_flags`, fs/xfs/libxfs/xfs_exchmaps.c,
/// v6.18), even if it leaves out ranges that the first one has not written. A file with shared
/// blocks but without that flag is written in place.
#[test]
fn loop_what_is_shared_and_stays_is_not_written_in_place() {
    // The last block may be partial.
    for len in [LEN, LEN - 1000] {
        each(
            &[COMMIT, SWAP_RMAP, DEDUPE],
            Bytes::mib(512),
            |flavour, fs| {
                let (path, clone) = (fs.path().join("file"), fs.path().join("clone"));
                make(&path, len);
                let other = File::create_new(&clone).unwrap();
                let (start, end) = (SHARED.start.get(), SHARED.end().get());
                clone_range(File::open(&path).unwrap(), &other, start, end - start).unwrap();
                other.sync_all().unwrap();
                let before = FileState::of(&clone);

                let around = [FileRange::new(0, start), FileRange::new(end, len - end)];
                let moved = Move::with(flavour).ranges(&path, &around);
                if flavour.engine == COMMIT.engine {
                    assert!(moved.unwrap().relocated.get() > len / 2);
                    assert!(fragments(&path) <= 8, "{}", fragments(&path));
                }

                let file = File::options().write(true).open(&path).unwrap();
                let new = vec![0x5a; SHARED.len.get() as usize];
                file.write_all_at(&new, start).unwrap();
                file.sync_all().unwrap();
                drop((file, other));
                fs.remount().unwrap();
                assert!(
                    FileState::of(&clone).has_content_of(&before),
                    "written in place"
                );
                fs.fsck().unwrap();
            },
        );
    }
}
