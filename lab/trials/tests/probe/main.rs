//! The findings of `indef probe`, against modelled SSDs in virtual time: the same every time,
//! on however busy a machine.
//!
//! The probe gets nothing but times. Every built-in profile is changed by seeds (dies, granules, times),
//! and has to be found out exactly; and whatever else the drive does meanwhile, no number may be wrong.

mod drive;
mod gain;
mod mounted;
mod told;
mod varied;

use drive::{Host, Modelled, Others};
use flash_model::BUILTIN;
use indef_core::probe::{CannotTell, Findings, Ground, ProbeTerms, probe};
use told::Compared;
use units::{FileRange, Nanos};
use varied::{Varied, cached, shown, varied, with_write_cache};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 1024 * MIB;
/// The probe's file.
const FILE: FileRange = FileRange::new(0, 256 * MIB);

fn ask(seed: u64) -> ProbeTerms {
    ProbeTerms {
        ground: Ground::new([FILE]),
        seed,
        limit: Nanos(60_000_000_000),
        foreign: 0.0,
    }
}

fn written(varied: &Varied, seed: u64) -> Modelled {
    let mut drive = Modelled::new(&varied.profile, SIZE, seed);
    drive.write(FILE);
    drive
}

fn tell(what: &str, varied: &Varied, drive: &Modelled, found: &Findings) {
    let placement = match &found.placement {
        Ok(told) => format!("{} ({:.2})", shown(&told.value), told.confidence),
        Err(why) => why.to_string(),
    };
    println!(
        "{what}: {} is {placement}; {} reads",
        shown(&varied.truth),
        drive.reads
    );
}

/// Whether the probe finds a device out; if it does, what it says has to be true.
fn is_found(name: &str, seed: u64) -> bool {
    let varied = varied(name, seed);
    let mut drive = written(&varied, seed);
    let Ok(found) = probe(&mut drive, ask(seed));
    tell(name, &varied, &drive, &found);
    let Ok(placement) = found.placement else {
        return false;
    };
    assert_eq!(placement.value, varied.truth, "{name} {seed}");
    assert!(placement.confidence > 0.6, "{name} {seed}: {placement:?}");
    let service = found.service.expect("it has a stripe").value.0 as f64;
    if let Some(truth) = varied.service {
        let off = service / truth.0 as f64 - 1.0;
        assert!(off.abs() < 0.1, "{name} {seed}: {service} for {truth}");
    }
    true
}

/// At least this part of the devices is found out, and nothing wrong is said of the others.
fn are_found(name: &str, part: f64) {
    let seeds = devices();
    let found = (1..=seeds).filter(|seed| is_found(name, *seed)).count() as u64;
    println!("{name}: {found} of {seeds}");
    assert!(
        found as f64 >= part * seeds as f64,
        "{name}: {found} of {seeds}"
    );
}

/// Devices for each profile.
fn devices() -> u64 {
    let given = std::env::var("INDEF_PROBE_DEVICES").ok();
    given.map_or(3, |devices| devices.parse().expect("a number of devices"))
}

macro_rules! found {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            are_found($name, 1.0);
        })*

        const FOUND: &[&str] = &[$($name),*];
    };
}

found! {
    indef_femu_is_found_out: "indef-femu",
    indef_femu_16k_is_found_out: "indef-femu-16k",
    fast24_is_found_out: "fast24",
    zn540_behind_a_translation_layer_is_found_out: "zn540",
    tlc_is_found_out: "tlc",
    fdp_is_found_out: "fdp",
    sata_850_pro_is_found_out: "sata-850-pro",
    sata_mx500_is_found_out: "sata-mx500",
    optane_905p_is_found_out: "optane-905p",
}

/// Its slowest page takes five times as long as its fastest, and a part of the file is in its SLC cache: one
/// page differs more from the next than a collision costs. Nearly all are found out all the same.
#[test]
fn qlc_is_found_out_or_not_told() {
    are_found("qlc", 0.9);
}

/// A card takes one command after the other and is busy with each for longer than its flash is: where the
/// data lies makes no difference, and that is the answer.
#[test]
fn microsd_reads_one_after_the_other() {
    for seed in 1..=devices() {
        let varied = varied("microsd", seed);
        let mut drive = written(&varied, seed);
        let Ok(found) = probe(&mut drive, ask(seed));
        tell("microsd", &varied, &drive, &found);
        let why = found.placement.expect_err("nothing can be seen");
        assert!(matches!(why, CannotTell::Serial), "{seed}: {why}");
    }
}

#[test]
fn no_profile_is_left_out() {
    for name in BUILTIN {
        assert!(
            FOUND.contains(&name) || ["qlc", "microsd", "zero"].contains(&name),
            "{name}"
        );
    }
}

#[test]
fn a_device_without_times_cannot_be_told() {
    let varied = Varied {
        profile: flash_model::Profile::builtin("zero").expect("built in"),
        ..varied("fast24", 1)
    };
    for jitter_ns in [0, 500, 5_000] {
        let host = Host {
            jitter_ns,
            ..Host::QUICK
        };
        let mut drive = written(&varied, 1).with_host(host);
        let Ok(found) = probe(&mut drive, ask(1));
        tell("zero", &varied, &drive, &found);
        let why = found.placement.expect_err("there is nothing to find");
        assert!(
            matches!(
                why,
                CannotTell::NoContrast { .. } | CannotTell::Serial | CannotTell::Noise { .. }
            ),
            "{why}"
        );
    }
}

/// The load of others: their part of the time of a die, by kind.
fn others() -> Vec<(&'static str, Others)> {
    let of = |every_ns, writes_percent, len| Others {
        every_ns,
        writes_percent,
        len,
    };
    vec![
        ("a few reads", of(400_000, 0, 4096)),
        ("many reads", of(20_000, 0, 4096)),
        ("large reads", of(200_000, 0, 128 << 10)),
        ("a few writes", of(2_000_000, 100, 4096)),
        ("many writes", of(100_000, 100, 32 << 10)),
        ("both", of(50_000, 30, 16 << 10)),
    ]
}

/// How far a service time may be off that is told beside others.
const NEAR_BESIDE: f64 = 0.25;

/// Drives that are disturbed: the probe says the truth, or that it cannot tell, of placement, service time, pages and
/// channels.
#[derive(Default)]
struct Disturbed {
    /// Those of which the placement is told.
    found: usize,
    wrong: Vec<String>,
}

impl Disturbed {
    fn probe(&mut self, what: &str, varied: &Varied, mut drive: Modelled, ask: ProbeTerms) {
        let Ok(found) = probe(&mut drive, ask);
        let service = match varied.service {
            Some(service) => service.0 as f64,
            None => told::true_service(varied, drive),
        };
        let compared = Compared::new(varied, &found, service, NEAR_BESIDE);
        println!("{what}: {}", compared.told);
        let wrong = compared.wrong.into_iter();
        self.wrong.extend(wrong.map(|it| format!("{what}: {it}")));
        self.found += usize::from(found.placement.is_ok());
    }

    /// The number of drives of which the placement is told.
    fn told(self) -> usize {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        self.found
    }
}

/// The number of devices of these profiles that are found out beside others.
fn found_beside_others(names: &[&str]) -> usize {
    let mut disturbed = Disturbed::default();
    for name in names {
        for (what, others) in others() {
            for seed in 1..=rounds() {
                let varied = varied(name, seed);
                let drive = written(&varied, seed).with_others(others);
                let what = format!("{name} {seed} beside {what}");
                disturbed.probe(&what, &varied, drive, ask(seed));
            }
        }
    }
    disturbed.told()
}

#[test]
fn beside_others_nothing_wrong_is_said() {
    let found = found_beside_others(&["fast24", "indef-femu", "tlc", "zn540"]);
    // A few reads do not hide anything.
    assert!(found >= 8, "{found}");
}

#[test]
fn beside_others_nothing_wrong_is_said_of_slow_links_and_pages() {
    found_beside_others(&["qlc", "sata-mx500"]);
}

/// Others write in between while the probe's file is written: its data no longer lies in turn. Where the
/// kernel counts their writes, that ends it; here nobody does.
#[test]
fn with_the_data_of_others_among_its_own_nothing_wrong_is_said() {
    let mut disturbed = Disturbed::default();
    for name in ["fast24", "indef-femu-16k", "zn540"] {
        for seed in 1..=rounds() {
            let varied = varied(name, seed);
            let mut drive = Modelled::new(&varied.profile, SIZE, seed);
            let mut numbers = workloads::Numbers::new(seed);
            for at in (0..FILE.len.0).step_by(MIB as usize) {
                drive.write_one(at, MIB);
                let others = numbers.below(64_u64) * 4096;
                if others > 0 {
                    drive.write_one(SIZE / 2 + at, others);
                }
            }
            drive.write(FileRange::default());
            let what = format!("{name} {seed} with others' data");
            disturbed.probe(&what, &varied, drive, ask(seed));
        }
    }
    disturbed.told();
}

/// The device is full, and its collector moves data while the probe reads.
#[test]
fn beside_garbage_collection_nothing_wrong_is_said() {
    let mut disturbed = Disturbed::default();
    for name in ["fast24", "tlc", "qlc", "sata-mx500"] {
        for seed in 1..=rounds() {
            let varied = varied(name, seed);
            let mut drive = Modelled::new(&varied.profile, SIZE, seed);
            drive.write(FileRange::new(0, SIZE));
            let mut numbers = workloads::Numbers::new(seed);
            for _ in 0..SIZE / MIB {
                let place = SIZE / 2 + numbers.below(SIZE / 2 / 65536) * 65536;
                drive.write_one(place, 65536);
            }
            drive.write(FILE);
            let beside = Others {
                every_ns: 3_000_000,
                writes_percent: 100,
                len: 65536,
            };
            let what = format!("{name} {seed} with garbage collection");
            disturbed.probe(&what, &varied, drive.with_others(beside), ask(seed));
        }
    }
    disturbed.told();
}

/// The end of the file is in the write cache when the probe begins, and goes to flash while it reads; others fill the
/// cache again.
#[test]
fn beside_a_write_cache_nothing_wrong_is_said() {
    let mut disturbed = Disturbed::default();
    for name in ["fast24", "indef-femu", "tlc", "zn540", "qlc", "sata-mx500"] {
        for (mib, every_ns) in [(64, 0), (256, 0), (64, 500_000)] {
            for seed in 1..=rounds() {
                let varied = with_write_cache(name, seed, mib);
                let mut drive = Modelled::new(&varied.profile, SIZE, seed);
                for at in (0..FILE.len.0).step_by(MIB as usize) {
                    drive.write_one(at, MIB);
                }
                drive.begin();
                let beside = Others {
                    every_ns,
                    writes_percent: 100,
                    len: 65536,
                };
                let what = format!("{name} {seed} with a write cache of {mib} MiB, {every_ns}");
                disturbed.probe(&what, &varied, drive.with_others(beside), ask(seed));
            }
        }
    }
    disturbed.told();
}

/// The drive keeps pages that were read in a cache of its own.
#[test]
fn with_a_read_cache_nothing_wrong_is_said() {
    let mut disturbed = Disturbed::default();
    for (kib, seed) in [(512, 1), (4096, 2), (16_384, 3)] {
        let varied = cached("fast24", seed, kib);
        let drive = written(&varied, seed);
        let what = format!("a read cache of {kib} KiB");
        disturbed.probe(&what, &varied, drive, ask(seed));
    }
    disturbed.told();
}

/// A host whose own time hides the device's.
#[test]
fn on_a_noisy_host_nothing_wrong_is_said() {
    let mut disturbed = Disturbed::default();
    for jitter_ns in [5_000, 20_000, 60_000, 200_000] {
        for name in ["fast24", "indef-femu"] {
            let varied = varied(name, 1);
            let host = Host {
                submit_ns: 2_000,
                complete_ns: 10_000,
                jitter_ns,
            };
            let drive = written(&varied, 1).with_host(host);
            let what = format!("{name} on a host with {} µs", jitter_ns / 1000);
            disturbed.probe(&what, &varied, drive, ask(1));
        }
    }
    disturbed.told();
}

#[test]
fn others_who_wrote_and_a_short_time_are_told() {
    let varied = varied("fast24", 1);
    let mut drive = written(&varied, 1);
    let foreign = ProbeTerms {
        foreign: 0.1,
        ..ask(1)
    };
    let Ok(found) = probe(&mut drive, foreign);
    assert!(matches!(found.placement, Err(CannotTell::Foreign { .. })));
    assert!(found.latency.is_ok() && found.geometry().is_none());
    for limit in [0, 20_000_000, 300_000_000] {
        let mut drive = written(&varied, 1);
        let short = ProbeTerms {
            limit: Nanos(limit),
            ..ask(1)
        };
        let Ok(found) = probe(&mut drive, short);
        assert_eq!(found.placement, Err(CannotTell::TimeUp), "{limit}");
    }
    let mut drive = written(&varied, 1);
    let small = ProbeTerms {
        ground: Ground::new([FileRange::new(0, 100_000)]),
        ..ask(1)
    };
    let Ok(found) = probe(&mut drive, small);
    assert_eq!(found.latency, Err(CannotTell::NoGround));
}

/// Seeds of each case of the torture: some in `make test`, many in `make proof`.
fn rounds() -> u64 {
    let given = std::env::var("INDEF_PROBE_ROUNDS").ok();
    given.map_or(2, |rounds| rounds.parse().expect("a number of rounds"))
}
