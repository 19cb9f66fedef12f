//! The main facts about an input; text and HTML show the same ones.

use std::{collections::BTreeMap, path::Path};

use indef_core::SkipReason;
use units::{Bytes, Nanos};

use super::{digest::Digest, input::PlanInput};
use crate::{
    advice::Advice,
    document::{Proof, RunDocument, RunTotals},
    output::{Count, Gain, Name, Ratio, Tone, counted},
};

/// A number with its name.
#[derive(Clone, Debug)]
pub(super) struct Fact {
    pub(super) label: String,
    pub(super) value: String,
    /// A remark beside it, in smaller type.
    pub(super) aside: String,
    pub(super) tone: Tone,
}

fn fact(label: &str, value: impl ToString, aside: impl ToString, tone: Tone) -> Fact {
    Fact {
        label: label.to_owned(),
        value: value.to_string(),
        aside: aside.to_string(),
        tone,
    }
}

/// The facts of a run.
pub(super) fn run_facts(run: &RunDocument, files: &Digest) -> Vec<Fact> {
    if let Some(error) = &run.error {
        let error = Name(Path::new(error));
        return vec![fact("Failed", error, "nothing was moved", Tone::Bad)];
    }
    let mut facts = if run.dry_run {
        dry_facts(run, files)
    } else {
        moved_facts(run, files)
    };
    if let Some(excluded) = run.totals.excluded.text() {
        facts.push(fact("Excluded", excluded, "", Tone::Plain));
    }
    if run.totals.files_failed > 0 {
        let failed = Count(run.totals.files_failed);
        facts.push(fact("Failed", failed, contents(&run.totals), Tone::Bad));
    }
    if run.totals.problems > 0 {
        let paths = counted(run.totals.problems, "path", "paths");
        facts.push(fact("Not looked at", paths, "", Tone::Bad));
    }
    if let Some(stopped) = &run.stopped {
        facts.push(fact(
            "Stopped by",
            Name(Path::new(stopped)),
            // Nothing is kept of a plan that is not whole, nor of a dry run.
            match (run.dry_run, files.unfinished) {
                (false, 1..) => "indef run --resume continues",
                _ => "run it again",
            },
            Tone::Warn,
        ));
    }
    facts.extend(left_alone(&files.left_alone));
    let moved = run.totals.files_moved > 0;
    facts.extend(run.proof.iter().flat_map(|proof| proof_facts(proof, moved)));
    facts
}

/// What is known of the contents of files that failed.
pub(super) fn contents(totals: &RunTotals) -> String {
    match totals.files_unwritten {
        0 => "contents are whole all the same".to_owned(),
        many => format!("what was moved of {} may not be durable", Count(many)),
    }
}

fn moved_facts(run: &RunDocument, files: &Digest) -> Vec<Fact> {
    let totals = &run.totals;
    let (before, after) = (files.moved_before, files.moved_after);
    let skipped = format!("{} left alone", Count(totals.files_skipped));
    let mut facts = vec![fact(
        "Files moved",
        Count(totals.files_moved),
        skipped,
        Tone::Plain,
    )];
    if totals.files_moved > 0 {
        facts.push(match files.why_no_fewer {
            Some(why) if before == after => {
                let why = format!("as before: {why}");
                fact("Their extents", Count(before), why, Tone::Plain)
            }
            _ => fact(
                "Their extents",
                format!("{} → {}", Count(before), Count(after)),
                times_fewer(before, after),
                if after < before {
                    Tone::Good
                } else {
                    Tone::Plain
                },
            ),
        });
        let ways = [
            ("read by the host", totals.bytes_host_read),
            ("written by the host", totals.bytes_host_written),
            ("copied by the device", totals.bytes_offloaded),
        ];
        let ways = ways.into_iter().filter(|(_, bytes)| *bytes > 0);
        let ways: Vec<_> = ways
            .map(|(way, bytes)| format!("{} {way}", Bytes(bytes)))
            .collect();
        facts.push(fact(
            "Relocated",
            Bytes(totals.bytes_relocated),
            ways.join(", "),
            Tone::Plain,
        ));
    }
    if let Some(growth) = totals.free_growth_bytes {
        facts.push(reclaimed_fact(totals.bytes_reclaimed, growth));
    }
    let rate = rate(totals.bytes_relocated, totals.duration_ns);
    facts.push(fact("Time", Nanos(totals.duration_ns), rate, Tone::Plain));
    if totals.longest_lock_ns > 0 {
        let aside = match totals.stalls_over_limit {
            0 => "the longest that one step held a file's locks".to_owned(),
            1 => "the longest that one step held a file's locks; 1 took longer than --max-stall"
                .to_owned(),
            many => format!(
                "the longest that one step held a file's locks; {many} took longer than --max-stall"
            ),
        };
        facts.push(fact(
            "Longest step",
            Nanos(totals.longest_lock_ns),
            aside,
            Tone::Plain,
        ));
    }
    if totals.longest_uncommitted_ns > 0 {
        let aside = "the longest that fdatasync of a file in use was not durable (see --strict)";
        facts.push(fact(
            "Uncommitted",
            Nanos(totals.longest_uncommitted_ns),
            aside,
            Tone::Plain,
        ));
    }
    facts
}

/// The space that was given back: that of the extents, and that of the file system.
fn reclaimed_fact(bytes: u64, growth: i64) -> Fact {
    let measured = match u64::try_from(growth) {
        Ok(more) => format!("{} more free, as measured", Bytes(more)),
        Err(_) => format!(
            "{} less free, as measured: others wrote, or hold what was let go",
            Bytes(growth.unsigned_abs())
        ),
    };
    let tone = if bytes > 0 { Tone::Good } else { Tone::Plain };
    fact("Given back", Bytes(bytes), measured, tone)
}

fn dry_facts(run: &RunDocument, digest: &Digest) -> Vec<Fact> {
    let (files, bytes) = (digest.planned_files, digest.planned_bytes);
    let rest = run.totals.files_skipped.saturating_sub(files);
    vec![
        fact(
            "Files to move",
            Count(files),
            format!("{} would be left alone", Count(rest)),
            Tone::Plain,
        ),
        fact(
            "To be moved",
            Bytes(bytes),
            "nothing was changed",
            Tone::Plain,
        ),
    ]
}

/// The factor by which a count decreased.
pub(crate) fn times_fewer(before: u64, after: u64) -> String {
    match after {
        0 => String::new(),
        after if after < before => format!("{} times fewer", Ratio(before as f64 / after as f64)),
        after if after == before => "as before".to_owned(),
        _ => "more".to_owned(),
    }
}

fn proof_facts(proof: &Proof, moved: bool) -> Vec<Fact> {
    let yes = |good: bool, yes: &str, no: &str| {
        (
            if good { yes } else { no }.to_owned(),
            if good { Tone::Good } else { Tone::Bad },
        )
    };
    let (contents, contents_tone) = yes(proof.contents_equal, "equal", "DIFFERENT");
    let (fsck, fsck_tone) = match proof.fsck_clean {
        Some(clean) => yes(clean, "clean", "NOT CLEAN"),
        None => ("not checked".to_owned(), Tone::Plain),
    };
    let faster = proof.read_ns_before as f64 / proof.read_ns_after.max(1) as f64;
    vec![
        fact(
            "Contents",
            contents,
            "SHA-256 of every file, before and after",
            contents_tone,
        ),
        fact(
            "File system",
            fsck,
            if proof.fsck_clean.is_some() {
                "its own checker"
            } else {
                "needs root, and a disk that nobody else has mounted"
            },
            fsck_tone,
        ),
        fact(
            "Cold read",
            format!(
                "{} → {}",
                Nanos(proof.read_ns_before),
                Nanos(proof.read_ns_after)
            ),
            if moved {
                format!("{} times as fast, as measured here", Ratio(faster))
            } else {
                "nothing was moved: any difference is noise".to_owned()
            },
            if moved && faster > 1.05 {
                Tone::Good
            } else {
                Tone::Plain
            },
        ),
    ]
}

/// Files that were left alone.
fn left_alone(reasons: &BTreeMap<SkipReason, u64>) -> impl Iterator<Item = Fact> {
    reasons.iter().map(|(reason, files)| {
        let files = counted(*files, "file", "files");
        fact("Left alone", files, reason.advice(), Tone::Plain)
    })
}

/// Why nothing moved, or would, as whole sentences: in the words of the reason for which most files were left alone that
/// have something to gain, if there are any.
pub(super) fn why_nothing(reasons: &BTreeMap<SkipReason, u64>, has_run: bool) -> String {
    let gains_nothing = |reason: &SkipReason| {
        matches!(
            reason,
            SkipReason::Empty
                | SkipReason::Unwritten
                | SkipReason::Inline
                | SkipReason::Contiguous
                | SkipReason::AllReached
                | SkipReason::NotRead
                | SkipReason::NoTimeLost
        )
    };
    let refused = reasons.iter().filter(|(reason, _)| !gains_nothing(reason));
    let refused: Vec<_> = refused.collect();
    let Some((reason, most)) = refused.iter().rev().max_by_key(|(_, files)| **files) else {
        let is = if has_run { "was" } else { "is" };
        return format!("Nothing {is} worth moving.");
    };
    let all: u64 = refused.iter().map(|(_, files)| **files).sum();
    let more = match all - **most {
        0 => String::new(),
        more => format!(
            " {} for other reasons.",
            counted(more, "more file", "more files")
        ),
    };
    let files = counted(**most, "file", "files");
    let was = if has_run { "was" } else { "would be" };
    format!(
        "Nothing {was} moved. {files} left alone: {}.{more}",
        reason.advice()
    )
}

/// The facts of a plan.
pub(super) fn plan_facts(plan: &PlanInput) -> Vec<Fact> {
    let totals = &plan.totals;
    let share = if totals.total_gain > 0.0 {
        totals.gain / totals.total_gain * 100.0
    } else {
        0.0
    };
    let gain = Gain(totals.gain, plan.options());
    let mut facts = Vec::new();
    if plan.reads.differ() {
        let per_read = format!("requests for a read of {}", plan.io_size());
        facts.push(fact("Reads", plan.reads, per_read, Tone::Good));
    }
    facts.extend([
        fact(
            "Files to move",
            Count(totals.files_to_move),
            format!("of {} in the plan", Count(totals.files)),
            Tone::Plain,
        ),
        fact(
            "Chunks to move",
            Count(totals.chunks_to_move),
            format!("of {}", Count(totals.chunks)),
            Tone::Plain,
        ),
        fact("Cost", totals.cost, "bytes to write", Tone::Plain),
        fact(
            "Gain",
            &gain,
            format!("{}, {share:.0} % of what is possible", gain.unit()),
            Tone::Plain,
        ),
        fact("Policy", plan.policy_word(), "", Tone::Plain),
    ]);
    facts.extend(left_alone(&plan.left_alone));
    facts
}

/// Bytes a second, where the number is meaningful.
pub(crate) fn rate(bytes: u64, ns: u64) -> String {
    if bytes == 0 || ns == 0 {
        return String::new();
    }
    format!("{}/s", Bytes((bytes as f64 / (ns as f64 / 1e9)) as u64))
}
