//! A trace in this process.

use std::{path::PathBuf, time::Duration};

use indef_trace::{
    collect::{Filter, TraceOptions},
    store::StoreOptions,
};

use super::order::{Findings, Halt, Order};
use crate::{
    error::{Error, chain},
    learn::{Keep, Session, TraceUpdate, aside, hurry},
};

/// Trace as ordered, until its time is over or `halt` says so.
///
/// # Errors
///
/// It is not possible, or what was counted was not kept.
pub(super) fn here(order: &Order, halt: Halt<'_>) -> Result<Findings, String> {
    let is_aside = order.aside;
    let options = TraceOptions {
        writes: false,
        sampling: order.sampling,
        filter: Filter {
            paths: order.paths.iter().map(PathBuf::from).collect(),
            ..Filter::default()
        },
        aside: is_aside,
        ..TraceOptions::default()
    };
    let keep = Keep {
        path: PathBuf::from(&order.profile),
        raw: false,
        command: "indef watch".to_owned(),
        store: StoreOptions::default(),
    };
    let mut learn = || {
        let session = Session::begin(&options, Some(&keep))?;
        let is_over = |elapsed: Duration| {
            let is_over = elapsed >= order.time || halt();
            if is_over && is_aside {
                hurry();
            }
            is_over
        };
        Ok(session.learn(is_over, &mut |update| {
            if let TraceUpdate::NotStored(error) = update {
                tracing::info!(%error, "counts wait for the profile");
            }
        }))
    };
    let learned: Result<_, Error> = match is_aside {
        true => aside(learn).map_err(|error| error.to_string())?,
        false => learn(),
    };
    let learned = learned.map_err(|error| chain(&error))?;
    learned.kept.map_err(|error| chain(&error))?;
    learned.watched.map_err(|error| chain(&error))?;
    let total = learned.live.total();
    let findings = Findings {
        reads: total.reads,
        read_time: total.mean_time(),
        requests_per_read: total.requests_per_read(),
        ..Findings::default()
    };
    Ok(findings.with_files(learned.live.reads()))
}
