//! Windows: where one access in 64 still costs too much, the programs are attached for a part of the
//! time only.
//!
//! **Design.** Time is cut into slots, from one call of [`super::Collector::keep_up`] to the next (some
//! 50 ms). `2 m` slots in a row are a stratum. Two of them are *windows*, chosen at random before the
//! stratum begins, whatever is read then; an access in a window counts `m` times as much. So each slot
//! is a window with the probability `1/m`, independent of its load, and sums are unbiased for any load.
//! As all strata have the same share of windows, a steady load is told without a further error. `m` is
//! settled before a stratum begins, from the cost of earlier ones.
//!
//! With `m` = 1 there is nothing to choose, and a stratum is one slot: what is measured in it holds for the next.
//!
//! **Error.** Accesses come in bursts, and a window chooses all of its accesses at once: the error is
//! that of cluster sampling. With the estimates `z1` and `z2` for the two windows of a stratum, its sum
//! `m (z1 + z2)` has the variance `(m² - m) (z1 - z2)²`, without bias (two clusters from each stratum: W.
//! G. Cochran, Sampling Techniques, 3rd ed., chapters 5 and 11), and the variances of `z1` and `z2` by
//! themselves come to it `m` times. The largest
//! difference counts three times: what a few windows have seen may as well have been missed. Where a trace
//! ends within a stratum, the number of its windows is a matter of chance, too.
//!
//! **Slots are not alike.** Attaching the programs and detaching them again takes time, with the kernel's grace periods a part of
//! a slot or more, and an application goes on in it. So a window stands for `m` slots as long as its own, and for the
//! time that was beside these in earlier strata ([`Stretch`]): sums are those of all of the time.
//!
//! **Slowed applications.** An application that keeps a processor busy runs slower in a window, by the time of the programs, and of
//! getting to them, at most; how many of them do, nobody tells. With the share `s` of a processor for that, of `n` accesses
//! seen there may have been up to `n / (1 - s)`: the difference is taken for an error of all windows alike. So it is
//! without windows where a choice holds for a time, in which the application is slower than in others. Where the calls of a
//! process are known ([`super::accounts`]), its counts are mended by them, and what is still missing is known.
//!
//! **How rare.** As rare as the bound of the cost wants it, from the first stratum on, but for this: at first a
//! window stands for [`FIRST`] slots and a quarter of the time before it at most, and for no more than
//! [`USUAL`] slots or a 25th of that time ([`longest`]): so the sums of a trace that goes on never hang on a
//! few windows.

use std::time::Duration;

/// About the length of a slot.
pub(super) const SLOT: Duration = Duration::from_millis(50);
/// The largest `m`.
pub(super) const PAUSES: u32 = 256;
/// The smallest one above 1: attaching and detaching costs 2 to 4 ms of a processor's time (Linux 6.18,
/// 2 processors), which is half a percent with this.
pub(super) const SHORTEST: u32 = 16;
/// The largest one at the beginning of a trace.
const FIRST: u32 = 32;
/// The largest one in the first 100 s of a trace.
const USUAL: u32 = 80;

/// Windows stand for so many times their `m` slots, at least and at most.
const LEAST_STRETCH: f64 = 0.8;
const MOST_STRETCH: f64 = 2.0;

/// The largest `m` after this many slots.
pub(super) fn longest(slots: u32) -> u32 {
    let soon = (FIRST + slots / 4).min(USUAL);
    soon.max(slots / 25).min(PAUSES)
}

/// Which slots are windows.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// `m` of the stratum.
    pauses: u32,
    /// Slots of the stratum that have begun.
    slots: u32,
    windows: [u32; 2],
}

impl Windows {
    /// Begin a slot; whether it is a window. The next stratum begins with `pauses`. `below` returns a
    /// random number below its argument.
    pub(super) fn next(&mut self, pauses: u32, below: &mut dyn FnMut(u32) -> u32) -> bool {
        if self.is_over() {
            self.pauses = pauses.clamp(1, PAUSES);
            self.slots = 0;
            let first = below(self.stratum());
            let second = below(2 * self.pauses - 1);
            self.windows = [first, second + u32::from(second >= first)];
        }
        self.slots += 1;
        self.windows.contains(&(self.slots - 1))
    }

    /// How many slots come next, in this stratum, of which none is a window.
    pub(super) fn quiet(&self) -> u32 {
        let is_to_come = |window: &&u32| **window >= self.slots;
        let next = self.windows.iter().filter(is_to_come).min();
        let end = self.stratum();
        next.map_or(end, |next| end.min(*next)) - self.slots
    }

    /// Begin so many of them, and end them again.
    pub(super) fn pass_over(&mut self, slots: u32) {
        self.slots += slots.min(self.quiet());
    }

    /// Whether the next slot begins another stratum.
    pub(super) fn is_over(&self) -> bool {
        self.slots == self.stratum()
    }

    /// The slots of this one.
    fn stratum(&self) -> u32 {
        match self.pauses {
            1 => 1,
            pauses => 2 * pauses,
        }
    }

    /// The variance of `m` times the number of windows in the part of the stratum that has begun: the
    /// trace may end there.
    fn spread(&self) -> f64 {
        let (m, slots) = (f64::from(self.pauses()), f64::from(self.slots));
        m * slots * (1.0 - slots / (2.0 * m)) * (2.0 * m - 2.0) / (2.0 * m - 1.0)
    }

    /// `m`: a window stands for so many slots.
    pub(super) fn pauses(&self) -> u32 {
        self.pauses.max(1)
    }
}

/// For how much more than its `m` slots a window stands.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    /// `m` times the windows of the stratum so far.
    stands_for: Duration,
    /// All strata that are over, and the same of them.
    span: Duration,
    stood_for: Duration,
}

impl Stretch {
    /// A window has ended, one in `pauses` slots of its stratum.
    pub(super) fn window(&mut self, long: Duration, pauses: u32) {
        self.stands_for += long * pauses;
    }

    /// A stratum with windows is over, so long after it began.
    pub(super) fn stratum(&mut self, took: Duration) {
        self.span += took;
        self.stood_for += std::mem::take(&mut self.stands_for);
    }

    /// The slots for which the next window stands that is one in `pauses`: a whole number, at random the lower or
    /// the higher one, so that it is right in the mean; `random` is any number.
    pub(super) fn slots(&self, pauses: u32, random: u32) -> u32 {
        let by = match self.stood_for.is_zero() {
            true => 1.0,
            false => self.span.as_secs_f64() / self.stood_for.as_secs_f64(),
        };
        let chance = f64::from(random) / (f64::from(u32::MAX) + 1.0);
        (f64::from(pauses) * by.clamp(LEAST_STRETCH, MOST_STRETCH) + chance) as u32
    }
}

/// The accesses that were chosen in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) pauses: u32,
    /// One in so many of its accesses was chosen.
    pub(super) one_in: u32,
    pub(super) chosen: u64,
    /// Sum of the squares of the numbers of accesses that one choice covered: as many as were chosen,
    /// if each had a choice of its own.
    pub(super) squares: f64,
    /// The share of a processor that counting took where it was chosen, and from accesses that were not made for that.
    pub(super) share: f64,
}

/// The largest share that is believed.
const MOST_SHARE: f64 = 0.9;

impl Window {
    /// Estimated accesses in the window.
    fn estimate(&self) -> f64 {
        f64::from(self.one_in) * self.chosen as f64
    }

    /// The part of the square of the estimate that the programs count by themselves.
    fn counted(&self) -> f64 {
        f64::from(self.one_in).powi(2) * self.squares
    }
}

/// The variance of the sum of all counts that the choice of windows adds to that of accesses.
#[derive(Debug, Default)]
pub(super) struct Between {
    sum: f64,
    /// The largest part of it.
    largest: f64,
    /// All accesses, and those that may not have happened because the programs took their time.
    estimated: f64,
    slowed: f64,
    /// The first window of a stratum.
    first: Option<Window>,
    /// Mean square of the estimates for the windows of the last stratum.
    square: f64,
}

impl Between {
    /// The next window has ended; all that were begun come here, in order.
    pub(super) fn add(&mut self, window: Window) {
        let share = window.share.clamp(0.0, MOST_SHARE);
        let estimated = f64::from(window.pauses) * window.estimate();
        self.estimated += estimated;
        self.slowed += estimated * share / (1.0 - share);
        if window.pauses <= 1 {
            return;
        }
        match self.first.take() {
            None => self.first = Some(window),
            Some(first) => {
                let more = variance(&first, &window);
                self.sum += more;
                self.largest = self.largest.max(more);
                self.square = f64::midpoint(first.estimate().powi(2), window.estimate().powi(2));
            }
        }
    }

    /// The variance so far, where counts have grown so many times, and `slowed` accesses may still be missing. Single
    /// estimates may be below 0.
    pub(super) fn variance(&self, windows: &Windows, growth: f64, slowed: f64) -> f64 {
        let first = self.first.map_or(0.0, |first| first.estimate().powi(2));
        let open = windows.spread() * first.max(self.square);
        (self.sum.max(0.0) + 2.0 * self.largest + open) * growth.powi(2) + slowed.powi(2)
    }

    /// All accesses so far, and those beside them that may not have happened because the programs took their time.
    pub(super) fn estimated(&self) -> (f64, f64) {
        (self.estimated, self.slowed)
    }
}

/// The programs count with `m one_in` as if an access was chosen by itself: that is the sum of the
/// squares, which here is in the difference once more.
fn variance(first: &Window, second: &Window) -> f64 {
    let pauses = f64::from(first.pauses);
    let between = (first.estimate() - second.estimate()).powi(2);
    (pauses * pauses - pauses) * (between - first.counted() - second.counted())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use workloads::Numbers;

    use super::*;

    /// Two minutes of 50 ms.
    const SLOTS: u32 = 2400;

    /// Accesses in each slot.
    fn load(name: &str, numbers: &mut Numbers) -> Vec<u64> {
        let mut loads = vec![0; SLOTS as usize];
        let noisy = |mean: u64, numbers: &mut Numbers| numbers.below(2 * mean + 1);
        match name {
            "steady" => loads.fill(200),
            "noisy" => loads
                .iter_mut()
                .for_each(|load| *load = noisy(200, numbers)),
            // Two seconds of five.
            "on and off" => {
                let phase = numbers.below(100_usize);
                for (slot, load) in loads.iter_mut().enumerate() {
                    *load = if (slot + phase) % 100 < 40 {
                        noisy(200, numbers)
                    } else {
                        0
                    };
                }
            }
            // A second at twenty times the rate, about every ten seconds.
            "bursts" => {
                loads.fill(10);
                for _ in 0..SLOTS / 200 {
                    let at = numbers.below(loads.len() - 20);
                    loads[at..at + 20].fill(200);
                }
            }
            // Each slot by itself, one in five.
            "single slots" => {
                for load in &mut loads {
                    *load = if numbers.percent(20) { 200 } else { 0 };
                }
            }
            "rising" => {
                for (slot, load) in loads.iter_mut().enumerate() {
                    *load = slot as u64 / 8;
                }
            }
            other => panic!("{other}"),
        }
        loads
    }

    /// The estimate of a sum, the variance that is stated with it, and the part of that which single
    /// choices would have.
    fn sample(loads: &[u64], pauses: u32, one_in: u32, numbers: &mut Numbers) -> (f64, f64, f64) {
        let (mut windows, mut between) = (Windows::default(), Between::default());
        let (mut estimate, mut variance) = (0.0, 0.0);
        for (slot, load) in loads.iter().enumerate() {
            let pauses = pauses.min(longest(slot as u32));
            if !windows.next(pauses, &mut |bound| numbers.below(bound)) {
                continue;
            }
            let chosen = (0..*load).filter(|_| numbers.below(one_in) == 0).count() as u64;
            let pauses = windows.pauses();
            between.add(Window {
                pauses,
                one_in,
                chosen,
                squares: chosen as f64,
                share: 0.0,
            });
            let weight = f64::from(pauses * one_in);
            estimate += weight * chosen as f64;
            // As the programs count it.
            variance += weight * (weight - 1.0) * chosen as f64;
        }
        let between = between.variance(&windows, 1.0, 0.0);
        (estimate, variance + between, variance)
    }

    /// How estimates of a load come out over many seeds.
    struct Outcome {
        bias: f64,
        /// Root of the mean square of what they are off, of what they state, and of the part of that which
        /// single choices would have.
        spread: f64,
        stated: f64,
        single: f64,
        /// The share that is within two stated errors.
        covered: f64,
        what: String,
    }

    const SEEDS: u32 = 400;

    /// Traces of `slots`, or some fewer: they end anywhere in a stratum.
    fn outcome(name: &str, slots: usize, pauses: u32, one_in: u32) -> Outcome {
        let (mut sum, mut squares, mut covered) = (0.0, 0.0, 0);
        let (mut stated, mut single) = (0.0, 0.0);
        for seed in 0..SEEDS {
            let mut numbers = Numbers::stream(seed.into(), u64::from(pauses));
            let mut loads = load(name, &mut numbers);
            loads.truncate(slots - numbers.below(slots / 8));
            let truth = loads.iter().sum::<u64>() as f64;
            let (estimate, variance, alone) = sample(&loads, pauses, one_in, &mut numbers);
            let off = estimate / truth - 1.0;
            sum += off;
            squares += off * off;
            stated += variance / truth.powi(2);
            single += alone / truth.powi(2);
            covered += u32::from((estimate - truth).abs() <= 2.0 * variance.sqrt());
        }
        let seeds = f64::from(SEEDS);
        let [bias, covered] = [sum, covered.into()].map(|sum: f64| sum / seeds);
        let [spread, stated, single] = [squares, stated, single].map(|sum| (sum / seeds).sqrt());
        let what = format!(
            "{name}, {slots} slots, m = {pauses}, one in {one_in}: {bias:+.4}, spread {spread:.4}, stated {stated:.4}, \
             {covered:.3} within two errors"
        );
        println!("{what}");
        Outcome {
            bias,
            spread,
            stated,
            single,
            covered,
            what,
        }
    }

    const LOADS: [&str; 6] = [
        "steady",
        "noisy",
        "on and off",
        "bursts",
        "single slots",
        "rising",
    ];

    /// Over many seeds: the mean of the estimates is the truth, and nine in ten estimates are within two
    /// stated errors of it, whatever the load does.
    #[test]
    fn estimates_are_unbiased_and_within_their_errors() {
        for name in LOADS {
            for (pauses, one_in) in [(8, 8), (20, 1), (60, 8), (PAUSES, 2)] {
                let is = outcome(name, SLOTS as usize, pauses, one_in);
                let what = &is.what;
                let chance = 4.0 * is.spread / f64::from(SEEDS).sqrt();
                assert!(is.bias.abs() <= chance + 1e-9, "{what}");
                assert!(is.covered >= 0.9, "{what}");
                // Nor is it much too large, but that it is at least that of single choices: a range that is
                // read at random has that error.
                let most = (1.7 * is.spread).hypot(is.single);
                assert!(is.stated <= most + 1e-9, "{what}");
            }
        }
    }

    /// The same for traces of 10 and 30 s, whose windows become rare at once; but a trace that short may miss
    /// single bursts, and not know.
    #[test]
    fn estimates_of_short_traces_are_unbiased() {
        for name in LOADS {
            for (slots, least) in [(200, 0.75), (600, 0.85)] {
                let is = outcome(name, slots, 24, 8);
                let chance = 4.0 * is.spread / f64::from(SEEDS).sqrt();
                assert!(is.bias.abs() <= chance + 1e-9, "{}", is.what);
                assert!(name == "bursts" || is.covered >= least, "{}", is.what);
            }
        }
    }

    /// The error includes the processor time that the programs take.
    #[test]
    fn a_slowed_application_is_within_the_error() {
        let mut numbers = Numbers::new(3);
        let (mut windows, mut between) = (Windows::default(), Between::default());
        let (mut estimate, mut truth) = (0.0, 0.0);
        for _ in 0..SLOTS {
            let is_window = windows.next(20, &mut |bound| numbers.below(bound));
            // A fifth of the time is for the programs.
            let done: u32 = if is_window { 800 } else { 1000 };
            truth += f64::from(done);
            if is_window {
                estimate += 20.0 * f64::from(done);
                between.add(Window {
                    pauses: 20,
                    one_in: 1,
                    chosen: done.into(),
                    squares: done.into(),
                    share: 0.2,
                });
            }
        }
        let (_, slowed) = between.estimated();
        let error = between.variance(&windows, 1.0, slowed).sqrt();
        assert!(truth - estimate > 0.15 * truth, "{estimate} of {truth}");
        assert!(truth - estimate < 1.5 * error, "{error}");
        // What counting takes from an application that does nothing else may be most of its time.
        let mut between = Between::default();
        between.add(Window {
            pauses: 1,
            one_in: 10,
            chosen: 100,
            squares: 100.0,
            share: 0.6,
        });
        assert_eq!(between.estimated(), (1000.0, 1500.0));
        let variance = between.variance(&Windows::default(), 1.0, 1500.0);
        assert_eq!(variance.sqrt(), 1500.0);
    }

    /// Slots with what it takes to attach and to detach beside them: a load that goes on meanwhile is told whole.
    #[test]
    fn windows_stand_for_the_time_between_slots() {
        const PAUSES: u32 = 20;
        let (slot, attaching) = (Duration::from_millis(50), Duration::from_millis(40));
        let mut numbers = Numbers::new(5);
        let (mut windows, mut stretch) = (Windows::default(), Stretch::default());
        let (mut began, mut now, mut told) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for _ in 0..200 * 2 * PAUSES {
            if windows.is_over() {
                stretch.stratum(now - began);
                began = now;
            }
            if windows.next(PAUSES, &mut |bound| numbers.below(bound)) {
                let slots = stretch.slots(PAUSES, numbers.below(u32::MAX));
                told += slot * slots;
                stretch.window(slot, PAUSES);
                now += attaching;
            }
            now += slot;
        }
        // Of the first stratum it is not known yet, which is a part of 200; without the stretch 4 % are missing.
        let part = told.as_secs_f64() / now.as_secs_f64();
        assert!((0.997..1.003).contains(&part), "{told:?} of {now:?}");
    }

    /// The windows are the same whether each slot begins by itself or those between two windows are passed over.
    #[test]
    fn slots_without_a_window_can_be_passed_over() {
        const SLOTS: u32 = 4000;
        let found = |passes_over: bool| {
            let mut numbers = Numbers::new(7);
            let mut windows = Windows::default();
            let (mut slot, mut begun, mut found) = (0, 0, Vec::new());
            while slot < SLOTS {
                if windows.next(20, &mut |bound| numbers.below(bound)) {
                    found.push(slot);
                }
                let quiet = if passes_over { windows.quiet() } else { 0 };
                windows.pass_over(quiet);
                (slot, begun) = (slot + 1 + quiet, begun + 1);
            }
            (found, begun)
        };
        let ((each, all), (over, begun)) = (found(false), found(true));
        assert_eq!((each, all), (over, SLOTS));
        assert!(begun < SLOTS / 5, "{begun}");
        assert_eq!(Windows::default().quiet(), 0);
    }

    #[test]
    fn windows_become_rarer_with_time() {
        assert_eq!(longest(0), FIRST);
        assert_eq!(longest(4), FIRST + 1);
        assert_eq!((longest(320), longest(2000)), (USUAL, USUAL));
        assert_eq!(longest(25 * USUAL + 25), USUAL + 1);
        assert_eq!(longest(u32::MAX), PAUSES);
    }

    proptest! {
        /// Two in each stratum, wherever `m` changes.
        #[test]
        fn each_stratum_has_two_windows(wanted in prop::collection::vec(1_u32..50, 1..20), seed in 0_u64..1000) {
            let mut numbers = Numbers::new(seed);
            let mut windows = Windows::default();
            for pauses in wanted {
                let slots = if pauses == 1 { 1 } else { 2 * pauses };
                let stratum: Vec<bool> = (0..slots)
                    .map(|_| windows.next(pauses, &mut |bound| numbers.below(bound)))
                    .collect();
                prop_assert_eq!(windows.pauses(), pauses);
                let windows = stratum.iter().filter(|is_window| **is_window).count();
                prop_assert_eq!(windows, slots.min(2) as usize);
            }
        }

        /// With `m` = 1 every slot is a window, and nothing comes to the variance.
        #[test]
        fn without_pauses_there_is_no_variance(chosen in prop::collection::vec(0_u64..1000, 0..9)) {
            let mut between = Between::default();
            for chosen in chosen {
                between.add(Window { pauses: 1, one_in: 5, chosen, squares: chosen as f64, share: 0.0 });
            }
            prop_assert_eq!(between.variance(&Windows::default(), 1.0, 0.0), 0.0);
        }
    }
}
