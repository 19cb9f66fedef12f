//! `--budget` and `--target-gain`: which chunks of all files are worth it.

use units::Bytes;

use super::{Decision, FilePlan, PlanOptions, safety::keep_promise_from_edges};
use crate::SkipReason;

struct Candidate {
    gain_per_byte: f64,
    file: u32,
    chunk: u32,
}

/// Keep the chunks with the best gain for each byte until the budget is spent or the target gain is
/// reached; the rest becomes `over-budget` or `gain-reached`. Equal chunks stay in their order. A
/// chunk too large for what is left of the budget is passed over, smaller ones still fit in.
///
/// Dropping chunks can leave pieces of a run that would end in more fragments alone than moved
/// together; these are dropped as well, so the result may stay below the limit.
pub fn limit(files: &mut [FilePlan], options: &PlanOptions) {
    if options.budget.is_none() && options.target_gain_pct.is_none() {
        return;
    }
    let mut candidates = Vec::new();
    let mut total_gain = 0.0;
    for (f, file) in files.iter().enumerate() {
        if file.skip.is_some() {
            continue;
        }
        for (c, chunk) in file.chunks.iter().enumerate().filter(|(_, c)| c.migrates()) {
            total_gain += chunk.gain;
            candidates.push(Candidate {
                gain_per_byte: chunk.gain / chunk.cost.0.max(1) as f64,
                file: f as u32,
                chunk: c as u32,
            });
        }
    }
    candidates.sort_by(|a, b| b.gain_per_byte.total_cmp(&a.gain_per_byte));
    let target = options
        .target_gain_pct
        .map_or(f64::INFINITY, |pct| total_gain * pct / 100.0);
    let (mut spent, mut gained) = (Bytes::ZERO, 0.0);
    let mut cut = vec![None; files.len()];
    for candidate in &candidates {
        let chunk = &mut files[candidate.file as usize].chunks[candidate.chunk as usize];
        let after = spent.saturating_add(chunk.cost);
        let reason = if gained >= target {
            SkipReason::GainReached
        } else if options.budget.is_some_and(|budget| after > budget) {
            SkipReason::OverBudget
        } else {
            spent = after;
            gained += chunk.gain;
            continue;
        };
        chunk.decision = Decision::Skip(reason);
        cut[candidate.file as usize] = Some(reason);
    }
    for (file, reason) in files.iter_mut().zip(cut) {
        if let Some(reason) = reason {
            keep_promise_from_edges(&mut file.chunks, reason);
        }
    }
}
