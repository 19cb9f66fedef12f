//! The device and the file of a figure, as its parameters have them, and guests with them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::Result;
use flash_model::NamespaceKind;
use flashd::device::{Device, DeviceOptions, NamespaceOptions};
use guest::ZnsSetup;
use tempfile::TempDir;
use units::FileRange;

use super::{
    super::{
        error::FigureError,
        parameters::Parameters,
        workload::{Pattern, Workload},
    },
    drives::Drives,
    guests::{CPUS, KERNEL, MEMORY_MIB},
};
use crate::{
    image::FAST,
    room::{Room, RoomOptions},
};

/// See the module.
pub(in super::super) struct Rig {
    pub(super) drives: Drives,
    /// How many times slower than its model the device goes during a migration.
    pub(super) time_scale: f64,
    /// Of each contender.
    pub(super) runs: u64,
    /// indef's `--truncate`.
    pub(super) truncate: u32,
    pub(super) workload: Workload,
    pub(super) indef: PathBuf,
    /// Where dumps go.
    pub(super) dumps: PathBuf,
    /// The folder that guests have as `/share`.
    share: TempDir,
}

impl Rig {
    pub(in super::super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        let indef = source_tree::release_binary("indef");
        Self::with(parameters, indef.map_err(FigureError::machine("indef"))?)
    }

    /// With this indef.
    fn with(parameters: &Parameters, indef: PathBuf) -> Result<Self, FigureError> {
        let dumps = source_tree::target().join("experiments/in-guest");
        let made = fs::create_dir_all(&dumps);
        made.map_err(FigureError::machine(dumps.display().to_string()))?;
        let share = tempfile::Builder::new().prefix("indef-lab-").tempdir();
        let rig = Self {
            drives: Drives::new(parameters)?,
            time_scale: parameters.count("time_scale")? as f64,
            runs: parameters.count("runs")?,
            truncate: parameters.number("truncate")? as u32,
            workload: Workload::new(parameters)?,
            indef,
            dumps,
            share: share.map_err(FigureError::machine("a temporary folder"))?,
        };
        rig.tell().map_err(FigureError::machine("/share"))?;
        Ok(rig)
    }

    /// Tell guests about the file and the calls (`inside`).
    fn tell(&self) -> io::Result<()> {
        let pieces = self.workload.pieces.iter();
        let pieces = pieces.map(|it| (it.0.get(), it.1.get()));
        write(&self.share("pieces"), pieces)?;
        for pattern in Pattern::ALL {
            let ranges = self.workload.ranges(pattern).iter();
            let ranges = ranges.map(|range: &FileRange| (range.start.0, range.len.get()));
            write(&self.share(pattern.name()), ranges)?;
        }
        Ok(())
    }

    /// A file that guests have as `/share/NAME`.
    pub(super) fn share(&self, name: &str) -> PathBuf {
        self.share.path().join(name)
    }

    /// A guest with a new F2FS on a new device, which ends when `stop` is set.
    pub(super) fn enter(&self, stop: &Arc<AtomicBool>) -> Result<Room> {
        let drives = &self.drives;
        let namespaces = [
            (NamespaceKind::Zoned, drives.zoned),
            (NamespaceKind::Conventional, drives.conventional),
        ]
        .map(|(kind, size)| NamespaceOptions { kind, size });
        let device = Device::open(&DeviceOptions {
            block_bytes: 512,
            time_scale: FAST,
            ..DeviceOptions::in_memory(drives.system.profile.clone(), &namespaces)
        })?;
        let options = RoomOptions {
            kernel: KERNEL,
            cpus: CPUS,
            memory_mib: MEMORY_MIB,
            indef: &self.indef,
            share: self.share.path().to_owned(),
            read_ahead: self.workload.io_size,
            setup: ZnsSetup::Mounted,
            standard_only: false,
            collects: false,
            stop: Arc::clone(stop),
        };
        Room::enter(device, drives.conventional, &options)
    }
}

fn write(file: &Path, pairs: impl Iterator<Item = (u64, u64)>) -> io::Result<()> {
    fs::write(file, serde_json::to_vec(&pairs.collect::<Vec<_>>())?)
}

#[cfg(test)]
mod tests {
    use super::{super::super::source::Figure, *};

    #[test]
    fn a_rig_reads_all_parameters_and_tells_guests_the_file_and_its_calls() {
        let figure = Figure::load(source_tree::root(), "fragpicker/fig08-guest").unwrap();
        let rig = Rig::with(&figure.parameters, "indef".into()).unwrap();
        assert!(figure.parameters.not_read().is_empty());
        let told = |name: &str| -> Vec<(u64, u64)> {
            serde_json::from_slice(&fs::read(rig.share(name)).unwrap()).unwrap()
        };
        let pieces = told("pieces");
        let file: u64 = pieces.iter().map(|it| it.1).sum();
        assert_eq!(file, rig.workload.size.get());
        assert_eq!(pieces[31..33], [(4096, 4096), (4096, 131_072)]);
        let read: u64 = told("sequential").iter().map(|it| it.1).sum();
        assert_eq!(read, file);
        // From the end of a read to the start of the next.
        assert_eq!(told("stride")[1], (416 << 10, 128 << 10));
    }
}
