//! Files are moved by the device, and are what they were.

use std::{
    fs::{self, OpenOptions},
    path::Path,
    time::Duration,
};

use indef_core::{SkipReason, layout::ExtentFlags};
use indef_fs::{EngineKind, Refusal};
use scratch_fs::{Segment, Shape, reflink};
use units::{Bytes, FileRange};

use crate::{
    flavour::*,
    hammer::{Pace, buffered, direct, hammer, mapped},
    host::{Flashd, in_guest, remount, run_on_qemu},
};

pub(crate) const OFFLOAD: Move = Move {
    engine: EngineKind::XfsOffload,
    allow_unshare: false,
    limit: Bytes::mib(8),
};

/// A file with everything that a file can have; data in fragments of 4 KiB.
fn everything(path: &Path) -> Bytes {
    let piece = Bytes::kib(4);
    let data = |len| Segment::Data { len, piece };
    Shape::new(7)
        .with(data(Bytes::mib(2)))
        .with(Segment::Hole(Bytes::mib(1)))
        .with(data(Bytes::kib(512)))
        .with(Segment::Unwritten {
            len: Bytes::kib(256),
            piece: Bytes::kib(256),
        })
        .with(data(Bytes::kib(256)))
        .make(path)
        .unwrap();
    // The last block is not whole.
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1000).unwrap();
    file.sync_all().unwrap();
    Bytes::kib(2048 + 512 + 256)
}

fn moves(root: &Path) {
    let path = root.join("file");
    let data = everything(&path);
    let (before, fragments_before) = (State::of(&path), fragments(&path));
    assert_eq!(OFFLOAD.relocator(&path).name(), "xfs-offload");

    let moved = OFFLOAD.whole(&path).unwrap();
    eprintln!("{moved:?}");
    assert_eq!(moved.relocated, data);
    assert_eq!(moved.offloaded, data);
    assert_eq!(moved.host_read, Bytes::ZERO);
    // Zeros: this kernel cannot let the device write them.
    assert_eq!(moved.host_written, data);
    assert_eq!(State::of(&path), before);
    let after = layout(&path);
    assert!(after.fragments() * 100 < fragments_before, "{after:?}");
    // Nothing is pinned any more.
    let shared = |e: &indef_core::layout::Extent| e.flags.contains(ExtentFlags::SHARED);
    assert!(!after.extents().iter().any(shared), "{after:?}");
    remount(root);
    assert_eq!(State::of(&path), before);
    parts_and_shares(root, &before);
}

/// A range is moved alone; what is shared with others stays, or is given up where that is allowed.
fn parts_and_shares(root: &Path, before: &State) {
    let path = root.join("part");
    everything(&path);
    let range = FileRange::new(512 << 10, 1 << 20);
    let outside = FileRange::new(0, 512 << 10);
    let elsewhere: Vec<_> = layout(&path).clipped(outside).collect();
    let of_it = State::of(&path);
    let moved = OFFLOAD.ranges(&path, &[range]).unwrap();
    assert_eq!(moved.offloaded, range.len);
    assert_eq!(State::of(&path), of_it);
    let after = layout(&path);
    assert_eq!(after.fragments_in(range), 1);
    assert_eq!(after.clipped(outside).collect::<Vec<_>>(), elsewhere);
    let again = OFFLOAD.ranges(&path, &[range]).unwrap_err();
    assert!(
        matches!(again, Refusal::Skip(SkipReason::Contiguous)),
        "{again}"
    );

    let twin = root.join("twin");
    reflink(&path, &twin).unwrap();
    let is_shared = OFFLOAD.ranges(&path, &[outside]).unwrap_err();
    assert!(
        matches!(is_shared, Refusal::Skip(SkipReason::Shared)),
        "{is_shared}"
    );
    let unshare = Move {
        allow_unshare: true,
        ..OFFLOAD
    };
    let twins_before = State::of(&twin);
    unshare.ranges(&path, &[outside]).unwrap();
    assert_eq!(State::of(&path), of_it);
    assert_eq!(State::of(&twin), twins_before);

    // Donors and pins have no names.
    let mut names: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["file", "part", "twin"]);
    assert_eq!(&State::of(&root.join("file")), before);
}

#[test]
fn vm_moves_on_flashd() {
    const TEST: &str = "moves::vm_moves_on_flashd";
    if let Some(root) = in_guest() {
        moves(&root);
        return;
    }
    let flashd = Flashd::new("zero", 1.0);
    let share = tempfile::tempdir().unwrap();
    flashd.run(TEST, share.path());
}

#[test]
fn vm_moves_on_a_partition_of_qemus_device() {
    if let Some(root) = in_guest() {
        moves(&root);
        return;
    }
    run_on_qemu("moves::vm_moves_on_a_partition_of_qemus_device");
}

#[test]
fn vm_writes_are_never_lost() {
    if let Some(root) = in_guest() {
        // Everything takes ten times as long as on the host.
        let pace = Pace {
            files: 2,
            tries: 6,
            longest_pause: Duration::from_millis(1500),
        };
        let kinds = [buffered, mapped, direct];
        let moved = hammer(OFFLOAD, pace, &root, &kinds, || remount(&root));
        eprintln!("{moved} moves");
        // A file that nobody writes is moved by the device, not by a fallback.
        let path = root.join("quiet");
        everything(&path);
        assert!(OFFLOAD.whole(&path).unwrap().offloaded > Bytes::ZERO);
        return;
    }
    let flashd = Flashd::new("zero", 1.0);
    let share = tempfile::tempdir().unwrap();
    flashd.run("moves::vm_writes_are_never_lost", share.path());
}
