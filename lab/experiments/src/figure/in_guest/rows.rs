//! The rows of a figure: each value of each run, and of these the median and the spread.

use super::{
    super::{
        measured::{Measured, Unit, change, changes},
        workload::Pattern,
    },
    contender::Contender,
    runs::Runs,
    state::State,
    times::{Alone, Times},
};

/// What all contenders did to reads, what they wrote, and how `lfs-sim` agrees.
pub(in super::super) fn rows_of(runs: &Runs, measured: &mut Measured) {
    for pattern in Pattern::ALL {
        reads(runs, pattern, measured);
        work(runs, pattern, measured);
    }
    for contender in runs.states.contenders() {
        alone(runs, contender, measured);
    }
    for pattern in Pattern::ALL {
        agreement(runs, pattern, measured);
    }
}

/// The gains of reads.
fn reads(runs: &Runs, pattern: Pattern, measured: &mut Measured) {
    let name = pattern.name();
    for contender in [
        Contender::Conventional,
        Contender::FragPicker(pattern),
        Contender::Indef(pattern),
    ] {
        let gain = |time: fn(&Times) -> f64| {
            runs.states.values(contender, |state| {
                let [before, after] = state.reads(pattern)?;
                // Of speeds.
                Some(change(time(&before), time(&after)))
            })
        };
        let series = contender.series();
        let elsewhere = format!("{series}, on {}", runs.other);
        let x = format!("{name} read, from before");
        let with_host = format!("{name} read with the host's time, from before");
        let mut push = |series: &str, x: &str, gains: &[f64]| {
            measured.push_runs(series, x, gains, Unit::ChangePct);
        };
        push(series, &x, &gain(|times| times.alone.guest));
        push(series, &with_host, &gain(|times| times.with_host));
        push(&elsewhere, &x, &gain(|times| times.elsewhere.guest));
    }
}

/// The work of those that were told a pattern, against the conventional tool's.
fn work(runs: &Runs, pattern: Pattern, measured: &mut Measured) {
    let name = pattern.name();
    for contender in [Contender::FragPicker(pattern), Contender::Indef(pattern)] {
        let mut push = |x: &str, value: fn(&State) -> f64| {
            let of = |contender| runs.states.values(contender, |state| Some(value(state)));
            let changes = changes(&of(contender), &of(Contender::Conventional));
            measured.push_runs(contender.series(), x, &changes, Unit::ChangePct);
        };
        push(&format!("writes ({name}), from conventional"), written);
        let x = format!("time of defragmentation ({name}), from conventional");
        push(&x, |state| state.work.time);
    }
}

/// The work of a contender, and the file that it left.
fn alone(runs: &Runs, contender: Contender, measured: &mut Measured) {
    let mut push = |what: &str, unit: Unit, value: &dyn Fn(&State) -> f64| {
        let x = match contender.told() {
            Some(pattern) => format!("{what} ({})", pattern.name()),
            None => what.to_owned(),
        };
        let values = runs.states.values(contender, |state| Some(value(state)));
        measured.push_runs(contender.series(), x.as_str(), &values, unit);
    };
    let size = runs.size;
    push("writes ÷ file", Unit::Times, &|state: &State| {
        written(state) / size
    });
    push(
        "writes of the host ÷ file",
        Unit::Times,
        &|state: &State| state.work.by_host / size,
    );
    push("extents before", Unit::Count, &|state: &State| {
        state.extents[0]
    });
    push("extents", Unit::Count, &|state: &State| state.extents[1]);
}

/// The time of the commands that `lfs-sim` makes, from the time of the guest's, of all files.
fn agreement(runs: &Runs, pattern: Pattern, measured: &mut Measured) {
    let elsewhere = format!("lfs-sim, on {}", runs.other);
    for (at, when) in ["before", "afterwards"].into_iter().enumerate() {
        let off = |alone: fn(&Times) -> Alone| -> Vec<f64> {
            let times = runs.states.all();
            let times = times.filter_map(|state| Some(state.reads(pattern)?[at]));
            let off = times.map(|times| {
                let times = alone(&times);
                change(times.simulated, times.guest)
            });
            off.collect()
        };
        let x = format!("time of {} reads {when}, from the guest's", pattern.name());
        let mut push = |series: &str, off: &[f64]| {
            measured.push_runs(series, x.as_str(), off, Unit::ChangePct);
        };
        push("lfs-sim", &off(|times| times.alone));
        push(&elsewhere, &off(|times| times.elsewhere));
    }
}

/// Bytes that a defragmenter has the device write, wherever they come from.
fn written(state: &State) -> f64 {
    state.work.by_host + state.work.inside
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::{
        super::{
            super::{class::compare, source::Figure, states::States},
            state::Work,
        },
        *,
    };

    const MIB: f64 = 1_048_576.0;

    /// A contender that reads so many times as fast afterwards, and writes so many MiB: by the host, and inside.
    fn state(contender: Contender, gain: f64, written: [f64; 2]) -> State {
        let times = |device: f64| {
            let alone = Alone {
                guest: device,
                simulated: device * 1.02,
            };
            Times {
                alone,
                with_host: device + 100.0,
                elsewhere: alone,
            }
        };
        let both = [times(1000.0), times(1000.0 / gain)];
        let patterns = contender.patterns().iter();
        State {
            reads: patterns.map(|pattern| (*pattern, both)).collect(),
            extents: [33.0, 2.0],
            work: Work {
                by_host: written[0] * MIB,
                inside: written[1] * MIB,
                time: 1e9 * (written[0] + written[1] / 4.0),
            },
        }
    }

    fn runs() -> Runs {
        let one = |contender: Contender| {
            let (gain, written) = match contender {
                Contender::Conventional => (2.0, [8.0, 0.0]),
                Contender::FragPicker(_) => (2.0, [4.0, 0.0]),
                Contender::Indef(_) => (1.5, [1.0, 3.0]),
            };
            Ok::<_, Infallible>(state(contender, gain, written))
        };
        let mut states = States::new(Contender::ALL);
        (0..3).for_each(|_| states.run(one).unwrap());
        Runs {
            size: 4.0 * MIB,
            other: "another".into(),
            states,
        }
    }

    #[test]
    fn gains_are_of_speeds_and_writes_are_all_of_them() {
        let mut measured = Measured::default();
        rows_of(&runs(), &mut measured);
        let at = |series: &str, x: &str| {
            let row = measured.at(series, &x.into());
            row.unwrap_or_else(|| panic!("{series} {x}")).ours
        };
        assert_eq!(at("FragPicker", "sequential read, from before"), 100.0);
        assert_eq!(at("indef, on another", "stride read, from before"), 50.0);
        let x = "stride read with the host's time, from before";
        assert_eq!(at("FragPicker", x), 83.333_33);
        assert_eq!(at("indef", "writes (stride), from conventional"), -50.0);
        let x = "time of defragmentation (stride), from conventional";
        assert_eq!(at("indef", x), -78.125);
        assert_eq!(at("indef", "writes ÷ file (sequential)"), 1.0);
        assert_eq!(at("indef", "writes of the host ÷ file (sequential)"), 0.25);
        assert_eq!(at("conventional", "extents"), 2.0);
        let x = "time of stride reads afterwards, from the guest's";
        assert_eq!(at("lfs-sim", x), 2.0);
        assert!(measured.rows.iter().all(|row| row.spread.is_some()));
    }

    #[test]
    fn every_published_value_of_the_figure_has_a_row() {
        let mut measured = Measured::default();
        rows_of(&runs(), &mut measured);
        let figure = Figure::load(source_tree::root(), "fragpicker/fig08-guest").unwrap();
        let comparison = compare(&figure, Some(&measured)).unwrap();
        let compared = comparison.values.iter().filter(|it| it.ours.is_some());
        assert_eq!(compared.count(), 4);
    }
}
