//! The paths that a walk was given.

use std::{
    collections::HashSet,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use indef_core::SkipReason;
use indef_fs::Mounts;
use rustix::{
    fs::{AtFlags, CWD, FileType, Statx, StatxFlags, statx},
    io::Errno,
};
use units::Bytes;

use super::{
    counts::count,
    directory::{Directory, Given, Node, RootedPath, open_directory},
    walker::{Walker, identity, is_pseudo},
};

/// The files and directories that the paths lead to. Paths that cannot be looked at are left out
/// here and reported when their turn comes.
pub(super) fn identities(paths: &[PathBuf]) -> HashSet<(u64, u64)> {
    if paths.len() < 2 {
        // One path is never met again below itself.
        return HashSet::new();
    }
    paths
        .iter()
        .filter_map(|path| follow(path).ok())
        .map(|status| identity(&status))
        .collect()
}

/// Look at the file that the path leads to, through symbolic links.
fn follow(path: &Path) -> Result<Statx, Errno> {
    statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS)
}

/// The absolute path of an open directory, through no symbolic link, where the kernel tells it (proc(5)).
fn opened_path(directory: impl AsFd) -> Option<PathBuf> {
    let number = directory.as_fd().as_raw_fd();
    let path = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    path.is_absolute().then_some(path)
}

impl Walker<'_, '_> {
    /// Look at a given path: a file is handed over, a directory is returned open.
    pub(super) fn root(&mut self, given: &Path) -> Option<Arc<Directory>> {
        let walk = self.walk;
        let status = match follow(given) {
            Ok(status) => status,
            Err(errno) => {
                walk.failed(given.to_owned(), "look at the path", errno);
                return None;
            }
        };
        if !walk.is_first(identity(&status)) {
            return None;
        }
        match FileType::from_raw_mode(status.stx_mode.into()) {
            FileType::Directory if walk.options.select.is_of_files() => {
                walk.problem(given.to_owned(), SkipReason::NotRegular.into());
                None
            }
            FileType::Directory => self.root_directory(given, &status),
            FileType::RegularFile => {
                // Whoever opens the path later does not follow a symbolic link in its last part.
                let path = match std::fs::read_link(given) {
                    Ok(_) => std::fs::canonicalize(given).unwrap_or_else(|_| given.to_owned()),
                    Err(_) => given.to_owned(),
                };
                self.root_file(given, path, &status);
                None
            }
            _ => {
                walk.problem(given.to_owned(), SkipReason::NotRegular.into());
                None
            }
        }
    }

    /// A regular file that was given by its path, with the same path if its last part is no link.
    fn root_file(&mut self, given: &Path, path: PathBuf, status: &Statx) {
        let walk = self.walk;
        let parent = path.parent().unwrap_or(Path::new(""));
        let found = walk.roots.get(parent, Mounts::Stay).and_then(|root| {
            let name = path.file_name().ok_or(SkipReason::NotRegular)?;
            Ok((root.find(Path::new(name))?, root))
        });
        let (entry, root) = match found {
            Ok(found) => found,
            Err(refusal) => return walk.problem(path, refusal),
        };
        let id = entry.id();
        if (id.dev, id.inode) != identity(status) {
            return count(&walk.counts.vanished);
        }
        let select = &walk.options.select;
        let opened = || Some(opened_path(&*root)?.join(path.file_name()?));
        if select.leaves_given(given, &select.absolute(given, opened), false) {
            return count(&walk.counts.excluded_files);
        }
        if select.is_too_small(Bytes(status.stx_size)) {
            return count(&walk.counts.small);
        }
        let root_len = parent.as_os_str().len();
        self.file(entry, RootedPath { path, root_len }, status, None);
    }

    fn root_directory(&self, path: &Path, status: &Statx) -> Option<Arc<Directory>> {
        let walk = self.walk;
        let (dev, inode) = identity(status);
        let root = match walk.roots.get(path, Mounts::Stay) {
            Ok(root) => root,
            Err(refusal) => {
                walk.problem(path.to_owned(), refusal);
                return None;
            }
        };
        if (root.id().dev, root.id().inode) != (dev, inode) {
            walk.problem(path.to_owned(), SkipReason::Changed.into());
            return None;
        }
        let select = &walk.options.select;
        let absolute = select.absolute(path, || opened_path(&*root));
        if select.leaves_given(path, &absolute, true) {
            count(&walk.counts.excluded_directories);
            return None;
        }
        let fd = match open_directory(&*root, c".") {
            Ok(fd) => fd,
            Err(errno) => {
                walk.failed(path.to_owned(), "open the directory", errno);
                return None;
            }
        };
        let node = Node::root(path.as_os_str(), dev, inode);
        let given = Arc::new(Given {
            len: path.as_os_str().len(),
            absolute,
        });
        match self.tree(&node, &fd, path, given) {
            Ok(tree) if is_pseudo(tree.known.fs.kind) => {
                walk.problem(path.to_owned(), SkipReason::NoEngine.into());
                None
            }
            Ok(tree) => {
                count(&walk.counts.directories);
                Some(Arc::new(Directory::new(node, tree, fd, &walk.open)))
            }
            Err(refusal) => {
                walk.problem(path.to_owned(), refusal);
                None
            }
        }
    }
}
