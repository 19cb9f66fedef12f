//! Budgets across restarts: how much was written today, and in the last year.
//!
//! A portion is entered before it begins, with all that it may write, and corrected afterwards: what a kill leaves
//! counts as written. The file is written beside its place, synced and renamed.
//!
//! **Days.** A day is one of UTC on a clock of the ledger's own, which never goes back: it is the wall clock, or
//! what it was last with the time that has passed since (by the time since boot), whichever is later. So a wall
//! clock that is set back gives no budget twice, and one that was wrong once does not stop time.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::stored;

const SCHEMA: u64 = 1;
/// A longer file is none of ours.
const LONGEST: u64 = 64 << 10;
const DAY: u64 = 24 * 3600;
/// Days that a year has in the ledger.
const YEAR: u64 = 365;

/// The limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Of a day; `None` for no limit.
    pub day: Option<Bytes>,
    /// Of 365 days.
    pub year: Option<Bytes>,
}

/// Which budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// That of the day.
    Day,
    /// That of the year.
    Year,
}

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time since boot.
    pub since_boot: Duration,
    /// The wall clock, which may be set.
    pub wall: SystemTime,
}

/// The ledger cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = path.display())]
pub struct LedgerError {
    /// The file.
    pub path: PathBuf,
    /// The kernel's error.
    #[source]
    pub source: io::Error,
}

/// The bytes of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OfDay {
    /// Days since 1970.
    day: u64,
    bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    schema: u64,
    /// The own clock: seconds since 1970.
    clock_s: u64,
    /// The boot in which it was read, and the time since that.
    boot: String,
    since_boot_s: u64,
    /// In order, the newest last.
    days: Vec<OfDay>,
}

/// What was written, and may be.
#[derive(Debug)]
pub struct Ledger {
    /// `None`: it is not kept.
    path: Option<PathBuf>,
    stored: Stored,
    boot: String,
    /// Reserved for the portion that goes on.
    reserved: u64,
    is_unkept: bool,
}

impl Ledger {
    /// Read the ledger, or begin one. `boot` names this boot. Returns also whether there was one that could not be
    /// understood: then the budget of the day counts as spent, as nobody knows what was.
    ///
    /// # Errors
    ///
    /// The file is there and cannot be read.
    pub fn open(
        path: PathBuf,
        boot: &str,
        now: Moment,
        budgets: &Budgets,
    ) -> Result<(Self, bool), LedgerError> {
        let read = read(&path).map_err(|source| LedgerError {
            path: path.clone(),
            source,
        })?;
        let (stored, is_damaged) = match read {
            Found::None => (Stored::default(), false),
            Found::Damaged => (Stored::default(), true),
            Found::Stored(stored) => (stored, false),
        };
        let mut ledger = Self {
            path: Some(path),
            stored,
            ..Self::in_memory(boot)
        };
        ledger.pass(now);
        if is_damaged {
            let day = budgets.day.unwrap_or(Bytes::ZERO);
            ledger.enter(day.get());
        }
        Ok((ledger, is_damaged))
    }

    /// One that ends with the process, for a world that is not real.
    #[must_use]
    pub fn in_memory(boot: &str) -> Self {
        Self {
            path: None,
            stored: Stored::default(),
            boot: boot.to_owned(),
            reserved: 0,
            is_unkept: false,
        }
    }

    /// Bytes that may be written now, or which budget is spent.
    ///
    /// # Errors
    ///
    /// None may.
    pub fn left(&mut self, now: Moment, budgets: &Budgets) -> Result<Bytes, Spent> {
        self.pass(now);
        let of = |budget: Option<Bytes>, spent: u64| {
            budget.map_or(u64::MAX, |budget| budget.get().saturating_sub(spent))
        };
        let (day, year) = (
            of(budgets.day, self.today()),
            of(budgets.year, self.of_year()),
        );
        match (day, year) {
            (_, 0) => Err(Spent::Year),
            (0, _) => Err(Spent::Day),
            (day, year) => Ok(Bytes(day.min(year))),
        }
    }

    /// Which budget has no room for so many bytes, where one has not.
    pub fn short(&mut self, bytes: Bytes, now: Moment, budgets: &Budgets) -> Spent {
        let of_year = Budgets {
            day: None,
            ..*budgets
        };
        match self.left(now, &of_year) {
            Ok(left) if left >= bytes => Spent::Day,
            Ok(_) | Err(_) => Spent::Year,
        }
    }

    /// Enter a portion that may write so much, before it does.
    ///
    /// # Errors
    ///
    /// It cannot be kept: then nothing may be written.
    pub fn reserve(&mut self, bytes: Bytes, now: Moment) -> Result<(), LedgerError> {
        self.pass(now);
        let before = self.stored.clone();
        self.enter(bytes.get());
        match self.write() {
            Ok(()) => {
                self.reserved = bytes.get();
                Ok(())
            }
            Err(error) => {
                self.stored = before;
                Err(error)
            }
        }
    }

    /// The portion has ended, and has written so much. [`Self::keep`] keeps that; until then, all that was reserved
    /// counts after a kill.
    pub fn settle(&mut self, written: Bytes) {
        let reserved = std::mem::take(&mut self.reserved);
        // It is of the day on which the portion began.
        if let Some(last) = self.stored.days.last_mut() {
            last.bytes = (last.bytes.saturating_sub(reserved)).saturating_add(written.get());
        }
        self.is_unkept = true;
    }

    /// Keep what was settled, where that is not done yet.
    ///
    /// # Errors
    ///
    /// It cannot be kept.
    pub fn keep(&mut self) -> Result<(), LedgerError> {
        match self.is_unkept {
            true => self.write(),
            false => Ok(()),
        }
    }

    /// Bytes written today.
    #[must_use]
    pub fn today(&self) -> u64 {
        let today = self.stored.clock_s / DAY;
        let last = self.stored.days.last().filter(|last| last.day == today);
        last.map_or(0, |last| last.bytes)
    }

    /// Bytes written in the last 365 days.
    #[must_use]
    pub fn of_year(&self) -> u64 {
        let days = self.stored.days.iter();
        days.fold(0, |sum, day| sum.saturating_add(day.bytes))
    }

    /// Let the own clock go on.
    fn pass(&mut self, now: Moment) {
        let wall = now.wall.duration_since(UNIX_EPOCH);
        let wall = wall.map_or(0, |since| since.as_secs());
        let stored = &mut self.stored;
        let since_boot = now.since_boot.as_secs();
        let passed = match stored.boot == self.boot {
            true => since_boot.saturating_sub(stored.since_boot_s),
            false => 0,
        };
        stored.clock_s = stored.clock_s.saturating_add(passed).max(wall);
        stored.since_boot_s = since_boot;
        stored.boot.clone_from(&self.boot);
        let today = stored.clock_s / DAY;
        stored.days.retain(|day| day.day + YEAR > today);
    }

    fn enter(&mut self, bytes: u64) {
        let today = self.stored.clock_s / DAY;
        match self.stored.days.last_mut() {
            Some(last) if last.day == today => last.bytes = last.bytes.saturating_add(bytes),
            _ => self.stored.days.push(OfDay { day: today, bytes }),
        }
    }

    fn write(&mut self) -> Result<(), LedgerError> {
        self.stored.schema = SCHEMA;
        if let Some(path) = &self.path {
            write(path, &self.stored).map_err(|source| LedgerError {
                path: path.clone(),
                source,
            })?;
        }
        self.is_unkept = false;
        Ok(())
    }
}

enum Found {
    None,
    Damaged,
    Stored(Stored),
}

fn read(path: &Path) -> io::Result<Found> {
    let bytes = match stored::read(path, LONGEST)? {
        stored::Found::None => return Ok(Found::None),
        stored::Found::Foreign => return Ok(Found::Damaged),
        stored::Found::Bytes(bytes) => bytes,
    };
    let stored = serde_json::from_slice::<Stored>(&bytes).ok();
    let is_sound = |stored: &Stored| {
        stored.schema == SCHEMA && stored.days.is_sorted_by(|one, next| one.day < next.day)
    };
    Ok(stored
        .filter(is_sound)
        .map_or(Found::Damaged, Found::Stored))
}

fn write(path: &Path, stored: &Stored) -> io::Result<()> {
    let mut text = serde_json::to_vec(stored)?;
    text.push(b'\n');
    stored::write(path, &text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::fs;

    use super::*;

    const BUDGETS: Budgets = Budgets {
        day: Some(Bytes(100)),
        year: Some(Bytes(250)),
    };

    fn at(boot_s: u64, wall_s: u64) -> Moment {
        Moment {
            since_boot: Duration::from_secs(boot_s),
            wall: UNIX_EPOCH + Duration::from_secs(wall_s),
        }
    }

    fn open(folder: &Path, boot: &str, now: Moment) -> Ledger {
        let opened = Ledger::open(folder.join("ledger"), boot, now, &BUDGETS);
        let (ledger, is_damaged) = opened.unwrap();
        assert!(!is_damaged);
        ledger
    }

    fn spend(ledger: &mut Ledger, bytes: u64, now: Moment) {
        ledger.reserve(Bytes(bytes), now).unwrap();
        ledger.settle(Bytes(bytes));
        ledger.keep().unwrap();
    }

    #[test]
    fn a_day_and_a_year_have_their_budgets() {
        let folder = tempfile::tempdir().unwrap();
        let mut now = at(0, 10 * DAY);
        let mut ledger = open(folder.path(), "a", now);
        assert_eq!(ledger.left(now, &BUDGETS), Ok(Bytes(100)));
        ledger.reserve(Bytes(100), now).unwrap();
        assert_eq!(ledger.left(now, &BUDGETS), Err(Spent::Day));
        ledger.settle(Bytes(60));
        assert_eq!(ledger.left(now, &BUDGETS), Ok(Bytes(40)));
        spend(&mut ledger, 40, now);
        assert_eq!(ledger.left(now, &BUDGETS), Err(Spent::Day));
        for day in 1..=3u64 {
            now = at(day * DAY, (10 + day) * DAY);
            match day {
                1 => spend(&mut ledger, 100, now),
                2 => {
                    assert_eq!(ledger.left(now, &BUDGETS), Ok(Bytes(50)));
                    spend(&mut ledger, 50, now);
                }
                _ => assert_eq!(ledger.left(now, &BUDGETS), Err(Spent::Year)),
            }
        }
        now = at(365 * DAY, 375 * DAY);
        assert_eq!(ledger.left(now, &BUDGETS), Ok(Bytes(100)));
        let none = Budgets::default();
        assert_eq!(ledger.left(now, &none), Ok(Bytes(u64::MAX)));
    }

    #[test]
    fn what_a_kill_leaves_counts_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let now = at(50, 10 * DAY);
        let mut ledger = open(folder.path(), "a", now);
        spend(&mut ledger, 10, now);
        ledger.reserve(Bytes(70), now).unwrap();
        drop(ledger);
        let mut ledger = open(folder.path(), "b", at(1, 10 * DAY + 60));
        assert_eq!(ledger.left(at(2, 10 * DAY + 61), &BUDGETS), Ok(Bytes(20)));
        // Nothing but the ledger itself is left.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_clock_that_is_set_back_gives_nothing_twice_and_does_not_stop_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = open(folder.path(), "a", at(0, 10 * DAY));
        spend(&mut ledger, 100, at(1, 10 * DAY));
        for wall in [10 * DAY, 9 * DAY, 5 * DAY, 0] {
            assert_eq!(
                ledger.left(at(10, wall), &BUDGETS),
                Err(Spent::Day),
                "{wall}"
            );
        }
        // Likewise after a restart, in the same boot and in another one.
        for boot in ["a", "b"] {
            let mut ledger = open(folder.path(), boot, at(20, 8 * DAY));
            assert_eq!(
                ledger.left(at(20, 8 * DAY), &BUDGETS),
                Err(Spent::Day),
                "{boot}"
            );
        }
        // The wall clock was years ahead, and is set right: the next day comes all the same.
        let mut ledger = open(folder.path(), "c", at(0, 5000 * DAY));
        spend(&mut ledger, 100, at(0, 5000 * DAY));
        assert_eq!(ledger.left(at(100, 11 * DAY), &BUDGETS), Err(Spent::Day));
        assert_eq!(ledger.left(at(DAY, 12 * DAY), &BUDGETS), Ok(Bytes(100)));
    }

    #[test]
    fn a_ledger_that_is_not_understood_counts_as_a_day_that_is_spent() {
        for text in ["", "{}", "{\"schema\":2}", "[1]", "\u{0}"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("ledger");
            fs::write(&path, text).unwrap();
            let now = at(0, 10 * DAY);
            let (mut ledger, is_damaged) = Ledger::open(path.clone(), "a", now, &BUDGETS).unwrap();
            assert!(is_damaged, "{text}");
            assert_eq!(ledger.left(now, &BUDGETS), Err(Spent::Day));
            assert_eq!(ledger.left(at(DAY, 11 * DAY), &BUDGETS), Ok(Bytes(100)));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(Ledger::open(path, "a", at(0, 0), &BUDGETS).is_err());
    }

    #[test]
    fn a_ledger_that_cannot_be_written_reserves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let now = at(0, 10 * DAY);
        let mut ledger = open(folder.path(), "a", now);
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(ledger.reserve(Bytes(10), now).is_err());
        assert_eq!(ledger.left(now, &BUDGETS), Ok(Bytes(100)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// However clocks jump and the service restarts: no more than a budget for each day that has begun by the
        /// furthest that the wall clock has shown, or that has really passed since.
        #[test]
        fn no_budget_is_given_twice(
            steps in prop::collection::vec((0u64..2 * DAY, -3i64 * DAY as i64..2 * DAY as i64, any::<bool>()), 1..30),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let budgets = Budgets { day: Some(Bytes(100)), year: None };
            let (mut boot, mut wall) = (0u64, 100 * DAY);
            let (mut ledger, _) = Ledger::open(folder.path().join("l"), "0", at(boot, wall), &budgets).unwrap();
            let (mut furthest, mut spent, mut began) = (wall, 0, wall);
            for (n, (passes, jump, restarts)) in steps.into_iter().enumerate() {
                boot += passes;
                wall = (wall + passes).saturating_add_signed(jump);
                furthest = (furthest + passes).max(wall);
                if restarts {
                    drop(ledger);
                    let name = (n % 2).to_string();
                    (ledger, _) = Ledger::open(folder.path().join("l"), &name, at(boot, wall), &budgets).unwrap();
                }
                if restarts && spent == 0 {
                    // A ledger that was never written has no past to keep.
                    (furthest, began) = (wall, wall);
                }
                if let Ok(left) = ledger.left(at(boot, wall), &budgets) {
                    ledger.reserve(left, at(boot, wall)).unwrap();
                    ledger.settle(left);
                    spent += left.get();
                }
                let days = furthest / DAY - began / DAY + 1;
                prop_assert!(spent <= days * 100, "{spent} in {days} days");
            }
        }
    }
}
