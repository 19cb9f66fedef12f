//! Overlays (containers): the folders of other file systems in which the files of a merged folder lie.
//!
//! An overlay has no blocks: its files are read from its layers, and the programs see them there. The
//! layers stand in the options of the mount (Documentation/filesystems/overlayfs.rst, v6.18).

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::mounts::{Mount, unescape};

/// Whether the files of a mount lie in layers.
pub(super) fn is_overlay(mount: &Mount) -> bool {
    mount.fs_type == "overlay"
}

/// The files or folders of the layers that are merged at `path`, which is on `mount`. One that does
/// not exist (yet), or is not visible here, is left out.
pub(super) fn beneath(mount: &Mount, path: &Path) -> Vec<PathBuf> {
    let inside = path.strip_prefix(&mount.point).unwrap_or(Path::new(""));
    // A bind mount shows a part of the overlay.
    let root = mount.root.strip_prefix("/").unwrap_or(&mount.root);
    layers(&mount.options)
        .into_iter()
        .flat_map(|layer| [layer.clone(), without_backslashes(&layer)])
        .map(|layer| layer.join(root).join(inside))
        .filter(|place| place.is_absolute() && is_there(place))
        .collect()
}

/// A link in a layer does not lead out of the overlay.
fn is_there(place: &Path) -> bool {
    fs::symlink_metadata(place).is_ok_and(|found| !found.is_symlink())
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
