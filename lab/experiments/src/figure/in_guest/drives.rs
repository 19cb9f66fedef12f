//! The drives on which the reads of a guest are done again.
//!
//! The one that the guest had, and another one, on which the file lies in the same places: which commands a read becomes
//! depends on places alone. All zones count as full, so that whatever is read comes from flash.

use anyhow::Result;
use flash_model::Profile;
use lfs_sim::{device::full_zones, disk::Disk};
use units::Bytes;

use super::super::{error::FigureError, fragpicker::System, parameters::Parameters};
use crate::{image, virtual_time::Machine};

/// See the module.
pub(super) struct Drives {
    /// The paper's host with the drive that the guest had.
    pub(super) system: System,
    /// The other drive.
    pub(super) other: Profile,
    /// Bytes with zones, and without.
    pub(super) zoned: Bytes,
    pub(super) conventional: Bytes,
}

impl Drives {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        let device = parameters.text("device")?;
        let system = System::new(parameters, device)?;
        let zone = image::number(&system.profile, "zones.size", "MiB");
        let zone = Bytes::mib(zone.map_err(FigureError::machine(device))?);
        let zoned = Bytes(parameters.bytes("disk")?);
        Ok(Self {
            system,
            other: System::new(parameters, parameters.text("other_device")?)?.profile,
            zoned,
            conventional: image::conventional(zone, zoned),
        })
    }

    /// A drive with the namespaces that the guest had.
    pub(super) fn machine(&self, profile: &Profile) -> Result<Machine> {
        let device = full_zones(profile, self.zoned)?;
        Machine::new(profile, device.zones(0), self.conventional)
    }

    /// A drive of zones alone.
    pub(super) fn disk(&self, profile: &Profile) -> Result<Disk> {
        Ok(self.system.full_zones(profile, self.zoned)?)
    }
}
