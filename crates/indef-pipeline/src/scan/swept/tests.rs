use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicU64, Ordering},
};

use indef_engine::Cancel;
use scratch_fs::{FragmentOptions, ScratchFs, fragment, require};

use super::*;
use crate::scan::{FileScan, Scanner};

#[test]
fn loop_a_scan_of_a_whole_xfs_looks_at_files_in_several_pieces_alone() {
    let Some(scratch) = require(ScratchFs::builder("xfs", Bytes::mib(512)).build()) else {
        return;
    };
    let path = |name: &str| scratch.path().join(name);
    for folder in 0..3 {
        fs::create_dir(path(&folder.to_string())).unwrap();
        (0..40).for_each(|n| fs::write(path(&format!("{folder}/{n}")), [1; 9000]).unwrap());
    }
    fs::hard_link(path("0/1"), path("again")).unwrap();
    symlink("0", path("link")).unwrap();
    scratch.sync().unwrap();
    let scan = |full, path: &Path| {
        let visited = AtomicU64::new(0);
        let scanner = Scanner {
            full,
            each: false,
            ..Scanner::new([path])
        };
        let count = |_: &FileScan| {
            visited.fetch_add(1, Ordering::Relaxed);
        };
        let scanned = scanner.scan(&Cancel::new(), &(), &count).unwrap();
        let tally = &scanned.tally;
        let sums = (tally.extents, tally.size, tally.allocated, tally.dolf);
        let worst: Vec<_> = tally.worst().iter().map(|file| file.path.clone()).collect();
        ((scanned.summary, sums, worst), visited.into_inner())
    };
    let (full, visited) = scan(true, scratch.path());
    assert_eq!((full.0.files, full.0.hard_links, visited), (120, 1, 120));
    assert_eq!(scan(false, scratch.path()), (full, 0));

    let options = FragmentOptions {
        size: Bytes::kib(64),
        piece: Bytes::kib(4),
        seed: 1,
    };
    fragment(&path("1/pieces"), options).unwrap();
    fs::hard_link(path("1/pieces"), path("2/pieces")).unwrap();
    fs::remove_file(path("1/pieces")).unwrap();
    scratch.sync().unwrap();
    let (full, _) = scan(true, scratch.path());
    assert_eq!(full.2, [path("2/pieces")]);
    assert_eq!(scan(false, scratch.path()), (full, 1));
    // Of a part each is met.
    assert_eq!(scan(false, &path("1")).1, 40);
}
