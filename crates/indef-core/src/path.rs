//! Paths that were read from a plan or a profile.

use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

/// A fault of a path that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// A percent sign alone.
    #[error("'%' in a path must be followed by two hexadecimal digits")]
    Escape,
    /// Bytes in another encoding.
    #[error("path_bytes is not base64")]
    Base64,
    /// No word where the path should be.
    #[error("the path is missing")]
    Missing,
    /// No bytes.
    #[error("the path is empty")]
    Empty,
    /// A byte that no path has.
    #[error("the path has a zero byte")]
    ZeroByte,
}

/// The path with these bytes.
pub(crate) fn path_of(bytes: Vec<u8>) -> Result<PathBuf, PathError> {
    if bytes.is_empty() {
        return Err(PathError::Empty);
    }
    if bytes.contains(&0) {
        return Err(PathError::ZeroByte);
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}
