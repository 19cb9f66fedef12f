//! A year of one host under one policy.

use std::time::Duration;

use anyhow::Result;
use indef_core::{
    access::AccessRange,
    layout::Layout,
    plan::{FilePlan, PlanOptions, Policy, limit},
};
use indef_pipeline::tend::Foresight;
use lfs_sim::{FileId, planning};
use units::Bytes;

use crate::{
    heat::Draw,
    host::{Host, Moves},
    outcome::Outcome,
    promises::{Book, bets},
    reads::{Window, windows, written},
    settings::{Settings, scale},
};

/// Reads of a host that are timed every week, at most.
const TIMED: usize = 96;
/// Days of a week.
pub const WEEK: u32 = 7;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// When a host is defragmented, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Never.
    Never,
    /// Every week whole files, all that are fragmented, as conventional tools do from cron.
    WeeklyWhole,
    /// Every night `indef run` without a profile, as `indef.timer` does: policy `sequential`, with its daily budget.
    NightlySequential,
    /// `indef watch`.
    Watch,
}

impl When {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Never,
        Self::WeeklyWhole,
        Self::NightlySequential,
        Self::Watch,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::WeeklyWhole => "weekly whole-file",
            Self::NightlySequential => "nightly sequential",
            Self::Watch => "watch",
        }
    }
}

/// A year that goes on.
#[derive(Debug)]
pub struct Year {
    /// The host as it is.
    pub host: Host,
    /// What was seen so far.
    pub outcome: Outcome,
    settings: Settings,
    day: u32,
    draw: Draw,
    book: Book,
}

impl Year {
    /// The morning of the first day.
    #[must_use]
    pub fn new(host: Host, settings: &Settings) -> Self {
        let outcome = Outcome {
            programmed: host.programmed(),
            ..Outcome::default()
        };
        Self {
            draw: Draw::of(windows(&host, settings)),
            host,
            outcome,
            settings: settings.clone(),
            day: 0,
            book: Book::default(),
        }
    }

    /// Today's windows and their rates.
    #[must_use]
    pub const fn draw(&self) -> &Draw {
        &self.draw
    }

    /// The days until this one pass.
    ///
    /// # Errors
    ///
    /// The simulation failed.
    pub fn pass_to(&mut self, day: u32) -> Result<()> {
        while self.day < day.min(self.settings.days) {
            self.day += 1;
            let bytes = written(&self.host, &self.settings);
            self.outcome.used += self.host.live(bytes)?;
            if self.day.is_multiple_of(WEEK) {
                self.host.trim()?;
            }
            self.draw = Draw::of(windows(&self.host, &self.settings));
            self.book.pass_day(&self.host, self.draw.windows());
            // In the middle of a week, before what a weekly job does at its end.
            if self.day % WEEK == WEEK / 2 {
                self.time_reads()?;
            }
        }
        Ok(())
    }

    /// The times of a week's reads, as they lie and in one piece.
    fn time_reads(&mut self) -> Result<()> {
        for Window { file, blocks, rate } in self.draw.sample(TIMED) {
            let best = self.host.contiguous(blocks.end - blocks.start)?;
            let (time, pieces) = self.host.time(file, blocks)?;
            let reads = rate * f64::from(WEEK);
            self.outcome.reads += reads;
            self.outcome.pieces += reads * pieces as f64;
            self.outcome.read_ns += reads * time.0 as f64;
            self.outcome.best_ns += reads * best.0 as f64;
        }
        Ok(())
    }

    /// Carries plans out, and enters them.
    ///
    /// # Errors
    ///
    /// The simulation failed.
    pub fn migrate(&mut self, plans: Vec<(FileId, FilePlan)>) -> Result<Moves> {
        let moves = self.host.migrate(plans)?;
        self.outcome.moved += moves.bytes;
        self.outcome.moving_ns += moves.time.0 as f64;
        Ok(moves)
    }

    /// Carries plans out, and notes what they promise by the grounds of the decision: that each layout serves so long.
    ///
    /// # Errors
    ///
    /// The simulation failed.
    pub(crate) fn migrate_on_promise(
        &mut self,
        plans: Vec<(FileId, FilePlan)>,
        foresight: Option<&Foresight>,
        lasts: impl Fn(FileId) -> f64,
    ) -> Result<Moves> {
        let bets = bets(&mut self.host, &plans, foresight, lasts)?;
        let done = self.migrate(plans)?;
        self.book.enter(&mut self.host, bets, self.draw.windows())?;
        Ok(done)
    }

    /// A run over all files with this policy and budget.
    ///
    /// # Errors
    ///
    /// The simulation failed.
    pub fn run(&mut self, policy: Policy, budget: Option<Bytes>) -> Result<()> {
        let options = PlanOptions {
            policy,
            budget,
            ..PlanOptions::default()
        };
        let files = self.host.files();
        let layouts: Vec<Layout> = files
            .iter()
            .map(|file| self.host.volume().layout(*file))
            .collect();
        let none: &[AccessRange] = &[];
        let mut plans = planning::plan(&options, layouts.iter().map(|layout| (layout, none)));
        limit(&mut plans, &options);
        let plans = files.into_iter().zip(plans);
        let plans = plans.filter(|(_, plan)| !plan.cost().is_zero()).collect();
        self.migrate(plans)?;
        Ok(())
    }

    /// The end of the year.
    #[must_use]
    pub fn end(mut self) -> Outcome {
        let before = self.outcome.programmed;
        self.outcome.programmed = self.host.programmed() - before;
        self.outcome.endurance = self.host.endurance();
        self.outcome.promises = self.book.sums;
        self.outcome
    }
}

/// What a day may write, of the size of a simulated host.
#[must_use]
pub fn scaled(bytes: Bytes) -> Bytes {
    Bytes(bytes.0 / scale())
}

/// The time of a day.
#[must_use]
pub const fn day(number: u32) -> Duration {
    Duration::from_secs(DAY.as_secs() * number as u64)
}
