//! Many files: their contents, and where their blocks lie. A file has its name, wherever its folder is mounted.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use linux_abi::fiemap::{ExtentFlags, FLAG_SYNC, Mapper};
use rustix::fs::{Advice, fadvise};
use sha2::{Digest, Sha256};
use units::Bytes;

/// Blocks of a file that are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
}

/// Where the blocks of files lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places(BTreeMap<PathBuf, Vec<Extent>>);

/// The length of each file, and a hash of its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents(BTreeMap<PathBuf, (u64, [u8; 32])>);

impl Places {
    /// Of these files, after they were written back.
    pub(super) fn of(files: &[PathBuf]) -> io::Result<Self> {
        let mut mapper = Mapper::default();
        let places = files.iter().map(|path| {
            let extents = extents(&mut mapper, &File::open(path)?)?;
            Ok((name(path), extents))
        });
        Ok(Self(places.collect::<io::Result<_>>()?))
    }

    pub(super) fn extents(&self) -> u64 {
        self.0.values().map(|extents| extents.len() as u64).sum()
    }

    pub(super) fn bytes(&self) -> Bytes {
        let all = self.0.values().flatten();
        Bytes(all.map(|extent| extent.length).sum())
    }

    /// Files with more than one extent.
    pub(super) fn fragmented(&self) -> u64 {
        let files = self.0.values();
        files.filter(|extents| extents.len() > 1).count() as u64
    }

    /// Bytes that lie elsewhere than before.
    pub(super) fn moved_from(&self, before: &Self) -> Bytes {
        let pairs = self.0.iter().map(|(name, now)| {
            let then = before.0.get(name).map_or(&[][..], Vec::as_slice);
            now.iter().map(|extent| extent.length).sum::<u64>() - stayed(then, now)
        });
        Bytes(pairs.sum())
    }
}

/// Bytes of a file that lie where they lay.
fn stayed(then: &[Extent], now: &[Extent]) -> u64 {
    let (mut then, mut now) = (then.iter().peekable(), now.iter().peekable());
    let mut bytes = 0;
    while let (Some(one), Some(other)) = (then.peek(), now.peek()) {
        let (one_end, other_end) = (one.logical + one.length, other.logical + other.length);
        let from = one.logical.max(other.logical);
        let to = one_end.min(other_end);
        // The same distance from file to device.
        let is_same =
            one.physical.wrapping_sub(one.logical) == other.physical.wrapping_sub(other.logical);
        if is_same {
            bytes += to.saturating_sub(from);
        }
        if one_end <= other_end {
            then.next();
        }
        if other_end <= one_end {
            now.next();
        }
    }
    bytes
}

/// The extents of a file; those that touch in the file and on the device are one.
fn extents(mapper: &mut Mapper, file: &File) -> io::Result<Vec<Extent>> {
    let mut all: Vec<Extent> = Vec::new();
    let mut start = 0;
    loop {
        let batch = mapper.batch(file, start, u64::MAX - start, FLAG_SYNC)?;
        let Some(last) = batch.last() else {
            return Ok(all);
        };
        start = last.logical + last.length;
        let is_last = ExtentFlags::from_bits_retain(last.flags).contains(ExtentFlags::LAST);
        for extent in batch {
            match all.last_mut() {
                Some(before)
                    if (
                        before.logical + before.length,
                        before.physical + before.length,
                    ) == (extent.logical, extent.physical) =>
                {
                    before.length += extent.length;
                }
                _ => all.push(Extent {
                    logical: extent.logical,
                    physical: extent.physical,
                    length: extent.length,
                }),
            }
        }
        if is_last {
            return Ok(all);
        }
    }
}

impl Contents {
    /// As the device has them: what is cached is dropped first, and read anew, many files at a time.
    pub(super) fn of(files: &[PathBuf]) -> io::Result<Self> {
        for path in files {
            let file = File::open(path)?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
            fadvise(&file, 0, None, Advice::WillNeed)?;
        }
        let mut contents = BTreeMap::new();
        let mut buffer = vec![0; 1 << 20];
        for path in files {
            let mut file = File::open(path)?;
            let (mut length, mut hash) = (0, Sha256::new());
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    read => {
                        length += read as u64;
                        hash.update(&buffer[..read]);
                    }
                }
            }
            contents.insert(name(path), (length, hash.finalize().into()));
        }
        Ok(Self(contents))
    }

    pub(super) fn files(&self) -> u64 {
        self.0.len() as u64
    }

    /// An error that names the first file that is another one.
    pub(super) fn ensure_same(&self, before: &Self) -> io::Result<()> {
        let names = before.0.keys().chain(self.0.keys());
        let mut differ = names.filter(|name| self.0.get(*name) != before.0.get(*name));
        match differ.next() {
            None => Ok(()),
            Some(name) => Err(io::Error::other(format!(
                "{} has other contents than before",
                name.display()
            ))),
        }
    }
}

fn name(path: &Path) -> PathBuf {
    path.file_name().map(PathBuf::from).unwrap_or_default()
}

/// All regular files right in `folder`, in the order of their names.
pub(super) fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u64, physical: u64, length: u64) -> Extent {
        Extent {
            logical,
            physical,
            length,
        }
    }

    fn places(extents: &[Extent]) -> Places {
        Places([(PathBuf::from("a"), extents.to_vec())].into())
    }

    #[test]
    fn what_lies_elsewhere_has_moved() {
        let before = places(&[extent(0, 100, 10), extent(10, 200, 10), extent(30, 300, 10)]);
        assert_eq!(before.moved_from(&before), Bytes(0));
        assert_eq!((before.extents(), before.fragmented()), (3, 1));
        assert_eq!(before.bytes(), Bytes(30));
        // The second one went to the end of the first one.
        let after = places(&[extent(0, 100, 20), extent(30, 300, 10)]);
        assert_eq!(after.moved_from(&before), Bytes(10));
        // A part of one stayed, and a new file has moved as a whole.
        let after = places(&[extent(0, 100, 4), extent(4, 500, 16), extent(30, 300, 10)]);
        assert_eq!(after.moved_from(&before), Bytes(16));
        assert_eq!(after.moved_from(&Places::default()), Bytes(30));
    }

    #[test]
    fn contents_are_told_apart_by_a_byte_and_by_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("a", "one");
        write("b", "two");
        let contents = || Contents::of(&files_of(folder.path()).unwrap()).unwrap();
        let before = contents();
        assert_eq!(before.files(), 2);
        before.ensure_same(&before).unwrap();
        write("b", "twO");
        let error = contents().ensure_same(&before);
        assert!(error.unwrap_err().to_string().starts_with("b has other"));
        write("b", "two");
        fs::remove_file(folder.path().join("a")).unwrap();
        let error = contents().ensure_same(&before);
        assert!(error.unwrap_err().to_string().starts_with("a has other"));
    }
}
