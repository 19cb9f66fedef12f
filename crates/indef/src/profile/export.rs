//! `indef profile export`.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    slice,
    time::SystemTime,
};

use anyhow::{Context, Result, bail};
use indef_core::{
    access::AccessRange,
    profile::{ProfileFile, ProfileWriter},
};
use indef_trace::{TracedFile, import::CsvWriter, resolve::Resolver, store::Store};
use serde::Serialize;

use super::tell::failed;
use crate::{
    args::{ExportArgs, ExportFormat},
    document::SCHEMA,
    made::Made,
    output::{Console, Name, UNPRINTED, counted, json},
};

/// `profile export --json`.
#[derive(Serialize)]
struct ExportDocument {
    schema: u64,
    format: &'static str,
    files: u64,
    ranges: u64,
    /// Files without a path, which text cannot name.
    nameless: u64,
}

pub(super) fn export(args: &ExportArgs, console: &Console) -> Result<()> {
    if !Store::is_store(&args.store).map_err(|error| failed(&args.store, &error))? {
        bail!(
            "{}: no store, so there is nothing to export",
            Name(&args.store)
        );
    }
    let store = Store::open(&args.store)?;
    let document = match &args.output {
        None => {
            let (_, document) = write(&store, args.format, BufWriter::new(io::stdout().lock()))?;
            document
        }
        Some(path) => {
            let document = to_file(&store, args.format, path)?;
            if console.json {
                json::print(&document, &Made::of(slice::from_ref(&args.store)))
                    .context(UNPRINTED)?;
            }
            document
        }
    };
    if document.nameless > 0 {
        console.note(format_args!(
            "{} without a path left out: text names files by it",
            counted(document.nameless, "file", "files")
        ));
    }
    if args.output.is_some() {
        console.note(format_args!(
            "{} of {} written",
            counted(document.ranges, "range", "ranges"),
            counted(document.files, "file", "files")
        ));
    }
    Ok(())
}

/// Write a new file, and move it into place when it is complete. A pipe or a device is written
/// directly.
fn to_file(store: &Store, format: ExportFormat, path: &Path) -> Result<ExportDocument> {
    if path.exists() && !path.is_file() {
        let file = File::create(path).map_err(|error| failed(path, &error))?;
        let written = write(store, format, BufWriter::new(file));
        return Ok(written.with_context(|| Name(path).to_string())?.1);
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let file = tempfile::NamedTempFile::new_in(folder).map_err(|error| failed(path, &error))?;
    let out: BufWriter<&File> = BufWriter::new(file.as_file());
    let (_, document) = write(store, format, out).with_context(|| Name(path).to_string())?;
    file.persist(path)
        .map_err(|error| failed(path, &error.error))?;
    Ok(document)
}

/// One of the two writers.
enum ExportWriter<W: Write> {
    Lines(ProfileWriter<W>, u32),
    Csv(CsvWriter<W>),
}

impl<W: Write> ExportWriter<W> {
    fn file(&mut self, file: &ProfileFile) -> io::Result<()> {
        match self {
            Self::Lines(lines, number) => *number = lines.file(file)?,
            Self::Csv(csv) => csv.file(file),
        }
        Ok(())
    }

    fn range(&mut self, range: &AccessRange) -> io::Result<()> {
        match self {
            Self::Lines(lines, number) => lines.range(*number, range),
            Self::Csv(csv) => csv.range(range),
        }
    }

    fn finish(self) -> io::Result<W> {
        match self {
            Self::Lines(lines, _) => lines.finish(),
            Self::Csv(csv) => csv.finish(),
        }
    }
}

fn write<W: Write>(store: &Store, format: ExportFormat, out: W) -> Result<(W, ExportDocument)> {
    let mut document = ExportDocument {
        schema: SCHEMA,
        format: match format {
            ExportFormat::Lines => "lines",
            ExportFormat::Csv => "csv",
        },
        files: 0,
        ranges: 0,
        nameless: 0,
    };
    let mut writer = match format {
        ExportFormat::Lines => ExportWriter::Lines(ProfileWriter::new(out)?, 0),
        ExportFormat::Csv => ExportWriter::Csv(CsvWriter::new(out)?),
    };
    let resolver = Resolver::new();
    let mut failed = None;
    let mut latest = None;
    store.visit(SystemTime::now(), |number, file, range| {
        if failed.is_some() {
            return;
        }
        let mut one = || -> io::Result<()> {
            if !matches!(latest, Some((of, _)) if of == number) {
                let known = known(file, &resolver);
                latest = Some((number, known.is_some()));
                match known {
                    Some(known) => {
                        document.files += 1;
                        writer.file(&known)?;
                    }
                    None => document.nameless += 1,
                }
            }
            if matches!(latest, Some((_, true))) {
                document.ranges += 1;
                writer.range(&range)?;
            }
            Ok(())
        };
        failed = one().err();
    })?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok((writer.finish()?, document)),
    }
}

/// A file in the form for text, with the path that it has now if none was recorded. The numbers of
/// a file that is known by its path alone are meaningless.
fn known(file: &TracedFile, resolver: &Resolver) -> Option<ProfileFile> {
    let there = file.key.dev != 0;
    let recorded = file.path.clone();
    Some(ProfileFile {
        path: recorded.or_else(|| resolver.find(file)?.path)?,
        dev: there.then_some(file.key.dev),
        inode: there.then_some(file.key.inode),
    })
}
