//! A kernel that looks for its own faults: with lockdep, KASAN and checks for sleeping in atomic
//! context (`files/debug.config`).
//!
//! It is Debian's source, unchanged. F2FS is a module like in Debian's own kernels, so the patches
//! of `kernel/f2fs` reach it in the same way ([`crate::patched`]).

use crate::{Cache, Kernel, LabError, built::Flavour};

static DEBUG: Flavour = Flavour {
    name: "debug",
    file: "lab/guest/files/debug.config",
    configuration: include_str!("../files/debug.config"),
    patches: &[],
    has_modules: true,
};

impl Kernel {
    /// Returns the kernel from the cache, or else builds it: 150 MB over the network, 2 GB of disk,
    /// and a quarter of an hour of two processors.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine or its network cannot, else the failure.
    pub fn debug(cache: &Cache) -> Result<Self, LabError> {
        DEBUG.built(cache)
    }
}

#[cfg(test)]
mod tests {
    use super::DEBUG;

    #[test]
    fn faults_are_looked_for() {
        for name in ["PROVE_LOCKING", "KASAN", "DEBUG_ATOMIC_SLEEP"] {
            let line = format!("CONFIG_{name}=y");
            assert!(DEBUG.configuration.lines().any(|is| is == line), "{name}");
        }
    }
}
