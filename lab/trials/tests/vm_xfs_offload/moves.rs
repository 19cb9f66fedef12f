//! The device moves files, and their content and metadata stay.

use std::{
    fs::{self, OpenOptions},
    path::Path,
    time::Duration,
};

use indef_core::{SkipReason, layout::ExtentFlags};
use indef_engine::{
    Cancel,
    run::{RunOptions, Status, run},
};
use indef_fs::{EngineKind, Refusal};
use scratch_fs::{FragmentOptions, Segment, Shape, fragment, reflink};
use units::{Bytes, FileRange};

use crate::{
    flavour::*,
    hammer::{Pace, buffered, direct, hammer, mapped},
    host::{Flashd, in_guest, note, remount, run_on_qemu},
};

pub(crate) const OFFLOAD: Move = Move {
    engine: EngineKind::XfsOffload,
    allow_unshare: false,
    limit: Bytes::mib(8),
};

/// Make a file with every feature that a file can have; data in fragments of 4 KiB.
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
    let (before, fragments_before) = (FileState::of(&path), fragments(&path));
    assert_eq!(OFFLOAD.relocator(&path).name(), "xfs-offload");

    let moved = OFFLOAD.whole(&path).unwrap();
    eprintln!("{moved:?}");
    assert_eq!(moved.relocated, data);
    assert_eq!(moved.offloaded, data);
    assert_eq!(moved.host_read, Bytes::ZERO);
    // Zeros: this kernel cannot let the device write them.
    assert_eq!(moved.host_written, data);
    assert_eq!(FileState::of(&path), before);
    let after = layout(&path);
    assert!(after.fragments() * 100 < fragments_before, "{after:?}");
    // Nothing is pinned any more.
    let shared = |e: &indef_core::layout::Extent| e.flags.contains(ExtentFlags::SHARED);
    assert!(!after.extents().iter().any(shared), "{after:?}");
    remount(root);
    assert_eq!(FileState::of(&path), before);
    parts_and_shares(root, &before);
}

/// A range is moved alone; data shared with others stays, or its sharing is given up where that is
/// allowed.
fn parts_and_shares(root: &Path, before: &FileState) {
    let path = root.join("part");
    everything(&path);
    let range = FileRange::new(512 << 10, 1 << 20);
    let outside = FileRange::new(0, 512 << 10);
    let elsewhere: Vec<_> = layout(&path).clipped(outside).collect();
    let of_it = FileState::of(&path);
    let moved = OFFLOAD.ranges(&path, &[range]).unwrap();
    assert_eq!(moved.offloaded, range.len);
    assert_eq!(FileState::of(&path), of_it);
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
    let twins_before = FileState::of(&twin);
    unshare.ranges(&path, &[outside]).unwrap();
    assert_eq!(FileState::of(&path), of_it);
    assert_eq!(FileState::of(&twin), twins_before);

    // Donors and pins have no names.
    let mut names: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["file", "part", "twin"]);
    assert_eq!(&FileState::of(&root.join("file")), before);
}

#[test]
fn vm_moves_on_flashd() {
    const TEST: &str = "moves::vm_moves_on_flashd";
    if let Some(root) = in_guest() {
        moves(&root);
        whole_runs(&root);
        by_both(&root);
        return;
    }
    let flashd = Flashd::new("fast24", 1.0);
    let share = tempfile::tempdir().unwrap();
    let mut stats = Vec::new();
    let ran = flashd.run(
        TEST,
        share.path(),
        &["begin", "by-host", "by-device"],
        |_| {
            stats.push(flashd.device.stats().model);
        },
    );
    if ran {
        device_did_it(&stats);
    }
}

/// As in `indef run`: no more is written than announced.
fn whole_runs(root: &Path) {
    let path = root.join("run");
    everything(&path);
    let before = FileState::of(&path);
    let plan = plan_of(&path, EngineKind::XfsOffload);
    let planned: Bytes = plan.chunks.iter().map(|chunk| chunk.cost).sum();
    let options = RunOptions {
        engine: Some(EngineKind::XfsOffload),
        ..RunOptions::default()
    };
    let result = run(vec![plan], &options, &Cancel::new(), &());
    let [file] = result.files.as_slice() else {
        panic!("{result:?}");
    };
    assert_eq!(
        (file.status, &file.reason),
        (Status::Moved, &None),
        "{file:?}"
    );
    assert!(
        file.bytes_host_written + file.bytes_offloaded <= planned,
        "{file:?}"
    );
    assert_eq!(file.engine, Some("xfs-offload"));
    assert!(file.bytes_offloaded > Bytes::mib(2), "{file:?}");
    assert_eq!(file.bytes_offloaded, file.bytes_relocated);
    assert_eq!(file.bytes_host_written, file.bytes_relocated);
    assert_eq!(file.bytes_host_read, Bytes::ZERO);
    assert_eq!(FileState::of(&path), before);
}

const BY_BOTH: Bytes = Bytes::mib(4);

/// The same, moved by the host and by the device; the host's side of the test does the counting.
fn by_both(root: &Path) {
    let engines = [EngineKind::XfsCommitRange, EngineKind::XfsOffload];
    let names = ["by-host", "by-device"];
    for name in names {
        let how = FragmentOptions {
            size: BY_BOTH,
            piece: Bytes::kib(4),
            seed: 1,
        };
        fragment(&root.join(name), how).unwrap();
    }
    // Cached data is read back after a move, and that is not examined here.
    remount(root);
    note("begin");
    for (name, engine) in names.into_iter().zip(engines) {
        let moved = Move { engine, ..OFFLOAD }.whole(&root.join(name)).unwrap();
        eprintln!("{name}: {moved:?}");
        assert!(
            std::process::Command::new("sync")
                .status()
                .unwrap()
                .success()
        );
        note(name);
    }
}

/// Check the traffic on the bus and the work of the flash, by the device's own counts.
fn device_did_it(stats: &[flash_model::Stats]) {
    let [begin, host, device] = stats else {
        panic!("{} notes", stats.len());
    };
    let (host, device) = (host.since(begin), device.since(host));
    for (name, stats) in [("host", &host), ("device", &device)] {
        println!(
            "by the {name}: {} KiB sent to the host, {} KiB from it, {} KiB copied, {} KiB \
             programmed",
            stats.host_read_bytes >> 10,
            stats.host_written_bytes >> 10,
            stats.migrated_bytes >> 10,
            stats.programmed_bytes.total() >> 10,
        );
    }
    let data = BY_BOTH.get();
    // Beside the data there are the log and other metadata.
    assert!(host.host_read_bytes >= data && host.host_written_bytes >= data);
    assert!(device.host_read_bytes < data / 8, "{device:?}");
    assert!(device.host_written_bytes >= data, "{device:?}");
    assert!(device.migrated_bytes >= data, "{device:?}");
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
        // A file without a writer is moved by the device, not by a fallback.
        let path = root.join("quiet");
        everything(&path);
        assert!(OFFLOAD.whole(&path).unwrap().offloaded > Bytes::ZERO);
        return;
    }
    Flashd::new("zero", 1.0).run_alone("moves::vm_writes_are_never_lost");
}
