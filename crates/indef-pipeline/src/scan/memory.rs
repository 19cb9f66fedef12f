//! What a scan remembers of a subvolume, in indef's state directory: `scans/FILE SYSTEM-SUBVOLUME.memory`.
//!
//! It saves work, and nothing depends on it. So a file that is damaged, of another version, of a file system that
//! was mounted anew, or not ours alone is as good as none, and one that cannot be written is told to nobody.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use indef_engine::resume::{find_state_directory, state_directory};
use rustix::fs::{FlockOperation, flock};
use units::Bytes;

use super::{plain::Counts, records::Records};
use crate::stored::{Found, own_folder, read, write};

const FOLDER: &str = "scans";
const MAGIC: &[u8; 8] = b"indefmem";
/// Raised with each change of the format, or of what is plain.
const VERSION: u32 = 2;
/// A longer file is none of ours, and none is written: of some ten million files.
const LONGEST: u64 = 64 << 20;
/// Of so many subvolumes something is remembered: those that were written last.
const MOST: usize = 32;

/// What a scan remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// The subvolume, as long as it stays mounted ([`indef_fs::SubvolumeFiles::session`]).
    pub(super) session: String,
    /// For reads of this size.
    pub(super) io_size: Bytes,
    /// What changed before this transaction is in it.
    pub(super) transaction: u64,
    /// Sums over all inodes.
    pub(super) counts: Counts,
    /// The inodes.
    pub(super) records: Records,
}

impl Memory {
    /// The memory with this name, if it is of this session and for reads of this size.
    pub(super) fn find(name: &str, session: &str, io_size: Bytes) -> Option<Self> {
        let path = place(&find_state_directory()?, name);
        let Ok(Found::Bytes(bytes)) = read(&path, LONGEST) else {
            return None;
        };
        let found = Self::parse(bytes)?;
        (found.session == session && found.io_size == io_size).then_some(found)
    }

    /// Write it in place of an earlier one.
    pub(super) fn keep(&self, name: &str) -> io::Result<()> {
        self.keep_in(&state_directory()?, name)
    }

    fn keep_in(&self, state: &Path, name: &str) -> io::Result<()> {
        let path = place(state, name);
        let bytes = self.to_bytes();
        if bytes.len() as u64 > LONGEST {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let folder = state.join(FOLDER);
        let not_ours = || io::Error::new(io::ErrorKind::PermissionDenied, "it is not ours alone");
        let owned = own_folder(&folder)?.ok_or_else(not_ours)?;
        // Another scan writes: that is as new.
        if flock(&owned, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(());
        }
        let kept = write(&path, &bytes).and_then(|()| forget_oldest(&folder, &path));
        // Closing is not enough: a process that is just being begun by another thread holds the lock, too, until it is
        // another program.
        let _ = flock(&owned, FlockOperation::Unlock);
        kept
    }

    fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.transaction, self.io_size.get()];
        let numbers = numbers.into_iter().chain(self.counts.fields());
        let mut rest: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        rest.extend((self.session.len() as u32).to_le_bytes());
        rest.extend(self.session.as_bytes());
        rest.extend(self.records.bytes());
        let mut bytes = Vec::with_capacity(rest.len() + 16);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(crc32c::crc32c(&rest).to_le_bytes());
        bytes.append(&mut rest);
        bytes
    }

    fn parse(bytes: Vec<u8>) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (version, rest) = rest.split_first_chunk()?;
        let (checksum, rest) = rest.split_first_chunk()?;
        if u32::from_le_bytes(*version) != VERSION
            || u32::from_le_bytes(*checksum) != crc32c::crc32c(rest)
        {
            return None;
        }
        let mut rest = rest;
        let mut number = || {
            let (first, behind) = rest.split_first_chunk()?;
            rest = behind;
            Some(u64::from_le_bytes(*first))
        };
        let (transaction, io_size) = (number()?, Bytes(number()?));
        let mut fields = [0; Counts::FIELDS];
        for field in &mut fields {
            *field = number()?;
        }
        let (len, rest) = rest.split_first_chunk()?;
        let (session, records) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let session = str::from_utf8(session).ok()?.to_owned();
        let at = bytes.len() - records.len();
        let mut bytes = bytes;
        Some(Self {
            session,
            io_size,
            transaction,
            counts: Counts::from_fields(fields),
            records: Records::from_bytes(bytes.split_off(at)),
        })
    }
}

fn place(state: &Path, name: &str) -> PathBuf {
    state.join(FOLDER).join(name).with_extension("memory")
}

/// Leave only the newest files in a folder of ours, one of which has just been written.
fn forget_oldest(folder: &Path, written: &Path) -> io::Result<()> {
    let entries = fs::read_dir(folder)?.filter_map(Result::ok);
    let mut others: Vec<_> = entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        // Others may have the same time.
        .filter(|(_, path)| path != written)
        .collect();
    others.sort_unstable_by(|one, other| other.cmp(one));
    others.drain(..(MOST - 1).min(others.len()));
    others
        .into_iter()
        .try_for_each(|(_, path)| fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use indef_fs::{Nature, Numbered};

    use super::*;

    fn memory() -> Memory {
        let mut memory = Memory {
            session: "a file system 5".to_owned(),
            io_size: Bytes::kib(128),
            transaction: 7,
            counts: Counts::default(),
            records: Records::default(),
        };
        for inode in 256..300 {
            let numbered = Numbered {
                inode,
                parent: 256,
                links: 1,
                changed: 0,
                nature: Nature::Plain {
                    size: Bytes(inode * 100),
                    allocated: Bytes::kib(28),
                },
            };
            memory.records.push(numbered);
            memory.counts.add(&Counts::of(
                numbered.links,
                &numbered.nature,
                memory.io_size,
            ));
        }
        memory
    }

    /// What is read of these bytes.
    fn of_bytes(bytes: &[u8]) -> Option<(u64, Counts, Vec<Numbered>)> {
        let found = Memory::parse(bytes.to_vec())?;
        let records = found.records.iter().collect::<Result<_, _>>().ok()?;
        Some((found.transaction, found.counts, records))
    }

    #[test]
    fn only_what_was_written_is_read() {
        let memory = memory();
        let bytes = memory.to_bytes();
        let (transaction, counts, records) = of_bytes(&bytes).unwrap();
        assert_eq!((transaction, counts), (7, memory.counts));
        assert_eq!(records.len(), 44);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(of_bytes(&damaged), None, "byte {at}, bit {bit}");
            }
            assert_eq!(of_bytes(&bytes[..at]), None, "cut off at {at}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(of_bytes(&longer), None);
    }

    #[test]
    fn a_memory_lies_in_a_folder_that_is_ours_alone() {
        let state = tempfile::tempdir().unwrap();
        let (folder, path) = (state.path().join(FOLDER), place(state.path(), "x-5"));
        let keep = || memory().keep_in(state.path(), "x-5");
        keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), memory().to_bytes());
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        keep().unwrap_err();
        let elsewhere = state.path().join("elsewhere");
        fs::rename(&folder, &elsewhere).unwrap();
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&elsewhere, &folder).unwrap();
        keep().unwrap_err();
    }

    #[test]
    fn memories_are_bounded() {
        let state = tempfile::tempdir().unwrap();
        for n in 0..MOST + 3 {
            memory().keep_in(state.path(), &format!("x-{n}")).unwrap();
        }
        let left = fs::read_dir(state.path().join(FOLDER)).unwrap().count();
        assert_eq!(left, MOST);
        assert!(place(state.path(), &format!("x-{}", MOST + 2)).exists());
    }
}
