//! `indef trace --check`: the events that can be traced on this kernel.

use std::io::{self, Write};

use anyhow::{Context, Result, ensure};
use indef_trace::collect::{Collector, Layer, Source, TraceOptions};
use serde::Serialize;

use crate::{
    document::SCHEMA,
    outcome::Outcome,
    output::{Console, UNPRINTED},
};

#[derive(Serialize)]
struct CheckDocument {
    schema: u64,
    layers: Vec<LayerEntry>,
}

#[derive(Serialize)]
struct LayerEntry {
    layer: &'static str,
    works: bool,
    error: Option<String>,
    sources: Vec<SourceEntry>,
}

#[derive(Serialize)]
struct SourceEntry {
    what: &'static str,
    seen: bool,
    hook: String,
    why_not: Option<String>,
}

impl From<&Source> for SourceEntry {
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
    let layers: Vec<LayerEntry> = [Layer::Fs, Layer::Syscall].map(look).into();
    let failed: Vec<String> = layers
        .iter()
        .filter_map(|layer| Some(format!("layer {}: {}", layer.layer, layer.error.as_ref()?)))
        .collect();
    let printed = if console.json {
        let document = CheckDocument {
            schema: SCHEMA,
            layers,
        };
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &document)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
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

fn look(layer: Layer) -> LayerEntry {
    let options = TraceOptions {
        layer,
        ..TraceOptions::default()
    };
    let (sources, error) = match Collector::start(&options) {
        Ok(collector) => (
            collector.sources().iter().map(SourceEntry::from).collect(),
            None,
        ),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    LayerEntry {
        layer: layer.as_str(),
        works: error.is_none(),
        error,
        sources,
    }
}

fn text(console: &Console, layer: &LayerEntry) -> io::Result<()> {
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
