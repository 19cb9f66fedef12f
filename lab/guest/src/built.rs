//! Kernels that are built from the source of Debian's Linux 6.12 in a small configuration
//! ([`Flavour`]), and kept under a name that changes with configuration and patches.

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
    parsers::Parsers,
    patched, programs,
    recipe::Patch,
};

pub(crate) const RELEASE: Release = Release::Linux6_12;

/// Build products that no build of a module needs.
const OBJECTS: [&str; 4] = ["*.o", "*.a", "vmlinux", ".tmp_vmlinux*"];

/// A kernel to be built.
#[derive(Debug)]
pub(crate) struct Flavour {
    /// Part of the name of its folder in the cache.
    pub(crate) name: &'static str,
    /// The path of its configuration in this tree, for messages.
    pub(crate) file: &'static str,
    /// The content of that: every option that it does not name is off.
    pub(crate) configuration: &'static str,
    /// Patches for the whole kernel.
    pub(crate) patches: &'static [Patch],
    /// Whether the built tree stays in the cache, in the place of a package of headers, for modules
    /// with the project's patches ([`patched`]).
    pub(crate) has_modules: bool,
}

impl Flavour {
    /// The kernel, if it is in the cache.
    pub(crate) fn cached(&self, cache: &Cache) -> Option<Kernel> {
        Kernel::kept(RELEASE, &cache.folder().join(self.folder()))
    }

    /// Returns the kernel from the cache, or else builds it: 150 MB over the network, 2 GB of disk,
    /// and a quarter of an hour of two processors.
    pub(crate) fn built(&self, cache: &Cache) -> Result<Kernel, LabError> {
        // Compilers run in another working directory.
        let folder = std::path::absolute(cache.folder()).map_err(LabError::at(cache.folder()))?;
        let cache = &Cache::at(&folder);
        if let Some(kernel) = self.cached(cache) {
            return Ok(kernel);
        }
        for program in ["make", "gcc-12", "bc"] {
            if programs::find(Path::new(program)).is_none() {
                return Err(LabError::missing(format!("{program} is not installed")));
            }
        }
        let _lock = cache.lock()?;
        // Another process may have been faster.
        if let Some(kernel) = self.cached(cache) {
            return Ok(kernel);
        }
        tracing::info!("building Linux {RELEASE}, {}", self.name);
        let work = cache.scratch(&format!("{}-", self.name))?;
        let folder = folder.join(self.folder());
        Build::unpack(self, work.path())?.finish(cache, &folder)?;
        self.cached(cache)
            .ok_or_else(|| LabError::Request(format!("{} is not as written", folder.display())))
    }

    fn folder(&self) -> String {
        format!("{RELEASE}-{}-{}", self.name, self.key())
    }

    /// The part of the name of kernels and modules that changes with the configuration, the patches
    /// and the kept sources.
    fn key(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.configuration);
        if self.has_modules {
            hash.update(patched::sources_key());
        }
        for (name, content) in self.patches {
            hash.update(name);
            hash.update(content);
        }
        hash.finalize()[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// A line of the configuration that is not in `config`.
    fn dropped(&self, config: &str) -> Option<&str> {
        self.configuration
            .lines()
            .filter(|line| line.starts_with("CONFIG_"))
            .find(|line| !config.lines().any(|is| is == *line))
    }
}

struct Build<'a> {
    flavour: &'a Flavour,
    work: &'a Path,
    /// The kernel's whole source.
    tree: PathBuf,
    /// The part of the source that modules need.
    source: PathBuf,
    busybox: PathBuf,
    parsers: Parsers,
}

impl<'a> Build<'a> {
    fn unpack(flavour: &'a Flavour, work: &'a Path) -> Result<Self, LabError> {
        let apt = work.join("apt");
        let packages = Packages::of(&RELEASE.suites(), &apt)?;
        let root = apt.join("root");
        let package = format!("linux-source-{RELEASE}");
        let parsers = Parsers::of(&packages, &work.join("parsers"))?;
        packages.unpack("busybox-static", &root)?;
        packages.unpack(&format!("{package}/{}", RELEASE.suite()), &root)?;
        let archive = root.join(format!("usr/src/{package}.tar.xz"));
        let (tree, source) = (work.join("tree"), work.join("source"));
        patched::extract(&archive, &[], &tree)?;
        if flavour.has_modules {
            let members: Vec<String> = patched::needed_sources()
                .map(|name| format!("{package}/{name}"))
                .collect();
            patched::extract(&archive, &members, &source)?;
        }
        for (name, content) in flavour.patches {
            patched::apply(name, content, &tree, work)?;
        }
        Ok(Self {
            flavour,
            work,
            tree,
            source,
            busybox: root.join("bin/busybox"),
            parsers,
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
        // Not made where everything is part of the image.
        let all = made.join("modules/kernel");
        fs::create_dir_all(&all).map_err(LabError::at(&all))?;
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
        if self.flavour.has_modules {
            self.keep_tree(&patched::sources_of(&version, cache), &version)?;
        }
        rename(&made, folder)
    }

    /// Every option that is not named is off; every named option has to be possible.
    fn configure(&self) -> Result<(), LabError> {
        let wanted = self.work.join("wanted.config");
        fs::write(&wanted, self.flavour.configuration).map_err(LabError::at(&wanted))?;
        output_of(
            self.make()
                .arg(format!("KCONFIG_ALLCONFIG={}", wanted.display()))
                .arg("allnoconfig"),
        )?;
        let path = self.tree.join(".config");
        let config = fs::read_to_string(&path).map_err(LabError::at(&path))?;
        match self.flavour.dropped(&config) {
            None => Ok(()),
            Some(line) => Err(LabError::Request(format!(
                "{}: Linux {RELEASE} cannot have {line}",
                self.flavour.file
            ))),
        }
    }

    fn make(&self) -> Command {
        let mut make = Command::new("make");
        make.arg("--directory")
            .arg(&self.tree)
            .arg("CC=gcc-12")
            .arg(format!("LOCALVERSION=-{}", self.flavour.key()))
            .env("LC_ALL", "C");
        self.parsers.tell(&mut make);
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

fn rename(from: &Path, to: &Path) -> Result<(), LabError> {
    fs::rename(from, to).map_err(LabError::at(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_dropped_is_found() {
        let of = |configuration| Flavour {
            name: "test",
            file: "test.config",
            configuration,
            patches: &[],
            has_modules: false,
        };
        let config = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=y\n";
        let all = of("# first\n\nCONFIG_A=y\nCONFIG_C=y\n");
        assert_eq!(all.dropped(config), None);
        assert_eq!(
            of("CONFIG_A=y\nCONFIG_B=y\n").dropped(config),
            Some("CONFIG_B=y")
        );
        assert_eq!(of("CONFIG_A=m\n").dropped(config), Some("CONFIG_A=m"));
    }

    #[test]
    fn another_patch_makes_another_kernel() {
        let of = |patches| Flavour {
            name: "test",
            file: "test.config",
            configuration: "CONFIG_A=y\n",
            patches,
            has_modules: false,
        };
        let (one, other): (&[Patch], &[Patch]) = (&[("1", b"one")], &[("1", b"other")]);
        assert_ne!(of(one).folder(), of(other).folder());
        assert_eq!(of(one).folder(), of(one).folder());
    }
}
