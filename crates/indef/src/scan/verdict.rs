//! The verdict of a scan as one sentence, and as JSON.

use indef_core::{calibrate::Queue, probe};
use indef_pipeline::scan::{Gain, Scanned, Verdict};
use serde::Serialize;
use units::{Bytes, Nanos};

use crate::{
    advice::Advice,
    output::{Count, Name, Ratio, counted},
};

/// The verdict, for JSON.
#[derive(Serialize)]
pub(super) struct VerdictJson {
    kind: &'static str,
    text: String,
    /// Bytes to move; 0 where it is not worth it.
    move_bytes: Bytes,
    /// Null where no times are known.
    faster_pct: Option<f64>,
    /// Null where times are known.
    fewer_requests_pct: Option<f64>,
}

impl VerdictJson {
    pub(super) fn new(scanned: &Scanned, io_size: Bytes) -> Self {
        let verdict = scanned.verdict;
        let (move_bytes, faster_pct, fewer_requests_pct) = match verdict {
            Verdict::WorthMoving { bytes, gain } => match gain {
                Gain::Faster(pct) => (bytes, Some(pct), None),
                Gain::FewerRequests(pct) => (bytes, None, Some(pct)),
            },
            Verdict::LittleCost { faster_pct } => (Bytes::ZERO, Some(faster_pct), None),
            _ => (Bytes::ZERO, None, None),
        };
        Self {
            kind: verdict.kind(),
            text: sentence(scanned, io_size),
            move_bytes,
            faster_pct,
            fewer_requests_pct,
        }
    }
}

/// The verdict and its reason in one sentence.
pub(super) fn sentence(scanned: &Scanned, io_size: Bytes) -> String {
    let said = match scanned.verdict {
        Verdict::Fine { files: 0 } => "Fine: there are no files here".to_owned(),
        Verdict::Fine { files } => format!(
            "Fine: of {} none has more extents than it needs",
            counted(files, "file", "files")
        ),
        Verdict::NothingSeen => "Cannot tell: no file could be looked at".to_owned(),
        Verdict::WorthMoving { bytes, gain } => {
            let (gain, reason) = match gain {
                Gain::Faster(pct) => (format!("{pct:.0} % faster reads"), faster(scanned)),
                Gain::FewerRequests(pct) => {
                    (format!("{pct:.0} % fewer requests"), requests(scanned))
                }
            };
            format!("Worth moving {bytes} for about {gain}: {reason}")
        }
        Verdict::NothingToJoin { files } => format!(
            "Fine: {} more extents than needed, but no read of {} meets fragments that a move would join",
            counted(files, "file has", "files have"),
            match scanned.heat {
                Some(_) => "the profile".to_owned(),
                None => io_size.to_string(),
            }
        ),
        Verdict::Shared { bytes } => format!(
            "Nothing to gain here: {bytes} in fragments are shared with reflinks or snapshots, which a move would give up (--allow-unshare); on Btrfs, and on XFS with rmapbt, root moves them together, on other XFS with --shared-among-paths"
        ),
        Verdict::NoCost(why) => format!("Nothing to gain here: {why}"),
        Verdict::LittleCost { faster_pct } => format!(
            "Nothing to gain here: by their times, the reads of the profile would be {faster_pct:.1} % faster without fragments"
        ),
        Verdict::NotRead => {
            "Nothing to gain here: the profile has no reads of these files".to_owned()
        }
        Verdict::NoEngine { files, reason } => format!(
            "Nothing can be moved here: {}: {}",
            counted(files, "file is fragmented", "files are fragmented"),
            reason.advice()
        ),
    };
    said + &remarks(scanned.gives_die_hints, scanned.summary.cancelled)
}

/// Further facts, for the end of the sentence.
fn remarks(gives_die_hints: bool, cancelled: bool) -> String {
    let mut said = String::new();
    if gives_die_hints {
        said += " (the file system gives its SSD die hints: fragments that are written from now on do not collide on its dies)";
    }
    if cancelled {
        said += " (the scan was stopped: this is about a part)";
    }
    said
}

/// The evidence of times.
fn faster(scanned: &Scanned) -> String {
    match scanned.heat.as_ref().map(|heat| &heat.calibration) {
        Some(Ok(found)) => format!(
            "a further fragment costs a read {}, as {} timed reads show{}",
            Nanos(found.weights.per_fragment_ns as u64),
            Count(found.reads),
            match found.queue {
                Queue::Known | Queue::Alike => "",
                Queue::Unknown => " (if they came one at a time, which the profile does not say)",
            }
        ),
        Some(Err(_)) | None => "by the times of the profile".to_owned(),
    }
}

/// The evidence of a layout, or of a profile without times.
fn requests(scanned: &Scanned) -> String {
    let calibration = scanned.heat.as_ref().map(|heat| &heat.calibration);
    match calibration {
        Some(Err(why)) => {
            format!("reads of the profile are split; in time it is unknown, as {why}")
        }
        Some(Ok(_)) => "reads of the profile are split; in time it is unknown, as they waited for \
             each other (indef plan --weight measured --calibrate measures it)"
            .to_owned(),
        None => format!(
            "sequential reads are split; only a profile (indef trace) can tell how much time that costs{}",
            probed(scanned)
        ),
    }
}

/// The evidence of a probe of the drive.
fn probed(scanned: &Scanned) -> String {
    let mut answers = scanned.geometries.answers().iter();
    let Some((path, stored)) =
        answers.find_map(|answer| Some((&answer.path, answer.probed.as_ref()?)))
    else {
        return String::new();
    };
    let drive = match scanned.geometries.is_uniform() {
        true => "this drive".to_owned(),
        false => format!("the drive of {}", Name(path)),
    };
    let of = "as long as a contiguous one";
    match probe::Verdict::of(&stored.findings) {
        probe::Verdict::Gains {
            scattered, worst, ..
        } => format!(
            " here. On {drive} a read of {} in scattered blocks takes {} times {of}, and {} times \
             where all lie on one die, as a probe found",
            probe::USUAL_READ,
            Ratio(scattered),
            Ratio(worst)
        ),
        probe::Verdict::Nothing { scattered } => format!(
            " here. A probe of {drive} found little to gain: a read of {} in blocks takes {} times {of}",
            probe::USUAL_READ,
            Ratio(scattered)
        ),
        probe::Verdict::CannotTell { .. } => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn die_hints_and_a_scan_that_was_stopped_are_told() {
        assert_eq!(remarks(false, false), "");
        assert!(remarks(true, false).contains("gives its SSD die hints"));
        assert!(remarks(false, true).contains("about a part"));
        let both = remarks(true, true);
        assert!(both.contains("die hints") && both.contains("about a part"));
    }
}
