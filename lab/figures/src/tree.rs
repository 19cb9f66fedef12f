//! The pages and results of a source tree.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    Record, Session,
    expression::Results,
    page::{self, Templates},
};

/// The folder of results and templates.
pub const FOLDER: &str = "figures";

/// Write all pages whose figures differ from their results. Returns these pages.
///
/// # Errors
///
/// A page or result cannot be read or written, or they do not fit together.
pub fn regenerate(root: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (page, old, new) in pages(root)? {
        if old != new {
            fs::write(root.join(&page), new).with_context(|| page.display().to_string())?;
            written.push(page);
        }
    }
    Ok(written)
}

/// Compare all pages with their results: each page that differs, with its first wrong line.
///
/// # Errors
///
/// A page or result cannot be read, or they do not fit together.
pub fn stale(root: &Path) -> Result<Vec<String>> {
    let differs = |(page, old, new): (PathBuf, String, String)| {
        let mut lines = old.lines().zip(new.lines()).enumerate();
        let found = lines.find(|(_, (old, new))| old != new);
        let number = found.map_or(0, |(at, _)| at) + 1;
        let is = found.map_or("", |(_, (_, new))| new);
        (old != new).then(|| format!("{}:{number}: the result gives: {is}", page.display()))
    };
    Ok(pages(root)?.into_iter().filter_map(differs).collect())
}

/// Keep a session in `figures/NAME.json`, in place of what it measured again.
///
/// # Errors
///
/// The file cannot be read or written.
pub fn keep(root: &Path, name: &str, session: Session) -> Result<PathBuf> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let file = folder.join(format!("{name}.json"));
    let record = if file.exists() {
        let mut record = Record::read(&file)?;
        record.add(session);
        record
    } else {
        Record::of(session)
    };
    record.write(&file)?;
    Ok(file)
}

/// All pages, as they are and as they should be.
fn pages(root: &Path) -> Result<Vec<(PathBuf, String, String)>> {
    let mut results = Results::default();
    let mut templates = Templates::default();
    for file in files(&root.join(FOLDER))? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        match file.extension().and_then(|end| end.to_str()) {
            Some("json") => {
                results.records.insert(name.into(), Record::read(&file)?);
            }
            Some("md") => {
                templates
                    .texts
                    .insert(name.into(), fs::read_to_string(&file)?);
            }
            _ => bail!("{}: neither a result nor a template", file.display()),
        }
    }
    let mut all = vec![PathBuf::from("README.md")];
    let series = PathBuf::from("kernel/f2fs/README.md");
    if root.join(&series).exists() {
        all.push(series);
    }
    for file in files(&root.join("docs"))? {
        if file.extension().is_some_and(|end| end == "md") {
            all.push(file.strip_prefix(root)?.to_owned());
        }
    }
    let mut pages = Vec::new();
    for page in all {
        let named = || page.display().to_string();
        let old = fs::read_to_string(root.join(&page)).with_context(named)?;
        let new = page::regenerate(&old, &mut results, &mut templates).with_context(named)?;
        pages.push((page, old, new));
    }
    all_is_shown(&results, &templates)?;
    Ok(pages)
}

/// Every case of every result is on some page, and so is every template.
fn all_is_shown(results: &Results, templates: &Templates) -> Result<()> {
    let mut missing: Vec<String> = templates
        .texts
        .keys()
        .filter(|name| !templates.used.contains(name))
        .map(|name| format!("{FOLDER}/{name}.md is on no page"))
        .collect();
    for (name, record) in &results.records {
        let mut cases: Vec<&str> = record.rows().map(|row| row.case.as_str()).collect();
        cases.dedup();
        for case in cases {
            let mut shown = results.shown.iter();
            if !shown.any(|it| it.0 == *name && it.1 == case) {
                missing.push(format!("{FOLDER}/{name}.json: {case} is on no page"));
            }
        }
    }
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    Ok(())
}

/// The files of a folder, in the order of their names.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    files.sort_unstable();
    Ok(files)
}
