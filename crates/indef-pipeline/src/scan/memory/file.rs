//! Memories in indef's state directory: `scans/NAME`, readable and writable by their user alone.
//!
//! A head and records of the same length. A file is written beside its place and renamed, so it is there as a
//! whole or not at all. One that is damaged, of another version or user, or that others may write, is as good as
//! none: the caller is told why. All memories together are bounded; the oldest go first.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    mem::size_of,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use indef_core::layout::{Unreachable, WindowedDolf};
use indef_engine::{
    collect::Select,
    resume::{find_state_directory, state_directory},
};
use indef_fs::Evidence;
use rustix::{fs::OFlags, process::geteuid};
use sha2::{Digest, Sha256};
use units::Bytes;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U32, U64},
};

use super::{Findings, error::MemoryError};

/// The version of the format, and of what findings follow from a layout.
const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"indefscn";
/// The most files in a memory.
pub(super) const MOST: usize = 500_000;
/// A longer file is none of ours.
const LONGEST: u64 = (size_of::<Head>() + MOST * size_of::<Record>()) as u64;
/// The most bytes of all memories.
const MOST_BYTES: u64 = 256 << 20;
/// A file that was not finished in this time never will be.
const UNFINISHED: Duration = Duration::from_secs(24 * 60 * 60);

#[repr(C)]
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
struct Head {
    magic: [u8; 8],
    version: U32,
    /// CRC-32C of the records.
    crc: U32,
    /// The version of indef, padded with zeroes.
    indef: [u8; 24],
    records: U64,
}

#[repr(C)]
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
struct Record {
    evidence: [u8; Evidence::LEN],
    extents: U64,
    ideal: U64,
    dolf: [U64; 3],
    worth_moving: U64,
    shared: U64,
    saved_requests: U64,
    /// Bytes alone and shared, and whether they are known.
    unreachable: [U64; 3],
}

impl Record {
    fn new(evidence: &Evidence, of: &Findings) -> Self {
        let held = of.unreachable.unwrap_or_default();
        let known = u64::from(of.unreachable.is_some());
        Self {
            evidence: evidence.bytes(),
            extents: of.extents.into(),
            ideal: of.ideal.into(),
            dolf: [of.dolf.windows, of.dolf.fragments, of.dolf.max].map(U64::new),
            worth_moving: of.worth_moving.get().into(),
            shared: of.shared.get().into(),
            saved_requests: of.saved_requests.into(),
            unreachable: [held.alone.get(), held.shared.get(), known].map(U64::new),
        }
    }

    fn findings(&self) -> (Evidence, Findings) {
        let [windows, fragments, max] = self.dolf.map(U64::get);
        let [alone, shared, known] = self.unreachable.map(U64::get);
        let held = Unreachable {
            alone: Bytes(alone),
            shared: Bytes(shared),
        };
        let findings = Findings {
            extents: self.extents.get(),
            ideal: self.ideal.get(),
            dolf: WindowedDolf {
                windows,
                fragments,
                max,
            },
            worth_moving: Bytes(self.worth_moving.get()),
            shared: Bytes(self.shared.get()),
            saved_requests: self.saved_requests.get(),
            unreachable: (known == 1).then_some(held),
        };
        (Evidence::from_bytes(self.evidence), findings)
    }
}

impl Head {
    fn new(records: &[u8]) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION.into(),
            crc: crc32c::crc32c(records).into(),
            indef: this_indef(),
            records: ((records.len() / size_of::<Record>()) as u64).into(),
        }
    }
}

/// The version of indef: whatever it changes in how findings follow from a layout, no older memory has.
fn this_indef() -> [u8; 24] {
    let mut padded = [0; 24];
    let version = env!("CARGO_PKG_VERSION").bytes();
    padded
        .iter_mut()
        .zip(version)
        .for_each(|(to, from)| *to = from);
    padded
}

/// The findings that the last scan kept; none if there was none.
pub(super) fn read(
    paths: &[PathBuf],
    select: &Select,
    io_size: Bytes,
) -> Result<Vec<(Evidence, Findings)>, MemoryError> {
    match find_state_directory() {
        Some(state) => read_from(&folder(&state).join(name(paths, select, io_size))),
        None => Ok(Vec::new()),
    }
}

/// Put these findings in the place of those that the last scan kept.
pub(super) fn write(
    paths: &[PathBuf],
    select: &Select,
    io_size: Bytes,
    findings: &[(Evidence, Findings)],
) -> Result<(), MemoryError> {
    let folder = folder(&state_directory().map_err(MemoryError::NoDirectory)?);
    let path = folder.join(name(paths, select, io_size));
    write_to(&folder, &path, findings).map_err(|source| MemoryError::Io { path, source })?;
    // Too many memories do no harm before the next scan.
    let _ = shorten(&folder, MOST_BYTES);
    Ok(())
}

fn folder(state: &Path) -> PathBuf {
    state.join("scans")
}

/// The name of the memory of these paths, and of what is left out of them.
fn name(paths: &[PathBuf], select: &Select, io_size: Bytes) -> String {
    let mut digest = Sha256::new();
    digest.update(io_size.get().to_le_bytes());
    for path in paths {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        digest.update((path.as_os_str().len() as u64).to_le_bytes());
        digest.update(path.as_os_str().as_bytes());
    }
    for glob in select.globs() {
        // No path is as long.
        digest.update((u64::MAX - glob.as_str().len() as u64).to_le_bytes());
        digest.update(glob.as_str());
    }
    if !select.min_size().is_zero() {
        digest.update(u64::MAX.to_le_bytes());
        digest.update(select.min_size().get().to_le_bytes());
    }
    let digest = digest.finalize();
    digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn read_from(path: &Path) -> Result<Vec<(Evidence, Findings)>, MemoryError> {
    let fail = |source| MemoryError::Io {
        path: path.to_owned(),
        source,
    };
    let Some(file) = open(path).map_err(fail)? else {
        return Ok(Vec::new());
    };
    let status = file.metadata().map_err(fail)?;
    let is_ours = status.is_file() && status.uid() == geteuid().as_raw();
    if !is_ours || status.mode() & 0o022 != 0 {
        return Err(MemoryError::Foreign(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    let damaged = || MemoryError::Damaged(path.to_owned());
    let (head, records) = Head::ref_from_prefix(&bytes).map_err(|_| damaged())?;
    if head.magic != MAGIC {
        return Err(damaged());
    }
    if head.version.get() != VERSION || head.indef != this_indef() {
        return Err(MemoryError::OtherVersion(path.to_owned()));
    }
    if bytes.len() as u64 > LONGEST || head.as_bytes() != Head::new(records).as_bytes() {
        return Err(damaged());
    }
    let records = <[Record]>::ref_from_bytes(records).map_err(|_| damaged())?;
    Ok(records.iter().map(Record::findings).collect())
}

/// Neither a link is followed nor a FIFO waited for.
fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

fn write_to(folder: &Path, path: &Path, findings: &[(Evidence, Findings)]) -> io::Result<()> {
    if findings.is_empty() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let records: Vec<Record> = findings
        .iter()
        .map(|(evidence, findings)| Record::new(evidence, findings))
        .collect();
    // Of mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(Head::new(records.as_bytes()).as_bytes())?;
    file.write_all(records.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Remove the oldest memories until the rest has at most so many bytes, and what killed scans left.
fn shorten(folder: &Path, most: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let status = entry.metadata()?;
        if status.is_file() {
            files.push((status.modified()?, status.len(), entry.path()));
        }
    }
    files.sort_by(|a, b| b.cmp(a));
    let mut bytes = 0;
    for (modified, len, path) in files {
        bytes += len;
        let is_unfinished = path
            .file_name()
            .is_some_and(|name| name.as_bytes()[0] == b'.')
            && SystemTime::now()
                .duration_since(modified)
                .is_ok_and(|age| age > UNFINISHED);
        if bytes > most || is_unfinished {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
