//! The internal geometry of each device: as given, or as the device of each file system reports it.

use std::{
    borrow::Cow,
    collections::HashMap,
    path::{Path, PathBuf},
};

use indef_core::{layout::Geometry, plan::PlanOptions};
use indef_fs::{DeviceGeometry, Filesystem, NoGeometry, detect, device_geometry};
use rustix::fs::{Mode, OFlags, open};

use crate::note::{Note, Notes};

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
    /// In the order of the paths.
    answers: Vec<Answer>,
}

/// The answer of one file system's device.
#[derive(Debug)]
pub struct Answer {
    /// A path on the file system.
    pub path: PathBuf,
    /// The geometry, or the reason for which it is unknown.
    pub told: Result<DeviceGeometry, NoGeometry>,
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
        for path in paths {
            geometries.ask(path);
        }
        let asked_for = choice.is_some();
        for Answer { path, told } in &geometries.answers {
            if let Err(why) = told {
                notes.note(Note::NoGeometry {
                    path,
                    why,
                    asked_for,
                });
            }
        }
        let is_ordinary =
            |answer: &Answer| answer.told.as_ref().is_err_and(NoGeometry::is_ordinary);
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
        let told = device_geometry(&fs);
        let geometry = told
            .as_ref()
            .map_or(Geometry::Unknown, |told| told.geometry);
        self.by_device.insert(fs.dev, geometry);
        self.answers.push(Answer {
            path: path.to_owned(),
            told,
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

    /// The geometry that was given for all devices.
    #[must_use]
    pub fn given(&self) -> Option<Geometry> {
        self.given
    }

    /// The devices' answers, one for each file system, in the order of the paths.
    #[must_use]
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// `options` with the geometry of a file system.
    pub(crate) fn options<'a>(&self, options: &'a PlanOptions, dev: u64) -> Cow<'a, PlanOptions> {
        match self.of(dev) {
            geometry if geometry == options.geometry => Cow::Borrowed(options),
            geometry => Cow::Owned(PlanOptions {
                geometry,
                ..options.clone()
            }),
        }
    }
}

/// The file system that a path is on; `None` where it cannot be opened, which is reported when it is
/// scanned.
pub(crate) fn file_system(path: &Path) -> Option<Filesystem> {
    // Opened only to find its device: a FIFO would block us, and opening a device may have effects.
    let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    detect(&file, path).ok()
}
