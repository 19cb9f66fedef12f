//! The rows of figures/fleet.json.

use std::sync::atomic::AtomicBool;

use anyhow::Result;
use figures::{Row, Session, Value};
use indef_core::plan::Terms;

use crate::{
    fleet::{Lived, live},
    kind::{DRIVES, FileSystem, Workload},
    settings::{Known, Settings, scale},
    sums::Sums,
    year::When,
};

/// The command that measures the figures again.
pub const COMMAND: &str = "cargo lab fleet --keep";

/// Other settings: their name, whether they concern `watch` alone, and what differs.
type Variant = (&'static str, bool, fn(&mut Settings));

/// The days of the sensitivity: a part of the year, as there are many.
const SENSITIVITY_DAYS: u32 = 56;

/// What is free, with other values; and what `watch` would do if it knew other things.
const VARIANTS: [Variant; 13] = [
    ("as above", false, |_| {}),
    ("payback within 10 days", true, |it| {
        it.terms.within_days = 10.0
    }),
    ("payback within 100 days", true, |it| {
        it.terms.within_days = 100.0
    }),
    ("nothing learned", true, |it| it.is_trusting = true),
    ("every read known", true, |it| it.known = Known::Everything),
    ("another seed", false, |it| it.seed = 2),
    ("twice all writes and reads", false, |it| it.activity = 2.0),
    ("no memory", false, |it| it.memory = 0.0),
    ("searched 10 times a day", false, |it| it.searches = 10.0),
    ("files twice as large", false, |it| it.size_divisor = 4),
    ("8 writers at a time", false, |it| it.flows = 8),
    ("no quiet in which F2FS cleans", false, |it| it.quiet = 0.0),
    ("into holes of F2FS, too", false, |it| it.into_holes = true),
];

/// All rows.
///
/// # Errors
///
/// A simulation failed, or `stop` was set.
pub fn session(settings: &Settings, threads: usize, stop: &AtomicBool) -> Result<Session> {
    let lived = live(settings, &When::ALL, threads, stop)?;
    let mut rows = rows(&lived, &settings.terms);
    rows.extend(kept_promises("promises", &lived, &settings.terms));
    let trusting = Settings {
        is_trusting: true,
        ..settings.clone()
    };
    let mut trusting = live(&trusting, &[When::Watch], threads, stop)?;
    for (host, other) in trusting.iter_mut().zip(&lived) {
        host.years.extend(
            other
                .years
                .get(&When::Never)
                .map(|year| (When::Never, year.clone())),
        );
    }
    rows.extend(kept_promises(
        "promises, nothing learned",
        &trusting,
        &settings.terms,
    ));
    rows.extend(sensitivity(settings, threads, stop)?);
    rows.extend(short_rows(settings, threads, stop)?);
    Ok(Session::in_virtual_time(COMMAND, rows))
}

/// What moves of `watch` promised and gave, by host; in hours of a year of a host of full size.
fn kept_promises(case: &str, lived: &[Lived], terms: &Terms) -> Vec<Row> {
    let hours = |seconds: f64| seconds * scale() as f64 / 3600.0;
    let of_host = |host: &Lived| {
        let (kind, year) = (&host.kind, host.years.get(&When::Watch)?);
        let never = host.years.get(&When::Never)?;
        let sums = &year.promises;
        let (workload, fs) = (kind.workload.name(), kind.file_system.name());
        let name = format!("{workload} on {fs}, {}", kind.drive);
        Some(row(
            case,
            &name,
            [
                ("turnover_pct", kind.turnover * 100.0),
                ("ranges", sums.ranges),
                ("cost_hours", hours(year.price(terms))),
                ("promised_hours", hours(sums.promised_s)),
                ("by_time_hours", hours(sums.by_time_s)),
                ("by_reads_hours", hours(sums.by_reads_s)),
                ("kept_hours", hours(sums.kept_s)),
                ("ever_hours", hours(sums.ever_s)),
                ("lasted_days", sums.lasted_days / sums.ranges.max(1.0)),
                ("saved_hours", hours((never.read_ns - year.read_ns) / 1e9)),
            ],
        ))
    };
    lived.iter().filter_map(of_host).collect()
}

/// The form that a test repeats in seconds: each workload on each file system, for some weeks.
#[must_use]
pub fn short(settings: &Settings) -> Settings {
    Settings {
        hosts: 8,
        days: 28,
        ..settings.clone()
    }
}

/// The rows of that.
///
/// # Errors
///
/// A simulation failed, or `stop` was set.
pub fn short_rows(settings: &Settings, threads: usize, stop: &AtomicBool) -> Result<Vec<Row>> {
    let settings = short(settings);
    let lived = live(&settings, &When::ALL, threads, stop)?;
    let all: Vec<&Lived> = lived.iter().collect();
    let policy = |when: When| {
        let sums = Sums::of(&all, when, &settings.terms);
        of_policy("in short", when.name(), &sums)
    };
    Ok(When::ALL.into_iter().map(policy).collect())
}

/// The rows of policies, workloads and drives.
#[must_use]
pub fn rows(lived: &[Lived], terms: &Terms) -> Vec<Row> {
    let all: Vec<&Lived> = lived.iter().collect();
    let policy = |when: When| {
        let sums = Sums::of(&all, when, terms);
        of_policy("policies", when.name(), &sums)
    };
    let mut rows: Vec<Row> = When::ALL.into_iter().map(policy).collect();
    for file_system in FileSystem::ALL {
        for workload in Workload::ALL {
            let is_of = |host: &&Lived| {
                host.kind.workload == workload && host.kind.file_system == file_system
            };
            let name = format!("{} on {}", workload.name(), file_system.name());
            rows.extend(compared("by workload", &name, lived, is_of, terms));
        }
    }
    for drive in DRIVES {
        let is_of = |host: &&Lived| host.kind.drive == drive;
        rows.extend(compared("by drive", drive, lived, is_of, terms));
    }
    rows
}

fn of_policy(case: &str, name: &str, sums: &Sums) -> Row {
    let values = [
        ("lost_pct", sums.lost_pct),
        ("lost_median_pct", sums.lost_median_pct),
        ("lost_tenth_pct", sums.lost_tenth_pct),
        ("pieces", sums.pieces),
        ("moved_pct", sums.moved_pct),
        ("moved_tb", sums.moved_tb),
        ("amplification", sums.amplification),
        ("worn_pct", sums.worn_pct),
        ("life_pct", sums.life_pct),
        ("moving_hours", sums.moving_hours),
        ("saved_hours", sums.saved_hours),
        ("net_hours", sums.net_hours),
        ("saved_s_per_gib", sums.saved_s_per_gib),
        ("untouched", sums.untouched),
        ("losers", sums.losers),
        ("clear_losers", sums.clear_losers),
        ("losses_hours", sums.losses_hours),
        ("fine", sums.fine),
    ];
    row(case, name, values)
}

fn row<const N: usize>(case: &str, contender: &str, values: [(&str, f64); N]) -> Row {
    let with = |row: Row, (name, value): (&str, f64)| row.with(name, Value::rounded(value));
    values.into_iter().fold(Row::new(case, contender), with)
}

/// What policies lose and what a written GiB saves on the hosts of a kind; none where there is no host.
fn compared(
    case: &str,
    name: &str,
    lived: &[Lived],
    is_of: impl Fn(&&Lived) -> bool,
    terms: &Terms,
) -> Option<Row> {
    let hosts: Vec<&Lived> = lived.iter().filter(is_of).collect();
    if hosts.is_empty() {
        return None;
    }
    let [never, weekly, nightly, watch] = When::ALL.map(|when| Sums::of(&hosts, when, terms));
    Some(row(
        case,
        name,
        [
            ("never_lost_pct", never.lost_pct),
            ("weekly_lost_pct", weekly.lost_pct),
            ("nightly_lost_pct", nightly.lost_pct),
            ("watch_lost_pct", watch.lost_pct),
            ("weekly_moved_pct", weekly.moved_pct),
            ("nightly_moved_pct", nightly.moved_pct),
            ("watch_moved_pct", watch.moved_pct),
            ("weekly_net_hours", weekly.net_hours),
            ("nightly_net_hours", nightly.net_hours),
            ("watch_net_hours", watch.net_hours),
        ],
    ))
}

/// How far the result depends on what is free, over some weeks.
///
/// # Errors
///
/// A simulation failed, or `stop` was set.
pub fn sensitivity(settings: &Settings, threads: usize, stop: &AtomicBool) -> Result<Vec<Row>> {
    const OTHERS: [When; 2] = [When::Never, When::NightlySequential];
    let usual = Settings {
        days: SENSITIVITY_DAYS,
        ..settings.clone()
    };
    let others = live(&usual, &OTHERS, threads, stop)?;
    let mut rows = Vec::new();
    for (name, is_of_watch, change) in VARIANTS {
        let mut settings = usual.clone();
        change(&mut settings);
        let mut lived = live(&settings, &[When::Watch], threads, stop)?;
        let again;
        let others = if is_of_watch || settings == usual {
            &others
        } else {
            again = live(&settings, &OTHERS, threads, stop)?;
            &again
        };
        for (host, other) in lived.iter_mut().zip(others) {
            host.years.extend(other.years.clone());
        }
        let all: Vec<&Lived> = lived.iter().collect();
        // The price of a move stays what it is.
        let terms = Terms::default();
        let [never, nightly, watch] = [When::Never, When::NightlySequential, When::Watch]
            .map(|when| Sums::of(&all, when, &terms));
        rows.push(row(
            "sensitivity",
            name,
            [
                ("never_lost_pct", never.lost_pct),
                ("nightly_lost_pct", nightly.lost_pct),
                ("watch_lost_pct", watch.lost_pct),
                ("nightly_moved_tb", nightly.moved_tb),
                ("watch_moved_tb", watch.moved_tb),
                ("nightly_net_hours", nightly.net_hours),
                ("watch_net_hours", watch.net_hours),
                ("watch_losers", watch.losers),
            ],
        ));
    }
    Ok(rows)
}
