//! All that a probe tells of a drive's units, beside the truth: every shipped profile as it is, and changed by seeds.

use indef_core::probe::{Channels, Drive, Findings, Inner, probe};
use units::FileRange;

use super::{
    FILE, ask,
    drive::{Host, Modelled},
    varied::{Varied, shipped, shown, varied},
    written,
};

/// Seeds of each profile.
const SEEDS: u64 = 20;
/// How far the service time may be off.
const NEAR: f64 = 0.1;

/// The truth of a device, and what is told of it.
pub(crate) struct Compared {
    /// Everything, for people.
    pub(crate) told: String,
    /// What is not true.
    pub(crate) wrong: Vec<String>,
    /// What is not told.
    pub(crate) untold: Vec<String>,
}

impl Compared {
    /// `near`: how far the service time may be off.
    pub(crate) fn new(varied: &Varied, found: &Findings, service: f64, near: f64) -> Self {
        let mut compared = Self {
            told: shown(&varied.truth),
            wrong: Vec::new(),
            untold: Vec::new(),
        };
        let placement = found.placement.map(|told| {
            let text = format!("{} ({:.2})", shown(&told.value), told.confidence);
            (text, told.value == varied.truth)
        });
        compared.add("placement", placement.map_err(|why| why.to_string()));
        let service = found.service.map(|told| {
            let off = told.value.0 as f64 / service - 1.0;
            let text = format!(
                "{} ns for {service:.0}, {off:+.3} ({:.2})",
                told.value.0, told.confidence
            );
            (text, off.abs() < near)
        });
        compared.add("service", service.map_err(|why| why.to_string()));
        let inner = found.inner.map(|told| told.value);
        let page = inner.map(|Inner { page, .. }| (page.to_string(), page == varied.page));
        compared.add("page", page.map_err(|why| why.to_string()));
        let own = Channels {
            run: 1,
            count: varied.truth.units,
        };
        let truth = varied.channels.unwrap_or(own);
        let channels = inner.map(|inner| {
            let text = format!("{inner:?} for {truth:?}");
            (text, inner.channels == truth)
        });
        compared.add("channels", channels.map_err(|why| why.to_string()));
        compared
    }

    fn add(&mut self, name: &str, told: Result<(String, bool), String>) {
        let text = match told {
            Ok((text, true)) => format!("{name} {text}"),
            Ok((text, false)) => {
                self.wrong.push(format!("{name} {text}"));
                format!("{name} {text} (wrong)")
            }
            Err(why) => {
                self.untold.push(format!("{name}: {why}"));
                format!("{name}: {why}")
            }
        };
        self.told = format!("{}; {text}", self.told);
    }
}

/// The time by which a second read of a block makes both take longer, where nothing else does: the mean over all pages.
pub(crate) fn true_service(varied: &Varied, drive: Modelled) -> f64 {
    let mut drive = drive.alone().with_host(Host {
        jitter_ns: 0,
        ..Host::QUICK
    });
    let places = (0..FILE.len.0).step_by(varied.page.0 as usize);
    let count = places.clone().count() as f64;
    let waits = places.map(|place| {
        let read = FileRange::new(place, 4096);
        let (Ok(both), Ok(one)) = (drive.read(&[read; 2], 2), drive.read(&[read], 1));
        both.0 as f64 - one.0 as f64
    });
    waits.sum::<f64>() / count
}

/// The profile as it is, and all that its seeds make of it: all is told, and true.
fn all_is_told(name: &str) {
    let mut wrong = Vec::new();
    for seed in 0..=SEEDS {
        let varied = match seed {
            0 => shipped(name),
            _ => varied(name, seed),
        };
        let mut drive = written(&varied, seed);
        let Ok(found) = probe(&mut drive, ask(seed));
        let (reads, seconds) = (drive.reads, drive.seconds());
        let service = true_service(&varied, drive);
        let compared = Compared::new(&varied, &found, service, NEAR);
        println!(
            "{name} {seed}: {}; {reads} reads in {seconds:.1} s",
            compared.told
        );
        let all = compared.wrong.into_iter().chain(compared.untold);
        wrong.extend(all.map(|it| format!("{name} {seed}: {it}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! told {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            all_is_told($name);
        })*
    };
}

told! {
    all_is_told_of_indef_femu: "indef-femu",
    all_is_told_of_indef_femu_16k: "indef-femu-16k",
    all_is_told_of_fast24: "fast24",
    all_is_told_of_zn540: "zn540",
    all_is_told_of_tlc: "tlc",
    all_is_told_of_fdp: "fdp",
    all_is_told_of_qlc: "qlc",
    all_is_told_of_sata_850_pro: "sata-850-pro",
    all_is_told_of_sata_mx500: "sata-mx500",
    all_is_told_of_optane_905p: "optane-905p",
}
