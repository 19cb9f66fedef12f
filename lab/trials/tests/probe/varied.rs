//! The built-in profiles with other dies, granules and times: what a probe has to find out.

use flash_model::{Profile, Value};
use indef_core::probe::{Channels, Placement};
use units::{Bytes, Nanos};
use workloads::Numbers;

/// A device that nobody has told the probe about.
pub(crate) struct Varied {
    pub(crate) profile: Profile,
    /// The same as text, for flashd.
    pub(crate) text: String,
    pub(crate) truth: Placement,
    /// A unit is busy for this long with 4 KiB, by the profile; `None` where it depends on the place.
    pub(crate) service: Option<Nanos>,
    /// One flash page of a unit.
    pub(crate) page: Bytes,
    /// The units on each channel; `None` where bytes take no time there.
    pub(crate) channels: Option<Channels>,
}

/// A profile as it is.
pub(crate) fn shipped(name: &str) -> Varied {
    let text = Profile::builtin_text(name).expect("built in").to_owned();
    with_truth(text, 0)
}

/// A profile, changed by a seed.
pub(crate) fn varied(name: &str, seed: u64) -> Varied {
    cached(name, seed, 0)
}

/// The same, with a cache for pages that were read.
pub(crate) fn cached(name: &str, seed: u64, cache_kib: u64) -> Varied {
    changed(name, seed, cache_kib, [[2, 3, 4, 8], [1, 2, 3, 4]])
}

/// The same, with a write cache that a power cut does not hurt: a flush waits for nothing.
pub(crate) fn with_write_cache(name: &str, seed: u64, mib: u32) -> Varied {
    let mut text = varied(name, seed).text;
    set_after(&mut text, "[buffer]", "size", |_| f64::from(mib));
    for (from, to) in [("\"KiB\"", "\"MiB\""), ("value = false", "value = true")] {
        let key = if from.starts_with('"') {
            "\nsize = "
        } else {
            "\nprotected = "
        };
        let begins = text.find("[buffer]").expect("it is there");
        let at = begins + text[begins..].find(key).expect("it is there") + 1;
        let end = at + text[at..].find('\n').unwrap_or(text.len() - at);
        let line = text[at..end].replace(from, to);
        text.replace_range(at..end, &line);
    }
    with_truth(text, 0)
}

/// A profile changed by a seed to numbers of channels and dies that [`varied`] does not have.
pub(crate) fn of_another_geometry(name: &str, seed: u64) -> Varied {
    changed(name, seed + 1000, 0, [[5, 6, 7, 12], [2, 3, 5, 6]])
}

/// A profile changed by a seed, with one of these numbers of channels and of dies on each.
fn changed(name: &str, seed: u64, cache_kib: u64, numbers_of: [[u32; 4]; 2]) -> Varied {
    let mut numbers = Numbers::stream(seed, name.bytes().map(u64::from).sum());
    let builtin = Profile::builtin(name).expect("a built-in profile");
    let channels = numbers_of[0][numbers.below(4_usize)];
    let dies = numbers_of[1][numbers.below(4_usize)];
    let planes_apart = flag(&builtin, "flash.independent_planes");
    // A flash block holds whole granules; where planes read on their own, two pages of each in turn would
    // be no stripe that one granule describes.
    let times = match (planes_apart, name) {
        (true, _) => 1,
        (_, "zn540") => [1, 3][numbers.below(2_usize)],
        _ => [1, 2, 4][numbers.below(3_usize)],
    };
    let unit = builtin.geometry().program_unit().0 * times;
    let slower = 0.6 + numbers.fraction();
    let transfer = 0.7 + numbers.fraction() * 0.8;
    let mut text = Profile::builtin_text(name).expect("built in").to_owned();
    set(&mut text, "channels", |_| f64::from(channels));
    set(&mut text, "dies_per_channel", |_| f64::from(dies));
    set(&mut text, "read_cache", |_| cache_kib as f64);
    set(&mut text, "unit", |_| (unit >> 10) as f64);
    set(&mut text, "transfer", |value| round(value * transfer));
    for read in [
        "read",
        "read_lsb",
        "read_csb",
        "read_csb1",
        "read_csb2",
        "read_msb",
    ] {
        set(&mut text, read, |value| round(value * slower));
    }
    set_after(&mut text, "[zones]", "dies", |_| 1.0);
    with_truth(text, cache_kib)
}

/// What a probe has to find out of a profile.
fn with_truth(text: String, cache_kib: u64) -> Varied {
    let profile = Profile::parse("varied", &text).expect("only values are changed");
    let geometry = *profile.geometry();
    let planes_apart = flag(&profile, "flash.independent_planes");
    // Units of a die are on one channel, the next die is on the next channel.
    let (granule, of_die, page) = match planes_apart {
        true => (geometry.page, geometry.planes, geometry.page),
        false => (geometry.unit, 1, geometry.program_unit()),
    };
    let units = geometry.dies() * of_die;
    let channels = match transfer_ns(&profile) > 0.0 {
        // A channel for all of them is as the link.
        true if geometry.channels > 1 => Some(Channels {
            run: of_die,
            count: geometry.channels,
        }),
        _ => None,
    };
    let reads = profile
        .parameters()
        .iter()
        .filter(|it| it.key.starts_with("flash.read"));
    let reads: Vec<f64> = reads.map(|it| ns(&profile, &it.key)).collect();
    let mean = reads.iter().sum::<f64>() / reads.len() as f64;
    let transfer = match flag(&profile, "flash.cache_register") {
        true => 0.0,
        // The cache takes whole pages.
        false if cache_kib > 0 => transfer_ns(&profile) * geometry.program_unit().0 as f64 / 4096.0,
        false => transfer_ns(&profile),
    };
    // What lies in an SLC cache is read in another time.
    let has_cache = profile
        .parameters()
        .iter()
        .any(|it| it.key.starts_with("slc."));
    let service = (!has_cache).then_some(Nanos((mean + transfer) as u64));
    Varied {
        truth: Placement { granule, units },
        profile,
        text,
        service,
        page,
        channels,
    }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Replace the value of a number.
fn set(text: &mut String, name: &str, change: impl Fn(f64) -> f64) {
    set_after(text, "", name, change);
}

fn set_after(text: &mut String, section: &str, name: &str, change: impl Fn(f64) -> f64) {
    let from = text.find(section).expect("the section is there");
    let begins = format!("\n{name} = {{ value = ");
    let Some(at) = text[from..]
        .find(&begins)
        .map(|at| from + at + begins.len())
    else {
        return;
    };
    let end = at + text[at..].find(',').expect("a unit follows");
    let value: f64 = text[at..end].parse().expect("a number");
    text.replace_range(at..end, &change(value).to_string());
}

fn value(profile: &Profile, name: &str) -> Option<Value> {
    let parameter = profile.parameters().iter().find(|it| it.key == name)?;
    Some(parameter.value)
}

fn flag(profile: &Profile, name: &str) -> bool {
    matches!(value(profile, name), Some(Value::Flag(true)))
}

/// A time in nanoseconds.
pub(crate) fn ns(profile: &Profile, name: &str) -> f64 {
    let parameter = profile.parameters().iter().find(|it| it.key == name);
    let parameter = parameter.expect("the profile has it");
    let Value::Number(number) = parameter.value else {
        panic!("{name} is no number");
    };
    let unit = match parameter.unit.as_str() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        other => panic!("{name} in {other}"),
    };
    number * unit
}

/// The time in which 4 KiB go over a channel; 0 where a profile has it in the time of a read.
pub(crate) fn transfer_ns(profile: &Profile) -> f64 {
    let parameter = profile
        .parameters()
        .iter()
        .find(|it| it.key == "flash.transfer");
    let parameter = parameter.expect("the profile has it");
    let Value::Number(number) = parameter.value else {
        panic!("no number");
    };
    match parameter.unit.as_str() {
        _ if number == 0.0 => 0.0,
        "us/page" => number * 1e3 * 4096.0 / profile.geometry().page.0 as f64,
        "MB/s" => 4096.0 / number * 1e3,
        "MiB/s" => 4096.0 / (number * 1_048_576.0) * 1e9,
        other => panic!("{other}"),
    }
}

/// The stripe in KiB, for messages.
pub(crate) fn shown(placement: &Placement) -> String {
    let kib = |bytes: Bytes| bytes.0 >> 10;
    format!(
        "{} KiB on each of {} ({} KiB)",
        kib(placement.granule),
        placement.units,
        kib(placement.stripe())
    )
}
