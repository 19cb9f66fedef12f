//! The indef that is hammered.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

pub(crate) const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The one that `INDEF` names, else the one of this workspace, built in the profile of this test.
pub(crate) fn indef() -> &'static Path {
    static INDEF: OnceLock<PathBuf> = OnceLock::new();
    INDEF.get_or_init(|| {
        if let Some(given) = env::var_os("INDEF") {
            return given.into();
        }
        let folder = Path::new(env!("CARGO_BIN_EXE_hammer")).parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--package", "indef"]);
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.current_dir(WORKSPACE).status().unwrap();
        assert!(built.success(), "indef could not be built");
        folder.join("indef")
    })
}
