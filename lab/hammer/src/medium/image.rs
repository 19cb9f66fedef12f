//! A device without a volatile cache: a file on the outer XFS.
//!
//! A cut is a clone of the file, which is atomic: it waits for the requests under way and blocks
//! further ones (`xfs_reflink_remap_prep`, fs/xfs/xfs_reflink.c, v6.18).

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};
use rustix::fs::FallocateFlags;

/// See the module. The file goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Image {
    path: PathBuf,
    copies: AtomicU32,
}

impl Image {
    /// Make a new one.
    pub(super) fn new(folder: &Path, size: u64) -> Result<Self> {
        let image = Self::of(folder.join("volume"));
        let file = File::create(&image.path)?;
        file.set_len(size)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size)?;
        Ok(image)
    }

    /// Use an existing one.
    pub(super) fn of(path: PathBuf) -> Self {
        let copies = 0.into();
        Self { path, copies }
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Clone the content of the device at this instant.
    pub(super) fn copy(&self) -> Result<PathBuf> {
        let number = self.copies.fetch_add(1, Ordering::Relaxed);
        let path = self.path.with_extension(format!("cut{number}"));
        let copy = File::create(&path)?;
        rustix::fs::ioctl_ficlone(&copy, File::open(&self.path)?).context("clone the image")?;
        Ok(path)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
