//! Trials of several parts together: indef's engines with their copier, and indef, flashd and a
//! guest's kernel. All of them are tests (`tests/`); this is their shared code.
//!
//! - `conformance`: one suite that every engine passes; F2FS's in guests.
//! - `btrfs`: features that only Btrfs has.
//! - `xfs`: XFS's engines with every way to exchange extents; `vm_xfs_offload`: with a device that
//!   copies.
//! - `vm_offload`, `vm_zns`: `indef` on F2FS on flashd's zones. `vm_trace`: its tracer on Debian's
//!   kernels. `vm_serve`: flashd's target and a kernel's own initiator; `vm_zbd`: with fio's zoned
//!   tests.

#![forbid(unsafe_code)]

use std::sync::OnceLock;

/// Path of the indef of this source tree, built in the profile of the running test.
///
/// # Panics
///
/// It cannot be built.
#[must_use]
pub fn indef() -> &'static str {
    static INDEF: OnceLock<String> = OnceLock::new();
    INDEF.get_or_init(|| {
        let built = source_tree::binary_for_test("indef").unwrap_or_else(|error| panic!("{error}"));
        let path = built.into_os_string().into_string();
        path.expect("the path of the target folder is UTF-8")
    })
}
