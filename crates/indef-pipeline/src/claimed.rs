//! Whether a run works on a file system now.

use std::path::PathBuf;

use indef_engine::claim::{ClaimError, holder};
use indef_fs::FileSystemKey;
use rustix::fs::{Mode, OFlags, open};

use crate::{error::Error, geometry::one_on_each};

/// Check whether another run works on the file systems of the given paths: better before a long
/// walk than after it.
///
/// # Errors
///
/// Another run does.
pub fn is_free(paths: &[PathBuf]) -> Result<(), Error> {
    for path in one_on_each(paths) {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let key = open(path, flags, Mode::empty())
            .map_err(std::io::Error::from)
            .and_then(FileSystemKey::of);
        // A path that cannot be examined is reported by the walk.
        let Ok(key) = key else { continue };
        if let Ok(Some(holder)) = holder(&[key]) {
            return Err(Error::Claimed {
                path: Some(path.clone()),
                why: ClaimError::Held(holder),
            });
        }
    }
    Ok(())
}
