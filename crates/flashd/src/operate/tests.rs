//! The outside view of a device.

use flash_model::{NamespaceKind, Profile};
use units::Bytes;

use super::metrics::exposition;
use crate::device::{Device, DeviceOptions, NamespaceOptions};

#[test]
fn every_line_of_the_metrics_is_a_name_and_a_number() {
    let profile = Profile::builtin("zero").unwrap();
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size: Bytes::mib(64),
    };
    let device = Device::open(&DeviceOptions::in_memory(profile, &[namespace])).unwrap();
    let text = exposition(&device.stats());
    for line in text.lines() {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("flashd_"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    for wanted in [
        "flashd_namespace_healthy{namespace=\"1\",kind=\"conventional\"} 1",
        "flashd_namespace_used_bytes{namespace=\"1\",kind=\"conventional\"} 0",
        "flashd_write_amplification 1",
        "flashd_die_utilisation 0",
        "flashd_model_hints_given 0",
        "flashd_model_host_read_bytes 0",
        "flashd_power_cuts_total 0",
    ] {
        assert!(text.lines().any(|line| line == wanted), "{wanted}\n{text}");
    }
}
