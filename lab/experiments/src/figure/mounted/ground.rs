//! The device of a figure, and the file systems on it.

use std::path::{Path, PathBuf};

use stage::{Fs, Stage, StageError};
use tempfile::{NamedTempFile, TempPath};
use units::Bytes;

pub(super) use super::super::error::Failed;
use super::super::{error::FigureError, parameters::Parameters};

/// A profile of flashd that takes no time.
const NO_TIME: &str = "zero";

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Ground {
    /// A profile of flashd.
    device: String,
    time_scale: f64,
    /// The size of the device.
    disk: Bytes,
    /// Of each contender.
    pub(super) runs: u64,
    /// Where mount points and images lie.
    folder: PathBuf,
    pub(super) indef: PathBuf,
}

/// A file system with its files, of which each contender gets a copy; gone when it is dropped.
pub(super) struct Image {
    kind: Fs,
    file: TempPath,
}

impl Ground {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        let folder = source_tree::target().join("experiments");
        let name = folder.display().to_string();
        std::fs::create_dir_all(&folder).map_err(FigureError::machine(name))?;
        let indef = source_tree::release_binary("indef");
        Ok(Self {
            device: parameters.text("device")?.to_owned(),
            time_scale: parameters.count("time_scale")? as f64,
            disk: Bytes(parameters.bytes("disk")?),
            runs: parameters.count("runs")?,
            folder,
            indef: indef.map_err(FigureError::machine("indef"))?,
        })
    }

    /// A new file system.
    pub(super) fn fresh(&self, kind: Fs) -> Result<Stage, StageError> {
        Stage::new(kind, &self.device, self.disk, &self.folder, self.time_scale)
    }

    /// A file system on which `age` makes files, and what it returns. The device takes no time meanwhile: how the files
    /// come to lie is the file system's affair, and nobody has to wait for a slow one.
    pub(super) fn aged<T>(
        &self,
        kind: Fs,
        age: impl FnOnce(&Path) -> Result<T, Failed>,
    ) -> Result<(Image, T), Failed> {
        let stage = Stage::new(kind, NO_TIME, self.disk, &self.folder, 1.0)?;
        let result = age(&stage.path())?;
        let file = NamedTempFile::new_in(&self.folder)?.into_temp_path();
        stage.into_image(&file)?;
        Ok((Image { kind, file }, result))
    }

    /// A copy of an image on the device.
    pub(super) fn copy(&self, image: &Image) -> Result<Stage, StageError> {
        Stage::copy_of(
            image.kind,
            &image.file,
            &self.device,
            &self.folder,
            self.time_scale,
        )
    }

    /// The act that begins, for a person.
    pub(super) fn what(&self, kind: Fs, run: u64, act: &str) -> String {
        format!(
            "{} on {} at 1/{} of its speed, run {run} of {}: {act}",
            kind.name(),
            self.device,
            self.time_scale,
            self.runs
        )
    }
}
