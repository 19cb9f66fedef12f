//! The parts of a program: notices of third parties for readers, a bill of materials for programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;
use source_tree::{cargo, root};

use crate::command::output_of;

/// The libraries that are linked in beside crates, and where their sources are.
const LIBRARIES: &str = "\
The programs also contain, linked statically: the GNU C library (LGPL-2.1-or-later), and, in indef,
libelf of elfutils (LGPL-3.0-or-later or GPL-2.0-or-later), with zstd (BSD-3-Clause) since Debian 13, zlib (Zlib),
libbpf (BSD-2-Clause) and SQLite (public domain). The sources of the first are Debian's packages glibc, elfutils, libzstd
and zlib; those of the last two are in the crates libbpf-sys and libsqlite3-sys. `cargo xtask packages` in the source tree of indef links the
programs anew, with whatever version of them is installed.
";

/// A crate that is part of a program.
pub(super) struct Part {
    name: String,
    version: String,
    licence: String,
    folder: PathBuf,
    is_ours: bool,
}

impl Part {
    /// Its licence (SPDX); old manifests write a slash for "or".
    fn expression(&self) -> String {
        self.licence.replace('/', " OR ")
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    source: Option<String>,
}

/// The crates that are linked into a program, by name.
pub(super) fn parts(program: &str, triple: &str) -> Result<Vec<Part>> {
    let tree = output_of(cargo().args([
        "tree",
        "--locked",
        "--package",
        program,
        "--edges",
        "normal",
        "--target",
        triple,
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))?;
    // A line is "name vVERSION", and for those that were seen or are local more.
    let linked: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let listed = output_of(cargo().args(["metadata", "--format-version=1", "--locked"]))?;
    let Metadata { packages } = serde_json::from_str(&listed)?;
    let mut parts = Vec::new();
    for one in packages {
        if !linked.contains(&(one.name.as_str(), one.version.as_str())) {
            continue;
        }
        let folder = one
            .manifest_path
            .parent()
            .context("a manifest without a folder")?;
        parts.push(Part {
            folder: folder.to_owned(),
            licence: one
                .license
                .with_context(|| format!("{}: no licence", one.name))?,
            name: one.name,
            version: one.version,
            is_ours: one.source.is_none(),
        });
    }
    parts.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(parts)
}

/// Our licence, and the licences of all others with their texts, each text once.
pub(super) fn text(parts: &[Part]) -> Result<String> {
    let mut text = String::from(
        "indef is licensed under MIT or Apache-2.0, its BPF programs and kernel patches under GPL-2.0-only: the files\n\
         LICENSE-* in this folder.\n\n",
    );
    text.push_str(LIBRARIES);
    text.push_str("\nCrates of others, with their licences:\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in parts.iter().filter(|part| !part.is_ours) {
        let name = format!("{} {}", part.name, part.version);
        text.push_str(&format!("  {name} ({})\n", part.licence));
        for file in licence_files(&part.folder)? {
            let content = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            texts
                .entry(content.trim().to_owned())
                .or_default()
                .push(name.clone());
        }
    }
    for (content, names) in &texts {
        text.push_str(&format!("\n---- {}\n\n{content}\n", names.join(", ")));
    }
    let gpl = fs::read_to_string(root().join("LICENSE-GPL-2.0"))?;
    text.push_str(&format!("\n---- GPL-2.0\n\n{gpl}"));
    Ok(text)
}

/// All licences of a program as one expression (SPDX): those of its crates, and of `libraries`.
pub(super) fn expression(parts: &[Part], libraries: &[&str]) -> String {
    let mut all: BTreeSet<String> = libraries.iter().map(|one| (*one).to_owned()).collect();
    all.extend(parts.iter().map(Part::expression));
    let all: Vec<String> = all
        .into_iter()
        .map(|one| match one.contains(' ') {
            true => format!("({one})"),
            false => one,
        })
        .collect();
    all.join(" AND ")
}

fn licence_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let begins = [
            "LICENSE",
            "LICENCE",
            "COPYING",
            "COPYRIGHT",
            "NOTICE",
            "UNLICENSE",
        ];
        if entry.file_type()?.is_file() && begins.iter().any(|begin| name.starts_with(begin)) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The bill of materials (CycloneDX 1.5, JSON). It has no time and no serial number, so that the same
/// program has the same one.
pub(super) fn bill(program: &str, parts: &[Part]) -> Result<String> {
    let component = |part: &Part| {
        let mut one = json!({
            "type": "library",
            "name": part.name,
            "version": part.version,
            "licenses": [{ "expression": part.expression() }],
        });
        if !part.is_ours {
            one["purl"] = format!("pkg:cargo/{}@{}", part.name, part.version).into();
        }
        one
    };
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": program,
                "version": env!("CARGO_PKG_VERSION"),
            },
        },
        "components": parts.iter().filter(|part| part.name != program).map(component).collect::<Vec<_>>(),
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&bill)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_with_its_parts_and_their_licences() {
        let parts = parts("indef", "x86_64-unknown-linux-gnu").unwrap();
        let part = |name: &str| parts.iter().find(|part| part.name == name);
        assert!(part("indef-core").unwrap().is_ours && part("flashd").is_none());
        let rustix = part("rustix").unwrap();
        let text = text(&parts).unwrap();
        assert!(
            text.contains(&format!("  rustix {} (Apache-2.0", rustix.version)),
            "{text}"
        );
        assert!(text.contains("Permission is hereby granted"));
        let licences = expression(&parts, &["GPL-2.0-only"]);
        assert!(
            licences.contains("GPL-2.0-only AND ") && licences.contains("(Apache-2.0 OR MIT)"),
            "{licences}"
        );
        // Parts of the build are no parts of the program.
        assert!(part("libbpf-cargo").is_none() && part("proptest").is_none());
        let bill: serde_json::Value =
            serde_json::from_str(&bill("indef", &parts).unwrap()).unwrap();
        let components = bill["components"].as_array().unwrap();
        assert_eq!(components.len(), parts.len() - 1);
        let purl = format!("pkg:cargo/rustix@{}", rustix.version);
        assert!(
            components.iter().any(|one| one["purl"] == purl.as_str()),
            "{bill}"
        );
    }
}
