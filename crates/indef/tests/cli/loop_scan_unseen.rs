//! What a scan tells of files that it may not see, or that nobody can move.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::common::{ForAnybody, Run, indef, is_root, make, scratch};
use scratch_fs::ScratchFs;
use units::Bytes;

/// ext4 with a file in many pieces and one in one piece, which everybody may look at.
fn aged() -> Option<ScratchFs> {
    if !is_root() {
        return None;
    }
    let scratch = scratch("ext4")?;
    make(
        &scratch.path().join("pieces"),
        Bytes::mib(2),
        Bytes::kib(16),
    );
    fs::write(scratch.path().join("whole"), [7; 20_000]).unwrap();
    scratch.sync().unwrap();
    let above = scratch.path().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    Some(scratch)
}

/// Root's folder at the top of each ext4 is told, and no failure. Another one is.
#[test]
fn loop_a_user_need_not_see_lost_and_found() {
    let Some(scratch) = aged() else {
        return;
    };
    let anybody = ForAnybody::new();
    for words in [&["scan"][..], &["plan"], &["run", "--dry-run"]] {
        let ran = anybody.indef().args(words).arg(scratch.path()).ran();
        assert_eq!(ran.status, 0, "{words:?}: {ran:?}");
        let line = ran.error_line("/lost+found: skipped: ");
        assert!(line.contains("for root alone"), "{ran:?}");
    }
    let ran = anybody
        .indef()
        .args(["scan", "--json"])
        .arg(scratch.path())
        .ran();
    let document = ran.json();
    assert_eq!(
        (ran.status, &document["totals"]["problems"]),
        (0, &0.into())
    );
    assert_eq!(document["verdict"]["kind"], "worth-moving", "{document}");
    assert_eq!(document["totals"]["files"], 2, "{document}");

    let below = scratch.path().join("below/lost+found");
    fs::create_dir_all(&below).unwrap();
    fs::set_permissions(&below, fs::Permissions::from_mode(0o700)).unwrap();
    let ran = anybody.indef().arg("scan").arg(scratch.path()).ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(
        ran.err
            .contains("below/lost+found: permission denied: try as root"),
        "{ran:?}"
    );
    // Root sees all of it.
    let ran = indef().arg("scan").arg(scratch.path()).ran();
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
}

/// The verdict and the summary count the same files.
#[test]
fn loop_fragmented_files_of_a_read_only_mount_are_counted() {
    let Some(mut scratch) = aged() else {
        return;
    };
    scratch.set_mount_options("ro");
    scratch.remount().unwrap();
    let scan = |options: &[&str]| {
        let ran = indef().arg("scan").args(options).arg(scratch.path()).ran();
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
        ran
    };
    let text = scan(&[]).out;
    assert!(
        text.starts_with("Nothing can be moved here: 1 file is fragmented: "),
        "{text}"
    );
    assert!(text.contains("2 (2 on ext4), 1 fragmented"), "{text}");
    let totals = &scan(&["--json"]).json()["totals"];
    assert_eq!(totals["files_fragmented"], 1, "{totals}");
    assert_eq!(totals["skipped"]["read-only-mount"], 1, "{totals}");
}
