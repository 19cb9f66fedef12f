//! The packages that there are.

/// One package.
pub(super) struct Package {
    /// Its name, also that of its program and of the crate.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// Further lines of its description.
    pub(super) description: &'static str,
    /// Options of `scripts/install`.
    pub(super) options: &'static [&'static str],
    /// Packages that it is more useful with.
    pub(super) recommends: &'static str,
    /// Its unit that is switched on by hand, and has to be off before it is removed.
    pub(super) unit: &'static str,
    /// A command for the state that is left when it is purged.
    pub(super) purge: &'static str,
}

/// All of them.
pub(super) const PACKAGES: [Package; 2] = [
    Package {
        name: "indef",
        summary: "defragmenter for flash",
        description: "Finds the fragments that make reads slow on flash, and moves only those, on\n\
                      ext4, XFS, Btrfs and F2FS, while everything runs.",
        options: &[],
        recommends: "e2fsprogs, xfsprogs, btrfs-progs",
        unit: "indef.timer",
        purge: "rm -rf /var/lib/indef",
    },
    Package {
        name: "flashd",
        summary: "software-defined flash SSD over NVMe/TCP",
        description: "A flash device with dies, channels and a translation layer that behaves like\n\
                      one, for measurements and for tests of file systems.",
        options: &["--flashd"],
        recommends: "nvme-cli",
        unit: "flashd@*.service",
        // The content of somebody's SSD stays.
        purge: "rmdir /var/lib/flashd /etc/flashd 2>/dev/null || true",
    },
];
