//! What is known about the devices' insides: as given, or as each file system's device tells.

use std::{collections::HashMap, path::PathBuf, str::FromStr};

use indef_core::{layout::Geometry, plan::PlanOptions};
use indef_fs::{NoGeometry, detect, device_geometry};
use rustix::fs::{Mode, OFlags, open};
use serde::Serialize;

use crate::output::{Console, Name};

/// `--geometry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GeometryChoice {
    /// Ask the devices.
    Auto,
    /// The same for all of them.
    Given(Geometry),
}

impl FromStr for GeometryChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            text => match text.parse::<Geometry>() {
                Ok(given) => Ok(Self::Given(given)),
                Err(error) => Err(format!("{error}; or auto, to ask the device")),
            },
        }
    }
}

/// One geometry for each file system that the paths of a command are on.
#[derive(Debug, Default)]
pub(crate) struct Geometries {
    given: Option<Geometry>,
    found: HashMap<u64, Geometry>,
    /// What there is to say about each, in the order of the paths.
    told: Vec<Told>,
}

/// What is known of one file system's device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Told {
    /// One of its paths.
    path: String,
    device: Option<String>,
    geometry: String,
    /// Why it is unknown.
    reason: Option<String>,
    /// Whether it is unknown as on every ordinary device.
    #[serde(skip)]
    ordinary: bool,
}

impl Geometries {
    /// For the file systems that `paths` are on. `choice` is what was asked for; if nothing was,
    /// devices are asked, and nothing is said where an ordinary one has nothing to tell.
    pub(crate) fn new(
        choice: Option<GeometryChoice>,
        paths: &[PathBuf],
        console: &Console,
    ) -> Self {
        if let Some(GeometryChoice::Given(geometry)) = choice {
            return Self {
                given: Some(geometry),
                ..Self::default()
            };
        }
        let mut geometries = Self::default();
        for path in paths {
            geometries.look_at(path);
        }
        let asked_for = choice.is_some();
        for told in &geometries.told {
            match &told.reason {
                Some(reason) if asked_for || !told.ordinary => {
                    console.note(format_args!("{}: DoPF unknown: {reason}", told.path));
                }
                Some(reason) => {
                    console.detail(format_args!("{}: DoPF unknown: {reason}", told.path));
                }
                None => {}
            }
        }
        geometries.told.retain(|told| asked_for || !told.ordinary);
        geometries
    }

    fn look_at(&mut self, path: &PathBuf) {
        // Only to ask where it is: a FIFO would hold us up, and opening a device may do something. What
        // cannot be opened is told when it is scanned.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(fs) = open(path, flags, Mode::empty())
            .map_err(drop)
            .and_then(|file| detect(&file, path).map_err(drop))
        else {
            return;
        };
        if self.found.contains_key(&fs.dev) {
            return;
        }
        let asked = device_geometry(&fs);
        let geometry = asked
            .as_ref()
            .map_or(Geometry::Unknown, |found| found.geometry);
        self.found.insert(fs.dev, geometry);
        self.told.push(Told {
            path: Name(path).to_string(),
            device: asked
                .as_ref()
                .ok()
                .map(|found| Name(&found.device).to_string()),
            geometry: geometry.to_string(),
            ordinary: asked.as_ref().is_err_and(NoGeometry::is_ordinary),
            reason: asked.err().map(|why| why.to_string()),
        });
    }

    /// Of the file system with this device number.
    pub(crate) fn of(&self, dev: u64) -> Geometry {
        self.given
            .or_else(|| self.found.get(&dev).copied())
            .unwrap_or_default()
    }

    /// Whether any is known.
    pub(crate) fn any(&self) -> bool {
        self.given.is_some_and(|given| given != Geometry::Unknown)
            || self.found.values().any(|found| *found != Geometry::Unknown)
    }

    /// The one that stands for a whole plan: as given, or the first that is known.
    pub(crate) fn main(&self) -> Geometry {
        let known = |told: &Told| told.geometry.parse().ok();
        self.given
            .or_else(|| {
                self.told
                    .iter()
                    .filter_map(known)
                    .find(|g| *g != Geometry::Unknown)
            })
            .unwrap_or_default()
    }

    /// For JSON.
    pub(crate) fn told(&self) -> Vec<Told> {
        match self.given {
            Some(given) => vec![Told {
                path: "*".to_owned(),
                device: None,
                geometry: given.to_string(),
                reason: None,
                ordinary: false,
            }],
            None => self.told.clone(),
        }
    }

    /// What to say in a summary, a line for each device.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |told: &Told| match (&told.device, &told.reason) {
            (Some(device), _) => format!("{} (told by {device})", told.geometry),
            (None, Some(reason)) => format!("unknown: {reason}"),
            (None, None) => told.geometry.clone(),
        };
        match self.given {
            Some(given) => vec![format!("{given} (as given)")],
            None => self.told.iter().map(line).collect(),
        }
    }

    /// `options` with the geometry of a file system.
    pub(crate) fn options<'a>(
        &self,
        options: &'a PlanOptions,
        dev: u64,
    ) -> std::borrow::Cow<'a, PlanOptions> {
        use std::borrow::Cow;
        match self.of(dev) {
            geometry if geometry == options.geometry => Cow::Borrowed(options),
            geometry => Cow::Owned(PlanOptions {
                geometry,
                ..options.clone()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_auto_or_a_geometry() {
        assert_eq!("auto".parse(), Ok(GeometryChoice::Auto));
        assert_eq!(
            "unknown".parse(),
            Ok(GeometryChoice::Given(Geometry::Unknown))
        );
        let error = "flat".parse::<GeometryChoice>().unwrap_err();
        assert!(error.contains("auto"), "{error}");
    }

    #[test]
    fn what_is_given_holds_everywhere() {
        let given: Geometry = "zoned:chips=4".parse().unwrap();
        let console = Console::plain();
        let choice = Some(GeometryChoice::Given(given));
        let geometries = Geometries::new(choice, &["/proc".into()], &console);
        assert!(geometries.any() && geometries.main() == given);
        assert_eq!(geometries.of(12345), given);
        assert!(geometries.lines()[0].contains("as given"));
    }

    #[test]
    fn what_cannot_be_asked_is_said_only_where_it_was_asked_for() {
        let console = Console::plain();
        let path = [PathBuf::from("/proc/self")];
        let asked = Geometries::new(Some(GeometryChoice::Auto), &path, &console);
        assert!(
            asked.lines()[0].starts_with("unknown: "),
            "{:?}",
            asked.lines()
        );
        assert!(!asked.any() && asked.main() == Geometry::Unknown);
        assert!(Geometries::new(None, &path, &console).lines().is_empty());
    }
}
