//! The devices' internal geometry, as text and as JSON.

use std::path::Path;

use indef_core::{layout::Geometry, plan::PathJson};
use indef_pipeline::geometry::{DeviceAnswer, Geometries};
use serde::Serialize;

use crate::output::Name;

/// The internal geometry of one file system's device, for JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DeviceInside {
    /// One of its paths.
    #[serde(flatten)]
    path: PathJson,
    device: Option<String>,
    geometry: String,
    /// The reason for which it is unknown.
    reason: Option<String>,
    /// When a probe of the drive found it, in seconds since 1970.
    probed_at: Option<u64>,
}

impl From<&DeviceAnswer> for DeviceInside {
    fn from(answer: &DeviceAnswer) -> Self {
        let told = answer.told.as_ref();
        let geometry = told.map_or_else(|_| Geometry::Unknown, |found| found.geometry);
        Self {
            path: PathJson::from(answer.path.as_path()),
            device: told.ok().map(|found| found.device.display().to_string()),
            geometry: geometry.to_string(),
            reason: told.err().map(ToString::to_string),
            probed_at: answer.probed.as_ref().map(|stored| stored.probed_at),
        }
    }
}

/// The entries for JSON.
pub(super) fn told(geometries: &Geometries) -> Vec<DeviceInside> {
    match geometries.given() {
        Some(given) => vec![DeviceInside {
            path: PathJson::from(Path::new("*")),
            device: None,
            geometry: given.to_string(),
            reason: None,
            probed_at: None,
        }],
        None => geometries.answers().iter().map(Into::into).collect(),
    }
}

/// The lines for a summary, one for each device.
pub(super) fn lines(geometries: &Geometries) -> Vec<String> {
    let line = |answer: &DeviceAnswer| match (&answer.told, &answer.probed) {
        (Ok(found), None) => format!("{} (told by {})", found.geometry, Name(&found.device)),
        (Ok(found), Some(_)) => {
            let device = Name(&found.device).to_string();
            format!("{} (found by a probe of {device})", found.geometry)
        }
        (Err(why), None) => format!("unknown: {why}"),
        (Err(_), Some(stored)) => {
            let why = stored.findings.placement.err();
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            format!("unknown: a probe of the drive could not tell{why}")
        }
    };
    match geometries.given() {
        Some(given) => vec![format!("{given} (as given)")],
        None => geometries.answers().iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use indef_pipeline::geometry::GeometryChoice;

    use super::*;

    #[test]
    fn what_is_given_holds_everywhere() {
        let given: Geometry = "zoned:chips=4".parse().unwrap();
        let choice = Some(GeometryChoice::Given(given));
        let geometries = Geometries::new(choice, &["/proc".into()], &());
        assert!(geometries.any() && geometries.main() == given);
        assert_eq!(geometries.of(12345), given);
        assert!(lines(&geometries)[0].contains("as given"));
    }

    #[test]
    fn the_path_in_json_is_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("two\nlines");
        std::fs::create_dir(&odd).unwrap();
        let geometries =
            Geometries::new(Some(GeometryChoice::Auto), std::slice::from_ref(&odd), &());
        let told = serde_json::to_value(told(&geometries)).unwrap();
        assert_eq!(told[0]["path"], odd.to_str().unwrap());
    }

    #[test]
    fn what_cannot_be_asked_is_said_only_where_it_was_asked_for() {
        let path = [PathBuf::from("/proc/self")];
        let asked = Geometries::new(Some(GeometryChoice::Auto), &path, &());
        assert!(
            lines(&asked)[0].starts_with("unknown: "),
            "{:?}",
            lines(&asked)
        );
        assert!(!asked.any() && asked.main() == Geometry::Unknown);
        assert!(lines(&Geometries::new(None, &path, &())).is_empty());
    }
}
