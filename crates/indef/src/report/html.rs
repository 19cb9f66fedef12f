//! One self-contained HTML page: inline styles and drawings, and nothing loaded. askama escapes whatever comes from
//! files. One script of a few lines searches the tables; the page is whole without it, and allows no other.

use std::path::Path;

use askama::Template;
use indef_core::plan::PlanOptions;
use units::Bytes;

use super::{
    input::{Content, Input, PlanInput, RunInput},
    picture::{LEGEND, Picture},
    reads::Reads,
    summary::{Fact, contents, plan_facts, run_facts, why_nothing},
};
use crate::{
    document::{FileStatus, RunFile},
    made::Made,
    output::{Count, Gain, Name, Tone, counted},
};

pub(super) const STYLE: &str = include_str!("style.css");
pub(super) const SCRIPT: &str = include_str!("search.js");
/// SHA-256 of the script, in base64: the only one that a browser is to run on the page.
pub(super) const SCRIPT_HASH: &str = "DXxxwLvxkVQM213un30+vj718hDP1ygyyx+aHioIjRQ=";

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    version: &'static str,
    style: &'static str,
    script: &'static str,
    script_hash: &'static str,
    legend: [(&'static str, &'static str); 6],
    parts: Vec<Part<'a>>,
}

/// A plan or a run.
struct Part<'a> {
    kind: &'static str,
    source: String,
    verdict: Verdict,
    /// Where it comes from: pairs of a name and a text.
    origin: Vec<(&'static str, String)>,
    facts: Vec<Fact>,
    io_size: Bytes,
    pictures: Vec<Picture>,
    columns: &'static [(&'static str, &'static str)],
    rows: Vec<Row<'a>>,
    left_out: u64,
    /// The measure by which ranges were chosen, for those who ask.
    priority: Option<String>,
}

/// What it comes to.
struct Verdict {
    text: String,
    tone: &'static str,
}

/// A line of the table: the path, then words and numbers.
struct Row<'a> {
    path: String,
    tone: &'static str,
    cells: Vec<std::borrow::Cow<'a, str>>,
}

/// The whole page.
pub(super) fn page(inputs: &[Input]) -> Result<String, askama::Error> {
    let parts = inputs.iter().map(|input| {
        let source = Name(&input.source).to_string();
        match &input.content {
            Content::Run(run) => run_part(source, run),
            Content::Plan(plan) => plan_part(source, plan),
        }
    });
    Page {
        version: env!("INDEF_VERSION"),
        style: STYLE,
        script: SCRIPT,
        script_hash: SCRIPT_HASH,
        legend: LEGEND,
        parts: parts.collect(),
    }
    .render()
}

fn run_part(source: String, input: &RunInput) -> Part<'_> {
    let (run, files) = (&input.document, &input.files);
    let io_size = PlanOptions::default().io_size;
    let pictures: Vec<_> = run
        .maps
        .iter()
        .map(|map| Picture::new(map, io_size))
        .collect();
    Part {
        kind: match (&run.proof, run.dry_run) {
            (Some(_), _) => "Demo",
            (None, true) => "Dry run",
            (None, false) => "Run",
        },
        source,
        verdict: run_verdict(input, &pictures, io_size),
        origin: run.made.as_deref().map(origin).unwrap_or_default(),
        facts: run_facts(run, files),
        io_size,
        pictures,
        columns: &[
            ("Engine", "word"),
            ("Status", "word status"),
            ("Extents before", ""),
            ("after", ""),
            ("Relocated", ""),
        ],
        rows: files.worst().iter().map(run_row).collect(),
        left_out: files.left_out(),
        priority: None,
    }
}

fn run_verdict(input: &RunInput, pictures: &[Picture], io_size: Bytes) -> Verdict {
    let (run, files) = (&input.document, &input.files);
    let totals = &run.totals;
    let moved = counted(totals.files_moved, "file", "files");
    let read = reads_of(pictures);
    if let Some(error) = &run.error {
        return Verdict {
            text: format!("It failed: {error}. Nothing was moved."),
            tone: "bad",
        };
    }
    if totals.files_failed > 0 {
        let failed = counted(totals.files_failed, "file", "files");
        return Verdict {
            text: format!("{failed} failed; {moved} moved; {}.", contents(totals)),
            tone: "bad",
        };
    }
    let did = match run.dry_run {
        true => {
            let files = counted(files.planned_files, "file", "files");
            let bytes = Bytes(input.files.planned_bytes);
            format!("{files} would move, {bytes} would be written. Nothing was changed")
        }
        false => format!("{moved} moved"),
    };
    if totals.problems > 0 {
        let paths = counted(totals.problems, "path", "paths");
        return Verdict {
            text: format!("{paths} could not be looked at; {did}."),
            tone: "bad",
        };
    }
    let moves = match run.dry_run {
        true => files.planned_files,
        false => totals.files_moved,
    };
    if moves == 0 {
        let (text, tone) = match (&run.stopped, files.files) {
            (Some(_), _) => (
                "It was stopped before anything was moved.".to_owned(),
                "warn",
            ),
            (None, 0) => ("There were no files to look at.".to_owned(), ""),
            (None, _) => (why_nothing(&files.left_alone, !run.dry_run), ""),
        };
        return Verdict { text, tone };
    }
    if run.dry_run {
        return Verdict {
            text: format!("{did}."),
            tone: "",
        };
    }
    let gain = match read.differ() {
        true => format!(" A read of {io_size} of the worst ones takes {read} requests."),
        false => String::new(),
    };
    let (before, after) = (Count(files.moved_before), Count(files.moved_after));
    let rest = match run.stopped {
        Some(_) => " It was stopped with work left.",
        None => "",
    };
    Verdict {
        text: format!("{moved} moved: {before} → {after} extents.{gain}{rest}"),
        tone: if run.stopped.is_some() {
            "warn"
        } else {
            "good"
        },
    }
}

fn reads_of(pictures: &[Picture]) -> Reads {
    let mut all = Reads::default();
    for picture in pictures {
        all.join(picture.reads);
    }
    all
}

fn run_row(file: &RunFile) -> Row<'_> {
    let mut status = file.status.as_str().to_owned();
    if let Some(why) = file.reason.as_deref().or(file.why_no_fewer()) {
        status = format!("{status}: {}", Name(Path::new(why)));
    }
    Row {
        path: Name(&file.path.to_path().unwrap_or_default()).to_string(),
        tone: match file.status {
            FileStatus::Moved => "good",
            FileStatus::Skipped => "quiet",
            FileStatus::Failed => "bad",
        },
        cells: vec![
            file.engine.as_deref().unwrap_or(&file.fs).into(),
            status.into(),
            Count(file.extents_before).to_string().into(),
            Count(file.extents_after).to_string().into(),
            Bytes(file.bytes_relocated).to_string().into(),
        ],
    }
}

fn plan_part(source: String, plan: &PlanInput) -> Part<'_> {
    let totals = &plan.totals;
    let files = counted(totals.files_to_move, "file", "files");
    let verdict = match (totals.files_to_move, plan.reads.differ()) {
        (0, _) => why_nothing(&plan.left_alone, false),
        (_, true) => format!(
            "{files} would move, {} would be written: a read of {} takes {} requests.",
            totals.cost,
            plan.io_size(),
            plan.reads
        ),
        (_, false) => format!("{files} would move, {} would be written.", totals.cost),
    };
    let gain = Gain(totals.gain, plan.options());
    let possible = Gain(totals.total_gain, plan.options());
    Part {
        kind: "Plan",
        source,
        verdict: Verdict {
            text: verdict,
            tone: "",
        },
        origin: Vec::new(),
        facts: plan_facts(plan)
            .into_iter()
            .filter(|fact| fact.label != "Gain" || gain.unit() != "IODP")
            .collect(),
        io_size: plan.io_size(),
        pictures: plan.maps().iter().map(Picture::planned).collect(),
        columns: &[
            ("Engine", "word"),
            ("Extents", ""),
            ("Ranges to move", ""),
            ("Cost", ""),
            ("Gain", ""),
        ],
        rows: plan
            .worst
            .iter()
            .map(|file| Row {
                path: Name(&file.path).to_string(),
                tone: "",
                cells: vec![
                    file.engine.as_deref().unwrap_or("none").into(),
                    Count(file.extents_before).to_string().into(),
                    Count(file.runs().len() as u64).to_string().into(),
                    file.cost().to_string().into(),
                    Gain(file.gain(), plan.options()).to_string().into(),
                ],
            })
            .collect(),
        left_out: totals.files_to_move.saturating_sub(plan.worst.len() as u64),
        priority: Some(format!(
            "Files stand in the order of their gain: {gain} of {possible} {}. Priority (IODP) is the weighted sum of \
             fragments (DoLF) and unevenness over chips (DoPF) of a range, times its reads.",
            gain.unit()
        )),
    }
}

/// Where a run was made.
fn origin(made: &Made) -> Vec<(&'static str, String)> {
    let mut origin = vec![
        ("Date", made.time.replace('T', " ").replace('Z', " UTC")),
        ("Host", made.host.clone()),
    ];
    for on in &made.file_systems {
        let at = on.mounted_at.as_deref().unwrap_or("?");
        let uuid = on.uuid.as_ref().map(|uuid| format!(", {uuid}"));
        let text = format!("{} at {at}{}", on.fs, uuid.unwrap_or_default());
        origin.push(("File system", text));
        if let Some(device) = on.device.as_ref().or(on.source.as_ref()) {
            let model = on.model.as_ref().map(|model| format!(" ({model})"));
            origin.push(("Device", format!("{device}{}", model.unwrap_or_default())));
        }
    }
    origin.push(("Command", made.command.join(" ")));
    let version = format!(
        "indef {}, Linux {} ({})",
        made.version, made.kernel, made.machine
    );
    origin.push(("Version", version));
    origin
}

/// Files that the table does not list.
fn more(left_out: u64) -> String {
    format!("and {}", counted(left_out, "more file", "more files"))
}

/// The class of a fact's value.
fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Good => "good",
        Tone::Warn => "warn",
        Tone::Bad => "bad",
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_script_is_the_one_that_is_allowed() {
        assert_eq!(STANDARD.encode(Sha256::digest(SCRIPT)), SCRIPT_HASH);
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"));
    }
}
