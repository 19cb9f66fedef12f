//! The mounted file systems, with the kernel's device numbers: `/proc/PID/mountinfo` (proc(5)).

use std::{
    collections::HashSet,
    ffi::OsString,
    fs::{self, File},
    io::Read,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::fs::{major, makedev, minor};

/// So much of a stranger's table is read: some thousand lines.
const LONGEST: u64 = 256 << 10;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Its number, and that of the mount on which it is mounted.
    pub(crate) id: u32,
    pub(crate) parent: u32,
    /// The kernel's number of the file system's device (`s_dev`).
    pub(crate) sb_dev: u32,
    /// The folder of the file system that is mounted: `/`, or another one for a bind mount.
    pub(crate) root: PathBuf,
    /// Where it is mounted, as its process sees it.
    pub(crate) point: PathBuf,
    /// `ext4`.
    pub(crate) fs_type: String,
    /// `/dev/sda1`.
    pub(crate) source: PathBuf,
    /// The options of the file system, separated by commas: `rw,errors=remount-ro`.
    pub(crate) options: Vec<u8>,
}

/// The kernel's own form of a device number, as contract.h has it.
pub(crate) fn kernel_device(dev: u64) -> u32 {
    major(dev) << 20 | minor(dev) & 0xf_ffff
}

/// The form that `stat` shows.
pub(crate) fn stat_device(dev: u32) -> u64 {
    makedev(dev >> 20, dev & 0xf_ffff)
}

/// The mounts that this process sees; none without `/proc`.
pub(crate) fn all() -> Vec<Mount> {
    of(Path::new("/proc/self"))
}

/// The mounts that any process sees, in its own mount namespace.
pub(crate) fn everywhere() -> Vec<Mount> {
    let mut mounts = all();
    let mut known = HashSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = process.path();
        // Entries of other things than processes, and links that may not be read, are skipped.
        if let Ok(namespace) = fs::read_link(process.join("ns/mnt"))
            && known.insert(namespace)
        {
            mounts.extend(of(&process));
        }
    }
    mounts
}

/// The mounts that the process of this folder of `/proc` sees.
pub(crate) fn of(process: &Path) -> Vec<Mount> {
    within(process, u64::MAX)
}

/// The same of a process that may be anybody's: the first ones, as it may have made a hundred thousand.
pub(crate) fn of_stranger(process: &Path) -> Vec<Mount> {
    within(process, LONGEST)
}

fn within(process: &Path, longest: u64) -> Vec<Mount> {
    let mut table = Vec::new();
    if let Ok(file) = File::open(process.join("mountinfo")) {
        // What was read before an error is usable.
        let _ = file.take(longest).read_to_end(&mut table);
    }
    table
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect()
}

/// `id parent major:minor root point options [tags…] - type source super-options`
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field| std::str::from_utf8(field).ok();
    let id = text(fields.next()?)?.parse().ok()?;
    let parent = text(fields.next()?)?.parse().ok()?;
    let (major, minor) = text(fields.next()?)?.split_once(':')?;
    let sb_dev = major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?;
    let root = path(fields.next()?);
    let point = path(fields.next()?);
    fields.find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = path(fields.next()?);
    Some(Mount {
        id,
        parent,
        sb_dev,
        root,
        point,
        fs_type,
        source,
        options: fields.next().unwrap_or_default().to_vec(),
    })
}

/// The mount to which a path without links leads, where there are only these mounts: the kernel goes from mount to mount, and what
/// lies below another one is not met.
pub(crate) fn holding<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let is_listed = |id| mounts.iter().any(|mount| mount.id == id);
    let is_root = |mount: &&Mount| {
        mount.point == Path::new("/") && (mount.parent == mount.id || !is_listed(mount.parent))
    };
    let Some(mut here) = mounts.iter().find(is_root) else {
        // The root of this process is no mount (chroot): the longest, and of these the last, which is on top.
        let holds = |mount: &&Mount| path.starts_with(&mount.point);
        let components = |mount: &&Mount| mount.point.components().count();
        return mounts.iter().filter(holds).max_by_key(components);
    };
    // A table that was read while it changed may lead in circles.
    for _ in mounts {
        let is_next = |mount: &&Mount| {
            mount.parent == here.id && mount.id != here.id && path.starts_with(&mount.point)
        };
        let next = mounts.iter().rev().filter(is_next);
        let Some(next) = next.min_by_key(|mount| mount.point.components().count()) else {
            break;
        };
        here = next;
    }
    Some(here)
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// Decode a field, or a part of one: blanks, tabs, newlines, backslashes and, in options, commas are
/// written as three octal digits.
pub(crate) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while let Some(&byte) = field.get(at) {
        let code = field.get(at + 1..at + 4).filter(|_| byte == b'\\');
        let octal = code.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        bytes.push(octal.unwrap_or(byte));
        at += if octal.is_some() { 4 } else { 1 };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_understood() {
        let line = b"36 35 7:3 /sub /mnt/with\\040blank rw,noatime shared:1 - btrfs /dev/loop3 rw";
        let expected = Mount {
            id: 36,
            parent: 35,
            sb_dev: 7 << 20 | 3,
            root: "/sub".into(),
            point: "/mnt/with blank".into(),
            fs_type: "btrfs".into(),
            source: "/dev/loop3".into(),
            options: b"rw".to_vec(),
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 x:3 / /mnt rw - ext4 /dev/sda rw"), None);
    }

    fn table(lines: &[&str]) -> Vec<Mount> {
        let lines = lines.iter().map(|line| parse(line.as_bytes()));
        lines.map(|mount| mount.expect("a line")).collect()
    }

    #[test]
    fn a_path_leads_to_the_mount_on_top() {
        let mounts = table(&[
            "1 0 7:1 / / rw - ext4 /dev/loop1 rw",
            "2 1 7:2 / /d rw - ext4 /dev/loop2 rw",
            "3 2 7:3 / /d/sub/folder rw - ext4 /dev/loop3 rw",
            "4 2 0:9 / /d/sub rw - overlay overlay rw",
            "5 4 0:10 / /d/sub rw - tmpfs none rw",
            "6 3 7:4 / /d/sub/folder/more rw - ext4 /dev/loop4 rw",
        ]);
        let holding = |mounts, path: &str| holding(mounts, Path::new(path)).map(|mount| mount.id);
        assert_eq!(holding(&mounts, "/dd"), Some(1));
        assert_eq!(holding(&mounts, "/d/other/sub"), Some(2));
        assert_eq!(holding(&mounts, "/d/sub"), Some(5));
        assert_eq!(holding(&mounts, "/d/sub/folder/more/file"), Some(5));
        // Before the last three were there.
        assert_eq!(holding(&mounts[..3], "/d/sub/folder/more/file"), Some(3));
        // In another folder than the one that is the root of all.
        assert_eq!(holding(&mounts[1..3], "/d/sub/folder/x"), Some(3));
        assert_eq!(holding(&mounts[1..3], "/e"), None);
    }

    #[test]
    fn a_table_that_leads_in_circles_has_an_end() {
        let mounts = table(&[
            "1 0 7:1 / / rw - ext4 /dev/loop1 rw",
            "2 1 7:2 / /d rw - ext4 /dev/loop2 rw",
            "3 2 7:3 / /d rw - ext4 /dev/loop3 rw",
            "2 3 7:2 / /d rw - ext4 /dev/loop2 rw",
        ]);
        assert!(holding(&mounts, Path::new("/d/file")).is_some());
    }

    #[test]
    fn of_a_strangers_table_the_beginning_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let line = "36 35 7:3 / /mnt rw - ext4 /dev/loop3 rw\n";
        fs::write(folder.path().join("mountinfo"), line.repeat(100_000)).unwrap();
        assert_eq!(of(folder.path()).len(), 100_000);
        let some = of_stranger(folder.path()).len();
        assert!((1000..10_000).contains(&some), "{some}");
    }

    #[test]
    fn device_numbers_go_both_ways() {
        for dev in [0, 7 << 20 | 3, 259 << 20 | 0xf_ffff] {
            assert_eq!(kernel_device(stat_device(dev)), dev);
        }
    }

    #[test]
    fn this_process_has_a_root() {
        assert!(all().iter().any(|mount| mount.point == Path::new("/")));
    }
}
