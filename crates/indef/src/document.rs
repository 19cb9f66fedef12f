//! The JSON documents that scripts read (docs/json.md), and that `report` reads back.
//!
//! Names and units are a contract; fields may be added, never renamed. Fields that older documents
//! lack are optional when they are read.

use indef_core::{SkipReason, plan::PathJson};
use serde::{Deserialize, Serialize};

use crate::{excluded::ExcludedJson, made::Made};

/// The version of all documents.
pub(crate) const SCHEMA: u64 = 1;

/// `run --json`; with [`Proof`], `demo --json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunDocument {
    pub(crate) schema: u64,
    /// Where it comes from; absent from documents of earlier versions. Whoever prints a document adds its own.
    #[serde(default, skip_serializing)]
    pub(crate) made: Option<Box<Made>>,
    pub(crate) files: Vec<RunFile>,
    pub(crate) totals: RunTotals,
    /// Nothing was changed: `status` is the status that the run would have produced.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// `signal`, `time-limit`, `device-full` or `journal` where work is left.
    #[serde(default)]
    pub(crate) stopped: Option<String>,
    /// The error with which it failed as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Extent maps of the worst files.
    #[serde(default)]
    pub(crate) maps: Vec<FileMap>,
    #[serde(flatten)]
    pub(crate) proof: Option<Proof>,
    /// Present for `demo --zns` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<DeviceFacts>,
}

/// The zoned SSD of `demo --zns`, and its operations during the run. Times are the device's own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceFacts {
    /// flashd's profile.
    pub(crate) profile: String,
    /// The factor by which it was slower than these times.
    pub(crate) time_scale: f64,
    /// Extents of all files.
    pub(crate) extents_before: u64,
    pub(crate) extents_after: u64,
    /// Time in which it had reads to do, in a cold read of all files.
    pub(crate) read_ns_before: u64,
    pub(crate) read_ns_after: u64,
    pub(crate) run_ns: u64,
    /// Bytes copied by the device, without the host.
    pub(crate) bytes_moved_in_device: u64,
    /// Bytes that the host read and wrote, its file system's metadata included.
    pub(crate) bytes_over_bus: u64,
    /// How busy its dies were on average: 0 to 1.
    pub(crate) die_utilization: f64,
}

/// The result of one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunFile {
    #[serde(flatten)]
    pub(crate) path: PathJson,
    pub(crate) fs: String,
    pub(crate) engine: Option<String>,
    pub(crate) status: FileStatus,
    /// The name of a skip reason, or the text of an error.
    pub(crate) reason: Option<String>,
    pub(crate) extents_before: u64,
    pub(crate) extents_after: u64,
    /// Bytes to write in order to move everything that is worth moving.
    #[serde(default)]
    pub(crate) bytes_planned: u64,
    pub(crate) bytes_relocated: u64,
    pub(crate) bytes_host_read: u64,
    pub(crate) bytes_host_written: u64,
    pub(crate) bytes_offloaded: u64,
    /// Unreachable bytes of the extents that it let go.
    #[serde(default)]
    pub(crate) bytes_reclaimed: u64,
    /// Other files that share the moved bytes, as before.
    #[serde(default)]
    pub(crate) holders: u64,
    /// Bytes that another file does not share any more.
    #[serde(default)]
    pub(crate) bytes_unshared: u64,
}

impl RunFile {
    /// The reason for which it was left alone, if it was.
    pub(crate) fn skip_reason(&self) -> Option<SkipReason> {
        let word = (self.status == FileStatus::Skipped).then_some(self.reason.as_deref()?)?;
        SkipReason::ALL
            .iter()
            .copied()
            .find(|reason| reason.as_str() == word)
    }

    /// Why it has as many extents as before although something of it moved, if so.
    pub(crate) fn why_no_fewer(&self) -> Option<&'static str> {
        let moved = self.status == FileStatus::Moved && self.extents_before == self.extents_after;
        moved.then_some(match self.bytes_reclaimed {
            // The planner and the engines see to it that a moved range has fewer (`layout::FragmentCount`).
            0 => "fewer only in what moved, whose ends were cut off others",
            _ => "it gave space back",
        })
    }
}

/// Moved, skipped or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileStatus {
    Moved,
    Skipped,
    Failed,
}

impl FileStatus {
    /// The name in the document.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// Sums over the files of a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunTotals {
    pub(crate) files_moved: u64,
    pub(crate) files_skipped: u64,
    pub(crate) files_failed: u64,
    /// Of these, files of which what was moved may not be durable.
    #[serde(default)]
    pub(crate) files_unwritten: u64,
    /// Paths that could not be looked at.
    #[serde(default)]
    pub(crate) problems: u64,
    #[serde(flatten)]
    pub(crate) excluded: ExcludedJson,
    pub(crate) bytes_relocated: u64,
    pub(crate) bytes_host_read: u64,
    pub(crate) bytes_host_written: u64,
    pub(crate) bytes_offloaded: u64,
    #[serde(default)]
    pub(crate) bytes_reclaimed: u64,
    /// By how much the free space of the file systems grew; null where no space was given back.
    #[serde(default)]
    pub(crate) free_growth_bytes: Option<i64>,
    pub(crate) duration_ns: u64,
    /// The longest time for which one step held a file's locks.
    #[serde(default)]
    pub(crate) longest_lock_ns: u64,
    /// Steps that held them longer than `--max-stall`.
    #[serde(default)]
    pub(crate) stalls_over_limit: u64,
    /// The longest time for which writes of others to moved blocks were not durable.
    #[serde(default)]
    pub(crate) longest_uncommitted_ns: u64,
}

/// The proof of a demo, beside the result of its run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Proof {
    /// The SHA-256 of every file is unchanged.
    pub(crate) contents_equal: bool,
    /// The file system's checker found nothing; null where it could not be run (no root, or the disk
    /// was mounted elsewhere).
    pub(crate) fsck_clean: Option<bool>,
    /// Median time of a cold sequential read of all files.
    pub(crate) read_ns_before: u64,
    pub(crate) read_ns_after: u64,
    /// Requests of a sequential read, computed from the extents.
    #[serde(default)]
    pub(crate) requests_before: u64,
    #[serde(default)]
    pub(crate) requests_after: u64,
    /// Reads of one cold read as the device counted them; null where the device is not the demo's
    /// own.
    #[serde(default)]
    pub(crate) device_reads_before: Option<u64>,
    #[serde(default)]
    pub(crate) device_reads_after: Option<u64>,
}

/// Where a file's fragments are, before and after, in equal slices of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FileMap {
    #[serde(flatten)]
    pub(crate) path: PathJson,
    pub(crate) size_bytes: u64,
    /// Bytes of the file in one slice.
    pub(crate) slice_bytes: u64,
    pub(crate) extents_before: u64,
    /// Null where it is not known (yet).
    pub(crate) extents_after: Option<u64>,
    /// Fragments inside each slice; 0 is a hole.
    pub(crate) before: Vec<u64>,
    /// The same after the run; empty where it is not known (yet).
    pub(crate) after: Vec<u64>,
    /// The parts of the device on which the file lies.
    pub(crate) device: Option<DeviceMap>,
}

/// The file's share of each of the equal slices of a stretch of the device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceMap {
    pub(crate) start_bytes: u64,
    pub(crate) len_bytes: u64,
    /// The share of each slice in per mille.
    pub(crate) before: Vec<u16>,
    pub(crate) after: Vec<u16>,
}

#[cfg(test)]
mod tests {
    use indef_core::SkipReason;

    use crate::advice::Advice;

    #[test]
    fn every_reason_is_documented() {
        let text = include_str!("../../../docs/json.md");
        for reason in SkipReason::ALL {
            let line = format!("| `{}` | {} |", reason.as_str(), reason.advice());
            assert!(text.contains(&line), "docs/json.md lacks: {line}");
        }
    }
}
