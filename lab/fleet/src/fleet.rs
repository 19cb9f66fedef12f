//! All hosts under all policies, on several threads; the result does not depend on their number.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use anyhow::{Context, Result, bail};
use indef_core::plan::Policy;
use indef_pipeline::tend;

use crate::{
    host::Host,
    kind::Kind,
    outcome::Outcome,
    service::watch,
    settings::Settings,
    year::{WEEK, When, Year, scaled},
};

/// A host, and its year under each policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Lived {
    /// What it is.
    pub kind: Kind,
    /// By policy.
    pub years: BTreeMap<When, Outcome>,
}

/// All hosts of these settings, in order, each under these policies.
///
/// # Errors
///
/// A simulation failed, or `stop` was set.
pub fn live(
    settings: &Settings,
    policies: &[When],
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<Lived>> {
    let next = AtomicU32::new(0);
    let lived: Mutex<Vec<(u32, Result<Lived>)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let work = || loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= settings.hosts || stop.load(Ordering::Relaxed) {
                return;
            }
            let one = one(settings, policies, number);
            let mut lived = lived.lock().unwrap_or_else(PoisonError::into_inner);
            lived.push((number, one));
        };
        for _ in 1..threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    if stop.load(Ordering::Relaxed) {
        bail!("stopped");
    }
    let mut lived = lived.into_inner().unwrap_or_else(PoisonError::into_inner);
    lived.sort_by_key(|(number, _)| *number);
    let name = |number| format!("host {number}: {:?}", Kind::of(settings.seed, number));
    lived
        .into_iter()
        .map(|(number, one)| one.with_context(|| name(number)))
        .collect()
}

/// The host with this number: aged once, and then its year under each policy.
fn one(settings: &Settings, policies: &[When], number: u32) -> Result<Lived> {
    let kind = Kind::of(settings.seed, number);
    let host = Host::begin(kind, settings)?;
    let year = |when: &When| {
        let outcome = pass(host.clone(), *when, settings);
        Ok((*when, outcome.with_context(|| when.name())?))
    };
    Ok(Lived {
        kind,
        years: policies.iter().map(year).collect::<Result<_>>()?,
    })
}

/// A year of a host that is this one on the first day.
///
/// # Errors
///
/// The simulation failed.
fn pass(host: Host, when: When, settings: &Settings) -> Result<Outcome> {
    let mut year = Year::new(host, settings);
    if when == When::Watch {
        return watch(year, settings);
    }
    let nightly = tend::Settings::default().budgets.day.map(scaled);
    for day in 1..=settings.days {
        year.pass_to(day)?;
        match when {
            When::WeeklyWhole if day.is_multiple_of(WEEK) => year.run(Policy::Whole, None)?,
            When::NightlySequential => year.run(Policy::Sequential, nightly)?,
            _ => {}
        }
    }
    Ok(year.end())
}
