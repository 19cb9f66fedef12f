//! The cases about quotas, in guests: not every kernel has quotas for XFS, and for ext4.
//!
//! The same program runs there, for the engines that the guest's kernel has.

use std::{env, time::Duration};

use guest::{Guest, Release, require};
use indef_fs::EngineKind;

use crate::{
    in_guest::{of_suite, pass},
    no_room::quota,
};

/// Loop files lie on a disk: in memory they cannot be opened for direct I/O.
const SCRIPT: &str = r#"
mkfs.ext4 -q /dev/vda && mount -t ext4 /dev/vda /mnt || exit 2
export INDEF_SKIP_LOG=/mnt/skips TMPDIR=/mnt PATH=/share/xfsprogs:$PATH
touch $INDEF_SKIP_LOG
"$@" --exact --nocapture --test-threads=1
status=$?
sed 's/^/skipped: /' $INDEF_SKIP_LOG
if dmesg | grep -E 'KERNEL_FAULTS'; then exit 9; fi
exit $status
"#;

const PROGRAMS: [&str; 6] = [
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.f2fs",
    "xfs_quota",
    "setquota",
    "repquota",
];

fn counts(release: Release, engines: &[&str]) {
    let is_there = |program: &&str| scratch_fs::require_program(program);
    if !PROGRAMS.iter().all(is_there) {
        return;
    }
    let Some(guest) = require(Guest::with(release)) else {
        return;
    };
    let program = env::current_exe().unwrap();
    let share = tempfile::tempdir().unwrap();
    let guest = of_suite(guest)
        .copy(&program)
        .copy("xfs_quota")
        .copy("setquota")
        .copy("repquota")
        .load("loop")
        .load("xfs")
        .load("f2fs")
        .load("quota_v2")
        .share(share.path())
        .timeout(Duration::from_secs(300));
    let engines = engines.iter().copied();
    let mut names: Vec<_> = engines
        .map(|engine| format!("{engine}::loop_quota"))
        .collect();
    names.push("vm_quota::loop_f2fs_defragment".to_owned());
    if release == Release::Linux6_12 {
        if scratch_fs::require_xfsprogs().is_none() {
            return;
        }
        scratch_fs::share_xfsprogs(share.path()).unwrap();
        names.push("xfs_commit_range::loop_quota".to_owned());
    }
    let script = SCRIPT.replace("KERNEL_FAULTS", guest::KERNEL_FAULTS);
    let mut command = vec!["sh", "-c", &script, "sh", program.to_str().unwrap()];
    command.extend(names.iter().map(String::as_str));
    pass(guest, &command, names.len());
}

const EVERYWHERE: [&str; 4] = [
    "ext4_move_extent",
    "xfs_swap_extents",
    "xfs_dedupe_range",
    "xfs_share_range",
];

/// It has no other file to be charged for.
#[test]
fn loop_f2fs_defragment() {
    quota(EngineKind::F2fsDefragment);
}

#[test]
fn vm_6_12_owners_are_not_charged() {
    counts(Release::Linux6_12, &EVERYWHERE);
}

#[test]
fn vm_6_1_owners_are_not_charged() {
    counts(Release::Linux6_1, &EVERYWHERE);
}
