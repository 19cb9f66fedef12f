//! A report as text.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
};

use indef_core::SkipReason;
use units::Bytes;

use super::{
    digest::Digest,
    input::{Content, Input, PlanInput},
    summary::{Fact, plan_facts, run_facts},
};
use crate::{
    document::{FileStatus, RunDocument},
    output::{Align, Console, Count, Gain, Name, Table, Tone, counted},
};

/// Write all inputs.
pub(super) fn write(
    out: &mut dyn Write,
    console: &Console,
    inputs: &[Input],
    top: usize,
) -> io::Result<()> {
    for (n, input) in inputs.iter().enumerate() {
        if n > 0 {
            writeln!(out)?;
        }
        let (kind, facts) = match &input.content {
            Content::Run(run) => {
                let kind = match run.document.proof {
                    Some(_) => "Demo",
                    None => "Run",
                };
                (kind, run_facts(&run.document, &run.files))
            }
            Content::Plan(plan) => ("Plan", plan_facts(plan)),
        };
        writeln!(out, "{} {}", console.out.bold(kind), Name(&input.source))?;
        write_facts(out, console, &facts)?;
        writeln!(out)?;
        match &input.content {
            Content::Run(run) => digest_files(out, console, &run.document, &run.files)?,
            Content::Plan(plan) => plan_files(out, console, plan, top)?,
        }
    }
    Ok(())
}

fn write_facts(out: &mut dyn Write, console: &Console, facts: &[Fact]) -> io::Result<()> {
    let width = facts
        .iter()
        .map(|fact| fact.label.chars().count())
        .max()
        .unwrap_or(0);
    for Fact {
        label,
        value,
        aside,
        tone,
    } in facts
    {
        let value = match tone {
            Tone::Plain => value.clone(),
            Tone::Good => console.out.good(value),
            Tone::Warn => console.out.warn(value),
            Tone::Bad => console.out.bad(value),
        };
        let aside = if aside.is_empty() {
            String::new()
        } else {
            format!("  ({aside})")
        };
        writeln!(out, "  {label:<width$}  {value}{}", console.out.dim(&aside))?;
    }
    Ok(())
}

/// Write the result of a run that just ended; `skipped` are the files that planning left
/// alone.
pub(crate) fn write_run(
    out: &mut dyn Write,
    console: &Console,
    run: &RunDocument,
    skipped: &BTreeMap<SkipReason, u64>,
    top: usize,
) -> io::Result<()> {
    if !run.files.is_empty() {
        run_files(out, console, run, top)?;
        writeln!(out)?;
    }
    writeln!(
        out,
        "{}",
        console
            .out
            .bold(if run.dry_run { "Dry run" } else { "Run" })
    )?;
    let mut digest = Digest::of(&run.files, 0);
    for (reason, files) in skipped {
        *digest.left_alone.entry(*reason).or_default() += files;
    }
    write_facts(out, console, &run_facts(run, &digest))
}

/// Write the files of a run, the worst first.
pub(crate) fn run_files(
    out: &mut dyn Write,
    console: &Console,
    run: &RunDocument,
    top: usize,
) -> io::Result<()> {
    digest_files(out, console, run, &Digest::of(&run.files, top))
}

fn digest_files(
    out: &mut dyn Write,
    console: &Console,
    run: &RunDocument,
    files: &Digest,
) -> io::Result<()> {
    let bytes = if run.dry_run { "to move" } else { "relocated" };
    let columns = ["before", "after", bytes];
    let mut columns: Vec<_> = columns.map(|title| (title, Align::Right)).into();
    columns.extend([("status", Align::Left), ("path", Align::Left)]);
    let mut table = Table::new(&columns);
    for file in files.worst() {
        let status = match (file.status, file.reason.as_deref()) {
            (FileStatus::Skipped, Some("dry-run")) => "would be moved".to_owned(),
            // The text of an error has names as they are.
            (status, Some(reason)) => {
                format!("{}: {}", status.as_str(), Name(Path::new(reason)))
            }
            (status, None) => match file.why_no_fewer() {
                Some(why) => format!("{}: {why}", status.as_str()),
                None => status.as_str().to_owned(),
            },
        };
        let path = file.path.to_path().unwrap_or_default();
        table.row(&[
            &Count(file.extents_before),
            &Count(file.extents_after),
            &Bytes(if run.dry_run {
                file.bytes_planned
            } else {
                file.bytes_relocated
            }),
            &status,
            &Name(&path),
        ]);
    }
    if !table.is_empty() {
        table.write(out, console.out)?;
    }
    more(out, console, files.left_out())
}

fn plan_files(
    out: &mut dyn Write,
    console: &Console,
    plan: &PlanInput,
    top: usize,
) -> io::Result<()> {
    let columns = ["extents", "ranges", "cost", "gain"];
    let mut columns: Vec<_> = columns.map(|title| (title, Align::Right)).into();
    columns.push(("path", Align::Left));
    let mut table = Table::new(&columns);
    for file in plan.worst.iter().take(top) {
        table.row(&[
            &Count(file.extents_before),
            &Count(file.runs().len() as u64),
            &file.cost(),
            &Gain(file.gain(), plan.options()),
            &Name(&file.path),
        ]);
    }
    if !table.is_empty() {
        table.write(out, console.out)?;
    }
    more(
        out,
        console,
        plan.totals.files_to_move.saturating_sub(top as u64),
    )
}

fn more(out: &mut dyn Write, console: &Console, left_out: u64) -> io::Result<()> {
    if left_out == 0 {
        return Ok(());
    }
    let more = counted(left_out, "more file", "more files");
    writeln!(out, "  {}", console.out.dim(&format!("and {more} (--top)")))
}
