//! The lab's temporary folders.

use std::path::Path;

use crate::LabError;

/// Begins their names.
pub(crate) const PREFIX: &str = "indef-lab-";

/// A temporary folder for archive, disks and sockets (whose paths may not be long).
pub(crate) fn scratch() -> Result<tempfile::TempDir, LabError> {
    tempfile::Builder::new()
        .prefix(PREFIX)
        .tempdir()
        .map_err(LabError::at(&std::env::temp_dir()))
}

/// Whether this can only be one of them.
pub(crate) fn is_ours(folder: &Path) -> bool {
    folder
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with(PREFIX))
        && folder.parent() == Some(std::env::temp_dir().as_path())
}
