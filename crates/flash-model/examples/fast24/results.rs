//! All figures, as rows of the committed result.

use std::thread;

use figures::{Row as Kept, Value};
use flash_model::Profile;
use units::Nanos;

use super::{
    collecting::{Collected, Others, run, without_collecting},
    compare::{
        Compared, LAYOUTS, emulated, ends, figure_8, figure_11, figure_12, seen_in_figure_8,
        with_32_dies, without_separation,
    },
    host::{KIB, MIB},
    placement::{Change, contiguous, cost_of_a_call, disturbed_at_random},
    published,
};

/// A namespace that collects garbage: its name, and its bytes.
pub(crate) type Size = (&'static str, u64);

/// With this one the spare flash is nearly what the profile says.
pub(crate) const WHOLE: Size = ("8 GiB", 8192 * MIB);

/// Figure 12 in the words of §5.2, in the order of [`figure_12`]; it differs from the figure's
/// labels.
const FIGURE_12_IN_TEXT: [f64; 8] = [
    0.19,
    1.0 - 0.035,
    0.594,
    1.0 - 0.058,
    0.182,
    1.0 - 0.023,
    0.62,
    1.0 - 0.016,
];

/// Figures 8, 11 and 12.
pub(crate) fn quick() -> Vec<Kept> {
    let profile = emulated();
    let per_call = cost_of_a_call(&profile, published::CONTIGUOUS);
    let value = Value::rounded;
    let mut rows = vec![
        Kept::new("contiguous", "device alone")
            .with("read_mib_per_s", value(contiguous(&profile, Nanos(0)))),
        Kept::new("contiguous", "with the host")
            .with("read_mib_per_s", value(contiguous(&profile, per_call)))
            .with("call_ns", value(per_call.0 as f64)),
    ];
    rows.extend(rows_of_figure_8());
    let mut add = |case: &str, compared: Vec<Compared>| {
        rows.extend(compared.into_iter().map(|row| kept(case, row)));
    };
    add(
        "figure 11, 8 dies",
        figure_11(&profile, per_call, published::FRAGMENTED_B),
    );
    add(
        "figure 11, 32 dies",
        figure_11(&with_32_dies(), per_call, published::FRAGMENTED_A),
    );
    let figure = figure_12(&profile, per_call);
    let in_text = figure.iter().zip(FIGURE_12_IN_TEXT);
    add(
        "figure 12, published in the text",
        in_text
            .map(|(row, published)| Compared { published, ..*row })
            .collect(),
    );
    add("figure 12", figure);
    add(
        "figure 12, the host costs nothing",
        figure_12(&profile, Nanos(0)),
    );
    rows.extend(other_draws(&profile, per_call));
    rows
}

fn kept(case: &str, row: Compared) -> Kept {
    Kept::new(case, row.what)
        .with("here", Value::rounded(row.here))
        // Shown with three decimals, and must not be rounded twice.
        .with(
            "published",
            Value::Exact((row.published * 1e6).round() / 1e6),
        )
        .with("off_pct", Value::rounded(row.deviation() * 100.0))
}

fn rows_of_figure_8() -> Vec<Kept> {
    let (a, b) = (published::ALIGNED_A, published::ALIGNED_B);
    let [of_a, of_b, of_emulated] = [
        seen_in_figure_8(32, a.1),
        seen_in_figure_8(8, b.1),
        emulated(),
    ]
    .map(|profile| figure_8(&profile, 50_000));
    let mut rows: Vec<Kept> = of_a
        .iter()
        .zip(&of_b)
        .map(|((interval, of_a), (_, of_b))| {
            Kept::new("figure 8", format!("{} KiB", interval / KIB))
                .with("nvme_a_mb_per_s", Value::rounded(*of_a))
                .with("nvme_b_mb_per_s", Value::rounded(*of_b))
        })
        .collect();
    for (case, speeds, published) in [
        ("figure 8, ends of NVMe-A", &of_a, a),
        ("figure 8, ends of NVMe-B", &of_b, b),
        ("figure 8, ends of the emulated device", &of_emulated, b),
    ] {
        rows.extend(ends(speeds, published).map(|row| kept(case, row)));
    }
    rows
}

/// The random rows of Figure 12 with 100 other draws of the dummy sizes, as shares of contiguous.
fn other_draws(profile: &Profile, per_call: Nanos) -> Vec<Kept> {
    let whole = contiguous(profile, per_call);
    let layouts = [
        ("append", Change::Append, false),
        ("append, hints", Change::Append, true),
        ("overwrite", Change::Overwrite, false),
        ("overwrite, hints", Change::Overwrite, true),
    ];
    let row = |(name, change, hints)| {
        let drawn = disturbed_at_random(profile, change, hints, per_call, 100);
        let [mean, least, most] = drawn.map(|speed| Value::rounded(speed / whole));
        Kept::new("figure 12, 100 other draws", name)
            .with("mean", mean)
            .with("least", least)
            .with("most", most)
    };
    layouts.map(row).into()
}

/// All layouts while garbage is collected, on a namespace of this size.
pub(crate) fn collecting((name, size): Size) -> Vec<Kept> {
    let profile = emulated();
    let per_call = cost_of_a_call(&profile, published::CONTIGUOUS);
    let (written, alone, beside) = without_collecting(&profile, size, per_call);
    let nothing = Kept::new(name.to_owned() + ", nothing to collect", "contiguous")
        .with("others_mib_per_s", Value::rounded(written))
        .with("aged_mib_per_s", Value::rounded(alone))
        .with("beside_mib_per_s", Value::rounded(beside));
    let mut rows = vec![nothing];
    for (others_write, others, profile) in [
        ("granules anywhere", Others::GRANULES, &profile),
        ("granules, hot", Others::HOT_GRANULES, &profile),
        ("small", Others::WITH_SMALL, &profile),
        (
            "small, not separated",
            Others::WITH_SMALL,
            &without_separation(),
        ),
    ] {
        let case = format!("{name}, {others_write}");
        let case = case.as_str();
        // Nothing is shared between the layouts, and each takes long.
        let outcomes = thread::scope(|scope| {
            let runs = LAYOUTS.map(|(layout, how)| {
                scope.spawn(move || {
                    of_outcome(case, layout, &run(profile, size, how, others, per_call))
                })
            });
            runs.map(|run| run.join().expect("a run does not panic"))
        });
        rows.extend(outcomes);
    }
    rows
}

fn of_outcome(case: &str, layout: &str, outcome: &Collected) -> Kept {
    let Collected { counters, wear, .. } = outcome;
    let refused = counters.hints_no_room + counters.hints_worn_die + counters.hints_unmapped;
    [
        ("new_mib_per_s", outcome.fresh),
        ("aged_mib_per_s", outcome.aged),
        ("beside_mib_per_s", outcome.beside),
        ("others_mib_per_s", outcome.written),
        ("moved_pct", outcome.moved * 100.0),
        ("write_amplification", outcome.write_amplification()),
        ("erases_mean", wear.mean),
        ("erases_least", f64::from(wear.least)),
        ("erases_most", f64::from(wear.most)),
        ("least_mean_of_a_die", wear.least_die_mean),
        ("most_mean_of_a_die", wear.most_die_mean),
        ("hints", counters.hints as f64),
        ("refused_hints", refused as f64),
    ]
    .into_iter()
    .fold(Kept::new(case, layout), |row, (quantity, value)| {
        row.with(quantity, Value::rounded(value))
    })
}
