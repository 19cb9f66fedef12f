//! Holds Cargo.lock against a copy of RustSec's advisory database (<https://github.com/RustSec/advisory-db>): a
//! folder for each crate with a file for each advisory, Markdown that begins with a block of TOML.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use semver::{Version, VersionReq};
use serde::Deserialize;
use source_tree::root;

/// Hold the packages of Cargo.lock against RustSec's advisories
#[derive(Args)]
pub(crate) struct Advisories {
    /// A copy of the database, such as `cargo audit` keeps in cargo's home
    database: PathBuf,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: Version,
}

#[derive(Deserialize)]
struct Entry {
    advisory: About,
    versions: Versions,
}

#[derive(Deserialize)]
struct About {
    id: String,
    /// No vulnerability, but "unmaintained", "unsound" or "notice".
    informational: Option<String>,
    withdrawn: Option<toml::Value>,
}

/// The versions that an advisory does not concern.
#[derive(Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<VersionReq>,
    #[serde(default)]
    unaffected: Vec<VersionReq>,
}

impl Entry {
    fn concerns(&self, version: &Version) -> bool {
        let Versions {
            patched,
            unaffected,
        } = &self.versions;
        let mut others = patched.iter().chain(unaffected);
        self.advisory.withdrawn.is_none() && !others.any(|other| other.matches(version))
    }
}

/// Check all packages.
///
/// # Errors
///
/// The packages that an advisory concerns; or there is no such database.
pub(crate) fn check(options: &Advisories) -> Result<()> {
    let crates = options.database.join("crates");
    ensure!(
        crates.is_dir(),
        "{}: no folder of advisories; give a copy of RustSec's database",
        crates.display()
    );
    let lock: Lock = toml::from_str(&fs::read_to_string(root().join("Cargo.lock"))?)?;
    let mut found = Vec::new();
    for Locked { name, version } in &lock.package {
        for entry in entries(&crates.join(name))? {
            if entry.concerns(version) {
                let About {
                    id, informational, ..
                } = &entry.advisory;
                let kind = informational.as_deref().unwrap_or("vulnerability");
                found.push(format!("{name} {version}: {id} ({kind})"));
            }
        }
    }
    ensure!(found.is_empty(), "advisories:\n  {}", found.join("\n  "));
    println!("no advisory concerns the {} packages", lock.package.len());
    Ok(())
}

/// The advisories in the folder of a crate: none where there is no such folder.
fn entries(folder: &Path) -> Result<Vec<Entry>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?.path();
        if file.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&file)?;
            entries.push(parse(&text).with_context(|| file.display().to_string())?);
        }
    }
    Ok(entries)
}

fn parse(text: &str) -> Result<Entry> {
    let block = text.trim_start().strip_prefix("```toml");
    let (block, _) = block
        .and_then(|block| block.split_once("```"))
        .context("it does not begin with TOML")?;
    Ok(toml::from_str(block)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(advisory: &str, versions: &str) -> Entry {
        let block =
            format!("[advisory]\nid = \"RUSTSEC-2024-0001\"\n{advisory}\n[versions]\n{versions}");
        parse(&format!("```toml\n{block}\n```\n\n# Title\n")).unwrap()
    }

    #[test]
    fn versions_that_are_neither_patched_nor_unaffected_are_concerned() {
        let some = entry(
            "",
            "patched = [\">= 1.2.3\", \"^1.1.7\"]\nunaffected = [\"< 1.0\"]",
        );
        let concerned = |version: &str| some.concerns(&version.parse().unwrap());
        assert!(concerned("1.0.0") && concerned("1.1.6"));
        assert!(!concerned("0.9.9") && !concerned("1.1.7") && !concerned("1.2.3"));
        assert!(
            entry("informational = \"unmaintained\"", "patched = []")
                .concerns(&Version::new(9, 0, 0))
        );
        let withdrawn = entry("withdrawn = \"2024-02-03\"", "patched = []");
        assert!(!withdrawn.concerns(&Version::new(1, 0, 0)));
    }

    #[test]
    fn another_file_is_no_advisory() {
        assert!(parse("# Title").is_err());
        assert!(parse("```toml\nid = 1\n```").is_err());
    }
}
