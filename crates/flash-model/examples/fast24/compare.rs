//! The figures of this model beside the published ones.

use flash_model::Profile;
use units::Nanos;

use super::{
    collecting::Layout,
    host::KIB,
    placement::{Change, Dummy, GRANULE, aligned_reads, contiguous, disturbed, filled, stripe},
    published,
};

/// The emulated device of the paper.
pub(crate) fn emulated() -> Profile {
    Profile::builtin("fast24").expect("it is built in")
}

/// As the emulated device with NVMe-A's stripe: 1 MiB in granules of 32 KiB are 32 dies (§3.2).
pub(crate) fn with_32_dies() -> Profile {
    changed(&[("dies_per_channel", DIES_OF_A)])
}

/// As the emulated device with all data in order of arrival, as in the published emulator: whole
/// granules and parts of them share blocks.
pub(crate) fn without_separation() -> Profile {
    let no =
        "{ value = false, unit = \"flag\", kind = \"paper\", source = \"the published emulator\" }";
    changed(&[("separate_parts", no)])
}

/// NVMe-A and NVMe-B, as far as Figure 8 shows them: the dies; the time that one of them takes for
/// 4 KiB, which follows from the lowest throughput (several dies may appear as one on such a
/// device); and the time that a read takes outside of the dies, which decides how many of 32 reads
/// find a die: with more, the first doubling of the interval would cost less than 41 %, as
/// published.
pub(crate) fn seen_in_figure_8(dies: u32, lowest_mb_per_s: f64) -> Profile {
    let derived = |value: f64, unit, source| {
        format!(
            "{{ value = {value}, unit = \"{unit}\", kind = \"derived\", source = \"{source}\" }}"
        )
    };
    let read = derived(
        (4096.0 / lowest_mb_per_s * 1e3).round(),
        "ns",
        "FAST'24 Fig. 8a, lowest",
    );
    let outside = derived(OUTSIDE_US, "us", "FAST'24 §3.2: 41 to 49 % a doubling");
    let transfer = derived(0.0, "MB/s", "in the time of the read");
    let dies = if dies == 32 { DIES_OF_A } else { DIES_OF_B };
    changed(&[
        ("dies_per_channel", dies),
        ("read", &read),
        ("transfer", &transfer),
        ("read_latency", &outside),
    ])
}

/// See [`seen_in_figure_8`].
const OUTSIDE_US: f64 = 6.0;

const DIES_OF_A: &str =
    "{ value = 8, unit = \"count\", kind = \"paper\", source = \"FAST'24 §3.2: stripe of 1 MiB\" }";
const DIES_OF_B: &str = "{ value = 2, unit = \"count\", kind = \"paper\", source = \"FAST'24 §3.2: stripe of 256 KiB\" }";

/// The emulated device with other values for some parameters.
fn changed(parameters: &[(&str, &str)]) -> Profile {
    let text: Vec<String> = include_str!("../../profiles/fast24.toml")
        .lines()
        .map(|line| {
            let name = line.split_once(" = ").map_or("", |(name, _)| name);
            let other = parameters.iter().find(|parameter| parameter.0 == name);
            other.map_or(line.to_owned(), |(name, value)| format!("{name} = {value}"))
        })
        .collect();
    Profile::parse("fast24, changed", &text.join("\n")).expect("only values were changed")
}

/// A measured ratio beside a published one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub(crate) what: &'static str,
    pub(crate) here: f64,
    pub(crate) published: f64,
}

impl Compared {
    /// Returns the deviation, as a share of the published value.
    pub(crate) fn deviation(&self) -> f64 {
        self.here / self.published - 1.0
    }
}

/// Figure 12, worst and random, as shares of contiguous; the host costs `per_call` for each read
/// call.
pub(crate) fn figure_12(profile: &Profile, per_call: Nanos) -> Vec<Compared> {
    let whole = contiguous(profile, per_call);
    let worst = Dummy::Fixed(stripe(profile) - GRANULE);
    let share = |change, dummy, hints| disturbed(profile, change, dummy, hints, per_call) / whole;
    let row = |what, change, dummy, hints, published: f64| Compared {
        what,
        here: share(change, dummy, hints),
        published: published / published::CONTIGUOUS,
    };
    use Change::{Append, Overwrite};
    let (aw, ow) = (published::APPEND_WORST, published::OVERWRITE_WORST);
    let (ar, or) = (published::APPEND_RANDOM, published::OVERWRITE_RANDOM);
    vec![
        row("append, worst", Append, worst, false, aw.0),
        row("append, worst, hints", Append, worst, true, aw.1),
        row("append, random", Append, Dummy::Published, false, ar.0),
        row(
            "append, random, hints",
            Append,
            Dummy::Published,
            true,
            ar.1,
        ),
        row("overwrite, worst", Overwrite, worst, false, ow.0),
        row("overwrite, worst, hints", Overwrite, worst, true, ow.1),
        row(
            "overwrite, random",
            Overwrite,
            Dummy::Published,
            false,
            or.0,
        ),
        row(
            "overwrite, random, hints",
            Overwrite,
            Dummy::Published,
            true,
            or.1,
        ),
    ]
}

/// Figure 11: fragmentation by dummy writes of a stripe less a granule, and the approach emulated
/// by dummy writes of a whole stripe, without any hint.
pub(crate) fn figure_11(profile: &Profile, per_call: Nanos, fragmented: f64) -> Vec<Compared> {
    let whole = contiguous(profile, per_call);
    let share =
        |change, bytes| disturbed(profile, change, Dummy::Fixed(bytes), false, per_call) / whole;
    let stripe = stripe(profile);
    let row = |what, change, bytes, published| Compared {
        what,
        here: share(change, bytes),
        published,
    };
    vec![
        row("appends", Change::Append, stripe - GRANULE, fragmented),
        row(
            "appends, approach",
            Change::Append,
            stripe,
            published::EMULATED_APPROACH,
        ),
        row(
            "overwrites",
            Change::Overwrite,
            stripe - GRANULE,
            fragmented,
        ),
        row(
            "overwrites, approach",
            Change::Overwrite,
            stripe,
            published::EMULATED_OVERWRITE,
        ),
    ]
}

/// Figure 8: throughput at intervals of 4 KiB to 1 MiB, in MB/s, 32 reads at a time.
pub(crate) fn figure_8(profile: &Profile, reads: u64) -> Vec<(u64, f64)> {
    let device = filled(profile);
    [4, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
        .map(|kib| kib * KIB)
        .map(|interval| {
            (
                interval,
                aligned_reads(&device, interval, DEPTH, reads) * MIB / 1e6,
            )
        })
        .into()
}

/// Lowest and highest throughput in [`figure_8`], and the published ones.
pub(crate) fn ends(speeds: &[(u64, f64)], (best, worst): (f64, f64)) -> [Compared; 3] {
    let lowest = speeds.iter().map(|it| it.1).fold(f64::INFINITY, f64::min);
    let highest = speeds.iter().map(|it| it.1).fold(0.0, f64::max);
    [
        Compared {
            what: "highest (MB/s)",
            here: highest,
            published: best,
        },
        Compared {
            what: "lowest (MB/s)",
            here: lowest,
            published: worst,
        },
        Compared {
            what: "lowest to highest",
            here: lowest / highest,
            published: worst / best,
        },
    ]
}

/// 8 jobs with a depth of 4 (artifact, `alignment_NVMe.sh`).
pub(crate) const DEPTH: usize = 32;

const MIB: f64 = super::host::MIB as f64;

/// All ways to write the target.
pub(crate) const LAYOUTS: [(&str, Layout); 5] = [
    ("contiguous", Layout::Contiguous),
    (
        "appends",
        Layout::Disturbed {
            change: Change::Append,
            hints: false,
        },
    ),
    (
        "appends, hints",
        Layout::Disturbed {
            change: Change::Append,
            hints: true,
        },
    ),
    (
        "overwrites",
        Layout::Disturbed {
            change: Change::Overwrite,
            hints: false,
        },
    ),
    (
        "overwrites, hints",
        Layout::Disturbed {
            change: Change::Overwrite,
            hints: true,
        },
    ),
];
