//! The inputs of a report: plan files and saved results, distinguished by their content.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow, bail};
use indef_core::{
    SkipReason,
    plan::{Chunk, Decision, FilePlan, PathJson, PlanOptions, PlanTotals, format::PlanReader},
};
use indef_pipeline::plan::untouched_reason;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::{Value, json};
use units::Bytes;

use super::{digest::Digest, reads::Reads};
use crate::{
    document::{FileMap, RunDocument, RunTotals, SCHEMA},
    extent_map::slice_bytes,
    output::Name,
    refusal::{advice, plain},
};

/// One input.
pub(super) struct Input {
    pub(super) source: PathBuf,
    pub(super) content: Content,
}

/// The content of an input.
pub(super) enum Content {
    Plan(PlanInput),
    Run(RunInput),
}

/// The result of a run.
pub(super) struct RunInput {
    /// All of the document but its files.
    pub(super) document: RunDocument,
    pub(super) files: Digest,
}

/// A plan, condensed while it is read.
pub(super) struct PlanInput {
    options: PlanOptions,
    pub(super) totals: PlanTotals,
    /// Files of which nothing moves, by reason, as far as the plan has them.
    pub(super) left_alone: BTreeMap<SkipReason, u64>,
    /// The files with the highest gain.
    pub(super) worst: Vec<FilePlan>,
    /// Requests of a read, over all ranges that are planned.
    pub(super) reads: Reads,
}

/// Number of maps in a report of a plan.
const MAPS: usize = 12;

impl PlanInput {
    /// The policy that the plan was made with.
    pub(super) fn policy_word(&self) -> &'static str {
        self.options.policy.as_str()
    }

    /// The options with which it was made.
    pub(super) fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// The size of a read for which it was made.
    pub(super) fn io_size(&self) -> Bytes {
        self.options.io_size
    }

    /// Maps from the chunks.
    pub(super) fn maps(&self) -> Vec<FileMap> {
        self.worst
            .iter()
            .take(MAPS)
            .map(|file| map_of_plan(file, self.options.io_size))
            .collect()
    }
}

/// Read an input; an error names the fault and the remedy.
pub(super) fn read(path: &Path, top: usize) -> Result<Input> {
    let file = File::open(path)
        .map_err(|error| anyhow!("{}: {}: {}", Name(path), plain(&error), advice(&error)))?;
    let mut input = BufReader::new(file);
    let mut head = [0; 64];
    let head = {
        let available = input.fill_buf().map_err(|error| {
            anyhow!(
                "{}: {}: give a plan or a saved result",
                Name(path),
                plain(&error)
            )
        })?;
        let n = available.len().min(head.len());
        head[..n].copy_from_slice(&available[..n]);
        &head[..n]
    };
    let is_plan = head.windows(12).any(|part| part == b"\"indef-plan\"");
    let content = if is_plan {
        Content::Plan(plan(path, input, top)?)
    } else {
        Content::Run(run(path, input, top)?)
    };
    Ok(Input {
        source: path.to_owned(),
        content,
    })
}

fn plan(path: &Path, input: impl BufRead, top: usize) -> Result<PlanInput> {
    let named = |error| anyhow!("{}: {error}", Name(path));
    let mut reader = PlanReader::new(input).map_err(named)?;
    let mut worst: Vec<FilePlan> = Vec::new();
    let keep = top.max(MAPS);
    let io_size = reader.options().io_size;
    let mut reads = Reads::default();
    let mut left_alone = BTreeMap::new();
    for file in reader.by_ref() {
        let file = file.map_err(named)?;
        for chunk in file.chunks.iter().filter(|chunk| chunk.dolf > 0) {
            let now = fragments_in_a_read(chunk, io_size);
            let then = if chunk.migrates() { 1 } else { now };
            let windows = chunk.range.len.div_ceil(io_size).max(1);
            let weight = chunk.reads.max(1) as f64 * windows as f64;
            reads.add(weight, now as f64, then as f64);
        }
        if let Some(reason) = file.skip.or_else(|| untouched_reason(&file.chunks)) {
            *left_alone.entry(reason).or_default() += 1;
            continue;
        }
        worst.push(file);
        if worst.len() >= keep.saturating_mul(2) {
            shorten(&mut worst, keep);
        }
    }
    shorten(&mut worst, keep);
    Ok(PlanInput {
        options: reader.options().clone(),
        totals: *reader.totals(),
        left_alone,
        worst,
        reads,
    })
}

fn shorten(files: &mut Vec<FilePlan>, keep: usize) {
    files.sort_by(|a, b| b.gain().total_cmp(&a.gain()));
    files.truncate(keep);
}

fn run(path: &Path, input: impl Read, top: usize) -> Result<RunInput> {
    let mut json = serde_json::Deserializer::from_reader(input);
    let read = json.deserialize_map(WholeRun { top });
    let WholeDocument { mut fields, files } = read
        .and_then(|whole| json.end().map(|()| whole))
        .map_err(|error| match error.is_data() {
            // The fields of an entry.
            true => not_a_run(path, &error),
            false => anyhow!(
                "{}: neither a plan nor a JSON document ({error}): give a file from `indef plan -o` or `indef run --json`",
                Name(path)
            ),
        })?;
    match fields.get("schema").and_then(Value::as_u64) {
        Some(SCHEMA) => {}
        Some(other) => bail!(
            "{}: schema {other}, but this indef reads schema {SCHEMA}: make it again with `indef run --json`",
            Name(path)
        ),
        None => bail!(
            "{}: not a result of indef: give a file from `indef plan -o` or `indef run --json`",
            Name(path)
        ),
    }
    // Of a command that failed before it had anything else to tell.
    if fields.get("error").is_some_and(Value::is_string) && !fields.contains_key("files") {
        fields.insert("files".to_owned(), Value::Array(Vec::new()));
        fields.insert("totals".to_owned(), json!(RunTotals::default()));
    }
    let document =
        serde_json::from_value(Value::Object(fields)).map_err(|error| not_a_run(path, &error))?;
    Ok(RunInput { document, files })
}

fn not_a_run(path: &Path, error: &serde_json::Error) -> anyhow::Error {
    anyhow!(
        "{}: not the result of a run ({error}): give a file from `indef plan -o` or `indef run --json`",
        Name(path)
    )
}

/// A document whose files, of which there may be hundreds of thousands, are condensed.
struct WholeDocument {
    /// All fields but the files, whose place an empty list takes.
    fields: serde_json::Map<String, Value>,
    files: Digest,
}

struct WholeRun {
    top: usize,
}

impl<'de> Visitor<'de> for WholeRun {
    type Value = WholeDocument;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WholeDocument, A::Error> {
        let mut whole = WholeDocument {
            fields: serde_json::Map::new(),
            files: Digest::new(self.top),
        };
        while let Some(key) = map.next_key::<String>()? {
            let schema = whole.fields.get("schema").and_then(Value::as_u64);
            if key == "files" && schema.is_none_or(|schema| schema == SCHEMA) {
                whole.files = map.next_value_seed(Digest::new(self.top))?;
                whole.fields.insert(key, Value::Array(Vec::new()));
            } else {
                whole.fields.insert(key, map.next_value()?);
            }
        }
        Ok(whole)
    }
}

/// A plan knows how fragmented each range is, not where its extents lie: here a slice is at least
/// one read long, and shows the highest number of fragments in one of its reads. After the run,
/// ranges that migrate are one fragment.
fn map_of_plan(file: &FilePlan, io_size: Bytes) -> FileMap {
    let slice = slice_bytes(file.size, io_size.max(file.block_size)).get();
    let count = file.size.div_ceil(Bytes(slice)) as usize;
    let (mut before, mut after) = (vec![0; count], vec![0; count]);
    for chunk in file
        .chunks
        .iter()
        .filter(|chunk| chunk.dolf > 0 && !chunk.range.is_empty())
    {
        let now = fragments_in_a_read(chunk, io_size);
        let then = if chunk.migrates() { 1 } else { now };
        let first = chunk.range.start.get() / slice;
        let last = (chunk.range.end().get() - 1) / slice;
        for n in first as usize..=(last as usize).min(count.saturating_sub(1)) {
            before[n] = now.max(before[n]);
            after[n] = then.max(after[n]);
        }
    }
    FileMap {
        path: PathJson::from(file.path.as_path()),
        size_bytes: file.size.get(),
        slice_bytes: slice,
        extents_before: file.extents_before,
        extents_after: None,
        before,
        after,
        device: None,
    }
}

/// Joined neighbours that need no move have the DoLF of one of them; others have that of all
/// their reads together.
fn fragments_in_a_read(chunk: &Chunk, io_size: Bytes) -> u64 {
    if chunk.dolf <= 1 || chunk.decision == Decision::Skip(SkipReason::Contiguous) {
        return chunk.dolf;
    }
    chunk
        .dolf
        .div_ceil(chunk.range.len.div_ceil(io_size).max(1))
}
