//! What a request costs at most, told by however few timed reads.
//!
//! Weights need many ranges that differ. Before there are so many, or where all are fragmented alike, one thing is known all the
//! same: the requests of a read take no longer than the read. If it takes `base + cost · requests`, and `base` is
//! not negative, then over any reads together
//!
//! ```text
//! cost ≤ time of the reads ÷ their requests
//! ```
//!
//! with what reads wait for each other on both sides. A drive that answers a read of eight requests in 60 µs does not
//! lose 100 µs to each of them.

use super::Sample;

/// The time of these reads ÷ their requests, in nanoseconds: no request costs more on average. `None` where none was timed.
#[must_use]
pub fn most_of_a_request_ns(samples: &[Sample]) -> Option<f64> {
    let timed = samples.iter().filter(|sample| sample.observed.timed > 0);
    let (time, requests) = timed.fold((0.0, 0.0), |(time, requests), sample| {
        (
            time + sample.observed.time.0 as f64,
            requests + sample.timed() * sample.requests.max(1.0),
        )
    });
    (requests > 0.0).then_some(time / requests)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::{Bytes, Nanos};

    use super::*;
    use crate::{access::Observed, layout::Fragmentation};

    fn sample(requests: u64, timed: u64, ns: u64) -> Sample {
        Sample {
            len: Bytes::kib(128),
            fragmentation: Fragmentation {
                dolf: requests,
                dopf: 0.0,
                requests,
            },
            observed: Observed {
                requests: requests * timed,
                timed,
                time: Nanos(ns * timed),
                ahead: None,
            },
            requests: requests as f64,
        }
    }

    #[test]
    fn one_read_tells_it() {
        assert_eq!(most_of_a_request_ns(&[]), None);
        assert_eq!(most_of_a_request_ns(&[sample(8, 0, 60)]), None);
        assert_eq!(most_of_a_request_ns(&[sample(8, 1, 80)]), Some(10.0));
        // By their number: 3 × 80 and 1 × 20 ns, of 25 requests.
        let several = [sample(8, 3, 80), sample(1, 1, 20), sample(4, 0, 9)];
        assert_eq!(most_of_a_request_ns(&several), Some(260.0 / 25.0));
    }

    proptest! {
        /// Whatever is read, and whatever reads take besides.
        #[test]
        fn it_is_never_less_than_what_one_costs(
            cost in 0u64..1_000_000,
            reads in prop::collection::vec((1u64..64, 1u64..100, 0u64..1_000_000), 1..20),
        ) {
            let samples: Vec<Sample> = reads.iter()
                .map(|(requests, timed, base)| sample(*requests, *timed, base + cost * requests))
                .collect();
            let most = most_of_a_request_ns(&samples).unwrap();
            prop_assert!(most >= cost as f64 * (1.0 - 1e-9), "{most} {cost}");
        }
    }
}
