//! The engine for the files of each file system: chosen before anything is planned, since the
//! requirements of an engine (a journal, a feature, a privilege) concern the file system as a
//! whole.

use std::{collections::HashMap, sync::Mutex};

use indef_core::SkipReason;
use indef_fs::{EngineKind, EngineOptions, Filesystem, Refusal, relocator};

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
}

/// The engines of the file systems seen so far, by device number.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    /// The engine requested by name.
    wanted: Option<EngineKind>,
    known: Mutex<HashMap<u64, Chosen>>,
}

impl Engines {
    pub(crate) fn new(wanted: Option<EngineKind>) -> Self {
        Self {
            wanted,
            known: Mutex::default(),
        }
    }

    /// The choice for the files of this file system.
    pub(crate) fn of(&self, fs: &Filesystem) -> Chosen {
        // Held during the examination: each file system is examined once.
        let mut known = lock(&self.known);
        *known
            .entry(fs.dev)
            .or_insert_with(|| choose(fs, self.wanted))
    }
}

/// The first engine that works there, as a run would find it.
fn choose(fs: &Filesystem, wanted: Option<EngineKind>) -> Chosen {
    let kinds: Vec<_> = match wanted {
        Some(kind) => [Some(kind), kind.instead()].into_iter().flatten().collect(),
        None => fs.engines(),
    };
    let options = EngineOptions {
        by_name: wanted.is_some(),
        ..EngineOptions::default()
    };
    let mut refused: Option<SkipReason> = None;
    for kind in kinds.iter().copied().filter(|kind| fs.may_use(*kind)) {
        match relocator(kind, fs, &options) {
            Ok(engine) => {
                return Chosen {
                    engine: Some(kind),
                    whole_files: engine.moves_whole_files(),
                    refused: None,
                };
            }
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
    let first = kinds.into_iter().find(|kind| fs.may_use(*kind));
    Chosen {
        engine: first,
        whole_files: false,
        refused: Some(refused.unwrap_or(SkipReason::NoEngine)),
    }
}
