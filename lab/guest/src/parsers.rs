//! flex and bison, with which a kernel's build reads its configuration: the host's, or else Debian's,
//! unpacked for the build and not installed.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{LabError, debian::Packages, programs};

const NEEDED: [&str; 2] = ["flex", "bison"];
/// They run m4.
const PACKAGES: [&str; 3] = ["flex", "bison", "m4"];

/// Where the generators of parsers are.
#[derive(Debug)]
pub(crate) enum Parsers {
    /// On this machine's `PATH`.
    Installed,
    /// Below this folder.
    Unpacked(PathBuf),
}

impl Parsers {
    /// The host's, or else those of these packages, unpacked below `root`.
    pub(crate) fn of(packages: &Packages, root: &Path) -> Result<Self, LabError> {
        let is_here = |name: &&str| programs::find(Path::new(name)).is_some();
        if NEEDED.iter().all(is_here) {
            return Ok(Self::Installed);
        }
        for package in PACKAGES {
            packages.unpack(package, root)?;
        }
        Ok(Self::Unpacked(root.to_owned()))
    }

    /// Have a command find them.
    pub(crate) fn tell(&self, command: &mut Command) {
        let Self::Unpacked(root) = self else { return };
        let programs = root.join("usr/bin");
        let mut path = programs.clone().into_os_string();
        if let Some(others) = std::env::var_os("PATH") {
            path.push(":");
            path.push(others);
        }
        // Both know the places where they would be installed.
        command
            .env("PATH", path)
            .env("M4", programs.join("m4"))
            .env("BISON_PKGDATADIR", root.join("usr/share/bison"));
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn unpacked_ones_come_first() {
        let mut command = Command::new("make");
        Parsers::Installed.tell(&mut command);
        assert_eq!(command.get_envs().count(), 0);
        Parsers::Unpacked("/tmp/root".into()).tell(&mut command);
        let value = |name: &str| {
            let mut all = command.get_envs();
            all.find_map(|(is, value)| (is == name).then_some(value?))
        };
        let path = value("PATH").unwrap();
        assert_eq!(
            std::env::split_paths(path).next().unwrap(),
            Path::new("/tmp/root/usr/bin")
        );
        assert_eq!(value("M4"), Some(OsStr::new("/tmp/root/usr/bin/m4")));
    }
}
