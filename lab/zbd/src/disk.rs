//! The disks that the suite gets.

use std::{fmt, str::FromStr};

use flash_model::{NamespaceKind, Profile};
use flashd::device::{DeviceOptions, NamespaceOptions};
use guest::LabError;
use units::Bytes;

/// A disk for the suite: one of those that fio's `run-tests-against-nullb` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Without zones (its section 1).
    Regular,
    /// Zones of 1 MiB without limits (section 2).
    Whole,
    /// Zones of 4 MiB with 3 MiB in them, of which 14 may be open (section 9).
    Limited,
}

impl Disk {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Regular, Self::Whole, Self::Limited];

    /// Its name in figures/zbd.json.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regular => "without zones",
            Self::Whole => "zones of 1 MiB",
            Self::Limited => "zones of 4 MiB",
        }
    }

    pub(crate) fn nsid(self) -> u32 {
        match self {
            Self::Whole | Self::Limited => 1,
            Self::Regular => 2,
        }
    }

    /// Size and capacity of a zone in MiB, largest number of open and active zones.
    fn zones(self) -> (u64, u64, u32) {
        match self {
            Self::Regular | Self::Whole => (1, 1, 0),
            Self::Limited => (4, 3, 14),
        }
    }

    /// The device that takes no time, with small zones, and a disk without zones beside them.
    pub(crate) fn device(self) -> Result<DeviceOptions, LabError> {
        let namespaces = [
            (NamespaceKind::Zoned, Bytes::mib(256 * self.zones().0)),
            (NamespaceKind::Conventional, Bytes::mib(256)),
        ]
        .map(|(kind, size)| NamespaceOptions { kind, size });
        Ok(DeviceOptions {
            block_bytes: 4096,
            ..DeviceOptions::in_memory(self.profile()?, &namespaces)
        })
    }

    fn profile(self) -> Result<Profile, LabError> {
        let (size, capacity, limit) = self.zones();
        // On 16 dies, in pages of 4 KiB.
        let pages = capacity * 1024 / 4 / 16;
        let wrong = |why: String| LabError::Device(format!("the profile zero: {why}"));
        let text = Profile::builtin_text("zero").ok_or_else(|| wrong("it is gone".into()))?;
        let mut text = text.to_owned();
        for (name, value, new) in [
            ("page", "16", "4".to_owned()),
            ("pages_per_block", "128", pages.to_string()),
            ("unit", "16", "4".to_owned()),
            ("size", "32", size.to_string()),
            ("capacity", "32", capacity.to_string()),
            ("max_active", "0", limit.to_string()),
            ("max_open", "0", limit.to_string()),
        ] {
            let line = |value: &str| format!("\n{name} = {{ value = {value},");
            if text.matches(&line(value)).count() != 1 {
                return Err(wrong(format!("{name} is not {value}")));
            }
            text = text.replace(&line(value), &line(&new));
        }
        Profile::parse("zbd.toml", &text).map_err(|error| wrong(error.to_string()))
    }

    /// The parameters with which null_blk has the same zones.
    pub(crate) fn null_blk(self) -> String {
        let (size, capacity, limit) = self.zones();
        match self {
            Self::Regular => "zoned=0".into(),
            Self::Whole | Self::Limited => format!(
                "zoned=1 zone_size={size} zone_capacity={capacity} zone_max_open={limit} \
                 zone_max_active={limit}"
            ),
        }
    }

    /// The first of the limits that the guest's kernel does not show, of `shown`, lines of a name and a value.
    pub(crate) fn missing_in(self, shown: &str) -> Option<String> {
        let limit = self.zones().2;
        let zoned = match self {
            Self::Regular => "zoned none".to_owned(),
            Self::Whole | Self::Limited => "zoned host-managed".to_owned(),
        };
        let mut expected = vec![zoned];
        if self == Self::Limited {
            expected.push(format!("max_open_zones {limit}"));
            expected.push(format!("max_active_zones {limit}"));
        }
        expected
            .into_iter()
            .find(|line| !shown.lines().any(|found| found == line))
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Disk {
    type Err = String;

    /// `regular`, `whole` or `limited`.
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "regular" => Ok(Self::Regular),
            "whole" => Ok(Self::Whole),
            "limited" => Ok(Self::Limited),
            _ => Err("wanted: regular, whole or limited".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disk_can_be_made() {
        for disk in Disk::ALL {
            disk.device().unwrap();
        }
    }

    #[test]
    fn a_disk_with_other_limits_is_found() {
        let shown = "zoned host-managed\nmax_open_zones 14\nmax_active_zones 0\n";
        let missing = Disk::Limited.missing_in(shown);
        assert_eq!(missing.as_deref(), Some("max_active_zones 14"));
        assert_eq!(Disk::Whole.missing_in(shown), None);
        assert!(Disk::Regular.missing_in(shown).is_some());
    }
}
