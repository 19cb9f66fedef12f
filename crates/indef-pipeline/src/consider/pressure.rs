//! Pressure stall information: `/proc/pressure/*`, and `io.pressure` and `cpu.pressure` of a control group
//! (Documentation/accounting/psi.rst, v6.1).
//!
//! `some … total=` counts the microseconds in which some process waited. The part of others is the growth of the
//! whole machine's count less that of our own control group's, if that has no process but us: time in which we and
//! others waited at once is left out with it, so while we work this is the least that others waited.

use std::time::Duration;

use super::{
    reading::{CannotTell, LONGEST},
    source::{Source, text},
};

/// Shorter times tell nothing: the kernel adds up waiting every two seconds at the latest, and when it changes.
const SHORTEST: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
struct Counted {
    at: Duration,
    /// Microseconds of all, and of our own control group.
    all: u64,
    own: Option<u64>,
    /// The kernel's own mean over ten seconds.
    mean: f64,
}

#[derive(Debug, Default)]
pub(super) struct Pressure {
    io: Option<Counted>,
    cpu: Option<Counted>,
}

impl Pressure {
    /// I/O and processor.
    pub(super) fn look(
        &mut self,
        source: &impl Source,
        now: Duration,
        working: bool,
    ) -> [Result<f64, CannotTell>; 2] {
        let group = own_group(source);
        [("io", &mut self.io), ("cpu", &mut self.cpu)].map(|(name, before)| {
            let counted = match count(source, name, group.as_deref(), now) {
                Ok(counted) => counted,
                Err(why) => {
                    *before = None;
                    return Err(why);
                }
            };
            let is_of_now = |last: &Counted| now.saturating_sub(last.at) <= LONGEST;
            match before.filter(is_of_now) {
                // The mean of the last ten seconds; there was no work of ours in them.
                None if !working => {
                    *before = Some(counted);
                    Ok(counted.mean)
                }
                None => {
                    *before = Some(counted);
                    Err(CannotTell::OwnWork)
                }
                Some(last) if now.saturating_sub(last.at) < SHORTEST => {
                    // The quiet time begins with the end of our work.
                    if working {
                        *before = Some(counted);
                    }
                    Err(CannotTell::TooEarly)
                }
                Some(last) => {
                    *before = Some(counted);
                    share(last, counted, working)
                }
            }
        })
    }
}

/// The part of the time between two counts, in percent.
fn share(last: Counted, next: Counted, working: bool) -> Result<f64, CannotTell> {
    let time = next.at.saturating_sub(last.at).as_micros() as f64;
    let all = next.all.saturating_sub(last.all);
    let own = match last.own.zip(next.own) {
        Some((before, now)) => now.saturating_sub(before),
        None if working => return Err(CannotTell::OwnWork),
        None => 0,
    };
    Ok((all.saturating_sub(own) as f64 / time * 100.0).clamp(0.0, 100.0))
}

fn count(
    source: &impl Source,
    name: &str,
    group: Option<&str>,
    at: Duration,
) -> Result<Counted, CannotTell> {
    let path = format!("proc/pressure/{name}");
    // A kernel with `psi=0` has the files, and refuses to read them.
    let (all, mean) = parse(&text(source, &path)?).ok_or(CannotTell::NotUnderstood(path))?;
    let own = group.and_then(|group| {
        let own = source.text(&format!("{group}/{name}.pressure")).ok()?;
        parse(&own).map(|(total, _)| total)
    });
    Ok(Counted { at, all, own, mean })
}

/// `some avg10=1.00 avg60=0.50 avg300=0.10 total=1234`: the total, and the first mean.
fn parse(text: &str) -> Option<(u64, f64)> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let field = |name: &str| {
        let mut fields = some.split_whitespace();
        fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    };
    let mean: f64 = field("avg10")?.parse().ok()?;
    Some((field("total")?.parse().ok()?, mean.clamp(0.0, 100.0)))
}

/// Where the hierarchy of version 2 is: alone, or beside those of version 1.
const HIERARCHIES: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// The folder of our own control group (version 2), if it has no process but us.
fn own_group(source: &impl Source) -> Option<String> {
    let groups = source.text("proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let (folder, own) = HIERARCHIES.iter().find_map(|hierarchy| {
        let folder = format!("{hierarchy}/{group}");
        let folder = folder.trim_end_matches('/').to_owned();
        let own = source.text(&format!("{folder}/cgroup.procs")).ok()?;
        Some((folder, own))
    })?;
    let us = std::process::id().to_string();
    let members: Vec<&str> = { own.lines() }
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    // In a container the root that it sees is its own group. That of the machine has others.
    let is_ours = !group.is_empty() || members.contains(&us.as_str());
    (is_ours && members.iter().all(|pid| *pid == us)).then_some(folder)
}
