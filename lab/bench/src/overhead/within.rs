//! What a read costs its application in a trace, compared within the trace.
//!
//! A trace of many accesses attaches its programs in windows only, at random. So the same process reads with and without
//! them, in turn, and how fast the machine happens to be is hardly a part of the difference, as it is of that of two runs. The
//! time without begins when the programs have been gone for a while: what a window leaves behind (caches, the collector's
//! work) is on the trace's account.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    cases::Told,
    trace::{field, processor_time},
};

/// From one look to the next.
const EVERY: Duration = Duration::from_millis(4);
/// After so long without programs, nothing is left of a window.
const REST: Duration = Duration::from_millis(200);
/// Less time without programs than this counts with the windows around it.
const BRIEF: Duration = Duration::from_millis(100);
/// So much of the time without programs is compared with, on each side of a window.
const AROUND: Duration = Duration::from_millis(500);
/// The least part of the time to compare with.
const LEAST: f64 = 0.1;
/// A trace holds so many descriptors more at least in a window: there are as many programs.
const PROGRAMS: usize = 3;

/// What is so at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    at: Duration,
    /// Processor time of the application, and its reads, so far.
    busy: Duration,
    reads: u64,
    /// Descriptors of the trace.
    open: usize,
}

/// Looks at an application and its trace until it is asked.
pub(super) struct Within {
    ended: Arc<AtomicBool>,
    looks: JoinHandle<Vec<Look>>,
}

impl Within {
    /// From now on.
    pub(super) fn start(application: u32, told: Told, trace: u32) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (until, began) = (ended.clone(), Instant::now());
        let looks = thread::spawn(move || {
            let mut looks = Vec::new();
            while !until.load(Ordering::Relaxed) {
                looks.extend(look(application, told, trace, began));
                thread::sleep(EVERY);
            }
            looks
        });
        Self { ended, looks }
    }

    /// The processor time of a read in all of the time, more than in that without programs, in percent of this; `None` where
    /// they were attached all the time.
    pub(super) fn finish(self) -> Option<f64> {
        self.ended.store(true, Ordering::Relaxed);
        more_pct(&self.looks.join().unwrap_or_default())
    }
}

/// `None` once one of the processes is gone.
fn look(application: u32, told: Told, trace: u32, began: Instant) -> Option<Look> {
    let io = fs::read_to_string(format!("/proc/{application}/io")).ok()?;
    Some(Look {
        at: began.elapsed(),
        busy: processor_time(application),
        reads: match told {
            Told::ByCalls => field(&io, "syscr:")?,
            Told::ByBytes(bytes) => field(&io, "read_bytes:")? / bytes,
        },
        open: fs::read_dir(format!("/proc/{trace}/fd")).ok()?.count(),
    })
}

/// How fast the machine happens to be changes within a trace, too: a window is compared with the time around it alone.
fn more_pct(looks: &[Look]) -> Option<f64> {
    let open = looks.iter().map(|look| look.open);
    let (fewest, most) = (open.clone().min()?, open.max()?);
    if most < fewest + PROGRAMS {
        return None;
    }
    let spells = spells(looks, |look| 2 * look.open > fewest + most);
    // A window that has no time without programs before it or after it is left out, together with the rest of that side.
    let first = spells.iter().position(|spell| !spell.is_charged)?;
    let last = spells
        .iter()
        .rposition(|spell| !spell.is_charged && !spell.is_brief())?;
    let (mut all, mut without, mut more) = (Look::default(), Look::default(), 0.0);
    for (at, spell) in spells.iter().enumerate().take(last + 1).skip(first) {
        let took = sum(&spell.parts);
        all.add(took);
        if !spell.is_charged {
            without.add(took);
            continue;
        }
        let before = near(spells[at - 1].parts.iter().rev()).of_a_read()?;
        let after = near(spells[at + 1].parts.iter()).of_a_read()?;
        more += took.busy.as_secs_f64() - took.reads as f64 * (before + after) / 2.0;
    }
    let is_enough = without.at > all.at.mul_f64(LEAST);
    is_enough.then(|| more / (all.busy.as_secs_f64() - more) * 100.0)
}

/// A stretch of time that is on the trace's account, or is not.
struct Spell {
    /// A window, or the time after one.
    is_charged: bool,
    /// What was done from one look to the next.
    parts: Vec<Look>,
}

impl Spell {
    /// Too short to compare with: a process that does not sleep is charged for its time at each tick only.
    fn is_brief(&self) -> bool {
        sum(&self.parts).at < BRIEF
    }
}

/// In turn time that is on the trace's account and time that is not; of the latter none is brief, but for the last.
fn spells(looks: &[Look], is_attached: impl Fn(&Look) -> bool) -> Vec<Spell> {
    let mut spells: Vec<Spell> = Vec::new();
    let mut attached_at = looks.first().map(|look| look.at).unwrap_or_default();
    for pair in looks.windows(2) {
        let [from, to] = pair else { continue };
        if is_attached(from) || is_attached(to) {
            attached_at = to.at;
        }
        let is_charged = from.at <= attached_at + REST;
        if is_charged && spells.len() > 1 {
            // Back to the window before it.
            let brief = spells.pop_if(|last| !last.is_charged && last.is_brief());
            let parts = brief.into_iter().flat_map(|brief| brief.parts);
            spells.last_mut().expect("one is left").parts.extend(parts);
        }
        if (spells.last()).is_none_or(|spell| spell.is_charged != is_charged) {
            let parts = Vec::new();
            spells.push(Spell { is_charged, parts });
        }
        let part = Look {
            at: to.at - from.at,
            busy: to.busy.saturating_sub(from.busy),
            reads: to.reads.saturating_sub(from.reads),
            open: 0,
        };
        spells.last_mut().expect("one was pushed").parts.push(part);
    }
    spells
}

/// The first of the parts, for so long as the speed of the machine is taken to be the same.
fn near<'a>(parts: impl Iterator<Item = &'a Look>) -> Look {
    let mut near = Look::default();
    for part in parts {
        if near.at >= AROUND {
            break;
        }
        near.add(*part);
    }
    near
}

fn sum(parts: &[Look]) -> Look {
    let mut sum = Look::default();
    for part in parts {
        sum.add(*part);
    }
    sum
}

impl Look {
    fn add(&mut self, took: Self) {
        self.at += took.at;
        self.busy += took.busy;
        self.reads += took.reads;
    }

    /// Seconds of a processor; `None` where nothing was read.
    fn of_a_read(&self) -> Option<f64> {
        (self.reads > 0).then(|| self.busy.as_secs_f64() / self.reads as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a process that is busy all the time: how much longer than 1 µs a read takes, `slower` says (a part of it, at a
    /// time in ms), and it takes half as much again in a window and in the 100 ms after it.
    fn looks(is_window: impl Fn(u64) -> bool, slower: impl Fn(u64) -> f64) -> Vec<Look> {
        let mut look = Look {
            open: 20,
            ..Look::default()
        };
        let mut slow_until = 0;
        (0..5000)
            .map(|at| {
                let (now, ms) = (look, at * 4);
                if is_window(ms) {
                    slow_until = ms + 100;
                }
                let of_a_read = (1.0 + slower(ms)) * if ms < slow_until { 1.5 } else { 1.0 };
                look.at += EVERY;
                look.busy += EVERY;
                look.reads += (4000.0 / of_a_read) as u64;
                look.open = 20 + 7 * usize::from(is_window(ms + 4));
                now
            })
            .collect()
    }

    #[test]
    fn what_windows_cost_is_told_with_what_they_leave_behind() {
        // 100 ms in two seconds, and as much again.
        let more = more_pct(&looks(|at| (800..900).contains(&(at % 2000)), |_| 0.0)).unwrap();
        // A tenth of the time brings two thirds of the reads.
        let expected = (1.0 / (0.9 + 0.1 / 1.5) - 1.0) * 100.0;
        assert!((more - expected).abs() < 0.2, "{more} {expected}");
    }

    #[test]
    fn a_machine_that_becomes_slower_is_not_on_the_account_of_the_windows() {
        // Windows in the second half alone, in which all reads take up to a third longer.
        let later = |at: u64| at > 10_000 && at % 2000 < 100;
        let more = more_pct(&looks(later, |at| at as f64 / 60_000.0)).unwrap();
        // Five windows of 200 ms bring two thirds of the reads: of the time that all would take, a third of a second is missing.
        let expected = 1.0 / 3.0 / (20.0 - 1.0 / 3.0) * 100.0;
        assert!((more - expected).abs() < 0.2, "{more} {expected}");
    }

    #[test]
    fn time_that_is_too_short_to_compare_with_counts_with_the_windows() {
        // A second window, so soon after the first that 44 ms without programs are between them.
        let two =
            |at: u64| (800..900).contains(&(at % 2000)) || (1152..1252).contains(&(at % 2000));
        let spells = spells(&looks(two, |_| 0.0), |look| look.open > 20);
        assert!(
            spells
                .iter()
                .all(|spell| spell.is_charged || !spell.is_brief())
        );
        let more = more_pct(&looks(two, |_| 0.0)).unwrap();
        let expected = (1.0 / (0.8 + 0.2 / 1.5) - 1.0) * 100.0;
        assert!((more - expected).abs() < 0.2, "{more} {expected}");
    }

    #[test]
    fn nothing_is_told_without_anything_to_compare_with() {
        assert_eq!(more_pct(&looks(|_| true, |_| 0.0)), None);
        assert_eq!(more_pct(&looks(|_| false, |_| 0.0)), None);
        // Windows that follow each other too soon.
        assert_eq!(more_pct(&looks(|at| at % 200 < 100, |_| 0.0)), None);
        assert_eq!(more_pct(&[]), None);
    }
}
