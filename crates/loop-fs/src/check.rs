//! The checkers of file systems, which change nothing.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Lack, ScratchError, command::run};

/// Check what is on `device`, which is not mounted.
pub(crate) fn check(kind: &str, device: &str, tools: Option<&Path>) -> Result<(), ScratchError> {
    let mut command = match kind {
        "ext4" => Command::new("e2fsck"),
        "xfs" => Command::new(match tools {
            Some(folder) => folder.join("xfs_repair"),
            None => PathBuf::from("xfs_repair"),
        }),
        "btrfs" => Command::new("btrfs"),
        "f2fs" => Command::new("fsck.f2fs"),
        kind => {
            return Err(ScratchError::Unavailable {
                kind: kind.to_owned(),
                why: Lack::Checker,
            });
        }
    };
    command.args(match kind {
        "ext4" => &["-fn"][..],
        "xfs" => &["-n"],
        "btrfs" => &["check", "--readonly", "--check-data-csum"],
        _ => &["--dry-run"],
    });
    let said = run(command.arg(device))?;
    if kind == "f2fs" && fsck_f2fs_found(&said) {
        return Err(ScratchError::Command {
            command: "fsck.f2fs".into(),
            output: said,
        });
    }
    Ok(())
}

/// Whether fsck.f2fs, which printed this, has found anything: its exit status is 0 also then
/// (f2fs-tools 1.15).
#[must_use]
pub fn fsck_f2fs_found(said: &str) -> bool {
    said.contains("[Fail]") || said.contains("[ASSERT]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fsck_f2fs_finds_is_seen() {
        let clean =
            "[FSCK] Max image size: 12 MB\n[FSCK] Unreachable nat entries  [Ok..] [0x0]\nDone";
        assert!(!fsck_f2fs_found(clean));
        assert!(fsck_f2fs_found(
            "[FSCK] Unreachable nat entries                       [Fail] [0x1]"
        ));
        assert!(fsck_f2fs_found(
            "[ASSERT] (check_block_count:2075)  --> Invalid SIT vblocks: segno=0x0, 1023"
        ));
    }

    #[test]
    fn another_kind_has_no_checker() {
        assert!(check("ramfs", "/dev/null", None).is_err());
    }
}
