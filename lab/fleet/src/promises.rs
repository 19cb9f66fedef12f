//! What each move of `watch` promised, and what came of it.
//!
//! A promise is `reads a day × time saved by each × days`; the three are checked one after the other, each with what the model
//! knows instead of what the service believed:
//!
//! ```text
//! promised ─▶ with the time that a read of the range took less right after the move      (the weights)
//!          ─▶ and with the reads a day that it had then                                  (the trace)
//!          ─▶ and as long as its blocks lay together, its reads changing, within the days   (the life of a layout)
//! ```
//!
//! What a move joined is spoilt pair by pair of neighbouring blocks: as many of the pairs as are left are the part that it still saves.

use std::collections::HashMap;

use indef_core::plan::FilePlan;
use indef_pipeline::tend::Foresight;
use lfs_sim::{BLOCK, FileId, Files};
use units::{Bytes, Nanos};

use crate::{host::Host, reads::Window};

/// Sums over the moves of a host; times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Promises {
    /// Ranges that were moved.
    pub ranges: f64,
    /// Their bytes.
    pub bytes: f64,
    /// What they were to save within the days of the decision.
    pub promised_s: f64,
    /// The same with the time that a read took less in truth.
    pub by_time_s: f64,
    /// And with the true reads a day.
    pub by_reads_s: f64,
    /// And as long as they lasted, within those days: what they did save.
    pub kept_s: f64,
    /// What they saved until the end of the year.
    pub ever_s: f64,
    /// Days that a moved pair of blocks lay together, at most until the year ended, summed over ranges.
    pub lasted_days: f64,
}

impl Promises {
    /// The sums of both.
    pub fn add(&mut self, other: &Self) {
        self.ranges += other.ranges;
        self.bytes += other.bytes;
        self.promised_s += other.promised_s;
        self.by_time_s += other.by_time_s;
        self.by_reads_s += other.by_reads_s;
        self.kept_s += other.kept_s;
        self.ever_s += other.ever_s;
        self.lasted_days += other.lasted_days;
    }
}

/// A range that is to move.
#[derive(Clone, Debug)]
pub(crate) struct Bet {
    file: FileId,
    start: u32,
    end: u32,
    bytes: Bytes,
    /// As it was believed.
    reads_a_day: f64,
    saved_ns: f64,
    days: f64,
    /// A read of it before.
    before: Nanos,
    /// First blocks of the pairs that did not lie together before.
    apart: Vec<u32>,
}

/// A range that has moved.
#[derive(Clone, Debug)]
struct Moved {
    file: FileId,
    start: u32,
    /// First blocks of the pairs that the move joined, and that still are.
    joined: Vec<u32>,
    all: f64,
    saves_ns: f64,
    left_days: f64,
}

/// All moves of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    moved: Vec<Moved>,
    pub(crate) sums: Promises,
}

/// The blocks of a range whose next one does not follow it on the device.
fn apart(host: &Host, file: FileId, start: u32, end: u32) -> Vec<u32> {
    let files = host.volume().files();
    let last = end.min(files.blocks(file)).saturating_sub(1);
    (start..last.max(start))
        .filter(|at| !lies_together(files, file, *at))
        .collect()
}

/// Whether the block after this one follows it on the device.
fn lies_together(files: &Files, file: FileId, at: u32) -> bool {
    let pair = (files.block(file, at), files.block(file, at + 1));
    matches!(pair, (Some(one), Some(next)) if one.0 + 1 == next.0)
}

/// What plans promise, by the grounds of the decision, and of which the layout of each file is believed to serve so long.
pub(crate) fn bets(
    host: &mut Host,
    plans: &[(FileId, FilePlan)],
    foresight: Option<&Foresight>,
    lasts: impl Fn(FileId) -> f64,
) -> anyhow::Result<Vec<Bet>> {
    let mut bets = Vec::new();
    let Some(foresight) = foresight else {
        return Ok(bets);
    };
    for (file, plan) in plans {
        for chunk in plan.migrating() {
            let start = (chunk.range.start.0 / BLOCK.0) as u32;
            let end = chunk.range.end().0.div_ceil(BLOCK.0) as u32;
            let (before, _) = host.time(*file, start..end)?;
            bets.push(Bet {
                file: *file,
                start,
                end,
                bytes: chunk.cost,
                reads_a_day: foresight.reads_a_day(chunk),
                saved_ns: foresight.saved_ns(chunk),
                days: lasts(*file),
                before,
                apart: apart(host, *file, start, end),
            });
        }
    }
    Ok(bets)
}

impl Book {
    /// These have moved, if the host found the new place better; `windows`: what is read of it now.
    pub(crate) fn enter(
        &mut self,
        host: &mut Host,
        bets: Vec<Bet>,
        windows: &[Window],
    ) -> anyhow::Result<()> {
        let rates = rates(windows);
        for bet in bets {
            let now = apart(host, bet.file, bet.start, bet.end);
            let joined: Vec<u32> = (bet.apart.iter().copied())
                .filter(|at| now.binary_search(at).is_err())
                .collect();
            if joined.is_empty() {
                continue;
            }
            let (after, _) = host.time(bet.file, bet.start..bet.end)?;
            let saves_ns = bet.before.0 as f64 - after.0 as f64;
            let rate = rates.get(&(bet.file, bet.start)).copied().unwrap_or(0.0);
            let sums = &mut self.sums;
            sums.ranges += 1.0;
            sums.bytes += bet.bytes.get() as f64;
            sums.promised_s += bet.reads_a_day * bet.saved_ns * bet.days / 1e9;
            sums.by_time_s += bet.reads_a_day * saves_ns * bet.days / 1e9;
            sums.by_reads_s += rate * saves_ns * bet.days / 1e9;
            self.moved.push(Moved {
                file: bet.file,
                start: bet.start,
                all: joined.len() as f64,
                joined,
                saves_ns,
                left_days: bet.days,
            });
        }
        Ok(())
    }

    /// A day has passed, at the end of which these are read.
    pub(crate) fn pass_day(&mut self, host: &Host, windows: &[Window]) {
        let rates = rates(windows);
        let files = host.volume().files();
        let sums = &mut self.sums;
        self.moved.retain_mut(|moved| {
            let file = moved.file;
            moved.joined.retain(|at| lies_together(files, file, *at));
            let part = moved.joined.len() as f64 / moved.all;
            let rate = rates
                .get(&(moved.file, moved.start))
                .copied()
                .unwrap_or(0.0);
            let saved = rate * moved.saves_ns * part / 1e9;
            sums.ever_s += saved;
            sums.kept_s += saved * moved.left_days.clamp(0.0, 1.0);
            sums.lasted_days += part;
            moved.left_days -= 1.0;
            !moved.joined.is_empty()
        });
    }
}

fn rates(windows: &[Window]) -> HashMap<(FileId, u32), f64> {
    let rate = |window: &Window| ((window.file, window.blocks.start), window.rate);
    windows.iter().map(rate).collect()
}
