//! The tables, as Markdown.

use flash_model::Profile;
use units::Nanos;

use super::{
    collecting::{Others, Outcome, run, without_collecting},
    compare::{
        LAYOUTS, Row, emulated, ends, figure_8, figure_11, figure_12, seen_in_figure_8,
        with_32_dies,
    },
    figures::{Change, contiguous, cost_of_a_call, disturbed_at_random},
    host::{KIB, MIB},
    published,
};

/// Size of the namespace that collects garbage: with it the spare flash is nearly what the profile
/// says.
const SIZE: u64 = 8192 * MIB;

fn print_rows(title: &str, rows: &[Row]) {
    println!("\n## {title}\n\n| | here | published | deviation |\n|---|---|---|---|");
    rows.iter().for_each(|row| println!("{row}"));
}

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

pub(crate) fn print() {
    let profile = emulated();
    let per_call = cost_of_a_call(&profile, published::CONTIGUOUS);
    println!(
        "Contiguous: {:.0} MiB/s from the device alone,",
        contiguous(&profile, Nanos(0))
    );
    println!(
        "{:.0} with {per_call} of the host for each 1 MiB call",
        contiguous(&profile, per_call)
    );
    let (a, b) = (published::ALIGNED_A, published::ALIGNED_B);
    print_figure_8("Figure 8a, NVMe-A: 32 dies", &seen_in_figure_8(32, a.1), a);
    print_figure_8("Figure 8a, NVMe-B: 8 dies", &seen_in_figure_8(8, b.1), b);
    print_figure_8(
        "Figure 8 on the emulated device, beside NVMe-B",
        &emulated(),
        b,
    );
    let b = figure_11(&profile, per_call, published::FRAGMENTED_B);
    print_rows("Figure 11, 8 dies (NVMe-B)", &b);
    let a = figure_11(&with_32_dies(), per_call, published::FRAGMENTED_A);
    print_rows("Figure 11, 32 dies (NVMe-A)", &a);
    let rows = figure_12(&profile, per_call);
    print_rows("Figure 12", &rows);
    let text = rows
        .iter()
        .zip(FIGURE_12_IN_TEXT)
        .map(|(row, published)| Row { published, ..*row });
    print_rows(
        "Figure 12, beside what the text of §5.2 says",
        &text.collect::<Vec<_>>(),
    );
    print_rows(
        "Figure 12, the host costs nothing",
        &figure_12(&profile, Nanos(0)),
    );
    print_random(&profile, per_call);
    print_collecting(&profile, per_call);
}

fn print_figure_8(title: &str, profile: &Profile, published: (f64, f64)) {
    println!("\n## {title}\n\n| interval | MB/s |\n|---|---|");
    let speeds = figure_8(profile, 50_000);
    for (interval, speed) in &speeds {
        println!("| {} KiB | {speed:.0} |", interval / KIB);
    }
    print_rows(&format!("{title}: ends"), &ends(&speeds, published));
}

fn print_random(profile: &Profile, per_call: Nanos) {
    println!("\n## Figure 12, random, 100 other draws of the dummy sizes\n");
    println!("| | mean | least | most |\n|---|---|---|---|");
    let whole = contiguous(profile, per_call);
    for (change, hints) in [Change::Append, Change::Overwrite]
        .map(|it| [(it, false), (it, true)])
        .concat()
    {
        let [mean, least, most] =
            disturbed_at_random(profile, change, hints, per_call, 100).map(|speed| speed / whole);
        println!("| {change:?}, hints: {hints} | {mean:.3} | {least:.3} | {most:.3} |");
    }
}

fn print_collecting(profile: &Profile, per_call: Nanos) {
    let (written, alone, beside) = without_collecting(profile, SIZE, per_call);
    println!(
        "\nNothing to collect: others write {written:.0} MiB/s; the target reads at {alone:.0},"
    );
    println!("and at {beside:.0} while others write.");
    for (title, others) in [
        ("granules anywhere", Others::GRANULES),
        (
            "granules, nine in ten to a tenth of the space",
            Others::HOT_GRANULES,
        ),
        ("every other write of 4 KiB", Others::WITH_SMALL),
    ] {
        println!("\n## Collecting garbage; other writes: {title}\n");
        println!(
            "| target | read when new | when aged | of contiguous | while others write | moved | write \
             amplification | erases of a block: mean, least–most | of a die | hints not followed \
             | others write |\n|---|---|---|---|---|---|---|---|---|---|---|"
        );
        let mut whole = None;
        for (name, layout) in LAYOUTS {
            let outcome = run(profile, SIZE, layout, others, per_call);
            print_outcome(name, &outcome, *whole.get_or_insert(outcome.aged));
        }
    }
}

fn print_outcome(name: &str, outcome: &Outcome, whole: f64) {
    let Outcome {
        fresh,
        aged,
        beside,
        moved,
        counters,
        wear,
        written,
        ..
    } = outcome;
    let refused = counters.hints_no_room + counters.hints_worn_die + counters.hints_unmapped;
    println!(
        "| {name} | {fresh:.0} | {aged:.0} | {:.3} | {beside:.0} | {:.0} % | {:.2} | {:.1}, {}–{} | {:.1}–{:.1} | \
         {refused} of {} | {written:.0} |",
        aged / whole,
        moved * 100.0,
        outcome.write_amplification(),
        wear.mean,
        wear.least,
        wear.most,
        wear.least_die_mean,
        wear.most_die_mean,
        counters.hints,
    );
}
