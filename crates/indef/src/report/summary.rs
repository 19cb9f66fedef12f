//! What there is to say about an input in a few facts; text and HTML show the same ones.

use units::{Bytes, Nanos};

use super::input::PlanInput;
use crate::{
    document::{FileStatus, Proof, RunDocument, RunFile},
    output::{Count, Ratio, counted},
};

/// How a fact is to be felt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warn,
    Bad,
}

/// A number with its name.
#[derive(Clone, Debug)]
pub(super) struct Fact {
    pub(super) label: String,
    pub(super) value: String,
    /// What stands beside it, smaller.
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
pub(super) fn run_facts(run: &RunDocument) -> Vec<Fact> {
    let totals = &run.totals;
    let sum = |of: fn(&RunFile) -> u64| -> u64 {
        run.files
            .iter()
            .filter(|f| f.status == FileStatus::Moved)
            .map(of)
            .sum()
    };
    let (before, after) = (sum(|f| f.extents_before), sum(|f| f.extents_after));
    let mut others = vec![counted(totals.files_skipped, "skipped", "skipped")];
    if totals.files_failed > 0 {
        others.push(format!("{} failed", Count(totals.files_failed)));
    }
    let mut facts = vec![
        fact(
            if run.dry_run {
                "Files to move"
            } else {
                "Files moved"
            },
            Count(totals.files_moved),
            others.join(", "),
            if totals.files_failed > 0 {
                Tone::Bad
            } else {
                Tone::Plain
            },
        ),
        fact(
            "Extents of moved files",
            format!("{} → {}", Count(before), Count(after)),
            if after > 0 {
                format!("{} times fewer", Ratio(before as f64 / after as f64))
            } else {
                String::new()
            },
            if after < before {
                Tone::Good
            } else {
                Tone::Plain
            },
        ),
        fact(
            "Relocated",
            Bytes(totals.bytes_relocated),
            format!(
                "host read {}, wrote {}; device copied {}",
                Bytes(totals.bytes_host_read),
                Bytes(totals.bytes_host_written),
                Bytes(totals.bytes_offloaded)
            ),
            Tone::Plain,
        ),
        fact(
            "Time",
            Nanos(totals.duration_ns),
            rate(totals.bytes_relocated, totals.duration_ns),
            Tone::Plain,
        ),
    ];
    if let Some(stopped) = &run.stopped {
        facts.push(fact(
            "Stopped by",
            stopped,
            "indef run --resume continues",
            Tone::Warn,
        ));
    }
    facts.extend(run.proof.iter().flat_map(proof_facts));
    facts
}

fn proof_facts(proof: &Proof) -> Vec<Fact> {
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
                "needs root"
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
            format!("{} times as fast, as measured here", Ratio(faster)),
            if faster > 1.05 {
                Tone::Good
            } else {
                Tone::Plain
            },
        ),
    ]
}

/// The facts of a plan.
pub(super) fn plan_facts(plan: &PlanInput) -> Vec<Fact> {
    let totals = &plan.totals;
    let share = if totals.total_gain > 0.0 {
        totals.gain / totals.total_gain * 100.0
    } else {
        0.0
    };
    vec![
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
            Ratio(totals.gain),
            format!("IODP, {share:.0} % of what is possible"),
            Tone::Plain,
        ),
        fact("Policy", plan.policy_word(), "", Tone::Plain),
    ]
}

/// The files to list (failures first, then the most fragmented), and how many are left out.
pub(super) fn worst_runs(run: &RunDocument, top: usize) -> (Vec<&RunFile>, u64) {
    let mut files: Vec<&RunFile> = run.files.iter().collect();
    files.sort_by_key(|f| {
        let rank = match f.status {
            FileStatus::Failed => 0,
            FileStatus::Moved => 1,
            FileStatus::Skipped => 2,
        };
        (rank, std::cmp::Reverse(f.extents_before))
    });
    let left_out = files.len().saturating_sub(top) as u64;
    files.truncate(top);
    (files, left_out)
}

/// Bytes a second, where that says something.
pub(crate) fn rate(bytes: u64, ns: u64) -> String {
    if bytes == 0 || ns == 0 {
        return String::new();
    }
    format!("{}/s", Bytes((bytes as f64 / (ns as f64 / 1e9)) as u64))
}
