//! `indef profile import`.

use std::{
    env,
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
    time::SystemTime,
};

use anyhow::{Context, Result, anyhow, bail};
use indef_trace::{
    import::{self, Format, Gather, ImportOptions, Imported},
    store::{SessionInfo, Store},
};
use serde::Serialize;
use units::Bytes;

use super::{
    blocks,
    tell::{failed, say},
};
use crate::{
    args::{ImportArgs, LayerName},
    document::SCHEMA,
    output::{Console, Name, counted},
};

/// Number of bytes of a trace that are examined to recognise its format.
const BEGINNING: usize = 64 << 10;

/// `profile import --json`.
#[derive(Serialize)]
struct ImportDocument {
    schema: u64,
    format: &'static str,
    layer: &'static str,
    lines: u64,
    accesses: u64,
    files: u64,
    files_absent: u64,
    ranges_written: u64,
    lines_unknown: u64,
    first_unknown_line: Option<u64>,
    accesses_unplaced: u64,
}

pub(super) fn import(args: &ImportArgs, console: &Console) -> Result<()> {
    let mut input = open(&args.input)?;
    let format = format(args, &mut *input)?;
    if format == Format::Blkparse && args.map.is_empty() {
        bail!("a trace of a device names no files; say with --map where they lie");
    }
    let options = ImportOptions {
        folder: match &args.folder {
            Some(folder) => std::path::absolute(folder).map_err(|error| failed(folder, &error))?,
            None => env::current_dir().context("the current folder is gone; give --folder")?,
        },
        blocks: blocks::map(&args.map, console)?,
    };
    let above = match args.layer {
        None => format.is_above_the_cache(),
        Some(layer) => layer == LayerName::Syscall,
    };
    let (layer, readahead) = match above {
        true => ("syscall", args.readahead),
        false => ("fs", Some(Bytes::ZERO)),
    };
    if args.store.exists() && !Store::is_store(&args.store).unwrap_or(true) && !is_empty(args) {
        bail!(
            "{}: there is something else than a store; name another file",
            Name(&args.store)
        );
    }
    let now = SystemTime::now();
    let mut store = Store::create(&args.store, &args.options())?;
    let session = store.begin(
        &SessionInfo {
            layer: layer.to_owned(),
            command: format!("import of {} ({format})", Name(&args.input)),
            kernel: String::new(),
        },
        now,
    )?;
    let mut gather = Gather::new(&mut store, session, now, readahead);
    let imported = import::import(format, input, &options, &mut gather);
    // Accesses before an error are usable.
    let gathered = gather.finish()?;
    let imported = imported.map_err(|error| {
        anyhow!(
            "{}: {error}{}",
            Name(&args.input),
            match gathered.ranges {
                0 => "",
                _ => "; what stands before is in the store",
            }
        )
    })?;
    store.finish(session, imported.unplaced, SystemTime::now())?;
    tell(&imported, console);
    if imported.accesses == 0 {
        bail!(
            "{}: no accesses found; is it a trace of {format}? (--format names another)",
            Name(&args.input)
        );
    }
    let document = ImportDocument {
        schema: SCHEMA,
        format: format.as_str(),
        layer,
        lines: imported.lines,
        accesses: imported.accesses,
        files: gathered.files,
        files_absent: gathered.absent,
        ranges_written: gathered.ranges,
        lines_unknown: imported.unknown,
        first_unknown_line: imported.first_unknown.map(|(line, _)| line),
        accesses_unplaced: imported.unplaced,
    };
    if gathered.absent > 0 {
        console.note(format_args!(
            "{} not there (any more); kept by path alone",
            counted(gathered.absent, "file is", "files are")
        ));
    }
    let line = format!(
        "{} of {} into {}",
        counted(document.accesses, "access", "accesses"),
        counted(document.files, "file", "files"),
        Name(&args.store)
    );
    say(console, &args.store, &document, &line)
}

fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::with_capacity(BEGINNING, io::stdin())));
    }
    let file = File::open(path).map_err(|error| failed(path, &error))?;
    Ok(Box::new(BufReader::with_capacity(BEGINNING, file)))
}

fn format(args: &ImportArgs, input: &mut dyn BufRead) -> Result<Format> {
    if let Some(format) = args.format {
        return Ok(format.into());
    }
    let begin = input
        .fill_buf()
        .map_err(|error| failed(&args.input, &error))?;
    if begin.starts_with(b"SQLite format 3\0") {
        bail!(
            "{}: this is a store; add it with indef profile merge",
            Name(&args.input)
        );
    }
    Format::detect(begin).ok_or_else(|| {
        anyhow!(
            "{}: cannot tell what wrote it; say it with --format",
            Name(&args.input)
        )
    })
}

fn is_empty(args: &ImportArgs) -> bool {
    args.store.metadata().is_ok_and(|status| status.len() == 0)
}

/// Report what was left out.
fn tell(imported: &Imported, console: &Console) {
    if let Some((line, text)) = &imported.first_unknown {
        console.note(format_args!(
            "{} not understood, first: line {line}: {text}",
            counted(imported.unknown, "line", "lines")
        ));
    }
    if imported.unplaced > 0 {
        console.note(format_args!(
            "{} left out: the trace does not tell which file or where (descriptors from before it \
             began, appending writes, places on no file of --map)",
            counted(imported.unplaced, "access", "accesses")
        ));
    }
}
