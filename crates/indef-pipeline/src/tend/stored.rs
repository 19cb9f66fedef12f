//! Files in the folder of the service, which is ours alone: read with care all the same, and replaced in one step.

use std::{
    fs, io,
    io::{Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, process::geteuid};

/// A file, as it was found.
pub(super) enum Found {
    /// There is none.
    None,
    /// It is no file of ours, or longer than any of ours.
    Foreign,
    /// Its bytes.
    Bytes(Vec<u8>),
}

/// Read a file of at most so many bytes.
pub(super) fn read(path: &Path, longest: u64) -> io::Result<Found> {
    // Neither a link is followed nor a FIFO waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    let file = match file {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::None),
        file => file?,
    };
    let status = file.metadata()?;
    let is_ours = status.is_file() && status.uid() == geteuid().as_raw();
    if !is_ours || status.mode() & 0o022 != 0 || status.len() > longest {
        return Ok(Found::Foreign);
    }
    let mut bytes = Vec::new();
    file.take(longest).read_to_end(&mut bytes)?;
    Ok(Found::Bytes(bytes))
}

/// Replace a file: a kill or a power cut leaves the old one or the new one.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    // Always the same name, so that a kill leaves one at most. The folder is ours alone.
    let beside = path.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    fs::File::open(folder)?.sync_all()
}
