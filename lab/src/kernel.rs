//! Debian's kernels, fetched once.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::{Cache, LabError, debian::Packages, error::output_of, image, modules::Modules};

/// What is checked to be of use: a folder that lacks it was made by another version of this code.
const LAYOUT: &str = "2";

/// A kernel of Debian's, by the series that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// 6.1: Debian 12's own (bookworm).
    Linux6_1,
    /// 6.12: Debian 12's backport of Debian 13's (trixie).
    Linux6_12,
}

impl Release {
    /// All of them, oldest first.
    pub const ALL: [Self; 2] = [Self::Linux6_1, Self::Linux6_12];

    /// `6.1`, `6.12`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux6_1 => "6.1",
            Self::Linux6_12 => "6.12",
        }
    }

    /// Where its packages are, and what these need.
    pub(crate) fn suites(self) -> Vec<&'static str> {
        let mut suites = vec!["bookworm"];
        if !suites.contains(&self.suite()) {
            suites.push(self.suite());
        }
        suites
    }

    fn suite(self) -> &'static str {
        match self {
            Self::Linux6_1 => "bookworm",
            Self::Linux6_12 => "bookworm-backports",
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Release {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Self, LabError> {
        Self::ALL
            .into_iter()
            .find(|release| release.name() == name)
            .ok_or_else(|| LabError::Request(format!("there is no guest with Linux {name}")))
    }
}

/// A kernel that is there: image, modules, and the busybox that goes with it.
#[derive(Clone, Debug)]
pub struct Kernel {
    release: Release,
    version: String,
    folder: PathBuf,
}

impl Kernel {
    /// The kernel from the cache; `None` where it was not fetched yet.
    #[must_use]
    pub fn cached(release: Release, cache: &Cache) -> Option<Self> {
        let folder = cache.folder().join(release.name());
        let layout = fs::read_to_string(folder.join("layout")).ok()?;
        let version = fs::read_to_string(folder.join("version")).ok()?;
        (layout == LAYOUT).then_some(Self {
            release,
            version,
            folder,
        })
    }

    /// The kernel from the cache, or else from Debian's archive: 70 to 110 MB over the network.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine or its network cannot, else what failed.
    pub fn fetch(release: Release, cache: &Cache) -> Result<Self, LabError> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(LabError::Unavailable {
                why: "the guests are for x86-64 only".into(),
                foreseen: true,
            });
        }
        if let Some(kernel) = Self::cached(release, cache) {
            return Ok(kernel);
        }
        let _lock = cache.lock()?;
        // Somebody else may have been faster.
        if let Some(kernel) = Self::cached(release, cache) {
            return Ok(kernel);
        }
        tracing::info!("fetching Debian's Linux {release}");
        let work = cache.scratch("fetch-")?;
        let made = work.path().join("kernel");
        Self::unpack(release, &work.path().join("apt"), &made)?;
        let folder = cache.folder().join(release.name());
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(LabError::at(&folder))?;
        }
        fs::rename(&made, &folder).map_err(LabError::at(&folder))?;
        Self::cached(release, cache)
            .ok_or_else(|| LabError::Request(format!("{} is not as written", folder.display())))
    }

    /// Fill `folder`: `kernel`, `modules`, `busybox`, `version`, `layout`.
    fn unpack(release: Release, apt: &Path, folder: &Path) -> Result<(), LabError> {
        let packages = Packages::of(&release.suites(), apt)?;
        let image = packages.first_dependency("linux-image-amd64", release.suite())?;
        let version = image
            .strip_prefix("linux-image-")
            .ok_or_else(|| LabError::Request(format!("{image} is no kernel's package")))?;
        let root = apt.join("root");
        packages.unpack(&image, &root)?;
        packages.unpack("busybox-static", &root)?;
        fs::create_dir_all(folder).map_err(LabError::at(folder))?;
        for (from, to) in [
            (format!("lib/modules/{version}"), "modules"),
            ("bin/busybox".into(), "busybox"),
        ] {
            let from = root.join(from);
            fs::rename(&from, folder.join(to)).map_err(LabError::at(&from))?;
        }
        let path = root.join(format!("boot/vmlinuz-{version}"));
        let vmlinuz = fs::read(&path).map_err(LabError::at(&path))?;
        let image = image::unpack(&vmlinuz, apt)?.unwrap_or(vmlinuz);
        for (name, content) in [
            ("kernel", image.as_slice()),
            ("version", version.as_bytes()),
            ("layout", LAYOUT.as_bytes()),
        ] {
            let path = folder.join(name);
            fs::write(&path, content).map_err(LabError::at(&path))?;
        }
        Ok(())
    }

    /// Which series it belongs to.
    #[must_use]
    pub fn release(&self) -> Release {
        self.release
    }

    /// What `uname -r` says in it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.folder.join("kernel")
    }

    pub(crate) fn busybox(&self) -> PathBuf {
        self.folder.join("busybox")
    }

    /// The names that busybox goes by.
    pub(crate) fn applets(&self) -> Result<Vec<String>, LabError> {
        let listed = output_of(std::process::Command::new(self.busybox()).arg("--list"))?;
        Ok(String::from_utf8_lossy(&listed)
            .lines()
            .map(str::to_owned)
            .collect())
    }

    pub(crate) fn modules(&self) -> Result<Modules, LabError> {
        Modules::below(&self.folder.join("modules"))
    }
}
