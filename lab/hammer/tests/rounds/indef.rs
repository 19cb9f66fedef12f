//! The indef that is hammered.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// The one that `INDEF` names, else the one of this workspace, built in the profile of this test.
pub(crate) fn indef() -> &'static Path {
    static INDEF: OnceLock<PathBuf> = OnceLock::new();
    INDEF.get_or_init(|| source_tree::binary_for_test("indef").unwrap())
}
