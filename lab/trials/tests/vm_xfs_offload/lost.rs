//! The device disappears while it copies.

use std::{
    fs,
    time::{Duration, Instant},
};

use indef_fs::Refusal;
use scratch_fs::{FragmentOptions, fragment};
use units::Bytes;

use crate::{
    flavour::*,
    host::{Flashd, in_guest, note},
    moves::OFFLOAD,
};

/// Number of `ioctl` on x86-64, and `NVME_IOCTL_IO_CMD`, as `/proc/…/syscall` shows them.
const IOCTL: &str = "16";
const IO_COMMAND: &str = "0xc0484e43";

/// Whether a thread of ours waits for a command.
fn is_copying() -> bool {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("syscall")).ok())
        .any(|line| {
            let words: Vec<_> = line.split(' ').collect();
            words[0] == IOCTL && words.get(2) == Some(&IO_COMMAND)
        })
}

fn loses_it(root: &std::path::Path) {
    let path = root.join("file");
    let how = FragmentOptions {
        size: Bytes::mib(2),
        piece: Bytes::kib(4),
        seed: 5,
    };
    fragment(&path, how).unwrap();
    let before = FileState::of(&path);
    let began = Instant::now();
    let moving = {
        let path = path.clone();
        std::thread::spawn(move || OFFLOAD.whole(&path))
    };
    // The first command is Identify, which is not an I/O command.
    while !is_copying() {
        assert!(!moving.is_finished(), "{:?}", moving.join());
        std::thread::sleep(Duration::from_millis(1));
    }
    note("lose");
    let refusal = moving.join().unwrap().unwrap_err();
    eprintln!("after {:?}: {refusal}", began.elapsed());
    assert!(matches!(&refusal, Refusal::Failed(_)), "{refusal:?}");
    assert!(
        refusal.to_string().contains("free again only in 60 s"),
        "{refusal}"
    );
    // The donor was kept for this long.
    assert!(began.elapsed() > Duration::from_secs(60));
    assert_eq!(FileState::of(&path), before);
    // The device is back.
    assert_eq!(OFFLOAD.whole(&path).unwrap().offloaded, Bytes::mib(2));
    assert_eq!(FileState::of(&path), before);
}

#[test]
fn vm_a_lost_device_leaves_the_file_and_keeps_the_donor() {
    if let Some(root) = in_guest() {
        loses_it(&root);
        return;
    }
    let flashd = Flashd::new("zn540", 200.0);
    let share = tempfile::tempdir().unwrap();
    const TEST: &str = "lost::vm_a_lost_device_leaves_the_file_and_keeps_the_donor";
    flashd.run(TEST, share.path(), &["lose"], |_| {
        flashd.be_gone_for_a_while()
    });
}
