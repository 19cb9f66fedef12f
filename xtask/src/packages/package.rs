//! The packages that there are.

use std::{fs, path::Path};

use anyhow::Result;

/// One package.
pub(super) struct Package {
    /// Its name, also that of its program and of the crate.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// Further lines of its description.
    pub(super) description: &'static str,
    /// Options of `scripts/install`.
    pub(super) options: &'static [&'static str],
    /// Licences (SPDX) of all that is linked in and no crate.
    pub(super) libraries: &'static [&'static str],
    /// Whether libelf is one of them, which may need further ones.
    pub(super) has_libelf: bool,
    /// Packages that it is more useful with.
    pub(super) recommends: &'static str,
    /// Its units that are switched on by hand, and have to be off before it is removed.
    pub(super) units: &'static [&'static str],
    /// Those that go on with the new program when it is upgraded while they run.
    pub(super) restarts: &'static [&'static str],
    /// A command for the state that is left when it is purged (dpkg; rpm knows no such thing).
    pub(super) purge: &'static str,
}

/// A command by which systemd, where it runs, learns of units that came or went. One that cannot be reached keeps no package
/// from being installed or removed, here and below.
pub(super) const RELOAD: &str = "[ ! -d /run/systemd/system ] || systemctl daemon-reload || true";

/// The files below /etc of what is laid out below `folder`, which belong to whoever edits them: neither a newer package
/// nor a removal takes that away.
pub(super) fn configuration(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.join("etc")];
    while let Some(below) = folders.pop() {
        if !below.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&below)? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(format!("/{}", path.strip_prefix(folder)?.display())),
            }
        }
    }
    found.sort();
    Ok(found)
}

impl Package {
    /// A line of a shell script that has units go on with the program that was just installed.
    pub(super) fn restart(&self) -> String {
        match self.restarts {
            [] => String::new(),
            units => format!(
                "[ ! -d /run/systemd/system ] || systemctl try-restart '{}' || true\n",
                units.join("' '")
            ),
        }
    }

    /// Lines of a shell script that stop its units and switch them off.
    pub(super) fn switch_off(&self) -> String {
        let Self { name, units, .. } = self;
        let stopped = units.join("' '");
        let found = units.join("' -o -name '");
        format!(
            "command -v systemctl >/dev/null || exit 0\n\
             [ ! -d /run/systemd/system ] || systemctl stop '{stopped}' '{name}*.service' || true\n\
             for unit in $(cd /etc/systemd/system 2>/dev/null && find . -name '{found}' | sed 's|.*/||'); do\n\
             \x20 systemctl --no-reload disable \"$unit\" || true\n\
             done\n"
        )
    }
}

/// All of them.
pub(super) const PACKAGES: [Package; 2] = [
    Package {
        name: "indef",
        summary: "defragmenter for flash",
        description: "Finds the fragments that make reads slow on flash, and moves only those, on\n\
                      ext4, XFS, Btrfs and F2FS, while everything runs.",
        options: &[],
        // glibc, libelf, zlib, libbpf, SQLite, and our BPF programs.
        libraries: &[
            "LGPL-2.1-or-later",
            "LGPL-3.0-or-later OR GPL-2.0-or-later",
            "Zlib",
            "BSD-2-Clause",
            "blessing",
            "GPL-2.0-only",
        ],
        has_libelf: true,
        recommends: "e2fsprogs, xfsprogs, btrfs-progs",
        units: &["indef.timer", "indef-watch.service", "indef-trace.socket"],
        restarts: &["indef-watch.service"],
        // What the units leave: state, claims, and when the timer last ran.
        purge: "rm -rf /var/lib/indef /run/indef /var/lib/systemd/timers/stamp-indef.timer",
    },
    Package {
        name: "flashd",
        summary: "software-defined flash SSD over NVMe/TCP",
        description: "A flash device with dies, channels and a translation layer that behaves like\n\
                      one, for measurements and for tests of file systems.",
        options: &["--flashd"],
        libraries: &["LGPL-2.1-or-later"],
        has_libelf: false,
        recommends: "nvme-cli",
        units: &["flashd@*.service"],
        // Somebody has it mounted.
        restarts: &[],
        // The content of somebody's SSD stays.
        purge: "rmdir /var/lib/flashd /etc/flashd 2>/dev/null || true",
    },
];
