//! The same reads on several states, in turn.
//!
//! Each read is done on every state before the next one is done on any, in changing order. A
//! disturbance of the machine for a while so affects all of them alike. Of the rounds, the median
//! time of each single read counts. A read that took disproportionately long on some state all the
//! same tells something about the machine only, and is left out on all states.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use scratch_fs::ScratchFs;

use super::{
    super::{measure, median::median},
    reader::DirectReader,
};

/// A read that takes this many times the median of all was disturbed: no number of fragments in a
/// range, nor a cache below, makes such a difference.
const DISTURBED: u64 = 16;

/// The cost of all reads on one state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Sum over the undisturbed reads of their median time.
    pub(super) time_ns: u64,
    /// The number of these.
    pub(super) reads: u64,
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
            readers.push(DirectReader::open(path)?);
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
    let medians: Vec<Vec<u64>> = times
        .into_iter()
        .map(|reads| reads.into_iter().map(median).collect())
        .collect();
    let undisturbed = undisturbed(&medians);
    for (cost, times) in costs.iter_mut().zip(&medians) {
        cost.reads = undisturbed.len() as u64;
        cost.time_ns = undisturbed.iter().map(|i| times[*i]).sum();
    }
    Ok(costs)
}

/// The reads that were disturbed on no state.
fn undisturbed(times: &[Vec<u64>]) -> Vec<usize> {
    let limit = DISTURBED * median(times.concat());
    let reads = times.first().map_or(0, Vec::len);
    (0..reads)
        .filter(|i| times.iter().all(|times| times[*i] <= limit))
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_read_counts_nowhere() {
        let times = [vec![100, 110, 9000, 100], vec![50, 400, 60, 55]];
        assert_eq!(undisturbed(&times), [0, 1, 3]);
        assert_eq!(undisturbed(&[]), [0; 0]);
    }
}
