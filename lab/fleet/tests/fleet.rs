//! The fleet in short form, and its committed result.

use std::sync::atomic::AtomicBool;

use figures::Record;
use fleet::{
    fleet::{Lived, live},
    report,
    settings::{Known, Settings},
    year::{When, scaled},
};
use indef_pipeline::tend;
use units::Bytes;

fn short() -> Settings {
    report::short(&Settings::default())
}

fn lived(settings: &Settings, policies: &[When], threads: usize) -> Vec<Lived> {
    live(settings, policies, threads, &AtomicBool::new(false)).unwrap()
}

/// It takes minutes: `make proof`. `make test` does the short form again.
#[test]
fn the_committed_result_comes_out_again() {
    let stop = AtomicBool::new(false);
    let file = source_tree::root().join("figures/fleet.json");
    let committed = Record::read(&file).unwrap();
    let rows = if std::env::var_os("INDEF_WHOLE_FLEET").is_some() {
        report::session(&Settings::default(), 2, &stop)
            .unwrap()
            .rows
    } else {
        report::short_rows(&Settings::default(), 1, &stop).unwrap()
    };
    for row in rows {
        assert!(
            committed.rows().any(|it| *it == row),
            "not as committed; `{}` writes it anew: {row:?}",
            report::COMMAND
        );
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let mut settings = short();
    settings.days = 10;
    let policies = [When::Never, When::Watch];
    let one = lived(&settings, &policies, 1);
    assert_eq!(one, lived(&settings, &policies, 3));
    settings.seed += 1;
    assert_ne!(one, lived(&settings, &policies, 3));
}

#[test]
fn policies_do_what_they_say() {
    let settings = short();
    let hosts = lived(&settings, &When::ALL, 2);
    let day = tend::Settings::default().budgets.day.map(scaled).unwrap();
    let mut gained = 0;
    for host in &hosts {
        let year = |when| &host.years[&when];
        let never = year(When::Never);
        assert_eq!((never.moved, never.moving_ns), (Bytes::ZERO, 0.0));
        for when in When::ALL {
            let year = year(when);
            assert!(year.read_ns > 0.0 && year.used > Bytes::ZERO, "{host:?}");
            // The same use, whoever moves files: logs clean more or less, and flows take other turns.
            assert!((year.reads / never.reads - 1.0).abs() < 0.02, "{host:?}");
            assert!(year.programmed >= year.used, "{when:?} {host:?}");
            let most = day * u64::from(settings.days);
            let is_bounded = matches!(when, When::Watch | When::NightlySequential);
            assert!(!is_bounded || year.moved <= most, "{when:?} {host:?}");
        }
        // Whatever is fragmented and read becomes faster by moving all of it.
        if never.lost_pct() > 20.0 {
            gained += 1;
            assert!(year(When::NightlySequential).lost_pct() < never.lost_pct());
        }
    }
    assert!(gained > 0);
}

/// Looking costs a simulated host nothing: where nothing is moved, its reads are as fast as if nobody had timed any.
#[test]
fn a_host_of_which_nothing_moves_is_as_one_that_is_left_alone() {
    let mut settings = short();
    settings.terms.within_days = 0.0;
    for host in &lived(&settings, &[When::Never, When::Watch], 2) {
        let [never, watch] = [When::Never, When::Watch].map(|when| &host.years[&when]);
        assert_eq!(watch.moved, Bytes::ZERO);
        assert_eq!(watch.read_ns, never.read_ns, "{:?}", host.kind);
        assert_eq!(watch.programmed, never.programmed, "{:?}", host.kind);
    }
}

/// With a payback within no time nothing moves; who knows all reads moves what pays, and no more than within a year. (Who
/// learns besides may move less with a longer payback: what the first moves did not give is not tried again.)
#[test]
fn the_payback_decides() {
    let mut settings = short();
    settings.known = Known::Everything;
    settings.is_trusting = true;
    let moved = [0.0, 30.0, 1e9].map(|days| {
        settings.terms.within_days = days;
        let hosts = lived(&settings, &[When::Watch], 2);
        hosts
            .iter()
            .map(|host| host.years[&When::Watch].moved)
            .sum::<Bytes>()
    });
    assert_eq!(moved[0], Bytes::ZERO);
    assert!(moved[1] > Bytes::ZERO && moved[1] < moved[2], "{moved:?}");
}
