//! File systems with the project's patches (`kernel/`), built as modules for Debian's kernels.
//!
//! A module is built out of tree: the file system's source from Debian's package of the kernel's source,
//! the patches on top, compiled against the kernel's own headers. Source, headers and kernel have to be
//! of one version, as a module may use structures that are in no header package.
//!
//! A module is kept in the cache by kernel and by patches: a cached module takes no time, and a
//! changed patch causes a new build.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

use sha2::{Digest, Sha256};

use crate::{
    Cache, Kernel, LabError,
    debian::Packages,
    error::output_of,
    ext4, f2fs, programs,
    recipe::{Patch, Recipe},
};

/// A file system that has patches in `kernel/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patched {
    /// `fdatasync` commits moved data.
    Ext4,
    /// The device moves data (`F2FS_IOC_OFFLOAD`).
    F2fs,
}

impl Patched {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ext4, Self::F2fs];

    /// The name of the file system, of its module, and of its folder in `kernel/`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::F2fs => "f2fs",
        }
    }

    fn recipe(self) -> &'static Recipe {
        match self {
            Self::Ext4 => &ext4::RECIPE,
            Self::F2fs => &f2fs::RECIPE,
        }
    }

    fn patches(self, kernel: &Kernel) -> Result<&'static [Patch], LabError> {
        let release = kernel.release().name();
        let found = self.recipe().patches.iter();
        let mut found = found.filter(|(name, _)| *name == release);
        found.next().map(|(_, patches)| *patches).ok_or_else(|| {
            let version = kernel.version();
            LabError::Request(format!(
                "kernel/{self} has no patches for Linux {release} ({version})"
            ))
        })
    }

    /// The module for this kernel, from the cache or built now (a minute, and 150 MB over the
    /// network).
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine or its network cannot, else the failure.
    pub(crate) fn module(self, kernel: &Kernel, cache: &Cache) -> Result<PathBuf, LabError> {
        // Compilers run in another working directory.
        let folder = std::path::absolute(cache.folder()).map_err(LabError::at(cache.folder()))?;
        let cache = &Cache::at(&folder);
        let patches = self.patches(kernel)?;
        let key = key(patches.iter().map(|(_, content)| *content));
        let folder = cache
            .folder()
            .join(format!("{self}-{}-{key}", kernel.version()));
        let name = format!("{self}.ko");
        let file = folder.join(&name);
        if file.exists() {
            return Ok(file);
        }
        let _lock = cache.lock()?;
        // Another process may have been faster.
        if file.exists() {
            return Ok(file);
        }
        tracing::info!(
            "building {self} with our patches for Linux {}",
            kernel.version()
        );
        let work = cache.scratch(&format!("{self}-"))?;
        let sources = sources(kernel, cache)?;
        let tree = work.path().join("tree");
        copy(&sources.join("source"), &tree)?;
        for (name, content) in patches {
            apply(name, content, &tree, work.path())?;
        }
        let built = self.build(kernel, &sources, &tree)?;
        let made = work.path().join("made");
        fs::create_dir(&made).map_err(LabError::at(&made))?;
        fs::copy(&built, made.join(name)).map_err(LabError::at(&built))?;
        fs::rename(&made, &folder).map_err(LabError::at(&folder))?;
        Ok(file)
    }

    /// Compile the module and return its path.
    fn build(self, kernel: &Kernel, sources: &Path, tree: &Path) -> Result<PathBuf, LabError> {
        for program in ["make", "gcc-12"] {
            if programs::find(Path::new(program)).is_none() {
                return Err(LabError::missing(format!("{program} is not installed")));
            }
        }
        let root = sources.join("root");
        let headers = root.join(format!("usr/src/linux-headers-{}", kernel.version()));
        relocate(&headers, &root)?;
        let module = tree.join("fs").join(self.name());
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
                // Our headers come before the packaged ones.
                .arg(format!(
                    "NOSTDINC_FLAGS=-nostdinc {} {}",
                    include("include"),
                    include("include/uapi")
                ))
                .args(self.recipe().make)
                .arg("modules")
                .env("LC_ALL", "C"),
        )?;
        let built = module.join(format!("{self}.ko"));
        // Debian's modules are stripped in the same way: 1 MB instead of 20.
        output_of(Command::new("strip").arg("--strip-debug").arg(&built))?;
        Ok(built)
    }
}

impl fmt::Display for Patched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Patched {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Self, LabError> {
        Self::ALL
            .into_iter()
            .find(|patched| patched.name() == name)
            .ok_or_else(|| LabError::Request(format!("there are no patches for {name}")))
    }
}

fn key<'a>(of: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for content in of {
        hash.update(content);
    }
    hash.finalize()[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A folder with `source` (the files of the kernel that all of [`Patched`] need, so that it is
/// fetched once) and `root` (headers and build programs). The caller holds the lock of the cache.
fn sources(kernel: &Kernel, cache: &Cache) -> Result<PathBuf, LabError> {
    let folder = sources_of(kernel.version(), cache);
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
    for name in packages.dependencies(&headers)? {
        if name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-") {
            packages.unpack(&name, &root)?;
        }
    }
    let source = format!("linux-source-{}", kernel.release().name());
    packages.unpack(&format!("{source}={version}"), &apt.join("root"))?;
    let archive = apt.join(format!("root/usr/src/{source}.tar.xz"));
    let members: Vec<String> = needed_sources()
        .map(|name| format!("{source}/{name}"))
        .collect();
    extract(&archive, &members, &made.join("source"))?;
    fs::rename(&made, &folder).map_err(LabError::at(&folder))?;
    Ok(folder)
}

/// The kernel source files that all of [`Patched`] need.
pub(crate) fn needed_sources() -> impl Iterator<Item = &'static str> {
    let each = Patched::ALL.into_iter();
    each.flat_map(|patched| patched.recipe().sources.iter().copied())
}

/// A key that changes with [`needed_sources`].
pub(crate) fn sources_key() -> String {
    key(needed_sources().flat_map(|name| [name.as_bytes(), b"\n"]))
}

/// The folder for source and headers of this version, if they are in the cache.
pub(crate) fn sources_of(version: &str, cache: &Cache) -> PathBuf {
    let name = format!("source-{version}-{}", sources_key());
    cache.folder().join(name)
}

/// Unpack these members of a package's archive, or all, without their top-level folder.
pub(crate) fn extract(archive: &Path, members: &[String], to: &Path) -> Result<(), LabError> {
    fs::create_dir_all(to).map_err(LabError::at(to))?;
    output_of(
        Command::new("tar")
            .args(["--extract", "--strip-components=1", "--file"])
            .arg(archive)
            .arg("--directory")
            .arg(to)
            .args(members),
    )?;
    Ok(())
}

/// Correct the makefile of Debian's headers, which names the place where it would be installed;
/// that of a whole tree names none.
fn relocate(headers: &Path, root: &Path) -> Result<(), LabError> {
    let path = headers.join("Makefile");
    let makefile = fs::read_to_string(&path).map_err(LabError::at(&path))?;
    let Some((_, below)) = makefile.rsplit_once("/usr/src/") else {
        return Ok(());
    };
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

pub(crate) fn apply(name: &str, content: &[u8], tree: &Path, work: &Path) -> Result<(), LabError> {
    let path = work.join(name);
    fs::write(&path, content).map_err(LabError::at(&path))?;
    // The messages about hunks that do not apply are on its standard output.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::die_hints;

    #[test]
    fn every_patch_of_the_project_is_here() {
        let modules = Patched::ALL.map(|patched| (patched.name(), patched.recipe().patches));
        let kernels = [("die-hints", die_hints::PATCHES)];
        let all = modules.into_iter().chain(kernels);
        for (name, by_release) in all.clone() {
            let folder = source_tree::root().join("kernel").join(name);
            for (release, patches) in by_release {
                let mut names: Vec<_> = fs::read_dir(folder.join(release))
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    // Without the cover letter.
                    .filter(|name| name.ends_with(".patch"))
                    .collect();
                names.sort();
                assert!(names.iter().eq(patches.iter().map(|(name, _)| name)));
            }
            let releases = fs::read_dir(&folder).unwrap();
            let folders = releases.filter(|entry| entry.as_ref().unwrap().path().is_dir());
            assert_eq!(folders.count(), by_release.len());
        }
        let folders = fs::read_dir(source_tree::root().join("kernel"));
        assert_eq!(folders.unwrap().count(), all.count());
    }

    #[test]
    fn names_are_read_back() {
        for patched in Patched::ALL {
            assert_eq!(patched.to_string().parse::<Patched>().unwrap(), patched);
            let own = format!("fs/{patched}");
            assert!(patched.recipe().sources.contains(&own.as_str()));
        }
        assert!("xfs".parse::<Patched>().is_err());
    }
}
