//! The internal geometry of each device: as given, as the device of each file system reports it, or as a
//! probe of the drive found it.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use indef_core::{
    layout::{DeviceTimes, Geometry},
    plan::{PlanOptions, Weight},
    probe::ReadModel,
};
use indef_fs::{DeviceGeometry, Drive, Filesystem, NoGeometry, detect, device_geometry};
use rustix::fs::{Mode, OFlags, open};

use crate::{
    note::{Note, Notes},
    probe::Stored,
};

/// The source of geometries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryChoice {
    /// Ask the devices.
    Auto,
    /// The same for all of them.
    Given(Geometry),
}

/// One geometry for each file system that the paths of a command are on.
#[derive(Debug, Default)]
pub struct Geometries {
    given: Option<Geometry>,
    by_device: HashMap<u64, Geometry>,
    /// Drives that were probed, and the times of those where all could be told.
    probed: HashSet<u64>,
    models: HashMap<u64, ReadModel>,
    /// In the order of the paths.
    answers: Vec<DeviceAnswer>,
}

/// The answer of one file system's device.
#[derive(Debug)]
pub struct DeviceAnswer {
    /// A path on the file system.
    pub path: PathBuf,
    /// Its device number.
    dev: u64,
    /// The geometry, or the reason for which it is unknown.
    pub told: Result<DeviceGeometry, NoGeometry>,
    /// The result of a probe, where the geometry, or the reason for which there is none, is of one.
    pub probed: Option<Stored>,
}

impl Geometries {
    /// The geometries of the file systems that `paths` are on. `choice` is the requested source;
    /// without one, devices are asked, and devices that report nothing, as ordinary ones do, are
    /// left out of the answers.
    pub fn new(choice: Option<GeometryChoice>, paths: &[PathBuf], notes: &dyn Notes) -> Self {
        if let Some(GeometryChoice::Given(geometry)) = choice {
            return Self {
                given: Some(geometry),
                ..Self::default()
            };
        }
        let mut geometries = Self::default();
        for path in one_on_each(paths) {
            geometries.ask(path);
        }
        let asked_for = choice.is_some();
        for DeviceAnswer { path, told, .. } in &geometries.answers {
            if let Err(why) = told {
                notes.note(Note::NoGeometry {
                    path,
                    why,
                    asked_for,
                });
            }
        }
        let is_ordinary = |answer: &DeviceAnswer| {
            answer.told.as_ref().is_err_and(NoGeometry::is_ordinary) && answer.probed.is_none()
        };
        geometries
            .answers
            .retain(|answer| asked_for || !is_ordinary(answer));
        geometries
    }

    fn ask(&mut self, path: &Path) {
        let Some(fs) = file_system(path) else {
            return;
        };
        if self.by_device.contains_key(&fs.dev) {
            return;
        }
        let (told, probed) = match device_geometry(&fs) {
            Ok(told) => (Ok(told), None),
            Err(why) => probed_geometry(&fs, why),
        };
        if probed.is_some() {
            self.probed.insert(fs.dev);
        }
        if let Some(model) = probed.as_ref().and_then(Stored::model) {
            self.models.insert(fs.dev, model);
        }
        let geometry = told
            .as_ref()
            .map_or(Geometry::Unknown, |told| told.geometry);
        self.by_device.insert(fs.dev, geometry);
        self.answers.push(DeviceAnswer {
            path: path.to_owned(),
            dev: fs.dev,
            told,
            probed,
        });
    }

    /// The geometry of the file system with this device number.
    #[must_use]
    pub fn of(&self, dev: u64) -> Geometry {
        self.given
            .or_else(|| self.by_device.get(&dev).copied())
            .unwrap_or_default()
    }

    /// Whether any is known.
    #[must_use]
    pub fn any(&self) -> bool {
        self.given
            .iter()
            .chain(self.by_device.values())
            .any(|geometry| *geometry != Geometry::Unknown)
    }

    /// The geometry that represents a whole plan: as given, or the first that is known.
    #[must_use]
    pub fn main(&self) -> Geometry {
        let mut known = (self.answers.iter())
            .filter_map(|answer| Some(answer.told.as_ref().ok()?.geometry))
            .filter(|geometry| *geometry != Geometry::Unknown);
        self.given.or_else(|| known.next()).unwrap_or_default()
    }

    /// Whether one geometry holds for everything that is planned.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.given.is_some() || self.by_device.len() <= 1
    }

    /// The geometry that was given for all devices.
    #[must_use]
    pub fn given(&self) -> Option<Geometry> {
        self.given
    }

    /// The devices' answers, one for each file system, in the order of the paths.
    #[must_use]
    pub fn answers(&self) -> &[DeviceAnswer] {
        &self.answers
    }

    /// Whether the geometry of a file system is one that a probe found.
    pub(crate) fn is_probed(&self, dev: u64) -> bool {
        self.given.is_none() && self.probed.contains(&dev)
    }

    /// Whether a probe found the times of reads on every drive.
    pub(crate) fn has_all_models(&self) -> bool {
        !self.by_device.is_empty()
            && self
                .by_device
                .keys()
                .all(|dev| self.models.contains_key(dev))
    }

    /// Use no times of probes: others are given.
    pub(crate) fn forget_times(&mut self) {
        self.models.clear();
    }

    /// Note the drives of which a probe found the times.
    pub(crate) fn note_probes(&self, notes: &dyn Notes) {
        let is_known = |answer: &&DeviceAnswer| self.models.contains_key(&answer.dev);
        for DeviceAnswer { path, told, .. } in self.answers.iter().filter(is_known) {
            if let Ok(told) = told {
                let device = &told.device;
                notes.note(Note::Probed { path, device });
            }
        }
    }

    /// `options` with the geometry that represents a whole plan, and the times that go with it.
    pub(crate) fn main_options(&self, options: &PlanOptions) -> PlanOptions {
        let first = self.answers.iter().find(|answer| answer.told.is_ok());
        let model = first.and_then(|answer| self.models.get(&answer.dev));
        PlanOptions {
            geometry: self.main(),
            weight: weight(options, model),
            ..options.clone()
        }
    }

    /// `options` with the geometry of a file system, and with its drive's own times where the model of a
    /// device weighs and these are not given.
    pub(crate) fn options<'a>(&self, options: &'a PlanOptions, dev: u64) -> Cow<'a, PlanOptions> {
        let weight = weight(options, self.models.get(&dev));
        match self.of(dev) {
            geometry if geometry == options.geometry && weight == options.weight => {
                Cow::Borrowed(options)
            }
            geometry => Cow::Owned(PlanOptions {
                geometry,
                weight,
                ..options.clone()
            }),
        }
    }
}

/// The file system that a path is on; `None` where it cannot be opened, which is reported when it is
/// scanned.
pub(crate) fn file_system(path: &Path) -> Option<Filesystem> {
    look_up(path).ok()
}

/// The file system that a path is on.
///
/// # Errors
///
/// The kernel's, for the path.
pub(crate) fn look_up(path: &Path) -> io::Result<Filesystem> {
    // Opened only to find its device: a FIFO would block us, and opening a device may have effects.
    let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    detect(&file, path).map_err(|error| error.source)
}

/// The first of the paths on each device. There may be very many of them, and a file system takes long to look at.
pub(crate) fn one_on_each(paths: &[PathBuf]) -> impl Iterator<Item = &PathBuf> {
    let mut seen = HashSet::new();
    (paths.iter()).filter(move |path| fs::metadata(path).is_ok_and(|is| seen.insert(is.dev())))
}

/// The file systems of the paths, each with the first path on it.
pub(crate) fn file_systems(paths: &[PathBuf]) -> Vec<(&PathBuf, Filesystem)> {
    let mut systems = Vec::<(&PathBuf, Filesystem)>::new();
    for path in one_on_each(paths) {
        if let Some(fs) = file_system(path)
            && systems.iter().all(|(_, other)| other.dev != fs.dev)
        {
            systems.push((path, fs));
        }
    }
    systems
}

/// The weight: what a probe found out about the drive takes the place of the usual times.
fn weight(options: &PlanOptions, model: Option<&ReadModel>) -> Weight {
    match (&options.weight, model) {
        (Weight::Device(_) | Weight::Probed(_), Some(model)) => Weight::Probed(*model),
        // That of another drive.
        (Weight::Probed(_), None) => Weight::Device(DeviceTimes::default()),
        (weight, _) => *weight,
    }
}

/// Findings of a probe of the drive, in place of what the device does not report.
fn probed_geometry(
    fs: &Filesystem,
    why: NoGeometry,
) -> (Result<DeviceGeometry, NoGeometry>, Option<Stored>) {
    let drive = Drive::of(fs);
    let stored = drive.as_ref().and_then(Stored::of);
    let found = stored
        .as_ref()
        .and_then(|stored| stored.findings.geometry());
    match (found, drive) {
        (Some(geometry), Some(drive)) => {
            let device = drive.path;
            (Ok(DeviceGeometry { geometry, device }), stored)
        }
        _ => (Err(why), stored),
    }
}
