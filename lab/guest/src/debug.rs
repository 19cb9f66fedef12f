//! A kernel that looks for its own faults: the source of Debian's Linux 6.12 in a small
//! configuration (`files/debug.config`) with lockdep, KASAN and checks for sleeping in atomic
//! context.
//!
//! It is Debian's source, unchanged. F2FS is a module like in Debian's own kernels, so the patches
//! of `kernel/f2fs` reach it in the same way ([`patched`]): the built tree stays in the cache, in
//! the place of a package of headers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

use crate::{
    Cache, Kernel, LabError, Release,
    debian::Packages,
    error::output_of,
    image,
    kernel::{LAYOUT, write_all},
    patched, programs,
};

const CONFIGURATION: &str = include_str!("../files/debug.config");
const RELEASE: Release = Release::Linux6_12;

/// Build products that no build of a module needs.
const OBJECTS: [&str; 4] = ["*.o", "*.a", "vmlinux", ".tmp_vmlinux*"];

impl Kernel {
    /// Returns the kernel from the cache, or else builds it: 150 MB over the network, 2 GB of disk,
    /// and a quarter of an hour of two processors.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine or its network cannot, else the failure.
    pub fn debug(cache: &Cache) -> Result<Self, LabError> {
        // Compilers run in another working directory.
        let folder = std::path::absolute(cache.folder()).map_err(LabError::at(cache.folder()))?;
        let cache = &Cache::at(&folder);
        let folder = folder.join(format!("{RELEASE}-debug-{}", key()));
        if let Some(kernel) = Self::kept(RELEASE, &folder) {
            return Ok(kernel);
        }
        for program in ["make", "gcc-12", "flex", "bison", "bc"] {
            if programs::find(Path::new(program)).is_none() {
                return Err(LabError::missing(format!("{program} is not installed")));
            }
        }
        let _lock = cache.lock()?;
        // Another process may have been faster.
        if let Some(kernel) = Self::kept(RELEASE, &folder) {
            return Ok(kernel);
        }
        tracing::info!("building Linux {RELEASE} with lockdep and KASAN");
        let work = cache.scratch("debug-")?;
        Build::unpack(work.path())?.finish(cache, &folder)?;
        Self::kept(RELEASE, &folder)
            .ok_or_else(|| LabError::Request(format!("{} is not as written", folder.display())))
    }
}

/// The part of the name of kernels and modules that changes with the configuration and with the
/// kept sources.
fn key() -> String {
    Sha256::digest(CONFIGURATION.to_owned() + &patched::sources_key())[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

struct Build<'a> {
    work: &'a Path,
    /// The kernel's whole source.
    tree: PathBuf,
    /// The part of the source that modules need.
    source: PathBuf,
    busybox: PathBuf,
}

impl<'a> Build<'a> {
    fn unpack(work: &'a Path) -> Result<Self, LabError> {
        let apt = work.join("apt");
        let packages = Packages::of(&RELEASE.suites(), &apt)?;
        let root = apt.join("root");
        let package = format!("linux-source-{RELEASE}");
        packages.unpack("busybox-static", &root)?;
        packages.unpack(&format!("{package}/{}", RELEASE.suite()), &root)?;
        let archive = root.join(format!("usr/src/{package}.tar.xz"));
        let (tree, source) = (work.join("tree"), work.join("source"));
        let members: Vec<String> = patched::needed_sources()
            .map(|name| format!("{package}/{name}"))
            .collect();
        patched::extract(&archive, &[], &tree)?;
        patched::extract(&archive, &members, &source)?;
        Ok(Self {
            work,
            tree,
            source,
            busybox: root.join("bin/busybox"),
        })
    }

    /// Build, and move the files to keep into the cache; the kernel's folder last.
    fn finish(&self, cache: &Cache, folder: &Path) -> Result<(), LabError> {
        self.configure()?;
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        output_of(
            self.make()
                .arg(format!("--jobs={jobs}"))
                .args(["bzImage", "modules"]),
        )?;
        let installed = self.work.join("installed");
        output_of(
            self.make()
                .arg(format!("INSTALL_MOD_PATH={}", installed.display()))
                .arg("modules_install"),
        )?;
        let version = output_of(self.make().args(["--silent", "kernelrelease"]))?;
        let version = String::from_utf8_lossy(&version).trim().to_owned();

        let made = self.work.join("made");
        fs::create_dir(&made).map_err(LabError::at(&made))?;
        let modules = installed.join("lib/modules").join(&version);
        rename(&modules, &made.join("modules"))?;
        rename(&self.busybox, &made.join("busybox"))?;
        let path = self.tree.join("arch/x86/boot/bzImage");
        let compressed = fs::read(&path).map_err(LabError::at(&path))?;
        let image = image::unpack(&compressed, self.work)?.unwrap_or(compressed);
        write_all(
            &made,
            &[
                ("kernel", &image),
                ("version", version.as_bytes()),
                ("layout", LAYOUT.as_bytes()),
            ],
        )?;
        self.keep_tree(&patched::sources_of(&version, cache), &version)?;
        rename(&made, folder)
    }

    /// Every option that is not named is off; every named option has to be possible.
    fn configure(&self) -> Result<(), LabError> {
        let wanted = self.work.join("debug.config");
        fs::write(&wanted, CONFIGURATION).map_err(LabError::at(&wanted))?;
        output_of(
            self.make()
                .arg(format!("KCONFIG_ALLCONFIG={}", wanted.display()))
                .arg("allnoconfig"),
        )?;
        let path = self.tree.join(".config");
        let config = fs::read_to_string(&path).map_err(LabError::at(&path))?;
        match dropped(CONFIGURATION, &config) {
            None => Ok(()),
            Some(line) => Err(LabError::Request(format!(
                "lab/guest/files/debug.config: Linux {RELEASE} cannot have {line}"
            ))),
        }
    }

    fn make(&self) -> Command {
        let mut make = Command::new("make");
        make.arg("--directory")
            .arg(&self.tree)
            .arg("CC=gcc-12")
            .arg(format!("LOCALVERSION=-{}", key()))
            .env("LC_ALL", "C");
        make
    }

    /// Store the tree where [`patched`] looks for sources and headers, without objects.
    fn keep_tree(&self, to: &Path, version: &str) -> Result<(), LabError> {
        let mut find = Command::new("find");
        find.arg(&self.tree).args(["-type", "f", "("]);
        for (number, name) in OBJECTS.iter().enumerate() {
            if number > 0 {
                find.arg("-o");
            }
            find.args(["-name", name]);
        }
        output_of(find.args([")", "-delete"]))?;
        let made = self.work.join("sources");
        let sources = made.join("root/usr/src");
        fs::create_dir_all(&sources).map_err(LabError::at(&sources))?;
        rename(
            &self.tree,
            &sources.join(format!("linux-headers-{version}")),
        )?;
        rename(&self.source, &made.join("source"))?;
        if to.exists() {
            fs::remove_dir_all(to).map_err(LabError::at(to))?;
        }
        rename(&made, to)
    }
}

/// A line of `wanted` that is not in `config`.
fn dropped<'a>(wanted: &'a str, config: &str) -> Option<&'a str> {
    wanted
        .lines()
        .filter(|line| line.starts_with("CONFIG_"))
        .find(|line| !config.lines().any(|is| is == *line))
}

fn rename(from: &Path, to: &Path) -> Result<(), LabError> {
    fs::rename(from, to).map_err(LabError::at(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_dropped_is_found() {
        let config = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=y\n";
        assert_eq!(dropped("# first\n\nCONFIG_A=y\nCONFIG_C=y\n", config), None);
        assert_eq!(
            dropped("CONFIG_A=y\nCONFIG_B=y\n", config),
            Some("CONFIG_B=y")
        );
        assert_eq!(dropped("CONFIG_A=m\n", config), Some("CONFIG_A=m"));
    }

    #[test]
    fn what_looks_for_faults_is_on() {
        for name in ["PROVE_LOCKING", "KASAN", "DEBUG_ATOMIC_SLEEP"] {
            let line = format!("CONFIG_{name}=y");
            assert_eq!(dropped(&line, CONFIGURATION), None);
        }
    }
}
