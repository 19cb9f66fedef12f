//! The same reads on several states, in turn.
//!
//! Each read is done on every state before the next one is done on any, in changing order. What
//! disturbs the machine for a while so disturbs all of them alike. Of the rounds, the median time of
//! each single read counts.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use scratch_fs::ScratchFs;

use super::{super::measure, workload::Reader};

/// What all reads took on one state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Sum over the reads of their median time.
    pub(super) time_ns: u64,
    /// Requests that the device got in one round, metadata included.
    pub(super) requests: u64,
}

/// Do `reads` on the file of every state, `rounds` times, each time with cold caches.
pub(super) fn paired(
    states: &[(&ScratchFs, &Path)],
    reads: &[u32],
    rounds: usize,
) -> Result<Vec<Cost>> {
    let mut times = vec![vec![Vec::with_capacity(rounds); reads.len()]; states.len()];
    let mut costs = vec![Cost::default(); states.len()];
    for _ in 0..rounds {
        let mut readers = Vec::new();
        for (scratch, path) in states {
            measure::drop_caches(scratch)?;
            readers.push(Reader::open(path)?);
        }
        let before = requests(states)?;
        for (i, range) in reads.iter().enumerate() {
            measure::ensure_not_stopped()?;
            for turn in 0..states.len() {
                let state = (i + turn) % states.len();
                let took = readers[state].read(*range)?;
                times[state][i].push(took.as_nanos() as u64);
            }
        }
        for (cost, (after, before)) in costs.iter_mut().zip(requests(states)?.iter().zip(before)) {
            cost.requests = after - before;
        }
    }
    for (cost, reads) in costs.iter_mut().zip(&mut times) {
        cost.time_ns = reads.iter_mut().map(|times| median(times)).sum();
    }
    Ok(costs)
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times[(times.len() - 1) / 2]
}

/// Reads that each device has completed.
fn requests(states: &[(&ScratchFs, &Path)]) -> Result<Vec<u64>> {
    let of = |scratch: &ScratchFs| {
        let name = scratch.device().trim_start_matches("/dev/");
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat"))?;
        let first = stat.split_whitespace().next();
        first
            .and_then(|word| word.parse().ok())
            .with_context(|| format!("unexpected {name}/stat: {stat}"))
    };
    states.iter().map(|(scratch, _)| of(scratch)).collect()
}
