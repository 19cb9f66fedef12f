//! Debian's kernels, fetched once.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::{Cache, LabError, debian::Packages, error::output_of, image, modules::Modules};

/// Version of a kept folder's layout: a folder without it was made by another version of this
/// code.
pub(crate) const LAYOUT: &str = "2";

/// A kernel of Debian's, by the series that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Release {
    /// 6.1: Debian 12's own (bookworm).
    Linux6_1,
    /// 6.12: Debian 12's backport of Debian 13's (trixie).
    Linux6_12,
    /// The newest: the kernel backported to Debian 13, another one every few months.
    Newest,
}

impl Release {
    /// All of them, oldest first.
    pub const ALL: [Self; 3] = [Self::Linux6_1, Self::Linux6_12, Self::Newest];

    /// `6.1`, `6.12`, `newest`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux6_1 => "6.1",
            Self::Linux6_12 => "6.12",
            Self::Newest => "newest",
        }
    }

    /// The prefix of its kernels' versions; for the newest it is not known beforehand.
    #[must_use]
    pub fn series(self) -> Option<&'static str> {
        match self {
            Self::Linux6_1 => Some("6.1."),
            Self::Linux6_12 => Some("6.12."),
            Self::Newest => None,
        }
    }

    /// The suites with its packages and their dependencies.
    pub(crate) fn suites(self) -> Vec<&'static str> {
        let mut suites = vec!["bookworm"];
        if !suites.contains(&self.suite()) {
            suites.push(self.suite());
        }
        suites
    }

    pub(crate) fn suite(self) -> &'static str {
        match self {
            Self::Linux6_1 => "bookworm",
            Self::Linux6_12 => "bookworm-backports",
            Self::Newest => "trixie-backports",
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
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

/// A kernel in the cache: image, modules, and the busybox that goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    release: Release,
    version: String,
    folder: PathBuf,
}

impl Kernel {
    /// The kernel from the cache; `None` where it was not fetched yet.
    #[must_use]
    pub fn cached(release: Release, cache: &Cache) -> Option<Self> {
        Self::kept(release, &cache.folder().join(release.name()))
    }

    /// The kernel in this folder.
    pub(crate) fn kept(release: Release, folder: &Path) -> Option<Self> {
        let layout = fs::read_to_string(folder.join("layout")).ok()?;
        let version = fs::read_to_string(folder.join("version")).ok()?;
        (layout == LAYOUT).then(|| Self {
            release,
            version,
            folder: folder.to_owned(),
        })
    }

    /// Returns the kernel from the cache, or else fetches it from Debian's archive: 70 to 130 MB
    /// over the network.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine or its network cannot, else the failure.
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
        // Another process may have been faster.
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
        let meta = format!("linux-image-amd64/{}", release.suite());
        let needed = packages.dependencies(&meta)?;
        let (image, version) = { needed.iter() }
            .find_map(|name| Some((name, name.strip_prefix("linux-image-")?)))
            .ok_or_else(|| LabError::Request(format!("{meta} needs no kernel: {needed:?}")))?;
        let root = apt.join("root");
        packages.unpack(image, &root)?;
        // Newer ones are in several packages: linux-binary-VERSION, linux-modules-VERSION …
        let suffix = format!("-{version}");
        for part in packages.dependencies(image)? {
            if part.starts_with("linux-") && part.ends_with(&suffix) {
                packages.unpack(&part, &root)?;
            }
        }
        packages.unpack("busybox-static", &root)?;
        fs::create_dir_all(folder).map_err(LabError::at(folder))?;
        let first = |places: [String; 2]| {
            let [one, other] = places.map(|place| root.join(place));
            if one.exists() { one } else { other }
        };
        let path = first([
            format!("boot/vmlinuz-{version}"),
            format!("usr/lib/modules/{version}/vmlinuz"),
        ]);
        let vmlinuz = fs::read(&path).map_err(LabError::at(&path))?;
        let image = image::unpack(&vmlinuz, apt)?.unwrap_or(vmlinuz);
        let modules = first(["", "usr/"].map(|prefix| format!("{prefix}lib/modules/{version}")));
        let busybox = first(["bin/busybox", "usr/bin/busybox"].map(str::to_owned));
        for (from, to) in [(modules, "modules"), (busybox, "busybox")] {
            fs::rename(&from, folder.join(to)).map_err(LabError::at(&from))?;
        }
        write_all(
            folder,
            &[
                ("kernel", &image),
                ("version", version.as_bytes()),
                ("layout", LAYOUT.as_bytes()),
            ],
        )
    }

    /// The series that it belongs to.
    #[must_use]
    pub fn release(&self) -> Release {
        self.release
    }

    /// The output of `uname -r` in it.
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

/// Write these files into a folder.
pub(crate) fn write_all(folder: &Path, files: &[(&str, &[u8])]) -> Result<(), LabError> {
    for (name, content) in files {
        let path = folder.join(name);
        fs::write(&path, content).map_err(LabError::at(&path))?;
    }
    Ok(())
}
