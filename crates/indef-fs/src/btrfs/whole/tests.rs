use std::io::Write;

use linux_abi::btrfs::file_extents;
use scratch_fs::{ScratchFs, require};

use super::*;

const LEN: usize = 64 << 10;

/// A balance moves each extent by itself, and the tree need not show that it did.
#[test]
fn loop_a_file_of_several_extents_is_not_plain_though_they_touch() {
    let made = ScratchFs::builder("btrfs", Bytes::mib(512)).build();
    let Some(scratch) = require(made) else {
        return;
    };
    let path = |name: &str| scratch.path().join(name);
    fs::write(path("one"), vec![1; 4 * LEN]).unwrap();
    scratch.sync().unwrap();
    let mut several = File::create(path("several")).unwrap();
    for _ in 0..4 {
        several.write_all(&[1; LEN]).unwrap();
        several.sync_data().unwrap();
    }
    // Of the last one there may be more than was read.
    fs::write(path("behind"), [1; 9000]).unwrap();
    scratch.sync().unwrap();

    let root = File::open(scratch.path()).unwrap();
    let fs = crate::detect(&root, scratch.path()).unwrap();
    let files = SubvolumeFiles::open(&fs, &root).expect("root may");
    let look = |name: &str| {
        let file = File::open(path(name)).unwrap();
        let (inode, mut extents, mut found) = (file.metadata().unwrap().ino(), 0, None);
        file_extents(&file, inode, |_| extents += 1).unwrap();
        files.look(&[inode], |_, it| found = it).unwrap();
        let fragments = scratch_fs::fragments(&file).unwrap();
        (extents, fragments, found.expect("it is there").nature)
    };
    let plain = Nature::Plain {
        size: Bytes(4 * LEN as u64),
        allocated: Bytes(4 * LEN as u64),
    };
    assert_eq!(look("one"), (1, 1, plain));
    let (extents, fragments, nature) = look("several");
    assert!(
        extents > 1 && fragments == 1,
        "{extents} extents in {fragments} pieces"
    );
    assert_eq!(nature, Nature::Notable);
}
