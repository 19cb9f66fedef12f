//! Debian's packages, fetched and unpacked without touching the host's own apt.
//!
//! apt runs with lists and caches of its own in a temporary folder, and with the archive that this
//! machine's apt uses ([`Mirror`]); proxies and certificates stay configured. Fetched files are
//! checked with the keys of that entry, as always. Nothing is installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use debian_mirror::{Mirror, MirrorError};

use crate::{LabError, error::output_of};

/// The packages of some suites of Debian.
pub(crate) struct Packages {
    folder: PathBuf,
}

impl Packages {
    /// Fetch the lists of these suites into `folder`.
    pub(crate) fn of(suites: &[&str], folder: &Path) -> Result<Self, LabError> {
        let mirror = Mirror::of_machine().map_err(unknown)?;
        Self::listed(&mirror.entry(suites, "amd64"), folder)
    }

    /// Fetch the lists of the sources of these suites into `folder`.
    pub(crate) fn sources_of(suites: &[&str], folder: &Path) -> Result<Self, LabError> {
        let mirror = Mirror::of_machine().map_err(unknown)?;
        Self::listed(&mirror.source_entry(suites), folder)
    }

    fn listed(entry: &str, folder: &Path) -> Result<Self, LabError> {
        for needed in ["state/lists/partial", "cache/archives/partial", "sources"] {
            let needed = folder.join(needed);
            fs::create_dir_all(&needed).map_err(LabError::at(&needed))?;
        }
        for (name, content) in [("sources/debian.sources", entry), ("status", "")] {
            let path = folder.join(name);
            fs::write(&path, content).map_err(LabError::at(&path))?;
        }
        let packages = Self {
            folder: folder.to_owned(),
        };
        match output_of(packages.apt("apt-get").arg("update")) {
            Ok(_) => Ok(packages),
            Err(LabError::Command { output, .. }) => Err(LabError::Unavailable {
                why: format!("Debian's package lists cannot be fetched: {output}"),
                foreseen: true,
            }),
            Err(error) => Err(error),
        }
    }

    /// The command for one of apt's programs, confined to our folder.
    fn apt(&self, program: &str) -> Command {
        let below = |name: &str| self.folder.join(name).display().to_string();
        let mut command = Command::new(program);
        command.arg("-qq");
        for option in [
            "Dir::Etc::SourceList=/dev/null".into(),
            format!("Dir::Etc::SourceParts={}", below("sources")),
            format!("Dir::State={}", below("state")),
            format!("Dir::State::Status={}", below("status")),
            format!("Dir::Cache={}", below("cache")),
            "APT::Architecture=amd64".into(),
            "APT::Architectures=amd64".into(),
            // Without this, an unreachable mirror is only a warning.
            "APT::Update::Error-Mode=any".into(),
            "Acquire::Languages=none".into(),
            "Acquire::Retries=2".into(),
            "Acquire::http::Timeout=20".into(),
            // The user that root's apt becomes in order to fetch may have no access to our folder.
            format!("APT::Sandbox::User={}", if is_root() { "root" } else { "" }),
        ] {
            command.args(["-o", &option]);
        }
        // The names of dependencies are parsed from its output.
        command.env("LC_ALL", "C");
        command
    }

    /// The packages on which this one (in a form that [`Self::field`] takes) depends; of
    /// alternatives the first.
    pub(crate) fn dependencies(&self, package: &str) -> Result<Vec<String>, LabError> {
        let depends = self.field(package, "Depends")?;
        let names = depends.split(", ").map(|one| one.split(' ').next());
        Ok(names.flatten().map(str::to_owned).collect())
    }

    /// The value of this field of a package (`NAME`, `NAME/SUITE` or `NAME=VERSION`) in the lists.
    pub(crate) fn field(&self, package: &str, field: &str) -> Result<String, LabError> {
        let shown = output_of(self.apt("apt-cache").arg("show").arg(package))?;
        String::from_utf8_lossy(&shown)
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(": "))
            .map(str::to_owned)
            .ok_or_else(|| LabError::Command {
                command: format!("apt-cache show {package}"),
                output: format!("it says nothing of {field}"),
            })
    }

    /// Fetch a package (`NAME` or `NAME=VERSION`) and unpack it below `root`.
    pub(crate) fn unpack(&self, package: &str, root: &Path) -> Result<(), LabError> {
        let fetched = tempfile::tempdir_in(&self.folder).map_err(LabError::at(&self.folder))?;
        let folder = fetched.path();
        output_of(
            self.apt("apt-get")
                .args(["download", package])
                .current_dir(folder),
        )?;
        let found = fs::read_dir(folder)
            .map_err(LabError::at(folder))?
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|ending| ending == "deb"))
            .ok_or_else(|| LabError::Request(format!("apt has fetched no package {package}")))?;
        output_of(
            Command::new("dpkg-deb")
                .arg("--extract")
                .arg(found)
                .arg(root),
        )?;
        Ok(())
    }

    /// The versions of a source package in the lists.
    pub(crate) fn source_versions(&self, package: &str) -> Result<Vec<String>, LabError> {
        let shown = output_of(self.apt("apt-cache").arg("showsrc").arg(package))?;
        Ok(String::from_utf8_lossy(&shown)
            .lines()
            .filter_map(|line| line.strip_prefix("Version: "))
            .map(str::to_owned)
            .collect())
    }

    /// Fetch the source of a package and return the path of its authors' archive.
    pub(crate) fn fetch_source(&self, package: &str, version: &str) -> Result<PathBuf, LabError> {
        let folder = self.folder.join(format!("{package}-source"));
        fs::create_dir_all(&folder).map_err(LabError::at(&folder))?;
        output_of(
            self.apt("apt-get")
                .args(["source", "--download-only"])
                .arg(format!("{package}={version}"))
                .current_dir(&folder),
        )?;
        fs::read_dir(&folder)
            .map_err(LabError::at(&folder))?
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .find(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                // Its signature is beside it.
                name.contains(".orig.tar.") && !name.ends_with(".asc")
            })
            .ok_or_else(|| LabError::Request(format!("apt has fetched no source of {package}")))
    }
}

fn unknown(error: MirrorError) -> LabError {
    match error {
        MirrorError::NoArchive | MirrorError::NoApt(_) => LabError::missing(error.to_string()),
        MirrorError::Apt { status, output } => LabError::Command {
            command: "apt-config".into(),
            output: format!("{status}: {output}"),
        },
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
