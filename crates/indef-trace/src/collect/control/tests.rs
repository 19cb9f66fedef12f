use proptest::prelude::*;
use workloads::Numbers;

use super::*;
use crate::collect::{
    contract::{COUNT_CHARGE, LOOK_CHARGE, RAREST},
    windows::{Windows, longest},
};

/// One percent.
const BUDGET: f64 = 0.01;

/// As good as for ever.
const LONG: u32 = 1_000_000;

/// Seconds of a slot.
const SECONDS: f64 = 0.05;

/// The part of the BPF programs (`charge` and `toss` in bpf/maps.h).
#[derive(Clone, Copy, Debug)]
struct Programs {
    one_in: u32,
    charged: u64,
    limit: u64,
    step: u64,
}

impl Programs {
    const EACH: u64 = (LOOK_CHARGE + COUNT_CHARGE) as u64;

    fn new() -> Self {
        Self {
            one_in: 1,
            charged: 0,
            limit: 0,
            step: 0,
        }
    }

    fn set(&mut self, one_in: u32, allowance: Allowance) {
        self.one_in = one_in;
        self.limit = self.charged + allowance.first;
        self.step = allowance.further;
    }

    fn charge(&mut self, cost: u64) {
        self.charged += cost;
        if self.charged >= self.limit {
            self.limit = self.charged + self.step;
            if self.one_in < RAREST {
                self.one_in *= 2;
            }
        }
    }

    /// So many accesses, of which exactly one in `one_in` is chosen; returns how many are.
    fn see(&mut self, mut accesses: f64) -> f64 {
        let mut chosen = 0.0;
        loop {
            let left = self.limit.saturating_sub(self.charged);
            let until = left.div_ceil(Self::EACH).max(1) as f64;
            let now = (accesses / f64::from(self.one_in)).min(until);
            chosen += now;
            accesses -= now * f64::from(self.one_in);
            if now < until {
                self.charged += (now * Self::EACH as f64) as u64;
                return chosen;
            }
            self.charge(now as u64 * Self::EACH);
        }
    }
}

/// A machine with this many accesses a second: a chosen one costs 0.6 µs in the programs and
/// 2 µs in the collector, any other one 0.05 µs, attaching and detaching 4 ms, and the collector
/// 0.1 % in any case. A slot of 50 ms after each window is attached, too.
fn cost(choice: Choice, rate: f64) -> Cost {
    let chosen = rate / f64::from(choice.weight());
    let pauses = f64::from(choice.pauses);
    let is_paused = choice.pauses > 1;
    let seen = rate / pauses * if is_paused { 2.0 } else { 1.0 };
    let attaching = if is_paused {
        0.004 / (SECONDS * pauses)
    } else {
        0.0
    };
    Cost {
        programs: chosen * 0.6e-6 + (seen - chosen) * 0.05e-6,
        own: 0.001 + chosen * 2e-6 + attaching,
        attaching,
        rest: rate * 0.05e-6,
        chosen,
    }
}

fn choice(control: &Control, slots: u32) -> Choice {
    control.choice(control.pauses(longest(slots)))
}

/// A measurement each second, `seconds` long, where the trace has lasted for `slots`.
fn run(control: &mut Control, rate: f64, slots: u32, seconds: u32) -> f64 {
    for second in 0..seconds {
        let slots = slots + 20 * second;
        control.measured(cost(choice(control, slots), rate), 0.0, longest(slots));
    }
    let cost = cost(choice(control, slots + 20 * seconds), rate);
    cost.programs + cost.own
}

fn settle(control: &mut Control, rate: f64) -> f64 {
    run(control, rate, LONG, 60)
}

#[test]
fn a_low_rate_is_counted_exactly() {
    let mut control = Control::new(BUDGET);
    settle(&mut control, 2000.0);
    assert_eq!(choice(&control, LONG).weight(), 1);
}

#[test]
fn k_rises_with_the_rate_and_falls_with_it() {
    let mut control = Control::new(BUDGET);
    let mut before = 1;
    for rate in [1e4, 1e5, 1e6, 5e6] {
        let cost = settle(&mut control, rate);
        assert!(cost <= BUDGET, "{cost} at {rate}");
        let weight = choice(&control, LONG).weight();
        assert!(weight > before, "{weight} at {rate}");
        before = weight;
    }
    let cost = settle(&mut control, 1e5);
    assert!(choice(&control, LONG).weight() < before / 4);
    assert!(cost <= BUDGET, "{cost}");
    settle(&mut control, 1000.0);
    assert_eq!(choice(&control, LONG).weight(), 1);
}

/// A trace from its beginning, slot by slot, on the machine of [`cost`], with a measurement of a window in
/// each second: the processor time that it has taken after each slot, in seconds.
fn trace(rate: impl Fn(u32) -> f64, slots: u32, seed: u64) -> Vec<f64> {
    let mut numbers = Numbers::new(seed);
    let (mut control, mut windows) = (Control::new(BUDGET), Windows::default());
    let mut programs = Programs::new();
    let (mut was_window, mut is_attached) = (false, true);
    let (mut spent, mut own_time, mut own) = (0.0, 0.0, 0.0_f64);
    let (mut last, mut hurried) = ((0, 0.0), true);
    let mut all = Vec::new();
    for slot in 0..slots {
        let debt = control.debt(spent, SECONDS * f64::from(slot));
        let wanted = control.pauses(longest(slot));
        let is_window = windows.next(wanted, &mut |bound| numbers.below(bound));
        let choice = control.choice(windows.pauses());
        let is_after = was_window && !is_window;
        let mut collector = 0.001 * SECONDS;
        if (is_window || is_after) != is_attached {
            is_attached = !is_attached;
            collector += 0.002;
        }
        let accesses = rate(slot) * SECONDS;
        let mut chosen = 0.0;
        if is_window {
            programs.set(choice.one_in, control.allowance(debt, choice.pauses));
            chosen = programs.see(accesses);
        }
        // The ring has one reader.
        collector += (chosen * 2e-6).min(SECONDS);
        let (counting, rest) = (chosen * 0.6e-6, (accesses - chosen) * 0.05e-6);
        if is_attached {
            spent += counting + rest;
        }
        spent += collector;
        own_time += collector;
        let halved = is_window && control.halved(choice, programs.one_in, accesses);
        hurried |= halved;
        if is_window && (hurried || slot >= last.0 + 20) {
            let since = SECONDS * f64::from(slot - last.0 + u32::from(slot == 0));
            let share = (own_time - last.1) / since;
            own += (share - own) * (1.0 - (-since / 5.0).exp());
            last = (slot, own_time);
            let pauses = f64::from(choice.pauses);
            let attached = if choice.pauses > 1 { 2.0 } else { 1.0 };
            let attaching = if choice.pauses > 1 {
                0.004 / pauses
            } else {
                0.0
            };
            let cost = Cost {
                programs: (counting + attached * rest) / pauses / SECONDS,
                own,
                attaching: attaching / SECONDS,
                rest: rest / SECONDS,
                chosen: chosen / pauses / SECONDS,
            };
            let debt = control.debt(spent, SECONDS * f64::from(slot + 1));
            control.measured(cost, debt, longest(slot));
            let after = control.choice(control.pauses(longest(slot)));
            own *= f64::from(choice.weight()) / f64::from(after.weight().max(choice.weight()));
            hurried = choice.weight() != after.weight();
        }
        was_window = is_window;
        all.push(spent);
    }
    all
}

/// Rates at which the bound is kept.
const RATES: [f64; 7] = [1e3, 1e4, 5e4, 1e5, 3e5, 6e5, 1.2e6];

/// The bound holds from the beginning: after any time, no more is spent than the budget of that time and some
/// milliseconds; from five seconds on the budget, but for the chance that a window has just been; and from ten
/// on the budget.
#[test]
fn the_bound_holds_from_the_beginning() {
    const SEEDS: u64 = 40;
    for rate in RATES {
        let (mut most, mut mean, mut worst, mut later) = (0.0_f64, 0.0, 0.0_f64, 0.0_f64);
        for seed in 0..SEEDS {
            let spent = trace(|_| rate, 1200, seed);
            let time = |slot: usize| SECONDS * (slot + 1) as f64;
            let over = |slot: usize| spent[slot] - BUDGET * time(slot);
            let share = |slot: usize| spent[slot] / time(slot);
            most = (0..spent.len()).map(over).fold(most, f64::max);
            mean += share(99) / SEEDS as f64;
            worst = (99..spent.len()).map(share).fold(worst, f64::max);
            later = (199..spent.len()).map(share).fold(later, f64::max);
        }
        let what = format!(
            "{rate} accesses a second: {:.1} ms too much at most; after 5 s {:.2} % on average, then {:.2} at \
             most, {:.2} after 10 s",
            most * 1e3,
            mean * 1e2,
            worst * 1e2,
            later * 1e2
        );
        println!("{what}");
        assert!(most <= 0.035, "{what}");
        assert!(
            mean <= BUDGET && worst <= 1.1 * BUDGET && later <= BUDGET,
            "{what}"
        );
    }
}

/// A load that comes suddenly after 15 s of none: the whole trace is within its bound, and by the time since
/// then little more is spent.
#[test]
fn a_burst_costs_little_more_than_the_bound() {
    const BEGIN: usize = 300;
    for rate in RATES {
        let mut most = 0.0_f64;
        for seed in 0..40 {
            let rate = |slot| if slot < BEGIN as u32 { 0.0 } else { rate };
            let spent = trace(rate, 1200, seed);
            for slot in BEGIN..spent.len() {
                let budget = |slots: usize| BUDGET * SECONDS * slots as f64;
                assert!(spent[slot] <= budget(slot + 1), "{slot}");
                most = most.max(spent[slot] - spent[BEGIN - 1] - budget(slot + 1 - BEGIN));
            }
        }
        println!(
            "{rate} accesses a second: {:.1} ms too much at most",
            most * 1e3
        );
        assert!(most <= 0.08, "{rate} accesses a second: {most} s");
    }
}

/// A trace of a program that reads a few hundred times is exact, however fast it does.
#[test]
fn a_short_burst_is_exact() {
    let control = Control::new(BUDGET);
    let mut programs = Programs::new();
    programs.set(1, control.allowance(0.0, 1));
    assert_eq!((programs.see(1000.0), programs.one_in), (1000.0, 1));
    // Of more, ever fewer.
    let more = programs.see(59_000.0);
    assert!((500.0..3000.0).contains(&more), "{more}");
    assert!((32..1024).contains(&programs.one_in), "{programs:?}");
    // The longest slot that there can be costs an allowance and some steps.
    programs.see(1e7);
    assert!(programs.charged < 4_000_000, "{programs:?}");
}

#[test]
fn an_allowance_is_what_was_saved() {
    let control = Control::new(BUDGET);
    let first = |debt, pauses| control.allowance(debt, pauses).first;
    // Half a second in advance, and a second at most.
    assert_eq!(first(0.0, 1), 625_000);
    assert_eq!(first(-1.0, 1), 1_250_000);
    // Whatever the debt, some accesses are seen.
    let least = first(1.0, 1);
    assert!((9_000..20_000).contains(&least), "{least}");
    assert!(first(1.0, 40).abs_diff(40 * least) < 40);
    assert!(first(-1.0, 40).abs_diff(80 * least) < 80);
    // Nothing is spent on a window in advance.
    assert_eq!(first(0.0, 40), first(1.0, 40));
    assert!(Control::new(1e-6).allowance(1.0, 1).further > 0);
}

#[test]
fn it_is_not_chosen_less_than_is_of_use() {
    // The collector alone costs more than the budget: nothing is gained by a larger k.
    let mut control = Control::new(0.0005);
    settle(&mut control, 20_000.0);
    let cost = cost(choice(&control, LONG), 20_000.0);
    assert!(cost.chosen > FEW / STEP, "{cost:?}");
    assert!(cost.programs < 0.0005, "{cost:?}");
}

#[test]
fn it_answers_within_a_few_measurements() {
    let mut control = Control::new(BUDGET);
    let cost = run(&mut control, 1e5, 0, 3);
    assert!(cost <= BUDGET * 1.2, "{cost:?}");
}

/// How estimates come out over many seeds.
struct Estimates {
    mean: f64,
    variance: f64,
    stated: f64,
    rounds: f64,
}

/// `round` returns an estimate, and the variance that is stated with it.
fn estimates(rounds: u32, mut round: impl FnMut(&mut Numbers) -> (f64, f64)) -> Estimates {
    let (mut sum, mut squares, mut stated) = (0.0, 0.0, 0.0);
    for seed in 0..rounds {
        let mut numbers = Numbers::new(seed.into());
        let (estimate, variance) = round(&mut numbers);
        sum += estimate;
        squares += estimate * estimate;
        stated += variance;
    }
    let rounds = f64::from(rounds);
    let mean = sum / rounds;
    Estimates {
        mean,
        variance: squares / rounds - mean * mean,
        stated: stated / rounds,
        rounds,
    }
}

impl Estimates {
    #[track_caller]
    fn assert_unbiased(&self, truth: f64) {
        let error = (self.variance / self.rounds).sqrt();
        let off = self.mean - truth;
        println!("{truth}: {off:+.2} ± {error:.2} off");
        assert!(off.abs() <= 4.0 * error + 1e-9, "{off} ± {error}");
    }
}

const TIGHT: Allowance = Allowance {
    first: 20 * Programs::EACH,
    further: 5 * Programs::EACH,
};

/// Layer fs: each access has a coin of its own, and the programs double `one_in` by what they have charged.
#[test]
fn doublings_make_no_bias() {
    const ACCESSES: u32 = 1000;
    let estimates = estimates(4000, |numbers| {
        let mut programs = Programs::new();
        programs.set(1, TIGHT);
        let (mut sum, mut variance) = (0.0, 0.0);
        for _ in 0..ACCESSES {
            let weight = f64::from(programs.one_in);
            if numbers.below(u64::from(programs.one_in)) == 0 {
                programs.charge(Programs::EACH);
                sum += weight;
                variance += weight * (weight - 1.0);
            }
        }
        assert!(programs.one_in > 8);
        (sum, variance)
    });
    estimates.assert_unbiased(ACCESSES.into());
    let ratio = estimates.stated / estimates.variance;
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

/// Layer syscall: the accesses of a task share a coin for a tick, and what a chosen task charges doubles
/// `one_in` for its own next accesses. Where user space has more chosen because few were, it has not seen
/// anything of the tick in which that begins.
#[test]
fn doublings_make_no_bias_where_tasks_share_a_coin() {
    const TASKS: usize = 3;
    const TICKS: usize = 8;
    const ACCESSES: usize = 40;
    // One task reads twice as often.
    const ORDER: [usize; 4] = [0, 1, 0, 2];
    let run = |waits: bool| {
        estimates(20_000, |numbers| {
            let mut coins = || [0; TASKS].map(|_: u32| numbers.below(1_u64 << 32));
            let mut programs = Programs::new();
            programs.set(2, TIGHT);
            let (mut sum, mut stated) = (0.0, 0.0);
            let mut has_few = false;
            for _ in 0..TICKS {
                let before = programs.charged;
                let mut now = coins();
                let mut covered = [0.0; TASKS];
                for access in 0..ACCESSES {
                    if access == ACCESSES / 2 {
                        let seen = programs.charged == before;
                        if if waits { has_few } else { seen } {
                            programs.set(1, TIGHT);
                            (now, covered) = (coins(), [0.0; TASKS]);
                        }
                        has_few = seen;
                    }
                    let task = ORDER[access % ORDER.len()];
                    let weight = f64::from(programs.one_in);
                    if (now[task] * u64::from(programs.one_in)) >> 32 == 0 {
                        programs.charge(Programs::EACH);
                        sum += weight;
                        stated += weight * (weight - 1.0) + 2.0 * weight * covered[task];
                        covered[task] += weight - 1.0;
                    }
                }
            }
            (sum, stated)
        })
    };
    let truth = (TICKS * ACCESSES) as f64;
    let waiting = run(true);
    waiting.assert_unbiased(truth);
    let ratio = waiting.stated / waiting.variance;
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
    // A tick that has shown its coins would get others because of them.
    let hasty = run(false);
    let error = (hasty.variance / hasty.rounds).sqrt();
    let off = hasty.mean - truth;
    assert!(off > 10.0 * error, "{off} ± {error}");
}

proptest! {
    #[test]
    fn a_choice_is_at_least_what_was_asked(k in 1.0_f64..4096.0) {
        let control = Control { k, ..Control::new(BUDGET) };
        let choice = choice(&control, LONG);
        prop_assert!(f64::from(choice.weight()) >= k);
        prop_assert!(f64::from(choice.weight()) < k + f64::from(PAUSES));
    }

    /// Whatever comes, what is charged in a slot is an allowance and a step for each doubling.
    #[test]
    fn an_allowance_lasts(accesses in 0.0_f64..1e8, debt in -1.0_f64..1.0, pauses in 1_u32..80) {
        let allowance = Control::new(BUDGET).allowance(debt, pauses);
        let mut programs = Programs::new();
        programs.set(1, allowance);
        programs.see(accesses);
        let steps = u64::from(programs.one_in.ilog2());
        let most = allowance.first + steps * (allowance.further + Programs::EACH);
        // There is a rarest choice.
        let rarest = (accesses / f64::from(RAREST)) as u64 + 1;
        prop_assert!(programs.charged <= most + rarest * Programs::EACH, "{:?}, {}", programs, most);
    }
}
