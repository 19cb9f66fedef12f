//! The services that a run needs from the system, as a trait so that tests can simulate them.

use std::io;

use indef_fs::{
    EngineKind, EngineOptions, Filesystem, FsError, Mapper, RangeCopier, Refusal, Relocator, Roots,
    Space, Target, blocks_collected, detect, map, partly_reached, relocator,
};
use units::FileRange;

use indef_core::{
    SkipReason,
    layout::{HeldExtent, Layout},
};

use super::job::FileJob;
use crate::Copier;

/// Files, maps and engines.
pub(super) trait Backend: Sync {
    fn open(&self, job: &FileJob) -> Result<Target, Refusal>;
    fn file_system(&self, target: &Target) -> Result<Filesystem, FsError>;
    fn relocator(
        &self,
        kind: EngineKind,
        fs: &Filesystem,
        options: &EngineOptions,
    ) -> Result<Box<dyn Relocator>, Refusal>;
    fn map(
        &self,
        target: &Target,
        range: FileRange,
        sync: bool,
        mapper: &mut Mapper,
    ) -> Result<Layout, Refusal>;
    /// The extents that the file reaches only in part, as far as it is written back.
    fn held(&self, target: &Target) -> Result<Vec<HeldExtent>, Refusal>;
    fn space(&self, target: &Target) -> io::Result<Space>;
    /// Blocks that the file system has moved by itself, to collect garbage; `None` where it does not tell.
    fn collected(&self, fs: &Filesystem) -> Option<u64>;
    /// Write the file system back, upon which what was given up is free.
    fn commit(&self, target: &Target) -> io::Result<()>;
    fn copier(&self, queue_depth: u32) -> Box<dyn RangeCopier>;
}

/// The real system.
pub(super) struct Kernel<'a> {
    pub(super) roots: &'a Roots,
    /// Files are opened for reading only: nobody is told that they were written, and no program fails to start.
    pub(super) only_looks: bool,
}

impl Backend for Kernel<'_> {
    fn open(&self, job: &FileJob) -> Result<Target, Refusal> {
        let (root, below) = job.place.as_ref().ok_or(SkipReason::Changed)?;
        let root = self.roots.get(root, job.mounts)?;
        let expected = Some((job.id, job.born));
        let mut target = match self.only_looks {
            true => Target::look_beneath(&root, below, expected)?,
            false => Target::open_beneath(&root, below, expected)?,
        };
        target.named.clone_from(&job.named);
        Ok(target)
    }

    fn file_system(&self, target: &Target) -> Result<Filesystem, FsError> {
        detect(&target.file, &target.path)
    }

    fn relocator(
        &self,
        kind: EngineKind,
        fs: &Filesystem,
        options: &EngineOptions,
    ) -> Result<Box<dyn Relocator>, Refusal> {
        relocator(kind, fs, options)
    }

    fn map(
        &self,
        target: &Target,
        range: FileRange,
        sync: bool,
        mapper: &mut Mapper,
    ) -> Result<Layout, Refusal> {
        map(&target.file, &target.path, range, sync, mapper)
    }

    fn held(&self, target: &Target) -> Result<Vec<HeldExtent>, Refusal> {
        let kind = self.file_system(target)?.kind;
        partly_reached(kind, &target.file, target.id.inode).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => SkipReason::NotPermitted.into(),
            _ => FsError::new(&target.path, "look at its extents", error).into(),
        })
    }

    fn space(&self, target: &Target) -> io::Result<Space> {
        Space::of(&target.file)
    }

    fn collected(&self, fs: &Filesystem) -> Option<u64> {
        blocks_collected(fs)
    }

    fn commit(&self, target: &Target) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&target.file)?)
    }

    fn copier(&self, queue_depth: u32) -> Box<dyn RangeCopier> {
        Box::new(Copier::new(queue_depth))
    }
}
