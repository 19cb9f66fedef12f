//! The source of a program of Debian's, as its authors published it: for test suites that are in no
//! binary package.

use std::{fs, path::PathBuf};

use crate::{Cache, LabError, debian::Packages, patched::extract};

/// The suites that are searched: those whose programs a host may have.
const SUITES: [&str; 2] = ["bookworm", "trixie"];

/// The folder with the source of this version of a package (by its authors' count, `3.33`), from the
/// cache, or fetched now from Debian's archive and checked with its keys.
///
/// # Errors
///
/// [`LabError::Unavailable`] where this machine or its network cannot, or Debian has another
/// version; else the failure.
pub fn upstream_source(package: &str, version: &str, cache: &Cache) -> Result<PathBuf, LabError> {
    let folder = cache.folder().join(format!("{package}-{version}"));
    if folder.exists() {
        return Ok(folder);
    }
    let _lock = cache.lock()?;
    // Another process may have been faster.
    if folder.exists() {
        return Ok(folder);
    }
    tracing::info!("fetching the source of {package} {version}");
    let work = cache.scratch(&format!("{package}-"))?;
    let packages = Packages::sources_of(&SUITES, &work.path().join("apt"))?;
    let versions = packages.source_versions(package)?;
    let found = { versions.iter() }
        .find(|packaged| upstream(packaged) == version)
        .ok_or_else(|| {
            LabError::missing(format!(
                "Debian's archive has no source of {package} {version}, but of {}",
                versions.join(", ")
            ))
        })?;
    let archive = packages.fetch_source(package, found)?;
    let made = work.path().join("made");
    extract(&archive, &[], &made)?;
    fs::rename(&made, &folder).map_err(LabError::at(&folder))?;
    Ok(folder)
}

/// The authors' part of a package's version (deb-version(7)): without epoch and revision.
fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.rsplit_once('-').map_or(version, |(rest, _)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authors_version_is_between_epoch_and_revision() {
        assert_eq!(upstream("3.33-3"), "3.33");
        assert_eq!(upstream("1:2.0-rc1-4+deb12u1"), "2.0-rc1");
        assert_eq!(upstream("7"), "7");
    }
}
