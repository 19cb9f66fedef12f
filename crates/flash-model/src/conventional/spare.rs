//! The spare flash of a namespace beside the profile's.

use units::Bytes;

use super::ConventionalNamespace;

/// The flash that a conventional namespace has beyond its size. Each die needs a few blocks in
/// motion whatever the size: they weigh little in the device that the profile describes, and much
/// in a small namespace, which then amplifies writes less than that device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spare {
    /// `ftl.over_provisioning` of the profile, in percent.
    pub nominal_percent: f64,
    /// All flash beyond the namespace's size, in percent of it.
    pub percent: f64,
    /// The size from which on the spare flash is at most twice the nominal one, or 2 %.
    pub enough: Bytes,
}

impl Spare {
    /// Whether write amplification and wear are not those of the nominal spare flash.
    #[must_use]
    pub fn is_far_from_nominal(&self) -> bool {
        self.percent > 2.0 * self.nominal_percent.max(1.0)
    }
}

impl ConventionalNamespace {
    /// Returns its spare flash.
    pub(crate) fn spare(&self) -> Spare {
        let flash = self.ftl.geometry().slots() as f64 * self.logical_page as f64;
        let size = self.size as f64;
        let nominal = self.over_provisioning_percent;
        let in_motion = flash - size * (1.0 + nominal / 100.0);
        Spare {
            nominal_percent: nominal,
            percent: (flash / size - 1.0) * 100.0,
            enough: Bytes((in_motion / nominal.max(1.0) * 100.0).max(0.0) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use workloads::Numbers;

    use crate::{
        Device, NamespaceKind, NamespaceSpec, Profile,
        ftl::{Ftl, FtlGeometry, PagePlacement},
    };

    use super::*;

    fn spare(profile: &str, size: Bytes) -> Spare {
        let kind = NamespaceKind::Conventional;
        let profile = Profile::builtin(profile).unwrap();
        let device = Device::new(&profile, &[NamespaceSpec { kind, size }]).unwrap();
        device.spare(0).unwrap()
    }

    #[test]
    fn a_small_namespace_has_far_more_spare_flash_than_the_profile_says() {
        let small = spare("indef-femu", Bytes::mib(512));
        assert_eq!(small.nominal_percent, 7.0);
        assert!((70.0..90.0).contains(&small.percent), "{small:?}");
        assert!(small.is_far_from_nominal());
        let large = spare("indef-femu", Bytes::gib(8));
        assert!((10.0..13.0).contains(&large.percent), "{large:?}");
        assert!(!large.is_far_from_nominal());
        assert!(
            (Bytes::gib(3)..Bytes::gib(8)).contains(&small.enough),
            "{small:?}"
        );
        assert!(!spare("fast24", Bytes::gib(8)).is_far_from_nominal());
        assert!(spare("zn540", Bytes::gib(1)).percent > 500.0);
    }

    /// Bytes that are programmed for each that the host writes, in single logical pages anywhere, once twice as many have
    /// been overwritten as the namespace has.
    fn amplification(size: Bytes) -> f64 {
        let profile = Profile::builtin("indef-femu").unwrap();
        let mut ftl = ConventionalNamespace::new(0, size.0, &profile).unwrap().ftl;
        let FtlGeometry {
            logical_pages,
            slots_per_page,
            ..
        } = *ftl.geometry();
        let (mut numbers, mut work) = (Numbers::new(1), Vec::new());
        ftl.write(0, logical_pages, PagePlacement::RoundRobin, &mut work);
        let mut overwrite = |ftl: &mut Ftl, count| {
            for _ in 0..count {
                work.clear();
                ftl.write(
                    numbers.below(logical_pages),
                    1,
                    PagePlacement::RoundRobin,
                    &mut work,
                );
            }
        };
        overwrite(&mut ftl, 2 * logical_pages);
        let before = *ftl.counters();
        overwrite(&mut ftl, logical_pages / 2);
        ftl.counters()
            .since(&before)
            .write_amplification(slots_per_page)
    }

    #[test]
    fn a_small_namespace_amplifies_writes_far_less() {
        let (small, large) = (amplification(Bytes::mib(512)), amplification(Bytes::gib(8)));
        println!("512 MiB: {small:.2}, 8 GiB: {large:.2}");
        assert!((2.3..2.7).contains(&small), "{small}");
        assert!((6.0..8.0).contains(&large), "{large}");
    }
}
