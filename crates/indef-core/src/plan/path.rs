//! Paths in JSON.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::path::{PathError, path_of};

/// A path in JSON: readable text, and its bytes where the text cannot hold them.
/// Flatten it into the object that has the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathJson {
    /// The path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The path in base64, only if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
}

impl From<&Path> for PathJson {
    fn from(path: &Path) -> Self {
        Self {
            path: path.to_string_lossy().into_owned(),
            path_bytes: path
                .to_str()
                .is_none()
                .then(|| STANDARD.encode(path.as_os_str().as_bytes())),
        }
    }
}

impl PathJson {
    /// The original path.
    ///
    /// # Errors
    ///
    /// The fault of it: empty, bad base64, or with a zero byte inside.
    pub fn to_path(&self) -> Result<PathBuf, PathError> {
        let bytes = match &self.path_bytes {
            None => self.path.clone().into_bytes(),
            Some(text) => STANDARD.decode(text).map_err(|_| PathError::Base64)?,
        };
        path_of(bytes)
    }
}
