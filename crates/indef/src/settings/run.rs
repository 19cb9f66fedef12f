//! `[run]`: how data is moved.

use indef_engine::run::RunOptions;
use indef_fs::EngineKind;

use super::{
    key::{Key, Shown},
    values::{number, parsed, parsed_or, truth},
};
use crate::args::values::{engine, jobs, queue_depth};

/// How data is moved.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// None: by the number of processors.
    pub(crate) jobs: Option<u16>,
    pub(crate) queue_depth: u32,
    /// None: the best one for each file system.
    pub(crate) engine: Option<EngineKind>,
    pub(crate) strict: bool,
    pub(crate) allow_unshare: bool,
    pub(crate) shared_among_paths: bool,
}

impl Default for Run {
    fn default() -> Self {
        let run = RunOptions::default();
        Self {
            jobs: None,
            queue_depth: run.queue_depth,
            engine: run.engine,
            strict: run.strict,
            allow_unshare: run.allow_unshare,
            shared_among_paths: false,
        }
    }
}

pub(super) const KEYS: [Key<Run>; 6] = [
    Key {
        name: "jobs",
        about: None,
        also: Some("Or \"auto\"; indef watch then works on one."),
        set: |run, value| {
            run.jobs = parsed_or(value, "auto", jobs)?;
            Ok(())
        },
        show: |run| {
            let given = run.jobs.map(|jobs| number(jobs.into()));
            given.unwrap_or(Shown::text("auto"))
        },
    },
    Key {
        name: "queue-depth",
        about: None,
        also: None,
        set: |run, value| {
            run.queue_depth = parsed(value, queue_depth)?;
            Ok(())
        },
        show: |run| number(run.queue_depth.into()),
    },
    Key {
        name: "engine",
        about: None,
        also: None,
        set: |run, value| {
            run.engine = parsed_or(value, "auto", engine)?;
            Ok(())
        },
        show: |run| Shown::or(run.engine.map(EngineKind::name), "auto"),
    },
    Key {
        name: "strict",
        about: None,
        also: None,
        set: |run, value| {
            run.strict = truth(value)?;
            Ok(())
        },
        show: |run| Shown::Truth(run.strict),
    },
    Key {
        name: "allow-unshare",
        about: None,
        also: None,
        set: |run, value| {
            run.allow_unshare = truth(value)?;
            Ok(())
        },
        show: |run| Shown::Truth(run.allow_unshare),
    },
    Key {
        name: "shared-among-paths",
        about: None,
        also: Some("Without effect beside allow-unshare."),
        set: |run, value| {
            run.shared_among_paths = truth(value)?;
            Ok(())
        },
        show: |run| Shown::Truth(run.shared_among_paths),
    },
];
