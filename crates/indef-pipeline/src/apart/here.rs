//! A trace in this process.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use indef_trace::{
    collect::{Filter, TraceOptions},
    store::StoreOptions,
};

use super::order::{Findings, Halt, NotTraced, Order};
use crate::{
    error::{Error, chain},
    learn::{Keep, Session, TraceUpdate, aside, hurry},
};

/// How long after its end a trace tries to give the store what it does not take: less than who asks waits for a late end.
const LINGER: Duration = Duration::from_secs(200);
/// From one such try to the next.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest time without a look at `halt`.
const TICK: Duration = Duration::from_millis(500);

/// Trace as ordered, until its time is over or `halt` says so.
///
/// # Errors
///
/// It is not possible, or what was counted was not kept.
pub(super) fn here(order: &Order, halt: Halt<'_>) -> Result<Findings, NotTraced> {
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
        is_patient: true,
    };
    let mut learn = || {
        let session = Session::begin(&options, Some(&keep))?;
        let halt = RefCell::new(&mut *halt);
        let is_halted = || (halt.borrow_mut())();
        let is_over = |elapsed: Duration| {
            let is_over = elapsed >= order.time || is_halted();
            if is_over && is_aside {
                hurry();
            }
            is_over
        };
        let mut until = None;
        let mut again = || {
            let until = *until.get_or_insert_with(|| Instant::now() + LINGER);
            lingers(until, PAUSE, is_halted)
        };
        Ok(session.learn(is_over, &mut again, &mut |update| {
            if let TraceUpdate::NotStored(error) = update {
                tracing::info!(%error, "counts wait for the profile");
            }
        }))
    };
    let learned: Result<_, Error> = match is_aside {
        true => aside(learn).map_err(|error| NotTraced::for_now(error.to_string()))?,
        false => learn(),
    };
    let learned = learned.map_err(not_traced)?;
    learned.kept.map_err(not_traced)?;
    learned.watched.map_err(not_traced)?;
    let total = learned.live.total();
    let findings = Findings {
        reads: total.reads,
        read_time: total.mean_time(),
        requests_per_read: total.requests_per_read(),
        ..Findings::default()
    };
    Ok(findings.with_files(learned.live.reads()))
}

/// Wait for the next try. Returns false where there is none, as it is too late, or the end is asked for.
pub(super) fn lingers(until: Instant, pause: Duration, is_halted: impl Fn() -> bool) -> bool {
    let next = Instant::now() + pause;
    loop {
        if is_halted() || next > until {
            return false;
        }
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(TICK));
    }
}

/// A store that is locked or has no room may take the next trace; all else lasts. The same reason is the same text.
pub(super) fn not_traced(error: Error) -> NotTraced {
    let (may_pass, why) = match &error {
        Error::Store(why) | Error::NotRescued { why, .. } => (why.may_pass(), chain(&error)),
        Error::Rescued { path, why } => {
            let folder = path.parent().unwrap_or(Path::new("/")).display();
            let kept = format!("{why}. What was not yet in it is kept in {folder}");
            (why.may_pass(), kept)
        }
        _ => (false, chain(&error)),
    };
    NotTraced { why, may_pass }
}
