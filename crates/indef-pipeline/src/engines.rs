//! The engine for the files of each file system: chosen before anything is planned, since the
//! requirements of an engine (a journal, a feature, a privilege) concern the file system as a
//! whole.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use indef_core::SkipReason;
use indef_fs::{EngineKind, EngineOptions, Filesystem, Refusal, Relocator, relocator};

use crate::sync::lock;

/// The choice for one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The engine; also where it refuses, if there is one for this kind of file system.
    pub(crate) engine: Option<EngineKind>,
    /// It can only move whole files.
    pub(crate) whole_files: bool,
    /// The reason for which nothing of this file system is moved.
    pub(crate) refused: Option<SkipReason>,
    /// The engine for files that others share, where there is one that moves them together with these.
    pub(crate) sharing: Option<EngineKind>,
    /// That one has to be told which files these are.
    pub(crate) needs_names: bool,
}

/// A choice, and the engine that foresees what sharing costs.
type Known = (Chosen, Option<Arc<dyn Relocator>>);

/// The engines of the file systems seen so far, by device number.
#[derive(Default)]
pub(crate) struct Engines {
    /// The engine requested by name.
    wanted: Option<EngineKind>,
    /// Sharing may be given up.
    allow_unshare: bool,
    /// Whoever shares blocks with a file is looked for among the given files, where the file system does not tell.
    named: bool,
    known: Mutex<HashMap<u64, Known>>,
}

impl Engines {
    pub(crate) fn new(wanted: Option<EngineKind>, allow_unshare: bool) -> Self {
        Self {
            wanted,
            allow_unshare,
            named: false,
            known: Mutex::default(),
        }
    }

    /// Have files that others share looked for among the given ones, where the file system does not tell which they are.
    pub(crate) fn with_names(mut self, named: bool) -> Self {
        self.named = named;
        self
    }

    /// The choice for the files of this file system.
    pub(crate) fn of(&self, fs: &Filesystem) -> Chosen {
        // Held during the examination: each file system is examined once.
        let mut known = lock(&self.known);
        let known = known
            .entry(fs.dev)
            .or_insert_with(|| choose(fs, self.wanted, self.allow_unshare, self.named));
        known.0
    }

    /// The engine for the other files of a file system (seen before).
    pub(crate) fn main(&self, dev: u64) -> Option<EngineKind> {
        lock(&self.known).get(&dev)?.0.engine
    }

    /// The engine for files of a file system (seen before) that others share.
    pub(crate) fn sharing(&self, dev: u64) -> Option<Arc<dyn Relocator>> {
        let known = lock(&self.known);
        known.get(&dev).and_then(|(_, engine)| engine.clone())
    }
}

/// The first engine that works there, as a run would find it; and that for files that others share, which comes before
/// where it takes no others.
fn choose(fs: &Filesystem, wanted: Option<EngineKind>, allow_unshare: bool, named: bool) -> Known {
    let kinds: Vec<_> = match wanted {
        Some(kind) => [Some(kind), kind.instead()].into_iter().flatten().collect(),
        None => fs.engines(),
    };
    let options = EngineOptions {
        by_name: wanted.is_some(),
        allow_unshare,
        ..EngineOptions::default()
    };
    let mut refused: Option<SkipReason> = None;
    let mut sharing: Option<(EngineKind, Arc<dyn Relocator>)> = None;
    for kind in kinds.iter().copied().filter(|kind| fs.may_use(*kind)) {
        match relocator(kind, fs, &options) {
            Ok(engine) if engine.needs_names() && !named => {
                if wanted.is_some() {
                    refused = Some(SkipReason::HoldersUnknown);
                }
            }
            Ok(engine) => {
                let whole_files = engine.moves_whole_files();
                if kind.keeps_sharing() {
                    sharing = Some((kind, engine.into()));
                    if wanted.is_none() {
                        continue;
                    }
                }
                let chosen = Chosen {
                    engine: Some(kind),
                    whole_files,
                    refused: None,
                    sharing: sharing.as_ref().map(|(kind, _)| *kind),
                    needs_names: { sharing.as_ref() }.is_some_and(|(_, one)| one.needs_names()),
                };
                return (chosen, sharing.map(|(_, engine)| engine));
            }
            // It is for some files only.
            Err(Refusal::Skip(_)) if kind.keeps_sharing() && wanted.is_none() => {}
            // An engine that is not for this file system is a less informative reason than a
            // missing requirement of another one.
            Err(Refusal::Skip(reason)) if refused.is_none_or(|old| old == SkipReason::NoEngine) => {
                refused = Some(reason);
            }
            Err(Refusal::Skip(_)) => {}
            Err(Refusal::Failed(error)) => {
                tracing::info!(engine = %kind, %error, "engine is not available");
                refused.get_or_insert(SkipReason::NoEngine);
            }
        }
    }
    let mut possible = kinds.into_iter().filter(|kind| fs.may_use(*kind));
    let chosen = Chosen {
        engine: possible.find(|kind| wanted.is_some() || !kind.keeps_sharing()),
        whole_files: false,
        refused: Some(refused.unwrap_or(SkipReason::NoEngine)),
        sharing: None,
        needs_names: false,
    };
    (chosen, None)
}
