use std::{fs, os::unix::fs::MetadataExt};

use indef_engine::run::RunOptions;
use indef_pipeline::watch::{EndKind, Order, Repair, Snapshot};
use indef_trace::{FileKey, FsId, TracedFile};
use scratch_fs::{FragmentOptions, ScratchFs, fragment, require};
use units::{Bytes, FileRange};

use crate::documented::assert_documented;

use super::{document::TopDocument, ending::sentence, screen::sample_row};

const IO: u64 = 131_072;

/// A fragmented file on a file system of its own, as a collector would name it.
fn aged(kind: &str) -> Option<(ScratchFs, TracedFile)> {
    let scratch = require(ScratchFs::builder(kind, Bytes::mib(512)).build())?;
    let path = scratch.path().join("file");
    let options = FragmentOptions {
        size: Bytes::mib(2),
        piece: Bytes::kib(16),
        seed: 7,
    };
    fragment(&path, options).unwrap();
    scratch.sync().unwrap();
    let status = fs::metadata(&path).unwrap();
    let file = TracedFile {
        key: FileKey {
            dev: status.dev(),
            inode: status.ino(),
            generation: 0,
            subvolume: 0,
        },
        fs: FsId::default(),
        path: Some(path),
    };
    Some((scratch, file))
}

#[test]
fn loop_a_range_is_repaired_and_a_changed_file_is_left_alone() {
    for kind in ["ext4", "xfs", "btrfs"] {
        repaired_and_left_alone(kind);
    }
}

fn repaired_and_left_alone(kind: &str) {
    let Some((mut scratch, file)) = aged(kind) else {
        return;
    };
    let path = file.path.clone().unwrap();
    let content = fs::read(&path).unwrap();
    let order = Order {
        file: file.key,
        id: indef_fs::TargetId {
            dev: file.key.dev,
            inode: file.key.inode,
        },
        path: path.as_path().into(),
        ranges: vec![FileRange::new(0, IO), FileRange::new(4 * IO, IO)],
        cost: Bytes(2 * IO),
    };
    let repair = |order: &Order, options| {
        let repair = Repair::start(order.clone(), options).unwrap();
        repair.end()
    };
    let options = RunOptions::default();
    let none = RunOptions {
        budget: Some(Bytes::ZERO),
        ..options
    };
    assert_eq!(repair(&order, none).ending.kind(), EndKind::Left);
    let dry = RunOptions {
        dry_run: true,
        ..options
    };
    let end = repair(&order, dry);
    assert_eq!(
        (end.ending.kind(), end.written),
        (EndKind::Left, Bytes::ZERO),
        "{end:?}"
    );
    assert_eq!(sentence(&end), "would be moved");

    let end = repair(&order, options);
    assert_eq!(
        (end.ending.kind(), end.written),
        (EndKind::Repaired, Bytes(2 * IO)),
        "{end:?}"
    );
    assert!(
        sentence(&end).starts_with("2 ranges, 256 KiB: 16 → 2 fragments"),
        "{end:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), content);
    let again = repair(&order, options);
    assert_eq!(again.ending.kind(), EndKind::Left, "{again:?}");
    assert!(sentence(&again).contains("contiguous"), "{again:?}");

    // Another file has taken its name meanwhile.
    let other = path.with_extension("new");
    fs::write(&other, &content).unwrap();
    fs::rename(&other, &path).unwrap();
    let end = repair(&order, options);
    assert_eq!(end.ending.kind(), EndKind::Left, "{end:?}");
    assert!(sentence(&end).contains("replaced"), "{end:?}");
    scratch.fsck().unwrap();
}

#[test]
fn every_field_of_the_document_is_documented() {
    let snapshot = Snapshot {
        rows: vec![sample_row()],
        ..Snapshot::default()
    };
    let document = serde_json::to_value(TopDocument::new(&snapshot)).unwrap();
    let objects = [&document, &document["ranges"][0], &document["totals"]];
    assert_documented("top", &objects);
}
