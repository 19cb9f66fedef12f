//! The ingredients of a module with the project's patches.

/// The ingredients of a file system's module.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Files and folders of the kernel's source: `fs/NAME`, headers that the patches change, and others'
    /// private ones.
    pub(crate) sources: &'static [&'static str],
    /// By release, in the order in which they are applied.
    pub(crate) patches: &'static [(&'static str, &'static [Patch])],
    /// Variables for make: options that the kernel's own configuration does not know.
    pub(crate) make: &'static [&'static str],
}

/// Name and content.
pub(crate) type Patch = (&'static str, &'static [u8]);

/// The patches of a folder of `kernel/`. They are embedded in programs, so that an installed one
/// needs no source tree.
macro_rules! patches {
    ($folder:literal; $($release:literal: $($name:literal)+;)+) => {
        &[$(($release, &[$((
            $name,
            include_bytes!(concat!("../../../kernel/", $folder, "/", $release, "/", $name)),
        )),+])),+]
    };
}
pub(crate) use patches;
