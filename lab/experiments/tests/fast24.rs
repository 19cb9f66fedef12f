//! How FAST'24's figures change while garbage is collected. docs/fast24.md explains them.

use experiments::{
    fast24::{
        collecting::{Collected, Layout, Others, run, without_collecting},
        host::MIB,
        placement::Target,
        results,
    },
    figure,
};

/// A small namespace, with 22 % to spare: one of 8 GiB takes minutes.
const SIZE: u64 = 512 * MIB;

fn target() -> Target {
    figure::fast24_target(source_tree::root()).unwrap()
}

#[test]
fn hints_keep_the_speed_while_garbage_is_collected() {
    let target = target();
    let (writing, alone, beside) = without_collecting(&target, SIZE);
    for others in [Others::GRANULES, Others::HOT_GRANULES, Others::WITH_SMALL] {
        let outcomes = Layout::ALL.map(|(name, layout)| (name, run(&target, SIZE, layout, others)));
        let plain = outcomes[1].1;
        for (name, outcome) in outcomes {
            assert!(outcome.counters.gc_erases > 1_000, "{name} {outcome:?}");
            if name.contains("hints") {
                assert!(outcome.moved > 0.9, "{name} {outcome:?}");
                assert!(outcome.fresh / alone >= 0.9, "{name} {alone} {outcome:?}");
                assert!(outcome.aged / alone >= 0.9, "{name} {alone} {outcome:?}");
                // The cost of hints in writes and wear: none that can be seen.
                let more = outcome.write_amplification() / plain.write_amplification();
                assert!((0.9..1.1).contains(&more), "{name} {more}");
                let apart =
                    |outcome: &Collected| outcome.wear.most_die_mean - outcome.wear.least_die_mean;
                assert!(apart(&outcome) <= apart(&plain) + 1.0, "{name} {outcome:?}");
            } else if name != "contiguous" {
                assert!(outcome.aged / alone < 0.8, "{name} {alone} {outcome:?}");
            }
            // The cost of collecting: see docs/fast24.md.
            assert!(outcome.write_amplification() > 4.0, "{name} {outcome:?}");
            assert!(
                outcome.written < writing / 5.0,
                "{name} {writing} {outcome:?}"
            );
            assert!(outcome.beside < beside * 1.1, "{name} {beside} {outcome:?}");
        }
    }
}

/// The rows of the committed result that were computed again are equal to it.
fn as_committed(rows: &[figures::Row]) {
    let file = source_tree::root().join("figures/fast24.json");
    let record = figures::Record::read(&file).unwrap();
    for row in rows {
        assert!(
            record.rows().any(|committed| committed == row),
            "{}: not as committed; the example fast24-collecting with --keep writes it anew: {row:?}",
            file.display()
        );
    }
}

/// It takes minutes: `make proof`.
#[test]
fn the_committed_figures_of_collecting_come_out_again() {
    if std::env::var_os("INDEF_WHOLE_FAST24").is_some() {
        as_committed(&results::collecting(&target(), results::WHOLE));
    } else {
        let rows = results::collecting(&target(), ("512 MiB", SIZE));
        let of = |case: &str, layout: &str| {
            let mut rows = rows.iter();
            let row = rows.find(|row| row.case == case && row.contender == layout);
            row.unwrap().values["aged_mib_per_s"].median()
        };
        // Without separation, hints do not keep the speed.
        let hinted = "appends, hints";
        let separated = of("512 MiB, small", hinted);
        let mixed = of("512 MiB, small, not separated", hinted);
        assert!(mixed < 0.7 * separated, "{mixed} {separated}");
    }
}
