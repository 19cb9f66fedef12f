//! Events of the service, as one line each.

use std::{fmt, path::Path, time::Duration};

use units::Bytes;

use super::{
    decision::{Outlook, days},
    ledger::Spent,
    portion::Traced,
};
use crate::consider::Reading;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is not as it should be.
    Warning,
    /// A decision, or its outcome.
    Info,
}

impl Level {
    /// The level of syslog(3).
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Info => 6,
        }
    }
}

/// Why work waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Hold {
    /// Readings at their limits.
    Readings(Vec<Reading>),
    /// It is outside of the maintenance windows.
    Window,
    /// A budget is spent.
    Budget(Spent),
    /// Another run works on the file system.
    Claimed(String),
}

impl Hold {
    /// All names in metrics.
    pub const NAMES: [&'static str; 4] = ["readings", "window", "budget", "claimed"];

    /// The name in metrics and JSON.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Readings(_) => "readings",
            Self::Window => "window",
            Self::Budget(_) => "budget",
            Self::Claimed(_) => "claimed",
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Readings(readings) => {
                let lines: Vec<String> = readings.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("; "))
            }
            Self::Window => f.write_str("it is outside of the maintenance windows"),
            Self::Budget(Spent::Day) => f.write_str("the budget of the day is spent"),
            Self::Budget(Spent::Year) => f.write_str("the budget of the year is spent"),
            Self::Claimed(why) => f.write_str(why),
        }
    }
}

/// Something that a person may want to know.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// It begins, or has read its settings again, with these file systems.
    Began {
        /// A path on each.
        places: Vec<&'a Path>,
        /// How long it traces before it looks at them; zero where it does not.
        learn: Duration,
    },
    /// Quantities that nobody can tell, told once.
    Unknown(&'a [Reading]),
    /// The ledger was not understood.
    LedgerDamaged,
    /// A trace has ended.
    Learned(&'a Traced),
    /// A trace waits for others.
    LearnsLater {
        /// What they wait for.
        why: &'a [Reading],
        /// The longest time.
        most: Duration,
    },
    /// Another file system is where one was; it looks at the mounts anew.
    Elsewhere {
        /// The path.
        place: &'a Path,
    },
    /// It cannot trace.
    NotLearned {
        /// Why.
        why: &'a str,
    },
    /// A file system was looked at.
    Decided {
        /// A path on it.
        place: &'a Path,
        /// The decision and what it rests on.
        outlook: &'a Outlook,
    },
    /// Work waits.
    Held {
        /// A path on the file system.
        place: &'a Path,
        /// Why.
        why: &'a Hold,
    },
    /// Work goes on.
    Resumed {
        /// A path on the file system.
        place: &'a Path,
    },
    /// Moves have come to an end, or to a pause.
    Moved {
        /// A path on the file system.
        place: &'a Path,
        /// Files that are done.
        files: u64,
        /// Bytes that have new blocks.
        relocated: Bytes,
        /// Bytes that were written.
        written: Bytes,
        /// More is left.
        more: bool,
    },
    /// A range is larger than a whole budget.
    TooLarge {
        /// A path on the file system.
        place: &'a Path,
        /// Bytes that it would write in one go.
        bytes: Bytes,
    },
    /// Something failed.
    Failed {
        /// A path on the file system, or what it concerns.
        what: &'a Path,
        /// The error.
        why: &'a str,
    },
}

impl Event<'_> {
    /// The name by which logs are searched for it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Began { .. } => "began",
            Self::Unknown(_) => "unknown",
            Self::LedgerDamaged => "ledger-damaged",
            Self::Learned(_) => "learned",
            Self::LearnsLater { .. } => "learns-later",
            Self::Elsewhere { .. } => "elsewhere",
            Self::NotLearned { .. } => "not-learned",
            Self::Decided { .. } => "decided",
            Self::Held { .. } => "held",
            Self::Resumed { .. } => "resumed",
            Self::Moved { .. } => "moved",
            Self::TooLarge { .. } => "too-large",
            Self::Failed { .. } => "failed",
        }
    }

    /// How much it matters.
    #[must_use]
    pub const fn level(&self) -> Level {
        match self {
            Self::Failed { .. } => Level::Error,
            Self::NotLearned { .. }
            | Self::LedgerDamaged
            | Self::Unknown(_)
            | Self::Elsewhere { .. }
            | Self::TooLarge { .. } => Level::Warning,
            _ => Level::Info,
        }
    }

    /// The path that it is about.
    #[must_use]
    pub fn place(&self) -> Option<&Path> {
        let place = match self {
            Self::Elsewhere { place }
            | Self::Decided { place, .. }
            | Self::Held { place, .. }
            | Self::Resumed { place }
            | Self::Moved { place, .. }
            | Self::TooLarge { place, .. }
            | Self::Failed { what: place, .. } => Some(*place),
            _ => None,
        };
        // What fails as a whole is about none.
        place.filter(|path| !path.as_os_str().is_empty())
    }
}

/// Without the path that it is about.
impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began { places, learn } => {
                match places.len() {
                    1 => f.write_str("looks after one file system")?,
                    n => write!(f, "looks after {n} file systems")?,
                }
                match learn.is_zero() {
                    true => Ok(()),
                    false => write!(
                        f,
                        "; first it traces reads for {}",
                        days(learn.as_secs_f64() / 86_400.0)
                    ),
                }
            }
            Self::Unknown(readings) => {
                let lines: Vec<String> = readings.iter().map(ToString::to_string).collect();
                write!(f, "not all can be told here: {}", lines.join("; "))
            }
            Self::LedgerDamaged => f.write_str(
                "the ledger of written bytes is damaged: today's budget counts as spent, and what was \
                 written before is not known",
            ),
            Self::Learned(traced) => {
                write!(f, "traced {} reads", traced.reads)?;
                if let Some(time) = traced.read_time {
                    write!(f, ", {:.1} µs each", time.get() as f64 / 1e3)?;
                }
                Ok(())
            }
            Self::LearnsLater { why, most } => {
                let lines: Vec<String> = why.iter().map(ToString::to_string).collect();
                let most = days(most.as_secs_f64() / 86_400.0);
                write!(f, "traces later, in {most} at the latest: {}", lines.join("; "))
            }
            Self::Elsewhere { .. } => f.write_str(
                "another file system is there than before, or none; it looks at the mounts anew",
            ),
            Self::NotLearned { why } => write!(
                f,
                "cannot trace: {why}; decides by what is known of reads already"
            ),
            Self::Decided { outlook, .. } => outlook.fmt(f),
            Self::Held { why, .. } => write!(f, "waits: {why}"),
            Self::Resumed { .. } => f.write_str("goes on"),
            Self::Moved {
                files,
                relocated,
                written,
                more,
                ..
            } => {
                let plural = if *files == 1 { "file" } else { "files" };
                write!(f, "moved {relocated} ({written} written), {files} {plural} done")?;
                f.write_str(if *more { ", more is left" } else { "" })
            }
            Self::TooLarge { bytes, .. } => write!(
                f,
                "a range of {bytes} moves in one go only, which is more than the budget; it stays"
            ),
            Self::Failed { why, .. } => f.write_str(why),
        }
    }
}
