//! Plans that give space back: whether the file systems can tell what no file reaches.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use indef_fs::{FsKind, Mounts, Root, Roots, can_reclaim, detect, partly_reached, reopen};
use rustix::fs::{OFlags, syncfs};

use crate::{
    error::Error,
    geometry::one_on_each,
    note::{Note, Notes},
};

/// The inode of every Btrfs subvolume's root directory.
const ROOT_INODE: u64 = 256;

/// Write the file systems of the paths back, as their trees have only what is, and make sure that
/// the trees may be read. The paths are resolved here, for the walk as well, which reports those that cannot be.
///
/// # Errors
///
/// [`Error::UnreachableUntold`]: only root may. [`Error::ReclaimNeedsKernel`]: this one is too old.
pub(super) fn prepare(roots: &Roots, paths: &[PathBuf], notes: &dyn Notes) -> Result<(), Error> {
    for path in one_on_each(paths) {
        let Some(root) = root(roots, path) else {
            continue;
        };
        let Ok(fs) = detect(&*root, path) else {
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
        let Ok(directory) = reopen(&*root, OFlags::RDONLY | OFlags::DIRECTORY) else {
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

/// The directory at a given path, or that of the file there, as the walk resolves it.
fn root(roots: &Roots, path: &Path) -> Option<Arc<Root>> {
    let of_file = |_| {
        let path = match path.read_link() {
            Ok(_) => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
            Err(_) => path.to_owned(),
        };
        roots.get(path.parent().unwrap_or(Path::new("")), Mounts::Stay)
    };
    roots.get(path, Mounts::Stay).or_else(of_file).ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn given_paths_are_resolved_once() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second, given] = ["first", "second", "given"].map(|name| dir.path().join(name));
        for directory in [&first, &second] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("file"), "content").unwrap();
        }
        symlink(&first, &given).unwrap();
        let roots = Roots::new();
        let paths = [given.clone(), given.join("file")];
        prepare(&roots, &paths, &()).unwrap();
        fs::remove_file(&given).unwrap();
        symlink(&second, &given).unwrap();
        let id = Root::open(&first, Mounts::Stay).unwrap().id();
        assert_eq!(roots.get(&given, Mounts::Stay).unwrap().id(), id);
    }
}
