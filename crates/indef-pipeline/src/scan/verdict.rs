//! The verdict of a scan: whether defragmenting is worth it here, and by which evidence.

use indef_core::{SkipReason, calibrate::CannotCalibrate};
use units::Bytes;

use super::{Heat, Tally};

/// A smaller gain in time is none: nobody would notice it.
const LEAST_FASTER_PCT: f64 = 1.0;

/// The answer to "should I defragment this?", with the figures that it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// No file has more extents than it needs.
    Fine {
        /// Files examined.
        files: u64,
    },
    /// There were problems, and no file could be looked at.
    NothingSeen,
    /// Moving these bytes makes reads faster.
    WorthMoving {
        /// Bytes to move.
        bytes: Bytes,
        /// The effect on reads.
        gain: Gain,
    },
    /// Files have more extents than they need, but no read meets fragments that a move would join.
    NothingToJoin {
        /// These files.
        files: u64,
    },
    /// Nothing but ranges that are shared with reflinks or snapshots could be joined.
    Shared {
        /// Their bytes.
        bytes: Bytes,
    },
    /// The times of the profile do not show that fragments cost anything.
    NoCost(CannotCalibrate),
    /// The times of the profile show a cost that is not worth a move.
    LittleCost {
        /// By how many percent reads would be faster.
        faster_pct: f64,
    },
    /// The profile has no reads of these files.
    NotRead,
    /// Every fragmented file lies where no engine can move it.
    NoEngine {
        /// Fragmented files.
        files: u64,
        /// The reason for most of them.
        reason: SkipReason,
    },
}

/// The effect of a move on reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// By the times of a profile: by how many percent the same reads are faster afterwards (time now
    /// ÷ time afterwards − 1).
    Faster(f64),
    /// Without times: how many percent of the requests are saved.
    FewerRequests(f64),
}

impl Verdict {
    /// The verdict of these findings.
    pub(super) fn of(tally: &Tally, heat: Option<&Heat>, problems: u64) -> Self {
        if tally.files() == 0 && problems > 0 {
            return Self::NothingSeen;
        }
        if tally.movable() == 0 {
            let refused = tally.refused.iter().max_by_key(|(_, files)| **files);
            return match refused {
                Some((reason, _)) => Self::NoEngine {
                    files: tally.refused.values().sum(),
                    reason: *reason,
                },
                None => Self::Fine {
                    files: tally.files(),
                },
            };
        }
        let nothing = match tally.shared {
            Bytes::ZERO => Self::NothingToJoin {
                files: tally.movable(),
            },
            bytes => Self::Shared { bytes },
        };
        let Some(heat) = heat else {
            return match tally.worth_moving {
                Bytes::ZERO => nothing,
                bytes => Self::WorthMoving {
                    bytes,
                    gain: Gain::FewerRequests(percent(tally.saved_requests, tally.dolf.fragments)),
                },
            };
        };
        let read = &tally.read;
        match heat.calibration {
            _ if read.requests == 0 => Self::NotRead,
            Err(why @ CannotCalibrate::NoDifference { .. }) => Self::NoCost(why),
            _ if read.movable == Bytes::ZERO => nothing,
            // How much faster a busy device would be is not known.
            Ok(found) if found.is_busy() => Self::WorthMoving {
                bytes: read.movable,
                gain: Gain::FewerRequests(percent(read.avoidable_requests, read.requests)),
            },
            Ok(_) => match faster_pct(read.avoidable_ns, read.ns) {
                faster_pct if faster_pct < LEAST_FASTER_PCT => Self::LittleCost { faster_pct },
                faster_pct => Self::WorthMoving {
                    bytes: read.movable,
                    gain: Gain::Faster(faster_pct),
                },
            },
            Err(_) => Self::WorthMoving {
                bytes: read.movable,
                gain: Gain::FewerRequests(percent(read.avoidable_requests, read.requests)),
            },
        }
    }

    /// The kind, as JSON names it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Fine { .. } | Self::NothingToJoin { .. } => "fine",
            Self::WorthMoving { .. } => "worth-moving",
            Self::Shared { .. } | Self::NoCost(_) | Self::LittleCost { .. } | Self::NotRead => {
                "nothing-to-gain"
            }
            Self::NoEngine { .. } => "no-engine",
            Self::NothingSeen => "cannot-tell",
        }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    (part as f64 * 100.0 / whole.max(1) as f64).min(100.0)
}

/// By how many percent reads of `now_ns` are faster without `avoidable_ns` of it. The model that
/// tells the avoidable part is no better than to a hundredth.
fn faster_pct(avoidable_ns: f64, now_ns: f64) -> f64 {
    let afterwards = (now_ns - avoidable_ns).max(now_ns / 100.0);
    match afterwards > 0.0 {
        true => (now_ns / afterwards - 1.0) * 100.0,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_time_is_twice_as_fast() {
        assert_eq!(faster_pct(50.0, 100.0), 100.0);
        assert_eq!(faster_pct(0.0, 100.0), 0.0);
        assert_eq!(faster_pct(0.0, 0.0), 0.0);
        assert_eq!(faster_pct(300.0, 100.0), 9900.0);
    }

    #[test]
    fn without_a_profile_the_layout_decides() {
        let mut tally = Tally::new(1);
        assert_eq!(Verdict::of(&tally, None, 0), Verdict::Fine { files: 0 });
        let unseen = Verdict::of(&tally, None, 1);
        assert_eq!(
            (unseen, unseen.kind()),
            (Verdict::NothingSeen, "cannot-tell")
        );
        tally.refused.insert(SkipReason::NoEngine, 2);
        tally.refused.insert(SkipReason::NoJournal, 3);
        tally.fragmented = 5;
        let verdict = Verdict::of(&tally, None, 0);
        let expected = Verdict::NoEngine {
            files: 5,
            reason: SkipReason::NoJournal,
        };
        assert_eq!((verdict, verdict.kind()), (expected, "no-engine"));
        tally.fragmented += 4;
        let verdict = Verdict::of(&tally, None, 0);
        assert_eq!(verdict, Verdict::NothingToJoin { files: 4 });
        assert_eq!(verdict.kind(), "fine");
        tally.shared = Bytes::mib(2);
        let verdict = Verdict::of(&tally, None, 0);
        assert_eq!(
            verdict,
            Verdict::Shared {
                bytes: Bytes::mib(2)
            }
        );
        assert_eq!(verdict.kind(), "nothing-to-gain");
        tally.worth_moving = Bytes::mib(1);
        tally.saved_requests = 31;
        tally.dolf.fragments = 62;
        let verdict = Verdict::of(&tally, None, 0);
        let expected = Verdict::WorthMoving {
            bytes: Bytes::mib(1),
            gain: Gain::FewerRequests(50.0),
        };
        assert_eq!((verdict, verdict.kind()), (expected, "worth-moving"));
    }
}
