//! Counts that are weighed by calls: Linux knows how many calls a process made, counted or not.
//!
//! **Why.** An application that does little but calls makes fewer of them while it is counted. So its counts, which stand
//! for a share of the time, are too low: of cached reads by half.
//!
//! **How.** Linux counts the reads and writes of each task (`syscr` and `syscw` of /proc/PID/io), also while no program
//! is attached. The programs add up which of them were chosen, each with the weight that its time gives it. So of a
//! process both are known, the calls that it made and the estimate of them, and all that was counted of it counts
//! once more by the *factor* between the two (a ratio estimator: W. G. Cochran, Sampling Techniques, 3rd ed., chapter 6). Calls of
//! files that a filter leaves out, of pipes and of sockets are on both sides of it: what a factor says is by how much fewer calls
//! there were while they were counted.
//!
//! **Others.** Of ten short processes one is seen, and stands for the others. So what its counts should become is not the number of its
//! own calls, but that times the part of its life for which windows stand ([`super::standing`]): none if none came, or many times it.
//! In the mean over windows that is the number of its calls, whatever it does and for how long. Of a long life it is known at the end
//! that it was whole.
//!
//! **Bounds.** A factor is there for what counting slows: at least 1, and at most what that can be; of a process that makes calls
//! all the time ([`Steady`]) also for chance, as on a busy machine few windows meet it at work: then from [`LEAST`] to [`MOST`]. What
//! came in a few bursts, which windows met or did not, is told as without: rarely and then as much more. What a bound cuts
//! off is left for the next time; so what is told of a steady process follows its calls.
//!
//! **When.** Before the next window begins, or at the end of the trace: so that the last window can become what was read in the
//! time that is left. If nothing was chosen of a process in it, what was counted of it last counts again for that.
//!
//! **Unseen.** A task of which no call was chosen has no account, but its calls are known, too, if it began after the trace or was
//! seen before calls were chosen. Where windows meet a task at work, others that they missed are told with it, as much more. So
//! of the calls of unseen tasks those are [`untold`](Accounts::untold) that are not told of other tasks: of one that has no
//! processor most of the time, in a short trace, it may be all of them.
//!
//! **By time alone** count as before: requests of io_uring and libaio, splice, mapped files, layer fs (where calls say little of what
//! reaches a device, and counting slows little), tasks outside of this PID namespace, and kernels without these counts.

use std::collections::{HashMap, hash_map::Entry};

use super::{
    contract::{Counters, KIND_BITS, RangeKey, TaskCalls},
    standing::Standing,
};

/// The power of what counting slows an application by in the mean of a window that is allowed for a factor: in ticks that are
/// chosen, it is slower than in the others.
const ROOM: i32 = 4;
/// No factor is larger, nor is it multiplied by more for what is left of the time at the end.
const MOST: f64 = 8.0;
/// None is smaller, where a process makes calls all the time. What is told of those that windows never meet is missing in the mean
/// over traces, so not all that was told too much is taken back.
const LEAST: f64 = 0.7;
const MOST_LEFT: f64 = 3.0;
const LEAST_LEFT: f64 = 0.1;
/// Seconds apart in which a steady process makes calls each time, so many times at least, and never fewer than this part of the mean.
const APART: f64 = 0.25;
const TIMES: u32 = 3;
const UNEVEN: f64 = 4.0;

/// Calls of tasks.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    made: f64,
    /// For how many they stand.
    wanted: f64,
    exact: f64,
    counted: f64,
}

impl Calls {
    fn add(&mut self, task: &TaskCalls, part: f64) {
        self.made += task.made as f64;
        self.wanted += task.made as f64 * part;
        self.exact += task.exact as f64;
        self.counted += task.counted as f64;
    }
}

/// Whether a process makes calls all the time, whatever windows see of them.
#[derive(Clone, Copy, Debug, Default)]
struct Steady {
    /// The first time, and the last one: seconds, and calls until then.
    first: Option<(f64, f64)>,
    last: (f64, f64),
    times: u32,
    /// The lowest rate between two times.
    least: f64,
}

impl Steady {
    fn note(&mut self, at: f64, made: f64) {
        let Some(_) = self.first else {
            (self.first, self.last, self.least) = (Some((at, made)), (at, made), f64::INFINITY);
            return;
        };
        if at - self.last.0 < APART {
            return;
        }
        self.least = self.least.min((made - self.last.1) / (at - self.last.0));
        self.last = (at, made);
        self.times += 1;
    }

    fn is(&self) -> bool {
        let Some(first) = self.first.filter(|_| self.times >= TIMES) else {
            return false;
        };
        let mean = (self.last.1 - first.1) / (self.last.0 - first.0);
        self.least > 0.0 && self.least >= mean / UNEVEN
    }
}

/// A process.
#[derive(Debug, Default)]
struct Account {
    /// Its tasks that have ended, and the others.
    ended: Calls,
    live: Calls,
    /// Whether one of these has lived for long.
    is_long: bool,
    /// All of them, when they were weighed last.
    before: Calls,
    steady: Steady,
    /// For how many calls those that were counted stand.
    told: f64,
    factor: f64,
    /// What was counted at last, and how many times it counts again at the end.
    last: f64,
    again: f64,
    has_come: bool,
    /// What is left of counts that are whole numbers.
    rest: f64,
    /// Calls that are not told.
    short: f64,
}

impl Account {
    /// Returns whether anything has come since the last time. At the end, of which the last windows stand for so much (`left`), what
    /// came before them counts again where nothing did in them.
    fn weigh(&mut self, most: f64, left: Option<f64>, at: f64) -> bool {
        let now = Calls {
            made: self.ended.made + self.live.made,
            wanted: self.ended.wanted + self.live.wanted,
            exact: self.ended.exact + self.live.exact,
            counted: self.ended.counted + self.live.counted,
        };
        // A task that has ended may not have been told for want of room.
        let exact = (now.exact - self.before.exact).max(0.0);
        let counted = (now.counted - self.before.counted).max(0.0);
        let wanted = now.wanted - self.told - exact;
        self.steady.note(at, now.made);
        let (least, most) = match self.steady.is() {
            true => (LEAST, MOST),
            false => (1.0, most),
        };
        let part = left.unwrap_or(1.0);
        let mut more = 0.0;
        self.has_come = counted > 0.0;
        if counted > 0.0 {
            self.factor = (wanted / counted).clamp(part.min(1.0) * least, part.max(1.0) * most);
            more = self.factor * counted;
            self.last = counted;
        } else if left.is_some() && self.last > 0.0 {
            self.again = (wanted / self.last).clamp(0.0, MOST_LEFT * self.factor);
            more = self.again * self.last;
        }
        self.told += exact + more;
        self.short = (wanted - more).max(0.0);
        self.before = now;
        exact + more > 0.0
    }

    /// Calls that were told beyond those that were made.
    fn beyond(&self) -> f64 {
        self.told - self.before.made
    }

    fn times(&mut self, counters: &Counters, factor: f64) -> Counters {
        let count = f64::from(counters.count) * factor + self.rest;
        self.rest = count.fract();
        Counters {
            count: count as u32,
            reads: (f64::from(counters.reads) * factor).round() as u32,
            ..*counters
        }
    }
}

/// The processes of which calls were counted with a weight.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    processes: HashMap<u32, Account>,
    /// Calls of those that are gone that were not told.
    short: f64,
    /// Calls of those that are gone that were told beyond those that they made: fewer, if negative.
    beyond: f64,
    /// Calls of tasks of which none was counted: of those that have ended, and of the others.
    unseen: (f64, f64),
    /// Calls that were counted, and the accesses among them.
    counted: f64,
    accesses: f64,
}

impl Accounts {
    /// Settle the factors of what was counted since the last time, where an application may have made so many times the calls that it
    /// made while it was counted. `live` are the tasks that there are, at the end with those of which no call was counted; `ended`
    /// those that have ended since then.
    pub(super) fn weigh(
        &mut self,
        live: &[TaskCalls],
        ended: &[TaskCalls],
        standing: &Standing,
        slower: f64,
        is_end: bool,
    ) {
        for account in self.processes.values_mut() {
            (account.live, account.is_long) = (Calls::default(), false);
        }
        let is_seen = |task: &&TaskCalls| task.counted > 0;
        let unseen = live.iter().filter(|task| !is_seen(task));
        let unseen = unseen.map(|task| task.made.saturating_sub(task.exact));
        self.unseen.1 = unseen.sum::<u64>() as f64;
        for task in live.iter().filter(is_seen) {
            let (life, part) = standing.of(task);
            let is_whole = is_end && standing.is_long(life);
            let account = self.account(task.process);
            account.live.add(task, if is_whole { 1.0 } else { part });
            account.is_long |= is_whole;
        }
        for task in ended {
            let (_, part) = standing.of(task);
            self.account(task.process).ended.add(task, part);
        }
        let most = slower.max(1.0).powi(ROOM).min(MOST);
        let left = standing.left().clamp(LEAST_LEFT, MOST_LEFT);
        let (short, beyond) = (&mut self.short, &mut self.beyond);
        let counted = &mut self.counted;
        self.processes.retain(|_, account| {
            let before = account.before.counted;
            let has_come = account.weigh(most, account.is_long.then_some(left), standing.elapsed());
            *counted += (account.before.counted - before).max(0.0);
            let is_there = has_come || account.live.counted > 0.0;
            if !is_there {
                *short += account.short;
                *beyond += account.beyond();
            }
            is_there
        });
    }

    /// Tasks that have ended made so many calls so far of which nothing else tells: of most, no call was counted.
    pub(super) fn ended_unseen(&mut self, calls: u64) {
        self.unseen.0 = calls as f64;
    }

    /// So many counted accesses are of processes that have an account.
    pub(super) fn counted(&mut self, accesses: f64) {
        self.accesses += accesses;
    }

    fn account(&mut self, process: u32) -> &mut Account {
        match self.processes.entry(process) {
            Entry::Occupied(have) => have.into_mut(),
            Entry::Vacant(free) => free.insert(Account {
                factor: 1.0,
                ..Account::default()
            }),
        }
    }

    /// The counts of a range with the factor of their process, which is taken out of the range; and that factor, if they have one.
    pub(super) fn weighed(
        &mut self,
        range: &RangeKey,
        counters: &Counters,
    ) -> (RangeKey, Counters, Option<f64>) {
        let plain = RangeKey {
            kind: range.kind & ((1 << KIND_BITS) - 1),
            ..*range
        };
        let account = self.processes.get_mut(&(range.kind >> KIND_BITS));
        let Some(account) = account.filter(|_| plain.kind != range.kind) else {
            return (plain, *counters, None);
        };
        let factor = account.factor;
        (plain, account.times(counters, factor), Some(factor))
    }

    /// Whether what was counted of this range before may have to count again: of its process, nothing has come since.
    pub(super) fn may_count_again(&self, range: &RangeKey) -> bool {
        let account = self.processes.get(&(range.kind >> KIND_BITS));
        account.is_some_and(|account| !account.has_come)
    }

    /// What counts again at the end of what was counted last.
    pub(super) fn again(
        &mut self,
        range: &RangeKey,
        counters: &Counters,
    ) -> Option<(RangeKey, Counters)> {
        let (plain, _, factor) = self.weighed(range, &Counters::default());
        factor?;
        let account = self.processes.get_mut(&(range.kind >> KIND_BITS))?;
        let again = account.again;
        (again > 0.0).then(|| (plain, account.times(counters, again)))
    }

    /// Calls of tasks of which none was counted, as far as they are not told of other tasks; and the accesses that these may have
    /// been: as many of them as of other tasks.
    pub(super) fn untold(&self) -> (f64, f64) {
        let unseen = self.unseen.0 + self.unseen.1;
        let processes = self.processes.values();
        let beyond = self.beyond + processes.map(Account::beyond).sum::<f64>();
        let untold = (unseen - beyond).clamp(0.0, unseen);
        (untold, untold * self.accesses_of_a_call())
    }

    /// Accesses that may have been made and were not told: as many of the calls that were made and not told as of others.
    pub(super) fn missing(&self) -> f64 {
        self.short() * self.accesses_of_a_call()
    }

    /// A run of reads, which is one access, is many calls, and calls of other files are none.
    fn accesses_of_a_call(&self) -> f64 {
        // One access at least: that none was counted does not mean that there was none.
        (self.accesses.max(1.0) / self.counted.max(1.0)).min(1.0)
    }

    /// Calls that are known to have been made and were not told.
    fn short(&self) -> f64 {
        let processes = self.processes.values();
        self.short + processes.map(|account| account.short).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::collect::contract::KIND_READ_RUN;

    /// All of the time was counted.
    fn all() -> Standing {
        let mut standing = Standing::new(0);
        standing.slot(Duration::from_secs(9), Duration::from_secs(9));
        standing
    }

    fn task(process: u32, made: u64, exact: u64, counted: u64) -> TaskCalls {
        TaskCalls {
            made,
            exact,
            counted,
            process,
            ..TaskCalls::default()
        }
    }

    /// Weigh where factors are 5.0625 at most.
    fn weigh(accounts: &mut Accounts, live: &[TaskCalls], ended: &[TaskCalls]) {
        accounts.weigh(live, ended, &all(), 1.5, false);
    }

    /// What becomes of one range of a process, of which so much was counted.
    fn weighed(accounts: &mut Accounts, process: u32, count: u32) -> u32 {
        let range = RangeKey {
            kind: KIND_READ_RUN | process << KIND_BITS,
            ..RangeKey::default()
        };
        let counters = Counters {
            count,
            reads: 10 * count,
            ..Counters::default()
        };
        let (range, counters, _) = accounts.weighed(&range, &counters);
        assert_eq!(range.kind, KIND_READ_RUN);
        counters.count
    }

    #[test]
    fn counts_become_the_calls_that_were_made() {
        let mut accounts = Accounts::default();
        // 10 calls of 250 were counted exactly, and 120 by weight.
        weigh(&mut accounts, &[task(7, 250, 10, 120)], &[]);
        assert_eq!(weighed(&mut accounts, 7, 120), 240);
        assert_eq!(accounts.short(), 0.0);
        // Others are as they were.
        assert_eq!(weighed(&mut accounts, 8, 120), 120);
        assert_eq!(weighed(&mut accounts, 0, 120), 120);
        // Two tasks, one of which ends.
        let ended = TaskCalls {
            ended: 8_000_000_000,
            ..task(7, 60, 0, 20)
        };
        weigh(&mut accounts, &[task(7, 350, 10, 180)], &[ended]);
        assert_eq!(weighed(&mut accounts, 7, 80), 160);
        weigh(&mut accounts, &[task(7, 450, 10, 230)], &[]);
        assert_eq!(weighed(&mut accounts, 7, 50), 100);
    }

    #[test]
    fn what_a_bound_cuts_off_is_left_for_the_next_time() {
        let mut accounts = Accounts::default();
        weigh(&mut accounts, &[task(7, 600, 0, 80)], &[]);
        assert_eq!(weighed(&mut accounts, 7, 80), 405);
        assert_eq!(accounts.short(), 195.0);
        weigh(&mut accounts, &[task(7, 905, 0, 280)], &[]);
        assert_eq!(weighed(&mut accounts, 7, 200), 500);
        assert_eq!(accounts.short(), 0.0);
    }

    #[test]
    fn a_process_that_stands_for_others_keeps_its_weight() {
        let mut accounts = Accounts::default();
        let short_lived = TaskCalls {
            began: 1_000_000_000,
            ended: 1_100_000_000,
            ..task(7, 100, 0, 1600)
        };
        let mut standing = Standing::new(0);
        let slot = Duration::from_millis(100);
        standing.slot(slot * 10, Duration::ZERO);
        standing.slot(slot, 20 * slot);
        standing.slot(slot * 20, Duration::ZERO);
        accounts.weigh(&[], &[short_lived], &standing, 1.5, true);
        assert!((1999..=2000).contains(&weighed(&mut accounts, 7, 1600)));
        // What was not told of one that is gone stays known, once.
        let mut accounts = Accounts::default();
        weigh(&mut accounts, &[], &[task(8, 100, 0, 15)]);
        for _ in 0..3 {
            weigh(&mut accounts, &[], &[]);
            assert_eq!(accounts.short(), 24.0625);
        }
        assert!(accounts.processes.is_empty());
    }

    /// A trace of one file that nobody reads, on a busy machine: the calls are those of other files.
    #[test]
    fn where_hardly_any_call_is_an_access_untold_ones_are_none_either() {
        let mut accounts = Accounts::default();
        weigh(
            &mut accounts,
            &[task(7, 1000, 0, 1000), task(8, 100, 0, 0)],
            &[],
        );
        let (untold, none) = accounts.untold();
        assert!(untold > 99.0 && none < 0.2, "{untold} {none}");
        accounts.counted(1.0);
        assert_eq!(accounts.untold(), (untold, none));
    }

    /// A task of which no call was chosen is told with others, as far as these count for more than their calls.
    #[test]
    fn calls_of_unseen_tasks_are_untold_as_far_as_others_do_not_stand_for_them() {
        let mut accounts = Accounts::default();
        accounts.ended_unseen(20);
        weigh(&mut accounts, &[task(8, 100, 0, 0)], &[]);
        assert_eq!(accounts.untold(), (120.0, 120.0));
        // Still there, and not counted twice.
        weigh(&mut accounts, &[task(8, 100, 0, 0)], &[]);
        assert_eq!(accounts.untold(), (120.0, 120.0));
        // Told are 50 calls beyond those that were made; one in four is an access that counts.
        let live = [task(7, 150, 0, 200), task(8, 100, 0, 0)];
        weigh(&mut accounts, &live, &[]);
        accounts.counted(50.0);
        assert_eq!(accounts.untold(), (70.0, 17.5));
        // Also when the one that stands for them is gone.
        let ended = TaskCalls {
            ended: 8_000_000_000,
            ..live[0]
        };
        weigh(&mut accounts, &[task(8, 100, 0, 0)], &[ended]);
        assert!(accounts.processes.is_empty());
        assert_eq!(accounts.untold(), (70.0, 17.5));
        // It is seen at last.
        weigh(&mut accounts, &[task(8, 100, 0, 100)], &[]);
        assert_eq!(accounts.untold().0, 0.0);
    }

    /// Nothing was chosen in the last windows: what was counted before them stands for the time until the end.
    #[test]
    fn what_was_counted_last_counts_again_at_the_end() {
        let mut accounts = Accounts::default();
        let range = RangeKey {
            kind: 7 << KIND_BITS,
            ..RangeKey::default()
        };
        weigh(&mut accounts, &[task(7, 500, 0, 250)], &[]);
        assert_eq!(weighed(&mut accounts, 7, 250), 500);
        assert!(!accounts.may_count_again(&range));
        // Others are counted since then.
        weigh(
            &mut accounts,
            &[task(7, 600, 0, 250), task(8, 9, 0, 9)],
            &[],
        );
        assert!(accounts.may_count_again(&range));
        let mut standing = all();
        standing.weighed();
        accounts.weigh(&[task(7, 1000, 0, 250)], &[], &standing, 1.5, true);
        let counters = Counters {
            count: 250,
            ..Counters::default()
        };
        let again = accounts.again(&range, &counters);
        assert_eq!(again.map(|(_, counters)| counters.count), Some(500));
        assert_eq!(accounts.short(), 0.0);
    }

    #[test]
    fn what_rounding_leaves_goes_to_the_next_count() {
        let mut accounts = Accounts::default();
        weigh(&mut accounts, &[task(7, 1500, 0, 1000)], &[]);
        let sum: u32 = (0..200).map(|_| weighed(&mut accounts, 7, 5)).sum();
        assert_eq!(sum, 1500);
    }
}
