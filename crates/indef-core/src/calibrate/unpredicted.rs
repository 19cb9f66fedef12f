//! The reasons for which a prediction, or the measurement for it, is not made.

/// Contiguous ranges that a measurement of the device needs: fewer would be in its caches soon.
pub const FEWEST_CONTIGUOUS: usize = 32;

/// The times hold weights, but not what a plan does to the time of all reads.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CannotPredict {
    /// It is not known how many requests were in flight.
    #[error(
        "the profile does not say how many requests were in flight, so the time that fragments cost other reads is not known (--calibrate measures it)"
    )]
    QueueUnknown,
    /// Reads waited for each other.
    #[error(
        "reads found {ahead:.1} requests of others in flight, and what these wait for without fragments only the device can tell (--calibrate measures it)"
    )]
    Busy {
        /// The mean number of requests.
        ahead: f64,
    },
    /// No contiguous ranges, or none that can be read.
    #[error(
        "--calibrate needs at least {FEWEST_CONTIGUOUS} ranges of the profile that can be read with O_DIRECT and are contiguous"
    )]
    NothingToRead,
    /// The device answers too slowly to be asked.
    #[error("--calibrate was given up: within {seconds} s the device did not answer enough reads")]
    TooSlow {
        /// The time that it had.
        seconds: u64,
    },
    /// What would be read through the page cache is in it.
    #[error(
        "--calibrate=buffered was given up: most of what it would read is in the page cache already, and such reads do not wait for the device"
    )]
    Cached,
    /// More than a few reads failed.
    #[error("--calibrate was given up: reads of the profile's files failed")]
    ReadsFail,
    /// The system allows no more threads.
    #[error("--calibrate was given up: the system allows no {readers} threads to read with")]
    NoThreads {
        /// Their number.
        readers: u32,
    },
    /// It was asked to stop.
    #[error("stopped before the device was asked")]
    Stopped,
    /// The device is not as it was.
    #[error(
        "the reads of the profile now take {factor:.1} times {} than in the trace; trace again, or calibrate under the same conditions",
        if *slower { "longer" } else { "less" }
    )]
    Changed {
        /// The factor.
        factor: f64,
        /// Whether they take longer.
        slower: bool,
    },
    /// The times scatter too much.
    #[error(
        "the times scatter: the plan saves {saved:.0} % of the time, or {error:.0} points more or less; trace for longer"
    )]
    Unclear {
        /// The percentage saved.
        saved: f64,
        /// Its error.
        error: f64,
    },
}
