//! Files in folders of indef's state, which are ours alone: read with care all the same, and replaced in one step.

use std::{
    fs, io,
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, open},
    process::geteuid,
};

/// A file, as it was found.
pub(crate) enum Found {
    /// There is none.
    None,
    /// It is no file of ours, or longer than any of ours.
    Foreign,
    /// Its bytes.
    Bytes(Vec<u8>),
}

/// Read a file of at most so many bytes.
pub(crate) fn read(path: &Path, longest: u64) -> io::Result<Found> {
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

/// Make or find a folder, and open it; `None` if it is not ours alone.
pub(crate) fn own_folder(path: &Path) -> io::Result<Option<fs::File>> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // A link is not followed.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::File::from(open(path, flags, Mode::empty())?);
    let status = folder.metadata()?;
    let is_ours = status.uid() == geteuid().as_raw() && status.mode() & 0o022 == 0;
    Ok(is_ours.then_some(folder))
}

/// Replace a file: a kill or a power cut leaves the old one or the new one.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
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
    let placed = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        // A full disk is not to be filled with it.
        let _ = fs::remove_file(&beside);
    }
    placed?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write(&path, b"1").unwrap();
        write(&path, b"2").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(write(&path, b"3").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
