//! The decision about a file system, with the reason.

use std::{collections::BTreeMap, fmt};

use indef_core::{
    SkipReason,
    plan::{Paying, SavedBy, Terms},
};
use units::Bytes;

/// What is to be done with a file system.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Something is worth moving.
    Move {
        /// Files of which something moves.
        files: u64,
        /// Bytes, and what they save.
        paying: Paying,
        /// Days until it is paid back.
        payback_days: f64,
        /// Days within the horizon for which its layout is expected to serve.
        serves_days: f64,
    },
    /// There is no profile yet.
    NoProfile,
    /// The profile has no reads of files here.
    NotRead,
    /// The times in the profile show that fragments cost nothing here.
    NoCost(String),
    /// The times in the profile do not tell yet whether fragments cost anything here.
    Unclear(String),
    /// No read meets fragments that a move would join.
    NothingToJoin,
    /// Moves would save something, and pay back too late.
    TooLate {
        /// Their bytes.
        bytes: Bytes,
        /// Days until the best of them is paid back.
        days: f64,
        /// Days for which the layout of that one is expected to serve.
        serves_days: f64,
    },
    /// No engine can move files there.
    NoEngine(SkipReason),
}

/// A decision, and what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// The decision.
    pub decision: Decision,
    /// Files of which nothing moves, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
    /// Days of reads that the profile stands for.
    pub observed_days: f64,
    /// The part of foretold savings that moves are believed to give, by those that were made.
    pub given: f64,
}

/// The decision, and what it is owed to.
impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.decision.fmt(f)?;
        let is_of_savings = matches!(
            self.decision,
            Decision::Move { .. } | Decision::TooLate { .. }
        );
        let percent = self.given * 100.0;
        match is_of_savings && (percent - 100.0).abs() >= 5.0 {
            true => write!(
                f,
                "; by what moves gave so far, {percent:.0} % of what reads and weights foretell"
            ),
            false => Ok(()),
        }
    }
}

impl Outlook {
    /// The decision after files were planned and those dropped that do not pay.
    #[must_use]
    pub fn of(
        files: u64,
        paying: Paying,
        terms: &Terms,
        skipped: BTreeMap<SkipReason, u64>,
        observed_days: f64,
    ) -> Self {
        let (by, bytes) = (paying.by, paying.bytes);
        let decision = if files > 0 {
            Decision::Move {
                files,
                paying,
                payback_days: terms.payback_days(bytes, paying.saved_a_day, by),
                serves_days: match paying.saved_a_day > 0.0 {
                    true => paying.saved / paying.saved_a_day,
                    false => 0.0,
                },
            }
        } else if !paying.late_bytes.is_zero() {
            Decision::TooLate {
                bytes: paying.late_bytes,
                days: paying.late_days,
                serves_days: paying.late_serves_days,
            }
        } else {
            nothing(&skipped)
        };
        Self {
            decision,
            skipped,
            observed_days,
            given: 1.0,
        }
    }
}

/// Why there is nothing to move, by the reasons of the files.
fn nothing(skipped: &BTreeMap<SkipReason, u64>) -> Decision {
    let is_of_engine = |reason: &SkipReason| {
        matches!(
            reason,
            SkipReason::NoEngine
                | SkipReason::ReadOnlyMount
                | SkipReason::CheckpointsOff
                | SkipReason::NotPermitted
                | SkipReason::NoJournal
                | SkipReason::FastCommit
                | SkipReason::NoOffload
                | SkipReason::Unsupported
        )
    };
    let most = skipped.iter().max_by_key(|(_, files)| **files);
    if let Some((reason, _)) = most.filter(|(reason, _)| is_of_engine(reason)) {
        return Decision::NoEngine(*reason);
    }
    let was_read = |reason: &SkipReason| !matches!(reason, SkipReason::NotRead | SkipReason::Empty);
    match skipped.keys().any(was_read) {
        true => Decision::NothingToJoin,
        false => Decision::NotRead,
    }
}

impl Decision {
    /// The name in JSON.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Move { .. } => "move",
            Self::NoProfile => "no-profile",
            Self::NotRead => "not-read",
            Self::NoCost(_) => "no-cost",
            Self::Unclear(_) => "unclear",
            Self::NothingToJoin => "nothing-to-join",
            Self::TooLate { .. } => "pays-too-late",
            Self::NoEngine(_) => "no-engine",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Move {
                files,
                paying,
                payback_days,
                serves_days,
            } => {
                let plural = if *files == 1 { "file" } else { "files" };
                write!(f, "{} of {files} {plural} are worth moving: ", paying.bytes)?;
                match paying.by {
                    SavedBy::Time => {
                        write!(f, "{:.1} s of reads saved a day", paying.saved_a_day)?;
                    }
                    SavedBy::Requests => {
                        write!(f, "{:.0} requests saved a day", paying.saved_a_day)?;
                    }
                }
                let (payback, serves) = (days(*payback_days), days(*serves_days));
                write!(
                    f,
                    ", paid back in {payback} of the {serves} for which it serves"
                )
            }
            Self::NoProfile => f.write_str("nothing is known of reads here yet; nothing is moved"),
            Self::NotRead => {
                f.write_str("the profile has no reads of files here; there is nothing to gain")
            }
            Self::NoCost(why) => write!(f, "{why}; there is nothing to gain"),
            Self::Unclear(why) => write!(f, "{why}; nothing is moved until that is known"),
            Self::NothingToJoin => {
                f.write_str("no read meets fragments that a move would join; nothing to do")
            }
            Self::TooLate {
                bytes,
                days: best,
                serves_days,
            } => {
                write!(f, "moving {bytes} would save something, but ")?;
                match best.is_finite() {
                    true => write!(
                        f,
                        "even the best of it is paid back in {} only (it serves for {})",
                        days(*best),
                        days(*serves_days)
                    ),
                    false => f.write_str("nothing that was read"),
                }
            }
            Self::NoEngine(reason) => write!(f, "no engine moves files here: {reason}"),
        }
    }
}

/// A number of days for a person.
pub(super) fn days(days: f64) -> String {
    match days {
        ..0.001 => "a minute".to_owned(),
        ..0.0415 => format!("{:.0} minutes", days * 24.0 * 60.0),
        ..1.0 => format!("{:.1} hours", days * 24.0),
        ..100.0 => format!("{days:.1} days"),
        _ => format!("{days:.0} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlook(files: u64, late: Bytes, skipped: &[(SkipReason, u64)]) -> Decision {
        let paying = Paying {
            by: SavedBy::Time,
            bytes: Bytes::mib(64 * files),
            saved_a_day: 10.0,
            requests_a_day: 5.0,
            saved: 300.0,
            late_bytes: late,
            late_days: 90.0,
            late_serves_days: 12.0,
        };
        let skipped = skipped.iter().copied().collect();
        Outlook::of(files, paying, &Terms::default(), skipped, 1.0).decision
    }

    #[test]
    fn a_decision_says_its_reason() {
        let moves = outlook(2, Bytes::ZERO, &[]);
        assert_eq!(
            moves.to_string(),
            "128 MiB of 2 files are worth moving: 10.0 s of reads saved a day, paid back in 9.1 hours of the 30.0 days for which it serves"
        );
        let spans = [0.0, 0.0009, 0.0014, 0.041, 0.042, 0.99, 1.0, 99.9, 100.4].map(days);
        assert_eq!(
            spans.join(", "),
            "a minute, a minute, 2 minutes, 59 minutes, 1.0 hours, 23.8 hours, 1.0 days, 99.9 days, 100 days"
        );
        let late = outlook(0, Bytes::mib(1), &[(SkipReason::PaysTooLate, 1)]);
        assert!(late.to_string().contains("90.0 days only"), "{late}");
        assert!(late.to_string().contains("serves for 12.0 days"), "{late}");
        let mut of_savings = Outlook {
            decision: late,
            skipped: BTreeMap::new(),
            observed_days: 1.0,
            given: 0.99,
        };
        assert!(!of_savings.to_string().contains("foretell"), "{of_savings}");
        of_savings.given = 0.1;
        assert!(
            of_savings
                .to_string()
                .ends_with("10 % of what reads and weights foretell")
        );
        let nothing = |skipped: &[_]| outlook(0, Bytes::ZERO, skipped);
        assert_eq!(nothing(&[]), Decision::NotRead);
        assert_eq!(nothing(&[(SkipReason::NotRead, 9)]), Decision::NotRead);
        let read = [(SkipReason::NotRead, 9), (SkipReason::Contiguous, 1)];
        assert_eq!(nothing(&read), Decision::NothingToJoin);
        let refused = [(SkipReason::NoJournal, 9), (SkipReason::NotRead, 1)];
        assert_eq!(nothing(&refused), Decision::NoEngine(SkipReason::NoJournal));
    }
}
