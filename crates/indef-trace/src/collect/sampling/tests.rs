use proptest::prelude::*;
use workloads::Numbers;

use super::*;
use crate::collect::{
    brake::{Brake, is_news},
    split::Split,
    windows::{self, Windows, longest},
};

/// One percent.
const BUDGET: f64 = 0.01;

/// The collector's share in any case.
const UPKEEP: f64 = 0.001;

/// As good as for ever.
const LONG: u32 = 1_000_000;

/// A machine with this many accesses a second: a chosen one costs 0.6 µs in the programs and
/// 2 µs in the collector, any other one 0.05 µs, attaching and detaching 4 ms, and the collector
/// [`UPKEEP`] in any case. A slot of 50 ms after each window is attached, too.
fn cost(choice: Choice, rate: f64) -> Cost {
    cost_of(choice, rate / f64::from(choice.one_in), rate)
}

/// The same, where so many are chosen in a window, per second of it.
fn cost_of(choice: Choice, chosen: f64, rate: f64) -> Cost {
    let pauses = f64::from(choice.pauses);
    let chosen = chosen / pauses;
    let is_paused = choice.pauses > 1;
    let seen = rate / pauses * if is_paused { 2.0 } else { 1.0 };
    let attaching = if is_paused {
        0.004 / (0.05 * pauses)
    } else {
        0.0
    };
    Cost {
        programs: chosen * 0.6e-6 + (seen - chosen) * 0.05e-6,
        unchosen: seen * 0.05e-6,
        own: UPKEEP + chosen * 2e-6 + attaching,
        attaching,
        a_window: is_paused.then_some(0.004 / 0.05),
        upkeep: UPKEEP,
        seen: chosen,
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
    let mut control = Control::new(BUDGET, FEWEST);
    settle(&mut control, 2000.0);
    assert_eq!(choice(&control, LONG).weight(), 1);
}

#[test]
fn k_rises_with_the_rate_and_falls_with_it() {
    let mut control = Control::new(BUDGET, FEWEST);
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
/// each second: the share of a processor's time that it took, after each slot.
fn trace(rate: impl Fn(u32) -> f64, slots: u32, seed: u64, fewest: u32) -> Vec<f64> {
    const SLOT: f64 = windows::SLOT.as_secs_f64();
    let mut numbers = Numbers::new(seed);
    let (mut control, mut windows) = (Control::new(BUDGET, fewest), Windows::default());
    let (mut was_window, mut is_attached) = (false, true);
    let (mut spent, mut measured, mut hurried) = (0.0, 0, true);
    let mut last_made = None;
    let mut shares = Vec::new();
    for slot in 0..slots {
        let wanted = control.pauses(longest(slot));
        let is_window = windows.next(wanted, &mut |bound| numbers.below(bound));
        let choice = control.choice(windows.pauses());
        let is_after = was_window && !is_window;
        if (is_window || is_after) != is_attached {
            is_attached = !is_attached;
            spent += 0.002;
        }
        let rate = rate(slot);
        let in_slot = (rate * SLOT) as u64;
        let mut seen = if is_window {
            in_slot / u64::from(choice.one_in)
        } else {
            0
        };
        let brake = Brake::of(choice, BUDGET);
        let brake = brake.filter(|brake| brake.is_on(seen));
        if let Some(brake) = brake {
            let before = brake.allowed() * u64::from(choice.one_in);
            seen = brake.allowed() + (in_slot - before) / u64::from(BRAKED);
        }
        let chosen = seen as f64 / SLOT;
        if is_attached {
            spent += (chosen * 0.6e-6 + (rate - chosen) * 0.05e-6) * SLOT;
        }
        // The ring has one reader.
        spent += (UPKEEP + chosen * 2e-6).min(1.0) * SLOT;
        if is_window && (hurried || slot >= measured + 20) {
            let before = choice;
            if brake.is_some() {
                control.braked(in_slot as f64 / seen as f64);
            }
            let debt = control.debt(spent, SLOT * f64::from(slot + 1));
            control.measured(cost_of(choice, chosen, rate), debt, longest(slot));
            let after = control.choice(control.pauses(longest(slot)));
            hurried = brake.is_some() || before.weight() != after.weight();
            measured = slot;
            last_made = Some(in_slot);
        } else if is_window {
            let is_news = is_news(in_slot, last_made.unwrap_or(0), BUDGET);
            hurried = brake.is_some() || is_news;
        }
        was_window = is_window;
        shares.push(spent / (SLOT * f64::from(slot + 1)));
    }
    shares
}

/// The bound holds for a trace as a whole, from some time on. A load that begins later is no different.
#[test]
fn the_bound_holds_for_a_trace_as_a_whole() {
    const RATES: [(f64, u32, u32); 8] = [
        (1e4, 20, FEWEST),
        (3e4, 20, FEWEST),
        (1e5, 120, FEWEST),
        (3e5, 160, FEWEST),
        (6e5, 300, FEWEST),
        (1.2e6, 640, FEWEST),
        (6e5, 300, FEWEST_TICKS),
        (1.2e6, 800, FEWEST_TICKS),
    ];
    for (rate, from, fewest) in RATES {
        let mut latest = 0;
        for (seed, begin) in (0..20).flat_map(|seed| [(seed, 0), (seed, 300)]) {
            let shares = trace(
                |slot| if slot < begin { 0.0 } else { rate },
                begin + 3000,
                seed,
                fewest,
            );
            let over = shares.iter().rposition(|share| *share > BUDGET);
            latest = latest.max(over.map_or(0, |slot| slot as u32 + 1 - begin));
        }
        println!("{rate} accesses a second: within the bound after {latest} slots");
        assert!(latest <= from, "{rate} accesses a second: {latest} slots");
    }
}

/// Traces of 2, 5 and 12 s keep it at low rates, and take little more at high ones; so does what a load costs that
/// begins in a trace of some seconds.
#[test]
fn the_bound_holds_for_short_traces() {
    const SEEDS: u64 = 40;
    for (rate, fewest, allowed) in [
        (3e4, FEWEST, [1.0, 1.0, 1.0]),
        (1e5, FEWEST, [1.3, 1.0, 1.0]),
        (3e5, FEWEST, [1.3, 1.0, 1.0]),
        (6e5, FEWEST, [2.5, 1.4, 1.0]),
        (1.2e6, FEWEST, [3.6, 2.1, 1.4]),
        (6e5, FEWEST_TICKS, [2.6, 1.5, 1.0]),
        (1.2e6, FEWEST_TICKS, [3.7, 2.3, 1.5]),
    ] {
        for begin in [0, 30] {
            for (seconds, allowed) in [2, 5, 12].into_iter().zip(allowed) {
                let slots = begin + 20 * seconds;
                let of = |seed| {
                    let rate = |slot| if slot < begin { 0.0 } else { rate };
                    let shares = trace(rate, slots, seed, fewest);
                    shares[slots as usize - 1] / BUDGET
                };
                let shares: Vec<f64> = (0..SEEDS).map(of).collect();
                let mean = shares.iter().sum::<f64>() / SEEDS as f64;
                let largest = shares.iter().copied().fold(0.0, f64::max);
                println!(
                    "{rate}/s from slot {begin} on for {seconds} s: {mean:.2}, {largest:.2} at most"
                );
                assert!(
                    mean <= allowed && largest <= 1.6 * allowed,
                    "{mean}, {largest}"
                );
            }
        }
    }
}

#[test]
fn it_is_not_chosen_less_than_is_of_use() {
    // The collector alone costs more than the budget: nothing is gained by a larger k.
    let mut control = Control::new(0.0005, FEWEST);
    settle(&mut control, 20_000.0);
    let cost = cost(choice(&control, LONG), 20_000.0);
    assert!(cost.seen > FEW / STEP, "{cost:?}");
    assert!(cost.programs < 0.0005, "{cost:?}");
}

/// A collector that costs more than its budget by itself, as on a busy machine, does not make a low rate be told worse.
#[test]
fn upkeep_does_not_cost_accesses() {
    for upkeep in [0.004, 0.009, 0.02] {
        let mut control = Control::new(BUDGET, FEWEST);
        for _ in 0..60 {
            let usual = cost(choice(&control, LONG), 500.0);
            let own = usual.own - usual.upkeep + upkeep;
            let cost = Cost {
                own,
                upkeep,
                ..usual
            };
            control.measured(cost, 0.0, LONG);
        }
        assert_eq!(choice(&control, LONG).weight(), 1, "{upkeep}");
    }
}

/// Reads in many requests, whose programs run whether or not the read is chosen: `k` grows as far as that spares
/// anything, and no further, although the cost is close to the bound.
#[test]
fn k_does_not_grow_for_what_it_does_not_spare() {
    for seed in 0..20 {
        let mut numbers = Numbers::new(seed);
        let (mut control, mut split) = (Control::new(BUDGET, FEWEST), Split::default());
        let (mut spent, mut largest) = (0.0, 0);
        for second in 0..120 {
            let choice = choice(&control, 20 * second);
            let made = 900 + numbers.below(400_u64);
            let seen = made / u64::from(choice.one_in);
            // The noise of a measurement.
            let noise = 0.9 + 0.2 * numbers.below(1000_u64) as f64 / 1000.0;
            let programs = (made as f64 * 5.5e-6 + seen as f64 * 4e-6) * noise;
            let own = UPKEEP + seen as f64 * 0.5e-6;
            spent += programs + own;
            let cost = Cost {
                programs,
                unchosen: split.measured(programs, 1.0, seen, made),
                own,
                attaching: 0.0,
                a_window: None,
                upkeep: UPKEEP,
                seen: seen as f64,
            };
            let debt = control.debt(spent, f64::from(second + 1));
            control.measured(cost, debt, longest(20 * second));
            if second > 20 {
                largest = largest.max(choice.weight());
            }
        }
        assert!(largest <= 12, "one in {largest}, seed {seed}");
        assert!(spent / 120.0 <= BUDGET, "{spent}, seed {seed}");
    }
}

#[test]
fn it_answers_within_a_few_measurements() {
    let mut control = Control::new(BUDGET, FEWEST);
    let cost = run(&mut control, 1e5, 0, 3);
    assert!(cost <= BUDGET * 1.2, "{cost:?}");
}

#[test]
fn the_options_tell_shares() {
    assert_eq!(Sampling::at_most_percent(1.0).budget(), Some(0.01));
    assert_eq!(Sampling::at_most_percent(100.0), Sampling::All);
    assert_eq!(Sampling::OneIn(3).budget(), None);
}

proptest! {
    /// The mean of many estimates is the number of accesses, and their spread is the stated error,
    /// also where the weight changes in the middle.
    #[test]
    fn estimates_are_unbiased(first in 1_u32..40, second in 1_u32..40, seed in 0_u64..1000) {
        const ACCESSES: u32 = 400;
        const ROUNDS: u32 = 400;
        let mut numbers = Numbers::new(seed);
        let (mut sum, mut squares, mut stated) = (0.0, 0.0, 0.0);
        for _ in 0..ROUNDS {
            let mut sampled = Sampled::default();
            for access in 0..ACCESSES {
                let k = if access < ACCESSES / 2 { first } else { second };
                let weight = u64::from(k);
                if numbers.below(weight) == 0 {
                    sampled.add(Sampled {
                        counted: weight,
                        variance: weight * (weight - 1),
                        common: 0,
                    });
                }
            }
            let estimate = sampled.counted as f64;
            sum += estimate;
            squares += (estimate - f64::from(ACCESSES)).powi(2);
            stated += sampled.variance as f64;
        }
        let rounds = f64::from(ROUNDS);
        let (mean, variance, stated) = (sum / rounds, squares / rounds, stated / rounds);
        let error = (variance / rounds).sqrt();
        prop_assert!((mean - f64::from(ACCESSES)).abs() <= 5.0 * error + 1e-9, "{mean} ± {error}");
        prop_assert!((variance - stated).abs() <= 0.5 * stated + 1e-9, "{variance}, {stated}");
    }

    #[test]
    fn a_choice_is_at_least_what_was_asked(k in 1.0_f64..4096.0) {
        let control = Control { k, ..Control::new(BUDGET, FEWEST) };
        let choice = choice(&control, LONG);
        prop_assert!(f64::from(choice.weight()) >= k);
        prop_assert!(f64::from(choice.weight()) < k + f64::from(PAUSES));
    }

    #[test]
    fn the_time_that_was_spent_adds_up(programs in 0_u64..9000, collector in 0_u64..9000) {
        let mut spent = Spent::default();
        prop_assert_eq!(spent.percent(Duration::from_secs(1)), None);
        for _ in 0..2 {
            spent.add(Spent {
                programs: Some(Duration::from_micros(programs)),
                collector: Duration::from_micros(collector),
            });
        }
        let percent = spent.percent(Duration::from_secs(2)).unwrap();
        prop_assert!((percent - (programs + collector) as f64 / 1e4).abs() < 1e-9);
    }

    #[test]
    fn k_means_what_it_says(k in 1_u64..5000, chosen in 1_u64..5000) {
        let sampled = Sampled {
            counted: k * chosen,
            variance: k * (k - 1) * chosen,
            common: 0,
        };
        prop_assert!((sampled.one_in() - k as f64).abs() < 1e-6 * k as f64);
        let expected = ((k - 1) as f64 / (k * chosen) as f64).sqrt();
        let error = sampled.relative_error(sampled.counted);
        prop_assert!((error - expected).abs() < 1e-6);
    }
}
