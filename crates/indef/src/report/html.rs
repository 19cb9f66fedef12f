//! One self-contained HTML page: inline styles and drawings, nothing loaded, nothing run.

use std::fmt::{self, Write as _};

use units::Bytes;

use super::{
    input::{Content, Input, PlanInput},
    markup::{LEGEND, Text, file_map},
    summary::{Fact, Tone, plan_facts, run_facts, worst_runs},
};
use crate::{
    document::{FileMap, FileStatus, RunDocument},
    output::{Count, Gain, Name, counted},
};

/// The whole page.
pub(super) fn page(inputs: &[Input], top: usize) -> Result<String, fmt::Error> {
    let mut out = String::with_capacity(64 << 10);
    out.push_str(concat!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        "<meta name=\"generator\" content=\"indef ",
        env!("CARGO_PKG_VERSION"),
        "\">\n<title>indef report</title>\n<style>\n",
        include_str!("style.css"),
        "</style>\n</head>\n<body>\n<header>\n<h1>indef report</h1>\n"
    ));
    writeln!(
        out,
        "<p class=\"quiet\">{}: what was fragmented, what moved, and what it cost.</p>\n</header>\n<main>",
        counted(inputs.len() as u64, "plan or run", "plans and runs")
    )?;
    for (n, input) in inputs.iter().enumerate() {
        let source = Name(&input.source);
        match &input.content {
            Content::Run(run) => run_section(&mut out, n, &source, run, top)?,
            Content::Plan(plan) => plan_section(&mut out, n, &source, plan)?,
        }
    }
    writeln!(
        out,
        "</main>\n<footer>Made by indef {}. DoF is the number of extents of a file ÷ the number it would ideally have; \
         sizes are binary.</footer>\n</body>\n</html>",
        env!("CARGO_PKG_VERSION")
    )?;
    Ok(out)
}

fn run_section(
    out: &mut String,
    n: usize,
    source: &Name<'_>,
    run: &RunDocument,
    top: usize,
) -> fmt::Result {
    let kind = match (&run.proof, run.dry_run) {
        (Some(_), _) => "Demo",
        (None, true) => "Dry run",
        (None, false) => "Run",
    };
    heading(out, n, kind, source)?;
    tiles(out, &run_facts(run))?;
    maps(
        out,
        &run.maps,
        "in how many fragments the slice is. The bar below shows where on the device the file lies, \
         before and after on the same stretch of it.",
    )?;
    files_table(out, run, top)?;
    out.push_str("</section>\n");
    Ok(())
}

fn plan_section(out: &mut String, n: usize, source: &Name<'_>, plan: &PlanInput) -> fmt::Result {
    heading(out, n, "Plan", source)?;
    tiles(out, &plan_facts(plan))?;
    let meaning = format!(
        "how many fragments a read of {} meets there, now and if everything goes as planned.",
        plan.io_size()
    );
    maps(out, &plan.maps(), &meaning)?;
    plan_table(out, plan)?;
    out.push_str("</section>\n");
    Ok(())
}

fn heading(out: &mut String, n: usize, kind: &str, source: &Name<'_>) -> fmt::Result {
    writeln!(
        out,
        "<section aria-labelledby=\"s{n}\">\n<h2 id=\"s{n}\">{kind} <code>{}</code></h2>",
        Text(source)
    )
}

fn tiles(out: &mut String, facts: &[Fact]) -> fmt::Result {
    out.push_str("<dl class=\"tiles\">\n");
    for fact in facts {
        let tone = match fact.tone {
            Tone::Plain => "",
            Tone::Good => " class=\"good\"",
            Tone::Warn => " class=\"warn\"",
            Tone::Bad => " class=\"bad\"",
        };
        write!(
            out,
            "<div class=\"tile\"><dt>{}</dt><dd{tone}>{}",
            Text(&fact.label),
            Text(&fact.value)
        )?;
        if !fact.aside.is_empty() {
            write!(out, "<small>{}</small>", Text(&fact.aside))?;
        }
        out.push_str("</dd></div>\n");
    }
    out.push_str("</dl>\n");
    Ok(())
}

fn maps(out: &mut String, maps: &[FileMap], meaning: &str) -> fmt::Result {
    if maps.is_empty() {
        return Ok(());
    }
    out.push_str("<h3>Extent maps of the most fragmented files</h3>\n");
    writeln!(
        out,
        "<p class=\"quiet\">Each cell is a slice of the file, from its beginning on; its colour says {}</p>\n\
         <ul class=\"legend\">",
        Text(meaning)
    )?;
    for (class, text) in LEGEND {
        writeln!(
            out,
            "<li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"14\" height=\"14\" rx=\"2.5\"/></svg>{}</li>",
            Text(text)
        )?;
    }
    out.push_str("</ul>\n");
    for map in maps {
        file_map(out, map)?;
    }
    Ok(())
}

fn files_table(out: &mut String, run: &RunDocument, top: usize) -> fmt::Result {
    let (worst, left_out) = worst_runs(run, top);
    if worst.is_empty() {
        out.push_str("<p>No files.</p>\n");
        return Ok(());
    }
    out.push_str(
        "<div class=\"card scroll\"><table><caption>Files</caption>\n<thead><tr><th scope=\"col\" class=\"name\">Path</th>\
         <th scope=\"col\" class=\"word\">Engine</th><th scope=\"col\" class=\"word\">Status</th>\
         <th scope=\"col\">Extents before</th><th scope=\"col\">after</th><th scope=\"col\">Relocated</th></tr></thead>\n<tbody>\n",
    );
    for file in worst {
        let path = file.path.to_path().unwrap_or_default();
        let status = file.status.as_str();
        let tone = match file.status {
            FileStatus::Moved => "good",
            FileStatus::Skipped => "quiet",
            FileStatus::Failed => "bad",
        };
        write!(
            out,
            "<tr><th scope=\"row\" class=\"name\">{}</th><td class=\"word\">{}</td><td class=\"word {tone}\">{status}",
            Text(Name(&path)),
            Text(file.engine.as_deref().unwrap_or(&file.fs)),
        )?;
        if let Some(reason) = &file.reason {
            write!(out, ": {}", Text(reason))?;
        }
        writeln!(
            out,
            "</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            Count(file.extents_before),
            Count(file.extents_after),
            Bytes(file.bytes_relocated)
        )?;
    }
    out.push_str("</tbody></table>\n");
    more(out, left_out)?;
    out.push_str("</div>\n");
    Ok(())
}

fn plan_table(out: &mut String, plan: &PlanInput) -> fmt::Result {
    if plan.worst.is_empty() {
        out.push_str("<p>Nothing is worth moving.</p>\n");
        return Ok(());
    }
    out.push_str(
        "<div class=\"card scroll\"><table><caption>Files with the highest gain</caption>\n<thead><tr>\
         <th scope=\"col\" class=\"name\">Path</th><th scope=\"col\" class=\"word\">Engine</th>\
         <th scope=\"col\">Extents</th><th scope=\"col\">Ranges to move</th><th scope=\"col\">Cost</th>\
         <th scope=\"col\">Gain</th></tr></thead>\n<tbody>\n",
    );
    for file in &plan.worst {
        writeln!(
            out,
            "<tr><th scope=\"row\" class=\"name\">{}</th><td class=\"word\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            Text(Name(&file.path)),
            Text(file.engine.as_deref().unwrap_or("none")),
            Count(file.extents_before),
            Count(file.runs().len() as u64),
            file.cost(),
            Gain(file.gain(), plan.options())
        )?;
    }
    out.push_str("</tbody></table>\n");
    more(
        out,
        plan.totals
            .files_to_move
            .saturating_sub(plan.worst.len() as u64),
    )?;
    out.push_str("</div>\n");
    Ok(())
}

fn more(out: &mut String, left_out: u64) -> fmt::Result {
    if left_out > 0 {
        writeln!(
            out,
            "<p class=\"quiet\">and {} (see --top)</p>",
            counted(left_out, "more file", "more files")
        )?;
    }
    Ok(())
}
