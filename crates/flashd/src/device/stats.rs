//! State and counters of the device, for reports.

use serde::Serialize;
use units::Nanos;

use super::{Device, FaultReport};
use crate::{lock::lock, pace::LatenessReport, record::RecordingState};
use flash_model::NamespaceKind;

/// State and counters of a device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceStats {
    /// Version of this document.
    pub schema: u32,
    /// Name of the profile.
    pub profile: String,
    /// How many times slower than real time the model's time goes.
    pub time_scale: f64,
    /// Real time since it was opened.
    pub uptime_ns: Nanos,
    /// How often the power was cut.
    pub power_cuts: u64,
    /// The namespaces.
    pub namespaces: Vec<NamespaceStats>,
    /// Bytes that cells took for each byte that the host wrote or asked to be copied.
    pub write_amplification: f64,
    /// Share of its time for which a die was busy, on average: 0 to 1.
    pub die_utilisation: f64,
    /// The faults that were injected.
    pub faults: FaultReport,
    /// The model's counters.
    pub model: flash_model::Stats,
    /// How late answers were.
    pub lateness: LatenessReport,
    /// The recording.
    pub recording: RecordingState,
}

/// State of a namespace.
#[derive(Clone, Debug, Serialize)]
pub struct NamespaceStats {
    /// NVMe's identifier.
    pub id: u32,
    /// `zoned` or `conventional`.
    pub kind: &'static str,
    /// Bytes of all.
    pub size_bytes: u64,
    /// Bytes of a logical block.
    pub block_bytes: u64,
    /// Bytes that hold data: mapped logical pages, or the written part of zones.
    pub used_bytes: u64,
    /// Bytes that a power cut would lose now.
    pub volatile_bytes: u64,
    /// Whether all is well with its store.
    pub healthy: bool,
    /// The failure or damage, if not.
    pub problem: Option<String>,
}

impl Device {
    /// State and counters.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        let (model, used) = {
            let model = lock(&self.model);
            let used: Vec<u64> = (0..self.namespaces.len())
                .map(|index| model.used_bytes(index))
                .collect();
            (model.stats(), used)
        };
        let namespaces = self
            .namespaces
            .iter()
            .zip(&self.store.namespaces)
            .zip(used)
            .map(|((namespace, store), used_bytes)| {
                let health = store.health();
                NamespaceStats {
                    id: namespace.id,
                    kind: match namespace.kind {
                        NamespaceKind::Zoned => "zoned",
                        NamespaceKind::Conventional => "conventional",
                    },
                    size_bytes: namespace.size_bytes,
                    block_bytes: namespace.block_bytes,
                    used_bytes,
                    volatile_bytes: store.volatile_bytes(),
                    healthy: health.is_healthy(),
                    problem: health.problem().map(ToString::to_string),
                }
            })
            .collect();
        DeviceStats {
            schema: 1,
            profile: self.profile.name().to_owned(),
            time_scale: self.clock.scale(),
            uptime_ns: Nanos(self.clock.real_ns()),
            power_cuts: self.power_cuts(),
            namespaces,
            write_amplification: model.write_amplification(),
            die_utilisation: model.die_utilisation(),
            faults: self.faults(),
            model,
            lateness: self.lateness.report(),
            recording: self.recording.state(),
        }
    }
}
