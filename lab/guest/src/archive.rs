//! The archive that a kernel unpacks as its first file system: cpio in the format `newc`.
//!
//! Format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::{Component, Path, PathBuf},
};

const FOLDER: u32 = 0o040_755;
const SYMLINK: u32 = 0o120_777;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Top-level folders that are symbolic links into `/usr` on every distribution of today.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// An archive under construction. A path that is already in it is not added again: the first one
/// counts.
pub(crate) struct Archive<W> {
    out: W,
    present: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    /// An archive with the usual symbolic links into `/usr`, and a console.
    pub(crate) fn new(out: W) -> io::Result<Self> {
        let mut archive = Self {
            out,
            present: BTreeSet::new(),
        };
        for folder in MERGED {
            let target = format!("usr/{folder}");
            archive.folder(Path::new(&target))?;
            archive.entry(Path::new(folder), SYMLINK, (0, 0), target.as_bytes())?;
            archive.present.insert(folder.into());
        }
        archive.folder(Path::new("dev"))?;
        archive.entry(Path::new("dev/console"), CHARACTER_DEVICE, (5, 1), &[])?;
        Ok(archive)
    }

    /// An archive that extends a file system made from an earlier archive: the links exist already.
    pub(crate) fn more(out: W) -> Self {
        Self {
            out,
            present: MERGED.iter().map(PathBuf::from).collect(),
        }
    }

    /// Add a folder, with those above it.
    pub(crate) fn folder(&mut self, path: &Path) -> io::Result<()> {
        let path = inside(path);
        for folder in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
            if folder != Path::new("") && self.present.insert(folder.to_owned()) {
                self.entry(folder, FOLDER, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    /// Add a regular file with these permission bits.
    pub(crate) fn file(&mut self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        self.leaf(path, FILE | mode, content)
    }

    /// Add a symbolic link.
    pub(crate) fn symlink(&mut self, path: &Path, target: &str) -> io::Result<()> {
        self.leaf(path, SYMLINK, target.as_bytes())
    }

    /// Whether the archive contains this path.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.present.contains(&inside(path))
    }

    fn leaf(&mut self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        let path = inside(path);
        if let Some(folder) = path.parent() {
            self.folder(folder)?;
        }
        if self.present.insert(path.clone()) {
            self.entry(&path, mode, (0, 0), content)?;
        }
        Ok(())
    }

    /// Close the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry(Path::new("TRAILER!!!"), 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(
        &mut self,
        path: &Path,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let name = path.as_os_str().as_bytes();
        let too_large = |_| io::Error::new(io::ErrorKind::FileTooLarge, path.display().to_string());
        let size = u32::try_from(content.len()).map_err(too_large)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_large)?;
        self.out.write_all(b"070701")?;
        // ino, mode, uid, gid, nlink, mtime, size, device, device of a device file, name, checksum.
        // Without hard links the inode number does not matter.
        let fields = [
            0, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0,
        ];
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name)?;
        self.out.write_all(&[0])?;
        self.pad(6 + 13 * 8 + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, length: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..length.wrapping_neg() % 4])
    }
}

/// The path in its form within the archive: relative, without `.`, below `usr` where it is merged.
fn inside(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    if MERGED.iter().any(|folder| plain.starts_with(folder)) && plain.components().count() > 1 {
        plain = Path::new("usr").join(plain);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_cpio_format_wants() {
        let mut archive = Archive::new(Vec::new()).unwrap();
        archive.file(Path::new("/bin/x"), 0o755, b"abcde").unwrap();
        // The second entry of the same name is left out.
        archive.file(Path::new("/usr/bin/x"), 0o755, b"no").unwrap();
        archive.symlink(Path::new("/a/b"), "c").unwrap();
        assert!(archive.contains(Path::new("/bin/../bin/./x")));
        let bytes = archive.finish().unwrap();

        let mut names = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let header = std::str::from_utf8(&bytes[at..at + 110]).unwrap();
            assert_eq!(&header[..6], "070701");
            let field = |n: usize| usize::from_str_radix(&header[6 + 8 * n..][..8], 16).unwrap();
            let (size, name_size) = (field(6), field(11));
            let name = &bytes[at + 110..at + 110 + name_size - 1];
            let start = (at + 110 + name_size).next_multiple_of(4);
            let content = &bytes[start..start + size];
            names.push((String::from_utf8_lossy(name).into_owned(), content.to_vec()));
            at = (start + size).next_multiple_of(4);
        }
        let found = |name: &str| names.iter().filter(|(n, _)| n == name).collect::<Vec<_>>();
        assert_eq!(found("usr/bin/x")[0].1, b"abcde");
        assert_eq!(found("usr/bin/x").len(), 1);
        assert_eq!(found("a/b")[0].1, b"c");
        assert_eq!(names.last().unwrap().0, "TRAILER!!!");
        let place = |name: &str| names.iter().position(|(n, _)| n == name).unwrap();
        assert!(place("usr") < place("usr/bin") && place("usr/bin") < place("usr/bin/x"));
    }
}
