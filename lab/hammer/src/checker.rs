//! The file systems' own checkers, and the false alarms that they are known to give.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
};

use anyhow::Result;
use linux_abi::{
    fiemap::{ExtentFlags, FLAG_SYNC, Mapper},
    fsxattr::{Attributes, Flags},
};

/// Whether `btrfs check` reported checksums of unwritten extents, and nothing else.
pub(crate) fn is_odd_checksums_only(said: &str) -> bool {
    let mut inodes = said
        .lines()
        .filter(|line| line.starts_with("root ") && line.contains(" errors "));
    let mut others = { said.lines() }.filter(|line| line.starts_with("ERROR"));
    let is_odd = |line: &str| line.ends_with(" errors 800, odd csum item");
    inodes.clone().next().is_some()
        && inodes.all(is_odd)
        && others.all(|line| line == "ERROR: errors found in fs roots")
}

/// Inodes of which e2fsck reported extents past an allowed end.
///
/// It takes the end of a file for the end of its extent tree (`path[0].end_blk`,
/// lib/ext2fs/extent.c, e2fsprogs 1.47.0), so it takes an index node of level 1 for damaged if that
/// lies past the end of the file: at least two levels, and blocks that were allocated there with
/// `FALLOC_FL_KEEP_SIZE`. No mover is needed for it.
pub(crate) fn past_an_end(said: &str) -> BTreeSet<u64> {
    let reported = |line: &str| {
        let (inode, rest) = line.strip_prefix("Inode ")?.split_once(", ")?;
        (rest == "end of extent exceeds allowed value").then(|| inode.parse().ok())?
    };
    said.lines().filter_map(reported).collect()
}

/// Let the files of these inodes end after their last block.
pub(crate) fn let_end_after_blocks(root: &Path, inodes: &BTreeSet<u64>) -> Result<()> {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if inodes.contains(&metadata.ino()) {
                let_end_after_its_blocks(&entry.path())?;
            }
        }
    }
    Ok(())
}

fn let_end_after_its_blocks(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    let mut end = file.metadata()?.len();
    let mut mapper = Mapper::default();
    let mut from = 0;
    while let Some(last) = mapper
        .batch(&file, from, u64::MAX - from, FLAG_SYNC)?
        .last()
    {
        from = last.logical + last.length;
        end = end.max(from);
        if ExtentFlags::from_bits_retain(last.flags).contains(ExtentFlags::LAST) {
            break;
        }
    }
    // An immutable file cannot be opened for writing.
    let attributes = Attributes::get(&file)?;
    let flags = attributes.flags() - Flags::IMMUTABLE;
    attributes.with_flags(flags).set(&file)?;
    File::options().write(true).open(path)?.set_len(end)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use rustix::fs::{FallocateFlags, fallocate};
    use scratch_fs::ScratchFs;
    use units::Bytes;

    use super::*;

    /// The alarm is given without a mover, and ends once the file is longer.
    #[test]
    fn loop_e2fsck_takes_blocks_past_the_end_for_damage() {
        let builder = ScratchFs::builder("ext4", Bytes::mib(64));
        let built = builder.mkfs_args(["-b", "1024"]).build();
        let Some(mut scratch) = scratch_fs::require(built) else {
            return;
        };
        let path = scratch.path().join("file");
        let file = File::create(&path).unwrap();
        for block in (0..2048).step_by(2) {
            file.write_all_at(&[1; 1024], block << 10).unwrap();
        }
        file.set_len(2 << 20).unwrap();
        file.sync_all().unwrap();
        for block in (3000..3400).step_by(2) {
            fallocate(&file, FallocateFlags::KEEP_SIZE, block << 10, 1024).unwrap();
        }
        let inode = file.metadata().unwrap().ino();
        drop(file);
        let said = scratch.fsck().unwrap_err().to_string();
        let inodes = past_an_end(&said);
        assert_eq!(inodes, BTreeSet::from([inode]), "{said}");
        let_end_after_blocks(scratch.path(), &inodes).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 3399 << 10);
        scratch.fsck().unwrap();
    }

    #[test]
    fn other_faults_beside_odd_checksums_are_faults() {
        let odd = "[4/7] checking fs roots\nroot 5 inode 260 errors 800, odd csum item\n";
        let end = "ERROR: errors found in fs roots\n";
        assert!(is_odd_checksums_only(&format!("{odd}{end}")));
        for worse in [
            end.to_owned(),
            format!("{odd}root 5 inode 261 errors 1000, some csum missing\n{end}"),
            format!("{odd}root 5 inode 261 errors 840, odd csum item, file extent overlap\n{end}"),
            format!("{odd}{end}ERROR: errors found in csum tree\n"),
        ] {
            assert!(!is_odd_checksums_only(&worse), "{worse}");
        }
    }

    #[test]
    fn only_files_with_extents_past_an_end_are_named() {
        let said = "Inode 12, end of extent exceeds allowed value\n\
                    \t(logical block 2016, physical block 18444, len 1120)\nClear? no\n\n\
                    Inode 13, i_blocks is 2480, should be 2042.  Fix? no\n\
                    Inode 14, end of extent exceeds allowed value\n";
        assert_eq!(past_an_end(said), BTreeSet::from([12, 14]));
    }
}
