//! The result as a JSON document (docs/json.md).

use std::path::Path;

use indef_core::{SkipReason, layout::Region, plan::PathJson};
use indef_pipeline::compact::{CompactEnd, Compacted};
use serde::Serialize;
use units::{Bytes, Nanos, PhysOffset};

use crate::{excluded::ExcludedJson, refusal::line};

/// The fields after the files of the document.
#[derive(Serialize)]
pub(super) struct CompactRest {
    #[serde(flatten)]
    path: PathJson,
    fs: String,
    dry_run: bool,
    /// `whole`, `reached`, `dry-run`, `no-region`, `budget`, `space-short`, `stopped` or `failed`.
    ended: &'static str,
    stopped: Option<&'static str>,
    error: Option<String>,
    wanted_bytes: Bytes,
    free_bytes: Bytes,
    largest_before_bytes: Bytes,
    largest_after_bytes: Bytes,
    region: Option<RegionJson>,
    files_in_region: u64,
    files_moved: u64,
    files_failed: u64,
    #[serde(flatten)]
    excluded: ExcludedJson,
    bytes_relocated: Bytes,
    bytes_written: Bytes,
    written_per_byte: Option<f64>,
    held_bytes: Option<Bytes>,
    rounds: u32,
    part: Option<&'static str>,
    parts_in_region: Option<u64>,
    parts_emptied: Option<u64>,
    in_the_way: InTheWayJson,
    duration_ns: Nanos,
}

/// The same of one that failed before it had looked at the space.
#[derive(Serialize)]
pub(super) struct CompactFailed {
    ended: &'static str,
    error: String,
}

impl CompactFailed {
    pub(super) fn new(error: &anyhow::Error) -> Self {
        Self {
            ended: CompactEnd::Failed.as_str(),
            error: line(error),
        }
    }
}

#[derive(Serialize)]
struct RegionJson {
    start_bytes: PhysOffset,
    len_bytes: Bytes,
    to_move_bytes: Bytes,
    free_bytes: Bytes,
}

#[derive(Serialize)]
struct InTheWayJson {
    metadata_bytes: Bytes,
    unknown_bytes: Bytes,
    files: Vec<StayingJson>,
}

#[derive(Serialize)]
struct StayingJson {
    reason: SkipReason,
    pieces: u64,
    bytes: Bytes,
}

impl CompactRest {
    pub(super) fn new(path: &Path, done: &Compacted, failure: Option<&anyhow::Error>) -> Self {
        let staying = done.in_the_way.files.iter();
        Self {
            path: PathJson::from(path),
            fs: done.kind.to_string(),
            dry_run: done.end == CompactEnd::DryRun,
            ended: done.end.as_str(),
            stopped: match done.end {
                CompactEnd::Stopped(cause) => Some(cause.as_str()),
                CompactEnd::Budget | CompactEnd::Short => Some(done.end.as_str()),
                CompactEnd::Whole
                | CompactEnd::Reached
                | CompactEnd::DryRun
                | CompactEnd::NoRegion
                | CompactEnd::Failed => None,
            },
            error: failure.map(line),
            wanted_bytes: done.wanted,
            free_bytes: done.free,
            largest_before_bytes: done.largest_before,
            largest_after_bytes: done.largest_after,
            region: done.region.map(RegionJson::from),
            files_in_region: done.files,
            files_moved: done.files_moved,
            files_failed: done.files_failed,
            excluded: done.excluded.into(),
            bytes_relocated: done.bytes_relocated,
            bytes_written: done.bytes_written,
            written_per_byte: done.written_per_byte(),
            held_bytes: done.held,
            rounds: done.rounds,
            part: done.parts.map(|(part, _)| part.as_str()),
            parts_in_region: done.parts.map(|(_, number)| number),
            parts_emptied: done.parts.map(|_| done.parts_emptied),
            in_the_way: InTheWayJson {
                metadata_bytes: done.in_the_way.metadata,
                unknown_bytes: done.in_the_way.unknown,
                files: staying
                    .map(|(reason, staying)| StayingJson {
                        reason: *reason,
                        pieces: staying.pieces,
                        bytes: staying.bytes,
                    })
                    .collect(),
            },
            duration_ns: done.duration.into(),
        }
    }
}

impl From<Region> for RegionJson {
    fn from(region: Region) -> Self {
        Self {
            start_bytes: region.place.start,
            len_bytes: region.place.len,
            to_move_bytes: region.to_move,
            free_bytes: region.free,
        }
    }
}
