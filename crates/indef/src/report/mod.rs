//! `indef report`: plans and results of runs, before and after, as text, HTML or JSON; with `--merge` those of many hosts.

mod digest;
mod html;
mod input;
mod merge;
mod picture;
mod reads;
mod summary;
mod text;

use std::{fs, io};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::{
    args::ReportArgs,
    document::SCHEMA,
    made::Made,
    outcome::Outcome,
    output::{Console, Name, UNPRINTED, json},
    refusal::line,
};
use input::{Content, Input, RunInput};
pub(crate) use summary::{rate, times_fewer};
pub(crate) use text::{run_files as write_run_files, write_run};

/// Read the inputs, and show them.
pub(crate) fn report(args: &ReportArgs, console: &Console) -> Result<Outcome> {
    if args.merge {
        return merge::merge(args, console);
    }
    let top = args
        .top
        .unwrap_or(if args.html.is_some() { 1000 } else { 20 });
    let mut inputs = Vec::new();
    for path in &args.inputs {
        match input::read(path, top) {
            Ok(input) => inputs.push(input),
            Err(error) => console.error(line(&error), ""),
        }
    }
    if inputs.is_empty() {
        return Ok(Outcome::Done);
    }
    if let Some(path) = &args.html {
        let page = html::page(&inputs).context("cannot write HTML")?;
        fs::write(path, page).with_context(|| format!("{}: cannot write the page", Name(path)))?;
        console.detail(format_args!("{}: written", Name(path)));
    }
    if console.json {
        json::print(
            &ReportJson {
                schema: SCHEMA,
                inputs: inputs.iter().map(InputJson::from).collect(),
            },
            &Made::of(&args.inputs),
        )
        .context(UNPRINTED)?;
    } else if !console.quiet && args.html.is_none() {
        text::write(&mut io::stdout().lock(), console, &inputs, top).context(UNPRINTED)?;
    }
    Ok(Outcome::Done)
}

#[derive(Serialize)]
struct ReportJson {
    schema: u64,
    inputs: Vec<InputJson>,
}

#[derive(Serialize)]
struct InputJson {
    source: String,
    kind: &'static str,
    #[serde(flatten)]
    content: serde_json::Value,
}

impl From<&Input> for InputJson {
    fn from(input: &Input) -> Self {
        let (kind, content) = match &input.content {
            Content::Run(RunInput {
                document: run,
                files,
            }) => (
                if run.proof.is_some() { "demo" } else { "run" },
                serde_json::json!({
                    "made": run.made,
                    "totals": run.totals,
                    "dry_run": run.dry_run,
                    "stopped": run.stopped,
                    "error": run.error,
                    "proof": run.proof,
                    "extents_before": files.extents_before,
                    "extents_after": files.extents_after,
                    "skipped": files.left_alone,
                }),
            ),
            Content::Plan(plan) => (
                "plan",
                serde_json::json!({
                    "policy": plan.policy_word(),
                    "totals": crate::plan::TotalsJson::new(&plan.totals, &plan.left_alone, None),
                }),
            ),
        };
        Self {
            source: input.source.to_string_lossy().into_owned(),
            kind,
            content,
        }
    }
}
