//! `indef trace --check`: the events that can be traced on this kernel. `indef doctor` asks the same.

use std::io::{self, Write};

use anyhow::{Context, Result, ensure};
use indef_trace::collect::{Collector, Layer, Source, TraceOptions};
use serde::Serialize;

use crate::{
    document::SCHEMA,
    made::Made,
    outcome::Outcome,
    output::{Console, UNPRINTED, json},
};

#[derive(Serialize)]
struct CheckDocument {
    schema: u64,
    layers: Vec<LayerCheck>,
}

/// Whether accesses can be seen at a layer.
#[derive(Serialize)]
pub(crate) struct LayerCheck {
    pub(crate) layer: &'static str,
    works: bool,
    /// Why not.
    pub(crate) error: Option<String>,
    pub(crate) sources: Vec<SourceCheck>,
}

/// A kind of event, and where it is seen.
#[derive(Serialize)]
pub(crate) struct SourceCheck {
    what: &'static str,
    pub(crate) seen: bool,
    hook: String,
    why_not: Option<String>,
}

impl From<&Source> for SourceCheck {
    fn from(source: &Source) -> Self {
        Self {
            what: source.what,
            seen: source.program.is_some(),
            hook: source.hooks.to_string(),
            why_not: source.why_not.as_ref().map(ToString::to_string),
        }
    }
}

/// Load and attach everything, for a moment, and report the result. A layer that does not work is
/// an error, reported after the result of the other layer.
pub(super) fn check(console: &Console) -> Result<Outcome> {
    let layers = look_at_layers();
    let failed: Vec<String> = layers
        .iter()
        .filter_map(|layer| Some(format!("layer {}: {}", layer.layer, layer.error.as_ref()?)))
        .collect();
    let printed = if console.json {
        let document = CheckDocument {
            schema: SCHEMA,
            layers,
        };
        json::print(&document, &Made::of(&[]))
    } else if console.quiet {
        Ok(())
    } else {
        let mut works = layers.iter().filter(|layer| layer.works);
        works.try_for_each(|layer| text(console, layer))
    };
    printed.context(UNPRINTED)?;
    ensure!(failed.is_empty(), failed.join("\n"));
    Ok(Outcome::Done)
}

/// Load and attach the programs of both layers, for a moment.
pub(crate) fn look_at_layers() -> Vec<LayerCheck> {
    [Layer::Fs, Layer::Syscall].map(look).into()
}

fn look(layer: Layer) -> LayerCheck {
    let options = TraceOptions {
        layer,
        ..TraceOptions::default()
    };
    let (sources, error) = match Collector::start(&options) {
        Ok(collector) => (
            collector.sources().iter().map(SourceCheck::from).collect(),
            None,
        ),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    LayerCheck {
        layer: layer.as_str(),
        works: error.is_none(),
        error,
        sources,
    }
}

fn text(console: &Console, layer: &LayerCheck) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let title = format!("Layer {}", layer.layer);
    writeln!(out, "{}", console.out.bold(&title))?;
    for source in &layer.sources {
        match &source.why_not {
            None => writeln!(out, "  {:<50} {}", source.what, source.hook)?,
            Some(why) => writeln!(out, "  {:<50} not seen: {why}", source.what)?,
        }
    }
    Ok(())
}
