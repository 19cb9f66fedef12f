//! docs/experiments.md and its plots: written, and compared with the references.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use figures::page::regenerate_as;

use super::{markdown, outcome::Outcome, plot, sheet::Sheet};
use crate::figure::{Figure, Paper};

const PAGE: &str = "docs/experiments.md";
const PLOTS: &str = "docs/experiments";

/// Write the page and the plots that differ from the references. Returns their names.
///
/// # Errors
///
/// A figure or reference cannot be read, or a file cannot be written.
pub fn write_pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    fs::create_dir_all(root.join(PLOTS)).context(PLOTS)?;
    for (name, file) in files(root)? {
        let path = root.join(&name);
        match file.new {
            Some(new) if file.old.as_ref() != Some(&new) => {
                fs::write(&path, new).with_context(|| name.clone())?;
            }
            None => fs::remove_file(&path).with_context(|| name.clone())?,
            Some(_) => continue,
        }
        written.push(name.into());
    }
    Ok(written)
}

/// The files that differ from the references: `cargo lab experiments --pages` mends them.
///
/// # Errors
///
/// A figure or reference cannot be read.
pub fn stale(root: &Path) -> Result<Vec<String>> {
    let files = files(root)?.into_iter();
    let stale = files.filter(|(_, file)| file.old != file.new);
    Ok(stale.map(|(name, _)| name).collect())
}

/// A file as it is, and as it should be; `None`: not there.
struct File {
    old: Option<String>,
    new: Option<String>,
}

fn files(root: &Path) -> Result<BTreeMap<String, File>> {
    let outcomes = Figure::all(root)?
        .into_iter()
        .map(Outcome::committed)
        .collect::<Result<Vec<_>>>()?;
    let mut plots = BTreeMap::new();
    let mut sheets = Vec::new();
    for outcome in &outcomes {
        let sheet = Sheet::of(outcome);
        if let Some(plot) = plot::svg(outcome)? {
            plots.insert(format!("{PLOTS}/{}.svg", sheet.slug()), plot);
        }
        sheets.push(sheet);
    }
    let file = root.join(PAGE);
    let old = fs::read_to_string(&file).context(PAGE)?;
    let new = regenerate_as(&old, "experiments", |name| {
        if name == "counts" {
            return Ok(markdown::counts(&sheets));
        }
        if name == "missing" {
            return Ok(markdown::missing(&sheets));
        }
        let mut papers = Paper::ALL.into_iter();
        let Some(paper) = papers.find(|paper| paper.folder() == name) else {
            bail!("no paper is called '{name}'");
        };
        let has_plot = |sheet: &Sheet| plots.contains_key(&format!("{PLOTS}/{}.svg", sheet.slug()));
        Ok(markdown::paper(&sheets, paper, has_plot))
    })
    .context(PAGE)?;
    let mut files = BTreeMap::new();
    let (old, new) = (Some(old), Some(new));
    files.insert(PAGE.to_owned(), File { old, new });
    for (name, new) in plots {
        let old = fs::read_to_string(root.join(&name)).ok();
        files.insert(
            name,
            File {
                old,
                new: Some(new),
            },
        );
    }
    // A plot of a figure that has none any more.
    for entry in fs::read_dir(root.join(PLOTS)).into_iter().flatten() {
        let name = format!("{PLOTS}/{}", entry?.file_name().to_string_lossy());
        let old = fs::read_to_string(root.join(&name)).ok();
        files.entry(name).or_insert(File { old, new: None });
    }
    Ok(files)
}
