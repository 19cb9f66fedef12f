//! The requests of others: those that the device has in flight when a read begins.
//!
//! A device that is busy serves them first, so a fragment costs time to reads that are not fragmented
//! themselves. How many a read meets follows from how many requests reads are split into: with `q`
//! readers that wait for their reads, the others have `q − 1` reads in flight, each of as many
//! requests as the average read (on a device that serves requests in order; less where it serves many
//! at a time, but there waiting costs little). So the number is in proportion to that mean, and a
//! fragment less in one read takes `mean ahead ÷ mean requests` of a request off the sum of all.
//!
//! A device that never idles has a law of its own: the time of a whole run is the sum of its requests'
//! service times and of its bytes ÷ bandwidth, however the reads queue. With `q` readers each read takes
//! `q` times its share. The above agrees with it: a request that is served in `s` costs its own read
//! `s` and `q − 1` others as much, `q · s` in all, and bytes, which no move saves, stay in the base.

use super::{FEWEST_RANGES, Sample};

/// How many requests reads meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct QueueLoad {
    /// The mean number of requests ahead of a read.
    pub(super) mean_ahead: f64,
    /// The same for each request of the average read.
    pub(super) per_request: f64,
}

/// The load that the samples show, after removing those for which it is not known; `None`, and none
/// removed, where it is known for less than half of the ranges or for too few.
pub(super) fn load(samples: &mut Vec<Sample>) -> Option<QueueLoad> {
    let known = |sample: &Sample| sample.observed.mean_ahead().is_some();
    let count = samples.iter().filter(|sample| known(sample)).count();
    if count < FEWEST_RANGES || count * 2 < samples.len() {
        return None;
    }
    samples.retain(known);
    let (mut reads, mut ahead, mut requests) = (0.0, 0.0, 0.0);
    for sample in samples {
        let timed = sample.timed();
        reads += timed;
        ahead += timed * sample.observed.mean_ahead().unwrap_or(0.0);
        requests += timed * sample.requests.max(1.0);
    }
    Some(QueueLoad {
        mean_ahead: ahead / reads,
        per_request: ahead / requests,
    })
}

#[cfg(test)]
mod tests;
