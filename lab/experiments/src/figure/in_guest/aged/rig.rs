//! The SSD and the files of a figure, as its parameters have them, and the ways of migrating.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use lfs_sim::host;
use units::Bytes;
use workloads::filebench::{Ageing, Personality};

use super::super::{
    super::{
        error::FigureError,
        indef::{WORKLOADS, ageing_of_files},
        parameters::Parameters,
    },
    guests::{CPUS, KERNEL, MEMORY_MIB},
};
use crate::{ageing::Writes, bench::Setup, image::Ssd, way::Way};

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super::super) struct Rig {
    pub(super) ssd: Ssd,
    pub(super) ageing: Ageing,
    writes: Writes,
    io_size: Bytes,
    /// How many times slower than its model the SSD goes while commands are recorded.
    time_scale: u64,
    /// Each with whether its commands are recorded.
    pub(super) ways: Vec<(Way, bool)>,
    pub(super) runs: u64,
}

impl Rig {
    /// InDeF's SSD, the files of one of its workloads, and its three contenders.
    pub(in super::super::super) fn of_indef(
        parameters: &Parameters,
        personality: Personality,
        truncate: u32,
    ) -> Result<Self, FigureError> {
        let device = parameters.text("device")?;
        let [zone_factor, zones, factor, time_scale] =
            ["zone_factor", "zones", "factor", "time_scale"].map(|name| parameters.count(name));
        let ssd = Ssd::new(device, zone_factor?, zones?).map_err(FigureError::machine(device))?;
        let (_, writes) = WORKLOADS[personality as usize];
        let rig = Self::new(
            parameters,
            ssd,
            ageing_of_files(parameters, personality, factor?)?,
            match writes {
                host::Writes::Cached => Writes::Cached,
                host::Writes::Direct => Writes::Direct,
            },
        )?;
        Ok(Self {
            time_scale: time_scale?,
            ways: vec![
                (Way::Conventional, true),
                (Way::FragPicker, false),
                (Way::Indef { truncate }, true),
            ],
            ..rig
        })
    }

    /// Files that age so on this SSD, to be moved through the host; nothing is recorded.
    pub(in super::super::super) fn new(
        parameters: &Parameters,
        ssd: Ssd,
        ageing: Ageing,
        writes: Writes,
    ) -> Result<Self, FigureError> {
        Ok(Self {
            ssd,
            ageing,
            writes,
            io_size: Bytes(parameters.bytes("io_size")?),
            time_scale: 1,
            ways: vec![(Way::Conventional, false), (Way::FragPicker, false)],
            runs: parameters.count("runs")?,
        })
    }

    /// The guests of a run, with this indef; they end when `stop` is set. Each run has choices of its own.
    pub(super) fn setup(&self, run: u64, indef: &Path, stop: &Arc<AtomicBool>) -> Setup {
        Setup {
            ageing: Ageing {
                seed: self.ageing.seed + run - 1,
                ..self.ageing
            },
            writes: self.writes,
            ssd: self.ssd.clone(),
            io_size: self.io_size,
            time_scale: self.time_scale as f64,
            kernel: KERNEL,
            cpus: CPUS,
            memory_mib: MEMORY_MIB,
            indef: indef.to_owned(),
            stop: Arc::clone(stop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::super::source::Figure, *};

    /// A parameter that nobody reads would be found only after a quarter of an hour.
    #[test]
    fn a_rig_and_its_figure_read_all_parameters() {
        for (name, personality, more) in [
            (
                "indef/fig12-guest-fileserver",
                Personality::Fileserver,
                "truncate",
            ),
            (
                "indef/fig12-guest-varmail",
                Personality::Varmail,
                "truncate",
            ),
            (
                "indef/fig14-guest-chips",
                Personality::Fileserver,
                "truncate_fileserver truncate_varmail",
            ),
            (
                "indef/fig14-guest-elapsed",
                Personality::Varmail,
                "truncate_fileserver truncate_varmail",
            ),
            (
                "indef/fig15-guest",
                Personality::Fileserver,
                "moved truncate",
            ),
            ("indef/fig16", Personality::Fileserver, "truncate"),
        ] {
            let figure = Figure::load(source_tree::root(), name).unwrap();
            let rig = Rig::of_indef(&figure.parameters, personality, 30).unwrap();
            // What the module itself reads, in the order of the names.
            assert_eq!(figure.parameters.not_read().join(" "), more, "{name}");
            // The flows have a choice, and the files find room.
            assert!(rig.ageing.files >= 40, "{name}: {}", rig.ageing.files);
            assert!(
                rig.ageing.fill_bytes() * 10 < rig.ssd.zoned.get() * 8,
                "{name}"
            );
        }
    }

    /// So they are measured once for all.
    #[test]
    fn figures_of_the_same_files_have_the_same_rig() {
        let rig = |name, personality, truncate| {
            let figure = Figure::load(source_tree::root(), name).unwrap();
            let truncate = figure.parameters.number(truncate).unwrap() as u32;
            Rig::of_indef(&figure.parameters, personality, truncate).unwrap()
        };
        let fileserver = rig(
            "indef/fig12-guest-fileserver",
            Personality::Fileserver,
            "truncate",
        );
        let varmail = rig(
            "indef/fig12-guest-varmail",
            Personality::Varmail,
            "truncate",
        );
        assert!(fileserver != varmail);
        for name in ["indef/fig14-guest-chips", "indef/fig14-guest-elapsed"] {
            let other = rig(name, Personality::Fileserver, "truncate_fileserver");
            assert_eq!(other, fileserver, "{name}");
            let other = rig(name, Personality::Varmail, "truncate_varmail");
            assert_eq!(other, varmail, "{name}");
        }
        for name in ["indef/fig15-guest", "indef/fig16"] {
            assert_eq!(
                rig(name, Personality::Fileserver, "truncate"),
                fileserver,
                "{name}"
            );
        }
    }
}
