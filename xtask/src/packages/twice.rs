//! Whether the same sources give the same packages: built again in another folder, and compared.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use source_tree::cargo;

use super::machine::Machine;
use crate::{command::run, sources};

/// Build the packages again from the committed files, and compare them with those in `made`.
///
/// # Errors
///
/// The names of those that differ.
pub(super) fn compare(made: &[PathBuf], machine: Machine) -> Result<()> {
    ensure!(
        !sources::are_changed()?,
        "what is changed and not committed would be in the first packages only; commit it"
    );
    // Its path is neither as long as ours, nor does it begin so.
    let folder = tempfile::Builder::new()
        .prefix("packages-again-")
        .tempdir()?;
    sources::unpack(folder.path())?;
    run(cargo()
        .args(["run", "--locked", "--package", "xtask", "--", "packages"])
        .args(["--machine", machine.name()])
        .current_dir(folder.path())
        .env(sources::COMMIT, sources::commit().unwrap_or_default())
        .env_remove("CARGO_TARGET_DIR"))?;
    let again = folder.path().join("target/packages");
    let other = differing(made, &again)?;
    ensure!(
        other.is_empty(),
        "not the same when they are built again: {}",
        other.join(", ")
    );
    println!("built again in {}: the same", folder.path().display());
    Ok(())
}

/// The names of files whose content is another one in `folder`.
fn differing(files: &[PathBuf], folder: &Path) -> Result<Vec<String>> {
    let mut other = Vec::new();
    for file in files {
        let name = file.file_name().context("a file without a name")?;
        let read = |file: &Path| fs::read(file).with_context(|| file.display().to_string());
        if read(file)? != read(&folder.join(name))? {
            other.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_content_is_found() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (folder, content) in [(&one, "1"), (&two, "2")] {
            fs::write(folder.path().join("same"), "s").unwrap();
            fs::write(folder.path().join("other"), content).unwrap();
        }
        let files = ["same", "other"].map(|name| one.path().join(name));
        assert_eq!(differing(&files, two.path()).unwrap(), ["other"]);
        assert!(differing(&[one.path().join("none")], two.path()).is_err());
    }
}
