//! `indef profile merge`.

use std::{fs, os::unix::fs::MetadataExt, path::Path, time::SystemTime};

use anyhow::{Result, bail};
use indef_trace::store::{Store, StoreOptions};
use serde::Serialize;

use super::tell::{failed, say};
use crate::{
    args::MergeArgs,
    document::SCHEMA,
    output::{Console, Name, counted},
};

/// `profile merge --json`.
#[derive(Serialize)]
struct MergeDocument {
    schema: u64,
    merged: usize,
    files: usize,
    ranges: usize,
}

pub(super) fn merge(args: &MergeArgs, console: &Console) -> Result<()> {
    // Nothing is changed before all of them have been examined.
    let mut others = Vec::new();
    for other in &args.others {
        if is_same(&args.store, other) {
            bail!(
                "{}: a store cannot be merged into itself; name another",
                Name(other)
            );
        }
        if !Store::is_store(other).map_err(|error| failed(other, &error))? {
            bail!(
                "{}: no store; bring text into one with indef profile import",
                Name(other)
            );
        }
        others.push(Store::open(other)?);
    }
    let mut store = Store::create(&args.store, &StoreOptions::default())?;
    let now = SystemTime::now();
    for other in &others {
        store.merge(other, now)?;
    }
    let heat = store.load(now)?;
    let document = MergeDocument {
        schema: SCHEMA,
        merged: others.len(),
        files: heat.files.len(),
        ranges: heat.ranges.len(),
    };
    let line = format!(
        "{} now has {} of {}",
        Name(&args.store),
        counted(document.ranges as u64, "range", "ranges"),
        counted(document.files as u64, "file", "files")
    );
    say(console, &args.store, &document, &line)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path| fs::metadata(path).map(|status| (status.dev(), status.ino()));
    match (id(one), id(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
