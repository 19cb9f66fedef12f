//! The lines in the form of the file. Numbers carry their unit in their names.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};
use units::{Bytes, FileRange, PhysOffset};

use super::{
    super::{Chunk, Decision, Edges, PlanOptions, PlanTotals, Policy, SharedMove, Weight},
    Absurd, ChunkFault,
};
use crate::{
    SkipReason, calibrate::Weights, layout::DeviceTimes, priority::finite, probe::ReadModel,
};

/// The fields that every version of the header has.
#[derive(Deserialize)]
pub(super) struct Version {
    #[serde(rename = "indef-plan")]
    pub(super) version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanHeader {
    #[serde(rename = "indef-plan")]
    pub(super) version: u64,
    policy: Policy,
    truncate_pct: f64,
    alpha: f64,
    beta: f64,
    /// Present only for measured weights, so that other plans keep their form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured_weights: Option<Weights>,
    /// Present only for the weight `device`, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_times: Option<DeviceTimes>,
    /// Present only for the weight `device` with the times of a probe, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probed: Option<ReadModel>,
    io_size_bytes: Bytes,
    hot_pct: f64,
    geometry: String,
    /// Present only where it is true, likewise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    on_rows: bool,
    max_request_bytes: Bytes,
    budget_bytes: Option<Bytes>,
    target_gain_pct: Option<f64>,
    /// Present only where space is given back, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reclaim_ratio: Option<f64>,
    allow_unshare: bool,
}

impl PlanHeader {
    pub(super) fn new(version: u64, options: &PlanOptions) -> Self {
        let (measured_weights, device_times, probed) = match options.weight {
            Weight::Paper => (None, None, None),
            Weight::Measured(weights) => (Some(weights), None, None),
            Weight::Device(times) => (None, Some(times), None),
            Weight::Probed(model) => (None, None, Some(model)),
        };
        Self {
            version,
            policy: options.policy,
            truncate_pct: options.truncate_pct,
            alpha: options.alpha,
            beta: options.beta,
            measured_weights,
            device_times,
            probed,
            io_size_bytes: options.io_size,
            hot_pct: options.hot_pct,
            geometry: options.geometry.to_string(),
            on_rows: options.on_rows,
            max_request_bytes: options.max_request,
            budget_bytes: options.budget,
            target_gain_pct: options.target_gain_pct,
            reclaim_ratio: options.reclaim_ratio,
            allow_unshare: options.allow_unshare,
        }
    }

    pub(super) fn options(self) -> Result<PlanOptions, Absurd> {
        let options = PlanOptions {
            policy: self.policy,
            truncate_pct: self.truncate_pct,
            alpha: self.alpha,
            beta: self.beta,
            weight: match (self.measured_weights, self.device_times, self.probed) {
                (Some(weights), _, _) => Weight::Measured(weights),
                (None, Some(times), _) => Weight::Device(times),
                (None, None, Some(model)) => Weight::Probed(model),
                (None, None, None) => Weight::Paper,
            },
            io_size: self.io_size_bytes,
            hot_pct: self.hot_pct,
            geometry: self.geometry.parse()?,
            on_rows: self.on_rows,
            max_request: self.max_request_bytes,
            budget: self.budget_bytes,
            target_gain_pct: self.target_gain_pct,
            reclaim_ratio: self.reclaim_ratio,
            allow_unshare: self.allow_unshare,
            // Decided for each file, by its engine.
            keeps_sharing: false,
        };
        options.check()?;
        Ok(options)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileLine<'a> {
    pub(super) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) path_bytes: Option<String>,
    /// Not in version 1.
    #[serde(default)]
    pub(super) root_len_bytes: Option<usize>,
    pub(super) dev: u64,
    pub(super) inode: u64,
    /// Seconds and nanoseconds. Not in version 1.
    #[serde(default)]
    pub(super) born: Option<(i64, u32)>,
    pub(super) size_bytes: Bytes,
    pub(super) block_size_bytes: Bytes,
    #[serde(borrow)]
    pub(super) fs: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) engine: Option<Cow<'a, str>>,
    pub(super) extents_before: u64,
    /// Present only where files were named that may share blocks with it, so that other plans keep their form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) named_inodes: Option<Vec<u64>>,
    pub(super) skip: Option<SkipReason>,
    pub(super) chunks: Vec<ChunkLine>,
    pub(super) more: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChunksLine {
    pub(super) chunks: Vec<ChunkLine>,
    pub(super) more: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DecisionWord {
    Migrate,
    Skip,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChunkLine {
    start_bytes: u64,
    len_bytes: u64,
    reads: u64,
    writes: u64,
    dolf: u64,
    dopf: f64,
    iodp: f64,
    decision: DecisionWord,
    reason: Option<SkipReason>,
    cost_bytes: Bytes,
    gain: f64,
    /// `excess`, `cuts_start`, `cuts_end`.
    edges: (u64, bool, bool),
    /// Present only where space is given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lets_go_bytes: Option<PhysOffset>,
    /// Present only where other files move along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holders: Option<u64>,
    /// Likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata_bytes: Option<Bytes>,
}

impl From<&Chunk> for ChunkLine {
    fn from(chunk: &Chunk) -> Self {
        let (decision, reason) = match chunk.decision {
            Decision::Migrate => (DecisionWord::Migrate, None),
            Decision::Skip(reason) => (DecisionWord::Skip, Some(reason)),
        };
        let Edges {
            excess,
            cuts_start,
            cuts_end,
        } = chunk.edges;
        Self {
            start_bytes: chunk.range.start.0,
            len_bytes: chunk.range.len.0,
            reads: chunk.reads,
            writes: chunk.writes,
            dolf: chunk.dolf,
            dopf: finite(chunk.dopf),
            iodp: finite(chunk.iodp),
            decision,
            reason,
            cost_bytes: chunk.cost,
            gain: finite(chunk.gain),
            edges: (excess, cuts_start, cuts_end),
            lets_go_bytes: chunk.lets_go,
            holders: chunk.shared.map(|shared| shared.holders),
            metadata_bytes: chunk.shared.map(|shared| shared.metadata),
        }
    }
}

impl ChunkLine {
    pub(super) fn chunk(self) -> Result<Chunk, Absurd> {
        let start = self.start_bytes;
        let wrong = |fault| Err(Absurd::Chunk { start, fault });
        let decision = match (self.decision, self.reason) {
            (DecisionWord::Migrate, None) => Decision::Migrate,
            (DecisionWord::Skip, Some(reason)) => Decision::Skip(reason),
            (DecisionWord::Migrate, Some(_)) => return wrong(ChunkFault::NeedlessReason),
            (DecisionWord::Skip, None) => return wrong(ChunkFault::NoReason),
        };
        for (name, value) in [
            ("dopf", self.dopf),
            ("iodp", self.iodp),
            ("gain", self.gain),
        ] {
            if !value.is_finite() || value < 0.0 {
                return Err(Absurd::Number { name, start, value });
            }
        }
        Ok(Chunk {
            range: FileRange::new(self.start_bytes, self.len_bytes),
            reads: self.reads,
            writes: self.writes,
            dolf: self.dolf,
            dopf: self.dopf,
            iodp: self.iodp,
            decision,
            cost: self.cost_bytes,
            gain: self.gain,
            edges: Edges {
                excess: self.edges.0,
                cuts_start: self.edges.1,
                cuts_end: self.edges.2,
            },
            lets_go: self.lets_go_bytes,
            shared: self.holders.map(|holders| SharedMove {
                holders,
                // It is a part of the cost, whatever stands here.
                metadata: self.metadata_bytes.unwrap_or_default().min(self.cost_bytes),
            }),
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TotalsLine {
    pub(super) totals: StoredTotals,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredTotals {
    files: u64,
    files_to_move: u64,
    chunks: u64,
    chunks_to_move: u64,
    cost_bytes: Bytes,
    gain: f64,
    total_gain: f64,
}

impl From<&PlanTotals> for StoredTotals {
    fn from(totals: &PlanTotals) -> Self {
        Self {
            files: totals.files,
            files_to_move: totals.files_to_move,
            chunks: totals.chunks,
            chunks_to_move: totals.chunks_to_move,
            cost_bytes: totals.cost,
            gain: finite(totals.gain),
            total_gain: finite(totals.total_gain),
        }
    }
}

impl StoredTotals {
    /// Whether `seen` covers the whole plan, and promises no more writes. It may promise fewer: a
    /// person may have turned migrations into skips. Gains are sums of fractions, and not compared.
    pub(super) fn cover(&self, seen: &PlanTotals) -> bool {
        self.files == seen.files
            && self.chunks == seen.chunks
            && self.files_to_move >= seen.files_to_move
            && self.chunks_to_move >= seen.chunks_to_move
            && self.cost_bytes >= seen.cost
    }
}

/// Shares one allocation among equal names. A plan has few; should it have many, the first ones are
/// shared and the others are not.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Arc<str>>);

impl Names {
    const MAX: usize = 16;

    pub(super) fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.iter().find(|known| ***known == *name) {
            return known.clone();
        }
        let new: Arc<str> = Arc::from(name);
        if self.0.len() < Self::MAX {
            self.0.push(new.clone());
        }
        new
    }
}
