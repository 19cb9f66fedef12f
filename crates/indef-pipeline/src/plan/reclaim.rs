//! Plans that give space back: whether the file systems can tell what no file reaches.

use std::{io, path::PathBuf};

use indef_fs::{FsKind, can_reclaim, partly_reached};
use rustix::fs::syncfs;

use crate::{
    error::Error,
    geometry::file_system,
    note::{Note, Notes},
    opened::directory,
};

/// The inode of every Btrfs subvolume's root directory.
const ROOT_INODE: u64 = 256;

/// Write the file systems of the paths back, as their trees have only what is, and make sure that
/// the trees may be read. Paths that cannot be opened are reported by the walk.
///
/// # Errors
///
/// [`Error::UnreachableUntold`]: only root may. [`Error::ReclaimNeedsKernel`]: this one is too old.
pub(super) fn prepare(paths: &[PathBuf], notes: &dyn Notes) -> Result<(), Error> {
    for path in paths {
        let Some(fs) = file_system(path) else {
            continue;
        };
        if fs.kind != FsKind::Btrfs {
            notes.note(Note::NothingUnreachable {
                path,
                kind: fs.kind,
            });
            continue;
        }
        if !can_reclaim(&fs) {
            return Err(Error::ReclaimNeedsKernel { path: path.clone() });
        }
        let Some(directory) = directory(path) else {
            continue;
        };
        let told = partly_reached(fs.kind, &directory, ROOT_INODE);
        if told.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return Err(Error::UnreachableUntold { path: path.clone() });
        }
        if let Err(error) = syncfs(&directory) {
            tracing::debug!(path = %path.display(), %error, "could not be written back");
        }
    }
    Ok(())
}
