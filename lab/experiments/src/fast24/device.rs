//! The paper's devices.

use flash_model::{Device, NamespaceKind, NamespaceSpec, Profile};
use units::Bytes;

/// The profile of the paper's emulated device (Table 2).
const EMULATED: &str = "fast24";

/// The emulated device.
///
/// # Panics
///
/// Never: the profile is built in. The same holds for all functions here.
#[must_use]
pub fn emulated() -> Profile {
    Profile::builtin(EMULATED).expect("it is built in")
}

/// As the emulated device with NVMe-A's stripe: 1 MiB in granules of 32 KiB are 32 dies (§3.2).
#[must_use]
pub fn with_32_dies() -> Profile {
    changed(&[("dies_per_channel", DIES_OF_A)])
}

/// As the emulated device with all data in order of arrival, as in the published emulator: whole
/// granules and parts of them share blocks.
#[must_use]
pub fn without_separation() -> Profile {
    let no =
        "{ value = false, unit = \"flag\", kind = \"paper\", source = \"the published emulator\" }";
    changed(&[("separate_parts", no)])
}

/// NVMe-A and NVMe-B, as far as Figure 8 shows them: the dies; the time that one of them takes for
/// 4 KiB, which follows from the lowest throughput (several dies may appear as one on such a
/// device); and the time that a read takes outside of the dies, which decides how many of 32 reads
/// find a die: with more, the first doubling of the interval would cost less than 41 %, as
/// published.
#[must_use]
pub fn seen_in_figure_8(dies: u64, lowest_mb_per_s: f64, outside_us: f64) -> Profile {
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
    let outside = derived(outside_us, "us", "FAST'24 §3.2: 41 to 49 % a doubling");
    let transfer = derived(0.0, "MB/s", "in the time of the read");
    let dies = if dies == 32 { DIES_OF_A } else { DIES_OF_B };
    changed(&[
        ("dies_per_channel", dies),
        ("read", &read),
        ("transfer", &transfer),
        ("read_latency", &outside),
    ])
}

const DIES_OF_A: &str =
    "{ value = 8, unit = \"count\", kind = \"paper\", source = \"FAST'24 §3.2: stripe of 1 MiB\" }";
const DIES_OF_B: &str = "{ value = 2, unit = \"count\", kind = \"paper\", source = \"FAST'24 §3.2: stripe of 256 KiB\" }";

/// The emulated device with other values for some parameters.
fn changed(parameters: &[(&str, &str)]) -> Profile {
    let text: Vec<String> = Profile::builtin_text(EMULATED)
        .expect("it is built in")
        .lines()
        .map(|line| {
            let name = line.split_once(" = ").map_or("", |(name, _)| name);
            let other = parameters.iter().find(|parameter| parameter.0 == name);
            other.map_or(line.to_owned(), |(name, value)| format!("{name} = {value}"))
        })
        .collect();
    Profile::parse("fast24, changed", &text.join("\n")).expect("only values were changed")
}

/// A drive with one namespace of `size` bytes.
#[must_use]
pub fn drive(profile: &Profile, size: u64) -> Device {
    let spec = NamespaceSpec {
        kind: NamespaceKind::Conventional,
        size: Bytes(size),
    };
    Device::new(profile, &[spec]).expect("the profile has room for the namespace")
}

/// The bytes that go to all dies before it is the first one's turn again.
#[must_use]
pub fn stripe(profile: &Profile) -> u64 {
    profile.geometry().unit.0 * u64::from(profile.geometry().dies())
}
