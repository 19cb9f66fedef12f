//! The records of the history.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::process::{is_alive, started};

/// Words of a command line that are kept, and bytes of them.
pub(super) const MOST_WORDS: usize = 48;
const MOST_BYTES: usize = 1024;

/// A run, as it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// When, in nanoseconds since 1970.
    pub started_ns: u64,
    /// The verb: `run`, `compact`, `watch`.
    pub verb: String,
    /// The command line, where needed with replacement characters, and cut short.
    pub command: Vec<String>,
    pub(super) process: u32,
    /// When the process began (`/proc/PID/stat`), and in which boot of the machine.
    pub(super) process_started: Option<u64>,
    pub(super) boot: Option<String>,
}

impl Begun {
    /// This process begins one now.
    #[must_use]
    pub fn now(verb: &str, command: impl IntoIterator<Item = String>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let process = std::process::id();
        Self {
            started_ns: now.map_or(0, |since| since.as_nanos() as u64),
            verb: verb.to_owned(),
            command: cut_short(command),
            process,
            process_started: started(process),
            boot: boot(),
        }
    }

    /// When it began.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.started_ns)
    }

    /// Whether its process is still there.
    pub(super) fn is_running(&self) -> bool {
        let same_boot = match (&self.boot, boot()) {
            (Some(then), Some(now)) => *then == now,
            _ => true,
        };
        same_boot && is_alive(self.process, self.process_started)
    }
}

/// The id of this boot of the machine (`random(4)`).
fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

fn cut_short(command: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut words = Vec::new();
    let mut bytes = 0;
    for word in command {
        bytes += word.len();
        if words.len() == MOST_WORDS || bytes > MOST_BYTES {
            words.push("…".to_owned());
            break;
        }
        words.push(word);
    }
    words
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// All that it was to do is done, or was skipped; single files may have failed.
    Done,
    /// A limit or a signal stopped it, with work left.
    Stopped,
    /// It failed as a whole.
    #[default]
    Failed,
}

/// A file system that a run worked on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkedOn {
    /// Its kind.
    pub fs: String,
    /// Its UUID, where udev tells it.
    pub uuid: Option<String>,
    /// Where it was mounted.
    pub mounted_at: Option<String>,
    /// Its drive, where the kernel tells it. Earlier versions did not keep it.
    pub device: Option<String>,
}

/// The result of a run. A field that an earlier version did not keep has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// How it ended.
    pub ended: End,
    /// Why it stopped or failed.
    pub why: Option<String>,
    /// How long it took, with its planning.
    pub duration_ns: Nanos,
    /// Where it worked.
    pub file_systems: Vec<WorkedOn>,
    /// Files of which something moved.
    pub files_moved: u64,
    /// Files that were left alone.
    pub files_skipped: u64,
    /// Files with an error.
    pub files_failed: u64,
    /// Paths that could not be looked at.
    pub problems: u64,
    /// Files that were left alone, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Extents of the files that moved, before and after.
    pub extents_before: u64,
    /// The same, afterwards.
    pub extents_after: u64,
    /// Bytes that have new blocks.
    pub bytes_relocated: Bytes,
    /// Bytes that were written, by the host or by the device.
    pub bytes_written: Bytes,
    /// Unreachable bytes of the extents that were let go.
    pub bytes_reclaimed: Bytes,
    /// The gain that the plan told, and its unit: `iodp`, `ns` or `bytes`.
    pub predicted_gain: Option<f64>,
    /// Its unit.
    pub predicted_gain_unit: Option<String>,
    /// The longest time for which one step held a file's locks.
    pub longest_lock_ns: Nanos,
    /// Steps that held them longer than they should have.
    pub stalls_over_limit: u64,
    /// Of `compact`: the longest free run before.
    pub largest_before_bytes: Option<Bytes>,
    /// And afterwards.
    pub largest_after_bytes: Option<Bytes>,
}

impl Outcome {
    /// Requests that a reader of all moved files, each once from its beginning to its end, saves: one for each extent
    /// fewer.
    #[must_use]
    pub fn requests_saved(&self) -> u64 {
        self.extents_before.saturating_sub(self.extents_after)
    }
}

/// What is known of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Its process is there.
    Running,
    /// Its process is gone, and told no result.
    Killed,
    /// Its result.
    Ended(Box<Outcome>),
}

/// A run of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// How it began.
    pub begun: Begun,
    /// What became of it.
    pub state: State,
}

/// The runs of a history, in the order in which they began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// They.
    pub records: Vec<Record>,
    /// Lines that are none: torn by a power cut, or of another version.
    pub damaged_lines: u64,
}
