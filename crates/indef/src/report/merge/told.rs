//! One document of whatever command and version, as far as the table of many hosts needs it.
//!
//! What a document lacks has its default, and what is unknown is skipped while it is read, so that neither older nor newer
//! versions of schema 1 are refused, and a list of any length takes no memory.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};

use super::reasons::Reasons;
use crate::{
    document::SCHEMA,
    made::{Made, MadeOn},
};

/// More entries than any version of indef writes into such a list.
const LONGEST: usize = 10_000;

/// A document.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Told {
    #[serde(deserialize_with = "known_schema")]
    pub(super) schema: Option<u64>,
    pub(super) made: Option<Made>,
    pub(super) verdict: Option<VerdictTold>,
    pub(super) totals: TotalsTold,
    /// Of everything that lists files.
    pub(super) files: Option<FilesTold>,
    pub(super) dry_run: bool,
    pub(super) stopped: Option<String>,
    /// With which it failed as a whole.
    pub(super) error: Option<String>,
    /// Of `plan`: only whether it is there.
    pub(super) chunks: Option<Skipped>,
    pub(super) policy: Option<String>,
    /// Of `demo`.
    pub(super) contents_equal: Option<bool>,
    /// Of `compact`.
    pub(super) wanted_bytes: Option<u64>,
    pub(super) ended: Option<String>,
    pub(super) files_moved: u64,
    pub(super) files_failed: u64,
    pub(super) bytes_relocated: u64,
    pub(super) bytes_written: u64,
    /// Of `watch`.
    pub(super) work_left: Option<bool>,
    #[serde(deserialize_with = "bounded")]
    pub(super) file_systems: Vec<WatchedTold>,
    /// Of `history`.
    pub(super) runs: Option<RunsTold>,
}

/// The verdict of a scan. A probe has one in words.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum VerdictTold {
    OfScan {
        kind: String,
        text: String,
        #[serde(default)]
        move_bytes: u64,
    },
    Other(Skipped),
}

/// The sums of any command.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TotalsTold {
    pub(super) extents: Option<u64>,
    pub(super) ideal_extents: u64,
    pub(super) skipped: BTreeMap<String, u64>,
    pub(super) files_moved: Option<u64>,
    pub(super) files_failed: u64,
    pub(super) problems: u64,
    pub(super) failures: u64,
    pub(super) extents_removed: u64,
    pub(super) bytes_relocated: u64,
    pub(super) bytes_written: u64,
    pub(super) bytes_host_written: u64,
    pub(super) bytes_offloaded: u64,
    pub(super) stalls_over_limit: u64,
    pub(super) cost_bytes: Option<u64>,
    pub(super) files_to_move: u64,
}

/// A file system that `watch` looks after.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchedTold {
    pub(super) text: Option<String>,
    pub(super) worth_moving_bytes: u64,
    pub(super) saved_requests_per_day: Option<f64>,
    pub(super) saved_ns_per_day: Option<u64>,
}

/// A record of the history. What is not known of a run that goes on, or was killed, is null.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunTold {
    pub(super) started_ns: u64,
    pub(super) ended: Option<String>,
    pub(super) verb: String,
    pub(super) file_systems: Option<Vec<MadeOn>>,
    pub(super) duration_ns: Option<u64>,
    pub(super) files_moved: Option<u64>,
    pub(super) files_failed: Option<u64>,
    pub(super) problems: Option<u64>,
    pub(super) skipped: Option<BTreeMap<String, u64>>,
    pub(super) requests_saved: Option<u64>,
    pub(super) bytes_relocated: Option<u64>,
    pub(super) bytes_written: Option<u64>,
    pub(super) predicted_gain: Option<f64>,
    pub(super) predicted_gain_unit: Option<String>,
    pub(super) stalls_over_limit: Option<u64>,
}

/// The records of a history.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct RunsTold(#[serde(deserialize_with = "bounded")] pub(super) Vec<RunTold>);

/// The files of a result, condensed.
#[derive(Debug, Default)]
pub(super) struct FilesTold {
    /// Extents that files which moved have fewer.
    pub(super) extents_fewer: u64,
    /// Files that were left alone, by reason.
    pub(super) left_alone: Reasons,
}

/// A file of a result; that of a scan has nothing of it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FileTold {
    status: Option<String>,
    reason: Option<String>,
    extents_before: u64,
    extents_after: u64,
}

/// A value of any kind and length that is not looked at.
#[derive(Debug)]
pub(super) struct Skipped;

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Scan,
    Plan,
    Run,
    Compact,
    Watch,
    History,
}

impl Told {
    /// What it is, told by its fields, as no version has a word for it.
    pub(super) fn kind(&self) -> Result<Kind, String> {
        if self.schema.is_none() {
            return Err("not a document of indef".to_owned());
        }
        if self.contents_equal.is_some() {
            return Err("the result of a demo, which works on files of its own".to_owned());
        }
        let scanned = matches!(self.verdict, Some(VerdictTold::OfScan { .. }));
        if self.runs.is_some() {
            Ok(Kind::History)
        } else if self.work_left.is_some() {
            Ok(Kind::Watch)
        } else if self.wanted_bytes.is_some() || self.ended.is_some() {
            Ok(Kind::Compact)
        } else if scanned || (self.totals.extents.is_some() && self.files.is_some()) {
            Ok(Kind::Scan)
        } else if self.chunks.is_some() && self.policy.is_some() {
            Ok(Kind::Plan)
        } else if self.totals.files_moved.is_some() && self.files.is_some() {
            Ok(Kind::Run)
        } else if let Some(error) = &self.error {
            // It failed before it had anything else to tell.
            self.failed()
                .ok_or_else(|| format!("the command failed: {error}"))
        } else {
            Err("a document that tells neither of fragments nor of runs".to_owned())
        }
    }

    /// What would have moved files, by the command line.
    fn failed(&self) -> Option<Kind> {
        let words = &self.made.as_ref()?.command;
        if words.iter().any(|word| word == "--dry-run") {
            return None;
        }
        let verb = words.iter().skip(1).find(|word| !word.starts_with('-'));
        match verb?.as_str() {
            "run" => Some(Kind::Run),
            "compact" => Some(Kind::Compact),
            "watch" => Some(Kind::Watch),
            _ => None,
        }
    }
}

fn known_schema<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    // The first field of every document: what another schema means by the others is not guessed.
    match u64::deserialize(input)? {
        SCHEMA => Ok(Some(SCHEMA)),
        other => Err(D::Error::custom(format_args!(
            "schema {other}, but this indef reads schema {SCHEMA}: merge with a version as new as the one that wrote it"
        ))),
    }
}

/// A list that is kept, of at most [`LONGEST`] entries.
fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<Vec<T>, D::Error> {
    struct Bounded<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {LONGEST} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while let Some(entry) = entries.next_element()? {
                if kept.len() == LONGEST {
                    return Err(A::Error::custom(format_args!(
                        "a list of more than {LONGEST} entries"
                    )));
                }
                kept.push(entry);
            }
            Ok(kept)
        }
    }
    input.deserialize_seq(Bounded(PhantomData))
}

impl<'de> Deserialize<'de> for FilesTold {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Files;
        impl<'de> Visitor<'de> for Files {
            type Value = FilesTold;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of files")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut files: A) -> Result<FilesTold, A::Error> {
                let mut told = FilesTold::default();
                while let Some(file) = files.next_element()? {
                    told.add(&file);
                }
                Ok(told)
            }
        }
        input.deserialize_seq(Files)
    }
}

impl FilesTold {
    fn add(&mut self, file: &FileTold) {
        match (file.status.as_deref(), file.reason.as_deref()) {
            (Some("moved"), _) => {
                let fewer = file.extents_before.saturating_sub(file.extents_after);
                self.extents_fewer = self.extents_fewer.saturating_add(fewer);
            }
            // Of a dry run: it would be moved.
            (Some("skipped"), Some("dry-run")) => {}
            (Some("skipped"), Some(reason)) => self.left_alone.add(reason, 1),
            _ => {}
        }
    }
}

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(input).map(|_| Self)
    }
}
