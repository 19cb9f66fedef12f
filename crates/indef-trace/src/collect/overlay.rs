//! Overlays (containers): the folders of other file systems in which the files of a merged folder lie.
//!
//! An overlay has no blocks: its files are read from its layers, and the programs see them there. The
//! layers stand in the options of the mount (Documentation/filesystems/overlayfs.rst, v6.18).

use std::{
    ffi::OsString,
    fs::{self, File, Metadata},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
    mount::{OpenTreeFlags, open_tree},
};

use crate::mounts::{Mount, holding, unescape};

/// Overlays lie on overlays at most so deep (`FILESYSTEM_MAX_STACK_DEPTH`, include/linux/fs.h, v6.1).
const STACKED: u32 = 2;

/// The places in its layers of what a path leads to.
#[derive(Debug, Default)]
pub(super) struct Layers {
    pub(super) found: Vec<Metadata>,
    /// Layers that may be there and cannot be looked at: below other mounts, or in a folder that is closed to this user.
    pub(super) hidden: Vec<PathBuf>,
}

/// The places of a path without links in the layers of its overlay, and in theirs where these lie on overlays; `None` if it
/// is on none.
pub(super) fn beneath(mounts: &[Mount], path: &Path) -> Option<Layers> {
    let mount = holding(mounts, path).filter(|mount| is_overlay(mount))?;
    let inside = path.strip_prefix(&mount.point).unwrap_or(Path::new(""));
    let mut layers = Layers::default();
    descend(mounts, mount, inside, STACKED, &mut layers);
    Some(layers)
}

/// Whether the files of a mount lie in layers.
pub(super) fn is_overlay(mount: &Mount) -> bool {
    mount.fs_type == "overlay"
}

/// Find the files or folders of the layers that are merged at `inside` of a mount. One that does not exist (yet), or whose
/// layer is nowhere here, is left out.
fn descend(mounts: &[Mount], overlay: &Mount, inside: &Path, stacked: u32, layers: &mut Layers) {
    // A bind mount shows a part of the overlay.
    let root = overlay.root.strip_prefix("/").unwrap_or(&overlay.root);
    for named in self::layers(&overlay.options) {
        let plain = without_backslashes(&named);
        let is_plain = plain == named;
        for layer in [Some(named), (!is_plain).then_some(plain)] {
            let Some(layer) = layer.filter(|layer| layer.is_absolute()) else {
                continue;
            };
            let layer = fs::canonicalize(&layer).unwrap_or(layer);
            let mut is_hidden = false;
            for mount in mounts_of_layer(mounts, overlay, &layer) {
                let place = layer.strip_prefix(&mount.point).unwrap_or(Path::new(""));
                let place = joined(&joined(place, root), inside);
                match look(mounts, mount, &place) {
                    Ok(status) => layers.found.push(status),
                    Err(error) => {
                        is_hidden |= !is_absence(error);
                        continue;
                    }
                }
                if stacked > 1 && is_overlay(mount) {
                    descend(mounts, mount, &place, stacked - 1, layers);
                }
                is_hidden = false;
                break;
            }
            if is_hidden {
                layers.hidden.push(layer);
            }
        }
    }
}

/// The mounts in which a layer may lie, the likelier one first: the one to which its path led when the overlay was mounted, and
/// the one to which it leads now. These are two where the overlay covers its own layer, or where something was mounted on it
/// since then, which is no part of the overlay. The table is in the order of mounting, but for a copied namespace: what comes
/// before the overlay there may be another mount, in which the layer is not.
fn mounts_of_layer<'m>(
    mounts: &'m [Mount],
    overlay: &Mount,
    layer: &Path,
) -> impl Iterator<Item = &'m Mount> {
    let earlier = mounts.iter().position(|mount| mount.id == overlay.id);
    let then = holding(&mounts[..earlier.unwrap_or(mounts.len())], layer);
    let now = holding(mounts, layer).filter(|now| now.sb_dev != overlay.sb_dev);
    let now = now.filter(|now| then.is_none_or(|then| then.id != now.id));
    then.into_iter().chain(now)
}

/// What lies at a place in a mount, whatever is mounted there. A link in a layer does not lead out of the overlay: it is no
/// place.
fn look(mounts: &[Mount], mount: &Mount, place: &Path) -> rustix::io::Result<Metadata> {
    if let Some(found) = look_in_sight(mounts, mount, place) {
        return found;
    }
    let wanted = joined(&mount.root, place);
    let mut refused = Errno::XDEV;
    // Any mount of the same file system shows it: nothing is mounted on a copy of it.
    for other in mounts.iter().filter(|other| other.sb_dev == mount.sb_dev) {
        let Ok(place) = wanted.strip_prefix(&other.root) else {
            continue;
        };
        if holding(mounts, &other.point).is_none_or(|on_top| on_top.id != other.id) {
            continue;
        }
        let in_sight = look_in_sight(mounts, other, place);
        match in_sight.unwrap_or_else(|| look_bare(&other.point, place)) {
            Err(error) if !is_absence(error) => refused = error,
            found => return found,
        }
    }
    Err(refused)
}

/// An answer: nothing lies there that is a part of the overlay.
fn is_absence(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// What lies at a place in a mount; `None` where that is below another one.
fn look_in_sight(
    mounts: &[Mount],
    mount: &Mount,
    place: &Path,
) -> Option<rustix::io::Result<Metadata>> {
    let path = joined(&mount.point, place);
    let is_in_sight = holding(mounts, &path).is_some_and(|on_top| on_top.id == mount.id);
    is_in_sight.then(|| no_link(fs::symlink_metadata(path)))
}

/// What lies at a place in the mount at `point`, with nothing mounted on it: `CAP_SYS_ADMIN`, and Linux 5.6.
fn look_bare(point: &Path, place: &Path) -> rustix::io::Result<Metadata> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let bare = open_tree(CWD, point, clone)?;
    let found = match place.as_os_str().is_empty() {
        true => bare,
        false => openat2(
            bare,
            place,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        )?,
    };
    no_link(File::from(found).metadata())
}

fn no_link(status: io::Result<Metadata>) -> rustix::io::Result<Metadata> {
    match status {
        Ok(status) if status.is_symlink() => Err(Errno::LOOP),
        Ok(status) => Ok(status),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// Without a slash at the end where there is nothing to join.
fn joined(path: &Path, more: &Path) -> PathBuf {
    match more.as_os_str().is_empty() {
        true => path.to_owned(),
        false => path.join(more),
    }
}

/// The layers as the options name them.
fn layers(options: &[u8]) -> Vec<PathBuf> {
    let mut layers = Vec::new();
    for option in options.split(|byte| *byte == b',') {
        let option = unescape(option);
        let Some(at) = option.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (name, value) = (&option[..at], &option[at + 1..]);
        match name {
            b"upperdir" | b"lowerdir+" | b"datadir+" => layers.push(value.to_vec()),
            b"lowerdir" => layers.extend(split(value)),
            _ => {}
        }
    }
    let paths = layers.into_iter().filter(|layer| !layer.is_empty());
    paths
        .map(|layer| OsString::from_vec(layer).into())
        .collect()
}

/// Split at colons, but not at those with a backslash before them.
fn split(value: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        let part = parts.last_mut().expect("there is always one");
        match byte {
            b':' => parts.push(Vec::new()),
            b'\\' => {
                part.push(*byte);
                part.extend(bytes.next());
            }
            _ => part.push(*byte),
        }
    }
    parts
}

/// A backslash keeps its meaning as an escape in some of the options, depending on the kernel.
fn without_backslashes(path: &Path) -> PathBuf {
    let mut plain = Vec::new();
    let mut bytes = path.as_os_str().as_bytes().iter();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => *bytes.next().unwrap_or(byte),
            _ => *byte,
        });
    }
    OsString::from_vec(plain).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(options: &[u8]) -> Vec<String> {
        let layers = layers(options);
        layers
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn layers_are_read_from_the_options() {
        let options = b"rw,lowerdir=/l\\040one:/l2::/data,upperdir=/up,workdir=/work,index=off";
        assert_eq!(names(options), ["/l one", "/l2", "/data", "/up"]);
        assert_eq!(
            names(b"ro,lowerdir+=/a,lowerdir+=/b:c,datadir+=/d"),
            ["/a", "/b:c", "/d"]
        );
        assert_eq!(names(b"rw,lowerdir=/x\\134:y:/z\\054"), ["/x\\:y", "/z,"]);
        assert_eq!(without_backslashes(Path::new("/x\\:y")), Path::new("/x:y"));
        assert_eq!(names(b"rw,errors=continue,lowerdir="), Vec::<String>::new());
    }
}
