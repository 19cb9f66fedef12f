//! Comparison of a mounted volume with the model, file by file.

use std::{collections::BTreeSet, fs, io, os::unix::fs::MetadataExt, path::Path, process::Command};

use anyhow::Result;

use crate::{
    actor::{ATTRIBUTE, read_up_to},
    age::{Facts, Lasting, open_unnoticed},
    director::{Snapshot, StillFacts},
    fray::{FRAY, HOG},
    model::{FileModel, Findings, Model, Window},
    program::run,
    script::ACTORS,
    stamp::BLOCK,
};

/// Compare everything below `root` with the model.
pub(crate) fn examine(root: &Path, model: &Model, window: Window) -> Findings {
    let mut findings = Findings::default();
    let mut expected = BTreeSet::new();
    for (name, _) in model.names() {
        expected.insert(name.to_owned());
        let path = root.join(name);
        let inode = match fs::symlink_metadata(&path) {
            Ok(meta) => Some(meta.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                findings.violation(format!("name {name}: {error}"));
                continue;
            }
        };
        let candidates = model.judge_name(name, inode, &mut findings);
        let judged = candidates.into_iter().map(|file| {
            if window.replaced && model.is_gone(file) {
                read_replaced(&path, file)
            } else {
                judge_file(&path, model, file, window)
            }
        });
        // The inode number was reused: the file must be one of these.
        if let Some(best) = judged.min_by_key(|findings| findings.violations.len()) {
            findings.merge(best);
        }
    }
    for actor in 0..ACTORS {
        for base in ["main", "side"] {
            let name = format!("a{actor}/{base}");
            let names = [name.clone(), format!("{name}.moved")];
            let known = names.iter().any(|name| model.named(name).is_some());
            let there = names
                .iter()
                .filter_map(|name| fs::symlink_metadata(root.join(name)).ok());
            let inodes: Vec<u64> = there.map(|meta| meta.ino()).collect();
            let count = inodes.len();
            let replaced = window.replaced && count == 2 && inodes[0] != inodes[1];
            if known && count != 1 && !replaced {
                findings.violation(format!("{name}: has {count} of its two names"));
            }
        }
        for name in names_in(&root.join(format!("a{actor}"))).unwrap_or_default() {
            let name = format!("a{actor}/{name}");
            if !expected.contains(&name) {
                findings.violation(format!("{name}: was left behind"));
            }
        }
    }
    for name in names_in(root).unwrap_or_default() {
        let known = [
            "still",
            "swap",
            "fill",
            HOG,
            FRAY,
            "lost+found",
            "a0",
            "a1",
            "a2",
        ];
        let ours = known.contains(&name.as_str()) || name.starts_with("snap-");
        // xfs_fsr's own folder.
        if !ours && name != ".fsr" {
            findings.violation(format!("{name}: was left behind"));
        }
    }
    findings
}

fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Check a replaced file that is back: it must be readable, whatever its content.
fn read_replaced(path: &Path, file: u32) -> Findings {
    let mut findings = Findings::default();
    findings.checked += 1;
    let read = open_unnoticed(path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
    if let Err(error) = read {
        findings.violation(format!("file {file}, which was replaced: {error}"));
    }
    findings
}

fn judge_file(path: &Path, model: &Model, file: u32, window: Window) -> Findings {
    let mut findings = Findings::default();
    if let Err(error) = try_judge_file(path, model, file, window, &mut findings) {
        findings.violation(format!("file {file}: {error}"));
    }
    findings
}

fn try_judge_file(
    path: &Path,
    model: &Model,
    file: u32,
    window: Window,
    findings: &mut Findings,
) -> io::Result<()> {
    let opened = open_unnoticed(path)?;
    let size = opened.metadata()?.len();
    model.judge_size(file, size, window, findings);
    let most = model.file(file).most_blocks();
    let mut bytes = vec![0; most as usize * BLOCK];
    let read = read_up_to(&opened, &mut bytes, 0)?;
    if read as u64 != size.min(bytes.len() as u64) {
        findings.violation(format!("file {file}: {read} of {size} bytes could be read"));
    }
    for (block, bytes) in (0..most).zip(bytes.chunks_exact(BLOCK)) {
        let part = FileModel::part_below(block, size);
        if part == 0 {
            break;
        }
        model.judge_block(file, block, &bytes[..part], window, findings);
    }
    if path
        .parent()
        .is_some_and(|parent| parent.ends_with("still"))
    {
        return Ok(());
    }
    let mut value = [0; 4];
    let value = match rustix::fs::getxattr(path, ATTRIBUTE, &mut value[..]) {
        Ok(_) => u32::from_le_bytes(value),
        Err(rustix::io::Errno::NODATA) => 0,
        Err(error) => return Err(error.into()),
    };
    model.judge_attribute(file, value, findings);
    Ok(())
}

/// Check that snapshots hold exactly the content of the time when they were made.
pub(crate) fn examine_snapshots(root: &Path, snapshots: &[Snapshot]) -> Findings {
    let mut findings = Findings::default();
    for snapshot in snapshots.iter().filter(|snapshot| !snapshot.in_doubt) {
        let root = root.join(&snapshot.name);
        if !root.exists() {
            findings.violation(format!("snapshot {}: it is gone", snapshot.name));
            continue;
        }
        for (name, history) in snapshot.model.names() {
            let Some(file) = history.live() else { continue };
            let mut found = judge_file(&root.join(name), &snapshot.model, *file, Window::default());
            for violation in &mut found.violations {
                *violation = format!("snapshot {}, {name}: {violation}", snapshot.name);
            }
            findings.merge(found);
        }
    }
    findings
}

/// Check files that nobody wrote, after a cut: the part that is durable.
pub(crate) fn examine_lasting(root: &Path, facts: &StillFacts) -> Findings {
    let mut findings = Findings::default();
    for (name, before) in facts {
        findings.checked += 1;
        match Lasting::of(&root.join(name)) {
            Ok(now) if now == before.lasting => {}
            Ok(now) => findings.violation(format!("{name}: was {:?}, is {now:?}", before.lasting)),
            Err(error) => findings.violation(format!("{name}: {error}")),
        }
    }
    findings
}

/// How many shared bytes files that nobody wrote may have at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// Snapshots share their content.
    pub(crate) more: bool,
    /// The mover may give sharing up.
    pub(crate) less: bool,
}

/// Check files that nobody wrote: everything as before, and no more fragments.
pub(crate) fn examine_still(root: &Path, facts: &StillFacts, sharing: Sharing) -> Findings {
    let mut findings = Findings::default();
    for (name, before) in facts {
        findings.checked += 1;
        match Facts::of(&root.join(name)) {
            Ok(mut now) => {
                if now.fragments > before.fragments {
                    let (was, is) = (before.fragments, now.fragments);
                    findings.violation(format!("{name}: {was} fragments became {is}"));
                }
                now.fragments = before.fragments;
                if sharing.more {
                    now.shared_bytes = now.shared_bytes.min(before.shared_bytes);
                }
                if sharing.less {
                    now.shared_bytes = now.shared_bytes.max(before.shared_bytes);
                }
                if now != *before {
                    findings.violation(format!("{name}: was {before:?}, is {now:?}"));
                }
            }
            Err(error) => findings.violation(format!("{name}: {error}")),
        }
    }
    findings
}

/// Check that there are as many inodes without a name as to begin with. More were left behind. Fewer would mean that
/// the number to begin with was too high, and could hide one that was left behind.
pub(crate) fn examine_nameless(root: &Path, before: Option<i64>) -> Result<Findings> {
    let mut findings = Findings::default();
    findings.checked += 1;
    let now = inodes_without_name(root)?;
    if now != before {
        findings.violation(format!("inodes without a name: {before:?} became {now:?}"));
    }
    Ok(findings)
}

/// Number of inodes in use without a name: a fixed number of the file system's own, and those that a
/// mover forgot to release; `None` if the file system does not count inodes.
pub(crate) fn inodes_without_name(root: &Path) -> Result<Option<i64>> {
    // linux/magic.h
    const XFS_SUPER_MAGIC: i64 = 0x5846_5342;
    const F2FS_SUPER_MAGIC: i64 = 0xF2F5_2010;
    let magic = rustix::fs::statfs(root)?.f_type;
    if magic == XFS_SUPER_MAGIC {
        // XFS frees an inode without name and opener in the background (inodegc), and statfs does not wait
        // for that. A freeze does (`xfs_fs_sync_fs` calls `xfs_inodegc_stop`, fs/xfs/xfs_super.c, v6.1).
        for action in ["--freeze", "--unfreeze"] {
            run(Command::new("fsfreeze").arg(action).arg(root))?;
        }
    }
    let fs = rustix::fs::statfs(root)?;
    // F2FS counts nodes, of which a large file has several; fsck.f2fs finds unreachable ones.
    if fs.f_files == 0 || magic == F2FS_SUPER_MAGIC {
        return Ok(None);
    }
    let mut named = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            named.insert(entry.metadata()?.ino());
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    let used = fs.f_files - fs.f_ffree;
    Ok(Some(used.cast_signed() - named.len() as i64))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FallocateFlags, fallocate};
    use scratch_fs::ScratchFs;
    use units::Bytes;

    use super::*;
    use crate::actor::nameless;

    /// Releasing a file in many pieces takes XFS a while, which it does in the background.
    #[test]
    fn loop_an_inode_without_a_name_counts_until_it_is_released() {
        for fs in ["ext4", "xfs"] {
            let built = ScratchFs::builder(fs, Bytes::mib(512)).build();
            let Some(scratch) = scratch_fs::require(built) else {
                return;
            };
            let count = || inodes_without_name(scratch.path()).unwrap().unwrap();
            let own = count();
            let file = nameless(scratch.path()).unwrap();
            for block in 0..4096 {
                fallocate(&file, FallocateFlags::empty(), 8192 * block, 4096).unwrap();
            }
            assert_eq!(count(), own + 1, "{fs}: an open one");
            drop(file);
            assert_eq!(count(), own, "{fs}: a released one");
        }
    }
}
