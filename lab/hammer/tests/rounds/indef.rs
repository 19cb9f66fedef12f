//! The indef that is hammered.

use std::{
    env,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// The one that `INDEF` names, else the one of this workspace, built in the profile of this test.
pub(crate) fn indef() -> &'static Path {
    static INDEF: OnceLock<PathBuf> = OnceLock::new();
    INDEF.get_or_init(|| match env::var_os("INDEF") {
        Some(given) => given.into(),
        None => source_tree::binary_for_test("indef").unwrap(),
    })
}
