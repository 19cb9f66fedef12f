//! A kernel whose ext4 tells an SSD where writes lie in their files: the patches of
//! `kernel/die-hints`, in the small configuration `files/die-hints.config`.
//!
//! The patches change `struct bio`, so no module of Debian's fits: everything that a guest needs is
//! part of the image.

use crate::{
    Cache, Kernel, LabError,
    built::Flavour,
    recipe::{Patch, patches},
};

pub(crate) const PATCHES: &[(&str, &[Patch])] = patches! { "die-hints";
    "6.12":
        "0001-block-carry-a-hint-for-the-die-with-a-write.patch"
        "0002-block-merge-writes-only-if-their-die-hints-allow-it.patch"
        "0003-block-let-devices-say-that-they-take-die-hints.patch"
        "0004-nvme-send-die-hints-to-controllers-that-take-them.patch"
        "0005-ext4-give-die-hints-for-written-back-data.patch"
        "0006-ext4-give-die-hints-for-direct-writes.patch"
        "0007-f2fs-give-die-hints-for-written-back-data.patch";
};

static DIE_HINTS: Flavour = Flavour {
    name: "die-hints",
    file: "lab/guest/files/die-hints.config",
    configuration: include_str!("../files/die-hints.config"),
    patches: PATCHES[0].1,
    has_modules: false,
};

static DIE_HINTS_DEBUG: Flavour = Flavour {
    name: "die-hints-debug",
    file: "lab/guest/files/die-hints.config with die-hints-debug.config",
    configuration: concat!(
        include_str!("../files/die-hints.config"),
        include_str!("../files/die-hints-debug.config")
    ),
    ..DIE_HINTS
};

impl Kernel {
    /// Returns the kernel with die hints from the cache, or else builds it: 150 MB over the network,
    /// 2 GB of disk, and ten minutes of two processors.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine or its network cannot, else the failure.
    pub fn die_hints(cache: &Cache) -> Result<Self, LabError> {
        DIE_HINTS.built(cache)
    }

    /// The same with lockdep, KASAN and checks for sleeping in atomic context: more of each.
    ///
    /// # Errors
    ///
    /// As of [`die_hints`](Self::die_hints).
    pub fn die_hints_debug(cache: &Cache) -> Result<Self, LabError> {
        DIE_HINTS_DEBUG.built(cache)
    }

    /// Returns the kernel with die hints from the cache, or that which looks for its own faults.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] if it is not there.
    pub(crate) fn die_hints_built(cache: &Cache, debug: bool) -> Result<Self, LabError> {
        let (flavour, option) = match debug {
            false => (&DIE_HINTS, "--die-hints"),
            true => (&DIE_HINTS_DEBUG, "--die-hints-debug"),
        };
        flavour.cached(cache).ok_or_else(|| LabError::Unavailable {
            why: format!(
                "the kernel with die hints is not built: cargo lab kernels {option} builds it \
                 (ten minutes and more)"
            ),
            foreseen: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_kernel_is_the_same_with_checks() {
        assert!(
            (DIE_HINTS_DEBUG.configuration).starts_with(DIE_HINTS.configuration),
            "and has the same patches: {:?}",
            DIE_HINTS_DEBUG.patches.len()
        );
        for name in ["PROVE_LOCKING", "KASAN", "DEBUG_ATOMIC_SLEEP"] {
            let line = format!("CONFIG_{name}=y");
            let mut lines = DIE_HINTS_DEBUG.configuration.lines();
            assert!(lines.any(|is| is == line), "{name}");
        }
    }
}
