//! The kind of a shared guest, and the file from which its keeper starts it.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Kernel, LabError};

/// Names the folder of the guests.
pub(super) const VARIABLE: &str = "INDEF_GUESTS";

/// The folder of the guests, if the environment names one.
pub(super) fn folder() -> Option<PathBuf> {
    env::var_os(VARIABLE).map(PathBuf::from)
}

/// The properties of a guest that are settled when it boots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) kernel: Kernel,
    /// The folder of the cache that the kernel is from.
    pub(crate) cache: PathBuf,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    /// Bytes of each of its disks.
    pub(crate) disks: Vec<u64>,
    pub(crate) kernel_arguments: Vec<String>,
    /// More arguments for QEMU.
    pub(crate) more: Vec<OsString>,
    /// Modules that it has beside the usual ones.
    pub(crate) modules: BTreeSet<String>,
    /// Modules in place of the kernel's.
    pub(crate) replace: Vec<(String, PathBuf)>,
}

impl Spec {
    /// The name of the guests of this kind.
    pub(super) fn kind(&self) -> Result<String, LabError> {
        let hash = Sha256::digest(to_json(self)?);
        let hash: String = hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let series = self.kernel.release().name().replace('.', "_");
        Ok(format!("{series}-{hash}"))
    }
}

/// A guest to be started: its kind, and the files of its first command, which it gets while it boots.
#[derive(Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) spec: Spec,
    pub(super) copy: Vec<PathBuf>,
    pub(super) with_tools: bool,
}

impl Start {
    /// Its file. The guest of this name was started if it exists.
    pub(super) fn path(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}.spec"))
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), LabError> {
        fs::write(path, to_json(self)?).map_err(LabError::at(path))
    }

    pub(super) fn read(path: &Path) -> Result<Self, LabError> {
        let text = fs::read(path).map_err(LabError::at(path))?;
        serde_json::from_slice(&text)
            .map_err(|error| LabError::Request(format!("{}: {error}", path.display())))
    }
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, LabError> {
    serde_json::to_vec(value).map_err(|error| LabError::Request(error.to_string()))
}
