//! The durable data at the place of a walk, and the states that are made of it.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::fs::FallocateFlags;

use crate::{
    record::{RecordError, RecordHeader},
    store::{Change, FileOptions, Store},
};

/// The kind of file that holds a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The bytes of the only namespace, which has no zones.
    Image,
    /// A device's backing file ([`FileOptions`](crate::store::FileOptions)), whatever namespaces
    /// there are.
    Store,
}

/// The bytes of namespaces in a file, in one of its [`Form`]s.
#[derive(Debug)]
pub(super) enum Base {
    Image(File, PathBuf),
    Store(Store, PathBuf),
}

impl Base {
    /// An empty one in a file that is not there yet.
    pub(super) fn new(path: &Path, form: Form, header: &RecordHeader) -> Result<Self, RecordError> {
        let file = File::create_new(path).map_err(|source| RecordError::io(path, source))?;
        if form == Form::Image {
            let size = header.namespaces.iter().map(|kind| kind.size_bytes).sum();
            file.set_len(size)
                .map_err(|source| RecordError::io(path, source))?;
        }
        Self::open(path, file, form, header)
    }

    fn open(
        path: &Path,
        file: File,
        form: Form,
        header: &RecordHeader,
    ) -> Result<Self, RecordError> {
        let path = path.to_owned();
        if form == Form::Image {
            return Ok(Self::Image(file, path));
        }
        let options = FileOptions {
            path: path.clone(),
            sparse: true,
            host_sync: false,
        };
        // Without a cache: the data that is written to it was chosen to be there.
        let (store, _) = Store::open(&options, &header.namespaces, 0, &header.profile)?;
        Ok(Self::Store(store, path))
    }

    /// The same in another file that is not there yet.
    pub(super) fn copy(&self, to: &Path, header: &RecordHeader) -> Result<Self, RecordError> {
        let failed = |source| RecordError::io(to, source);
        let (form, path) = match self {
            Self::Image(_, path) => (Form::Image, path),
            Self::Store(_, path) => (Form::Store, path),
        };
        let file = File::create_new(to).map_err(failed)?;
        let from = File::open(path).map_err(|source| RecordError::io(path, source))?;
        if rustix::fs::ioctl_ficlone(&file, &from).is_err() {
            fs::copy(path, to).map_err(failed)?;
        }
        Self::open(to, file, form, header)
    }

    /// Change the namespace with this index.
    pub(super) fn apply(&self, namespace: usize, change: &Change<'_>) -> Result<(), RecordError> {
        match self {
            Self::Store(store, _) => Ok(store.namespaces[namespace].apply(change)?),
            Self::Image(file, path) => match *change {
                Change::Write { offset, data, .. } => file.write_all_at(data, offset),
                Change::Zero { offset, len, .. } => zero(file, offset, len),
                Change::Flush | Change::Zone { .. } => Ok(()),
            }
            .map_err(|source| RecordError::io(path, source)),
        }
    }

    /// Have all of it in the file: a zone's end is noted there when it is flushed.
    pub(super) fn finish(&self) -> Result<(), RecordError> {
        if let Self::Store(store, _) = self {
            for namespace in &store.namespaces {
                namespace.flush()?;
            }
        }
        Ok(())
    }
}

fn zero(file: &File, offset: u64, len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, mode, offset, len)?)
}
