//! `--budget` and `--target-gain`: selects the chunks of all files that are worth moving.
//!
//! Both take the best gain for each byte first. For a budget that is the usual approximation of the
//! knapsack problem. For a target it is that of its mirror image, the fewest bytes that reach a
//! gain: all but the last chunk taken are part of the best fractional solution, so no solution at
//! all is cheaper by more than one chunk. The last one is then chosen for its cost, and chunks that
//! have become superfluous are put back.

use std::{
    collections::{HashMap, HashSet},
    iter,
};

use units::Bytes;

use super::{Decision, FilePlan, PlanOptions, safety::keep_promise_from_edges, shared::pay_again};
use crate::SkipReason;

/// Sums of gains in different order differ by less than this part.
const ROUNDING: f64 = 1e-12;

/// Number of times that the target is raised to compensate for the gain lost to the promise about
/// fragments.
const ROUNDS: usize = 8;

/// The prediction: the part that moves after [`limit`], and the whole that the policy would move
/// without it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limited {
    /// Gain of the chunks that move.
    pub gain: f64,
    /// Gain of everything that the policy would move.
    pub possible_gain: f64,
    /// Bytes that moving writes.
    pub cost: Bytes,
    /// Bytes that moving everything would write.
    pub possible_cost: Bytes,
}

impl Limited {
    /// The part of the possible gain, in percent; 100 where there is none.
    #[must_use]
    pub fn gain_pct(&self) -> f64 {
        percent(self.gain, self.possible_gain)
    }

    /// The part of the possible cost, in percent; 100 where there is none.
    #[must_use]
    pub fn cost_pct(&self) -> f64 {
        percent(self.cost.0 as f64, self.possible_cost.0 as f64)
    }

    fn of(files: &[FilePlan]) -> (f64, Bytes) {
        files.iter().fold((0.0, Bytes::ZERO), |(gain, cost), file| {
            (gain + file.gain(), cost.saturating_add(file.cost()))
        })
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    match whole > 0.0 {
        true => (part / whole * 100.0).clamp(0.0, 100.0),
        false => 100.0,
    }
}

struct Candidate {
    gain: f64,
    cost: u64,
    file: u32,
    chunk: u32,
    /// Further chunks that move with it: those that cost nothing once this one does, and those of
    /// the same extent.
    followers: Vec<u32>,
    /// Its gain for each byte; of chunks that share metadata, that of all of them.
    rank: f64,
    /// Its part in the metadata that the chunks of a file share.
    part: Part,
    taken: Result<(), SkipReason>,
}

/// Metadata that other files get stands in the cost of one chunk, and others need that one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Alone,
    Pays,
    Needs,
}

impl Candidate {
    fn gain_per_byte(&self) -> f64 {
        self.gain / self.cost.max(1) as f64
    }
}

/// Keep the chunks with the best gain for each byte until the budget is spent or the target gain is
/// reached; the rest becomes `over-budget` or `gain-reached`. Equal chunks stay in their order. A
/// chunk too large for the remaining budget is passed over, smaller ones still fit in.
///
/// Dropping chunks can leave pieces of a run that would end in more fragments alone than moved
/// together; these are dropped as well. For a target gain others take their place; a budget may not
/// be used up.
///
/// Where the engine can only move whole files, the first chunk pays for all, and the others cost
/// nothing (a chunk that moves has bytes to write elsewhere): they move with it or not at all. Nor
/// are the chunks of one extent that is to be let go ever taken apart. Of chunks that move with the
/// files that share them, none moves without the one that pays for the metadata of these.
pub fn limit(files: &mut [FilePlan], options: &PlanOptions) -> Limited {
    let (possible_gain, possible_cost) = Limited::of(files);
    let mut limited = Limited {
        gain: possible_gain,
        possible_gain,
        cost: possible_cost,
        possible_cost,
    };
    if options.budget.is_none() && options.target_gain_pct.is_none() {
        return limited;
    }
    let mut candidates = candidates(files);
    let budget = options.budget.map_or(u64::MAX, |budget| budget.0);
    let wanted = options.target_gain_pct.map_or(f64::INFINITY, |pct| {
        possible_gain * pct / 100.0 * (1.0 - ROUNDING)
    });
    let mut target = wanted;
    for _ in 0..ROUNDS {
        choose(&mut candidates, budget, target);
        apply(files, &candidates);
        (limited.gain, limited.cost) = Limited::of(files);
        let missing = wanted - limited.gain;
        let more = candidates
            .iter()
            .any(|c| c.taken == Err(SkipReason::GainReached));
        if !wanted.is_finite() || missing <= 0.0 || !more {
            break;
        }
        target += missing;
    }
    // The promise about fragments may have taken one away that pays.
    for file in files {
        pay_again(&mut file.chunks);
    }
    limited
}

/// Everything that moves, the best gain for each byte first.
fn candidates(files: &[FilePlan]) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for (f, file) in files.iter().enumerate() {
        if file.skip.is_some() {
            continue;
        }
        let first = candidates.len();
        let mut letting_go = HashMap::new();
        for (c, chunk) in file.chunks.iter().enumerate().filter(|(_, c)| c.migrates()) {
            if let (0, Some(payer)) = (chunk.cost.0, candidates[first..].last_mut()) {
                payer.gain += chunk.gain;
                payer.followers.push(c as u32);
                continue;
            }
            if let Some(extent) = chunk.lets_go {
                let index = *letting_go.entry(extent).or_insert(candidates.len());
                if let Some(payer) = candidates.get_mut(index) {
                    payer.gain += chunk.gain;
                    payer.cost = payer.cost.saturating_add(chunk.cost.0);
                    payer.followers.push(c as u32);
                    continue;
                }
            }
            candidates.push(Candidate {
                gain: chunk.gain,
                cost: chunk.cost.0,
                file: f as u32,
                chunk: c as u32,
                followers: Vec::new(),
                rank: 0.0,
                part: match chunk.shared {
                    Some(shared) if shared.metadata > Bytes::ZERO => Part::Pays,
                    Some(_) => Part::Needs,
                    None => Part::Alone,
                },
                taken: Ok(()),
            });
        }
        rank(&mut candidates[first..]);
    }
    // Equal ones stay in their order, so the one that pays comes before those that need it.
    candidates.sort_by(|a, b| b.rank.total_cmp(&a.rank));
    candidates
}

/// Rank the candidates of a file.
fn rank(candidates: &mut [Candidate]) {
    let pays = candidates.iter().any(|one| one.part == Part::Pays);
    let (mut gain, mut cost) = (0.0, 0u64);
    for candidate in candidates.iter_mut() {
        if !pays {
            // They have no metadata.
            candidate.part = Part::Alone;
        } else if candidate.part != Part::Alone {
            gain += candidate.gain;
            cost = cost.saturating_add(candidate.cost);
        }
    }
    for candidate in candidates {
        candidate.rank = match candidate.part {
            Part::Alone => candidate.gain_per_byte(),
            Part::Pays | Part::Needs => gain / cost.max(1) as f64,
        };
    }
}

/// Decide about every candidate.
fn choose(candidates: &mut [Candidate], budget: u64, target: f64) {
    let (mut spent, mut gained) = (0u64, 0.0);
    let (mut last, mut paid) = (None, HashSet::new());
    for (index, candidate) in candidates.iter_mut().enumerate() {
        let after = spent.saturating_add(candidate.cost);
        let is_unpaid = candidate.part == Part::Needs && !paid.contains(&candidate.file);
        candidate.taken = if gained >= target {
            Err(SkipReason::GainReached)
        } else if after > budget || is_unpaid {
            Err(SkipReason::OverBudget)
        } else {
            if candidate.part == Part::Pays {
                paid.insert(candidate.file);
            }
            spent = after;
            gained += candidate.gain;
            last = Some(index);
            Ok(())
        };
    }
    if let Some(last) = last
        && gained >= target
    {
        gained += exchange_last(candidates, last, target - (gained - candidates[last].gain));
        put_back(candidates, gained - target);
    }
}

/// Instead of the last one, take the cheapest that provides the missing gain without it. Returns by
/// how much the gain grows.
fn exchange_last(candidates: &mut [Candidate], last: usize, missing: f64) -> f64 {
    let cheapest = (0..candidates.len())
        .filter(|i| candidates[*i].taken == Err(SkipReason::GainReached))
        .filter(|i| candidates[*i].part != Part::Needs)
        .filter(|i| candidates[*i].gain >= missing)
        .min_by_key(|i| candidates[*i].cost);
    match cheapest {
        Some(other) if candidates[other].cost < candidates[last].cost => {
            candidates[last].taken = Err(SkipReason::GainReached);
            candidates[other].taken = Ok(());
            candidates[other].gain - candidates[last].gain
        }
        _ => 0.0,
    }
}

/// Leave out again the chunks that the target does not need, the worst first.
fn put_back(candidates: &mut [Candidate], mut surplus: f64) {
    for candidate in candidates.iter_mut().rev() {
        // Others may need one that pays.
        let is_needed = candidate.part == Part::Pays;
        if candidate.taken.is_ok() && candidate.gain <= surplus && !is_needed {
            surplus -= candidate.gain;
            candidate.taken = Err(SkipReason::GainReached);
        }
    }
}

/// Transfer the decisions to the chunks, and keep the promise about fragments.
fn apply(files: &mut [FilePlan], candidates: &[Candidate]) {
    let mut cut = vec![None; files.len()];
    for candidate in candidates {
        let decision = match candidate.taken {
            Ok(()) => Decision::Migrate,
            Err(reason) => {
                cut[candidate.file as usize] = Some(reason);
                Decision::Skip(reason)
            }
        };
        let chunks = &mut files[candidate.file as usize].chunks;
        for index in iter::once(&candidate.chunk).chain(&candidate.followers) {
            chunks[*index as usize].decision = decision;
        }
    }
    for (file, reason) in files.iter_mut().zip(cut) {
        if let Some(reason) = reason {
            keep_promise_from_edges(&mut file.chunks, reason);
        }
    }
}
