//! F2FS with the patches of `kernel/f2fs`, built as a module for one of Debian's kernels.
//!
//! The module is built out of tree: F2FS's source from Debian's package of the kernel's source, the
//! patches on top, compiled against the kernel's own headers. Source, headers and kernel have to be
//! of one version, as the module uses structures of the NVMe driver that are in no header package.
//!
//! A module is kept in the cache by kernel and by patches: what is there already takes no time, and a
//! changed patch is built anew.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

use crate::{Cache, Kernel, LabError, debian::Packages, error::output_of, programs};

/// What of the kernel's source is needed: the file system, the headers that the patches change, and
/// the NVMe driver's own.
const SOURCES: [&str; 5] = [
    "fs/f2fs",
    "include/uapi/linux/f2fs.h",
    "include/trace/events/f2fs.h",
    "drivers/nvme/host/nvme.h",
    "drivers/nvme/host/trace.h",
];

/// Name and content.
type Patch = (&'static str, &'static [u8]);

/// The patches of a folder of `kernel/f2fs`, in the order in which they are applied. Programs have them in
/// them, so that an installed one needs no source tree.
macro_rules! patches {
    ($($release:literal: $($name:literal)+;)+) => {
        &[$(($release, &[$((
            $name,
            include_bytes!(concat!("../../kernel/f2fs/", $release, "/", $name)),
        )),+])),+]
    };
}

const PATCHES: &[(&str, &[Patch])] = patches! {
    "6.1":
        "0001-f2fs-have-a-log-for-data-that-is-moved-on-request.patch"
        "0002-f2fs-send-copies-to-nvme-namespaces.patch"
        "0003-f2fs-let-the-device-defragment-files.patch"
        "0004-f2fs-leave-what-is-cut-off-with-the-log-for-moved-data.patch"
        "0005-f2fs-have-a-checkpoint-wait-for-data-that-replaces-ol.patch"
        "0006-f2fs-hold-a-file-s-locks-for-its-blocks-not-for-its-h.patch";
    "6.12":
        "0001-f2fs-have-a-log-for-data-that-is-moved-on-request.patch"
        "0002-f2fs-send-copies-to-nvme-namespaces.patch"
        "0003-f2fs-let-the-device-defragment-files.patch"
        "0004-f2fs-leave-what-is-cut-off-with-the-log-for-moved-data.patch"
        "0005-f2fs-have-a-checkpoint-wait-for-data-that-replaces-ol.patch"
        "0006-f2fs-hold-a-file-s-locks-for-its-blocks-not-for-its-h.patch";
};

/// The module for this kernel, from the cache or built now (a minute, and 150 MB over the network).
///
/// # Errors
///
/// [`LabError::Unavailable`] where this machine or its network cannot, else what failed.
pub(crate) fn module(kernel: &Kernel, cache: &Cache) -> Result<PathBuf, LabError> {
    // Compilers are started elsewhere.
    let folder = std::path::absolute(cache.folder()).map_err(LabError::at(cache.folder()))?;
    let cache = &Cache::at(&folder);
    let patches = patches(kernel.release().name())?;
    let folder = cache
        .folder()
        .join(format!("f2fs-{}-{}", kernel.version(), key(patches)));
    let file = folder.join("f2fs.ko");
    if file.exists() {
        return Ok(file);
    }
    let _lock = cache.lock()?;
    // Somebody else may have been faster.
    if file.exists() {
        return Ok(file);
    }
    tracing::info!(
        "building F2FS with offloading for Linux {}",
        kernel.version()
    );
    let work = cache.scratch("f2fs-")?;
    let sources = sources(kernel, cache)?;
    let tree = work.path().join("tree");
    copy(&sources.join("source"), &tree)?;
    for (name, content) in patches {
        apply(name, content, &tree, work.path())?;
    }
    let built = build(kernel, &sources, &tree)?;
    let made = work.path().join("made");
    fs::create_dir(&made).map_err(LabError::at(&made))?;
    fs::copy(&built, made.join("f2fs.ko")).map_err(LabError::at(&built))?;
    fs::rename(&made, &folder).map_err(LabError::at(&folder))?;
    Ok(file)
}

fn patches(release: &str) -> Result<&'static [Patch], LabError> {
    PATCHES
        .iter()
        .find(|(name, _)| *name == release)
        .map(|(_, patches)| *patches)
        .ok_or_else(|| LabError::missing(format!("kernel/f2fs has no patches for Linux {release}")))
}

fn key(patches: &[Patch]) -> String {
    let mut hash = Sha256::new();
    for (_, content) in patches {
        hash.update(content);
    }
    hash.finalize()[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A folder with `source` (of the kernel: [`SOURCES`]) and `root` (headers and build programs). The
/// caller has the cache to itself.
fn sources(kernel: &Kernel, cache: &Cache) -> Result<PathBuf, LabError> {
    let folder = cache.folder().join(format!("source-{}", kernel.version()));
    if folder.exists() {
        return Ok(folder);
    }
    let work = cache.scratch("source-")?;
    let apt = work.path().join("apt");
    let packages = Packages::of(&kernel.release().suites(), &apt)?;
    let made = work.path().join("made");
    let root = made.join("root");
    fs::create_dir_all(&root).map_err(LabError::at(&root))?;
    let headers = format!("linux-headers-{}", kernel.version());
    let version = packages.field(&headers, "Version").map_err(|_| {
        LabError::missing(format!(
            "Debian's archive has no {headers} any more, as there is a newer kernel: delete {} to \
             get that",
            cache.folder().join(kernel.release().name()).display()
        ))
    })?;
    packages.unpack(&headers, &root)?;
    for needed in packages.field(&headers, "Depends")?.split(", ") {
        let name = needed.split(' ').next().unwrap_or_default();
        if name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-") {
            packages.unpack(name, &root)?;
        }
    }
    let source = format!("linux-source-{}", kernel.release().name());
    packages.unpack(&format!("{source}={version}"), &apt.join("root"))?;
    let archive = apt.join(format!("root/usr/src/{source}.tar.xz"));
    let tree = made.join("source");
    fs::create_dir_all(&tree).map_err(LabError::at(&tree))?;
    output_of(
        Command::new("tar")
            .args(["--extract", "--strip-components=1", "--file"])
            .arg(&archive)
            .arg("--directory")
            .arg(&tree)
            .args(SOURCES.map(|name| format!("{source}/{name}"))),
    )?;
    fs::rename(&made, &folder).map_err(LabError::at(&folder))?;
    Ok(folder)
}

/// The headers' makefile names the place where it would be installed.
fn relocate(headers: &Path, root: &Path) -> Result<(), LabError> {
    let path = headers.join("Makefile");
    let makefile = fs::read_to_string(&path).map_err(LabError::at(&path))?;
    let below = makefile
        .rsplit_once("/usr/src/")
        .map_or(makefile.as_str(), |(_, below)| below);
    let here = format!("include {}/usr/src/{below}", root.display());
    fs::write(&path, here).map_err(LabError::at(&path))
}

fn copy(from: &Path, to: &Path) -> Result<(), LabError> {
    output_of(
        Command::new("cp")
            .args(["--recursive", "--no-target-directory"])
            .arg(from)
            .arg(to),
    )?;
    Ok(())
}

fn apply(name: &str, content: &[u8], tree: &Path, work: &Path) -> Result<(), LabError> {
    let path = work.join(name);
    fs::write(&path, content).map_err(LabError::at(&path))?;
    // What it says of hunks that do not apply is on its standard output.
    let patched = output_of(
        Command::new("sh")
            .args([
                "-c",
                "exec \"$@\" >&2",
                "sh",
                "patch",
                "--batch",
                "--forward",
            ])
            .args(["--strip=1", "--no-backup-if-mismatch", "--directory"])
            .arg(tree)
            .arg("--input")
            .arg(&path),
    );
    match patched {
        Ok(_) => Ok(()),
        Err(LabError::Command { output, .. }) if output.contains("not found") => {
            Err(LabError::missing("patch (package patch) is not installed"))
        }
        Err(error) => Err(error),
    }
}

/// Compile; the module comes back.
fn build(kernel: &Kernel, sources: &Path, tree: &Path) -> Result<PathBuf, LabError> {
    for program in ["make", "gcc-12"] {
        if programs::find(Path::new(program)).is_none() {
            return Err(LabError::missing(format!("{program} is not installed")));
        }
    }
    let root = sources.join("root");
    let headers = root.join(format!("usr/src/linux-headers-{}", kernel.version()));
    relocate(&headers, &root)?;
    let module = tree.join("fs/f2fs");
    let include = |below: &str| format!("-I{}", tree.join(below).display());
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("make");
    if programs::find(Path::new("pahole")).is_none() {
        // Without type information: BPF programs cannot look into its structures.
        make.arg("CONFIG_DEBUG_INFO_BTF_MODULES=");
    }
    output_of(
        make.arg(format!("--jobs={jobs}"))
            .arg("--directory")
            .arg(&headers)
            .arg(format!("M={}", module.display()))
            // Our headers go before the packaged ones.
            .arg(format!(
                "NOSTDINC_FLAGS=-nostdinc {} {}",
                include("include"),
                include("include/uapi")
            ))
            // The kernel's own configuration does not know it.
            .args([
                "CONFIG_F2FS_FS_OFFLOAD=y",
                "KCFLAGS=-DCONFIG_F2FS_FS_OFFLOAD=1",
            ])
            .arg("modules")
            .env("LC_ALL", "C"),
    )?;
    let built = module.join("f2fs.ko");
    // As Debian's modules are: 1 MB instead of 20.
    output_of(Command::new("strip").arg("--strip-debug").arg(&built))?;
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_of_the_project_is_here() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/f2fs");
        for (release, patches) in PATCHES {
            let mut names: Vec<_> = fs::read_dir(folder.join(release))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            assert!(names.iter().eq(patches.iter().map(|(name, _)| name)));
        }
        let releases = fs::read_dir(&folder).unwrap();
        let folders = releases.filter(|entry| entry.as_ref().unwrap().path().is_dir());
        assert_eq!(folders.count(), PATCHES.len());
    }
}
