//! Where a JSON document comes from: its `made` (docs/json.md), so that documents of many machines can be told apart.

use std::{
    env,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use indef_core::plan::PathJson;
use indef_pipeline::{
    place::{Place, places},
    tend::metrics::{About, FileSystemInfo},
};
use serde::{Deserialize, Serialize};

/// The name of the host, where it is not what the kernel tells: in a container.
const HOST: &str = "INDEF_HOST";

/// When, where and how a document was made. What a document of another version lacks has its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Made {
    /// By RFC 3339, in UTC.
    pub(crate) time: String,
    /// Since 1970.
    pub(crate) time_ns: u64,
    pub(crate) host: String,
    pub(crate) version: String,
    pub(crate) kernel: String,
    pub(crate) machine: String,
    /// The command line, where needed with replacement characters.
    pub(crate) command: Vec<String>,
    /// The working directory, to which relative paths of the document belong.
    pub(crate) directory: Option<PathJson>,
    /// The paths that were given.
    pub(crate) paths: Vec<PathJson>,
    pub(crate) file_systems: Vec<MadeOn>,
}

/// A file system that a given path is on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MadeOn {
    pub(crate) fs: String,
    pub(crate) uuid: Option<String>,
    pub(crate) mounted_at: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) device: Option<String>,
    pub(crate) model: Option<String>,
}

/// This host and its kernel (uname(2)). A container has a name of its own: whoever starts it tells the host's.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) release: String,
    pub(crate) machine: String,
}

impl Host {
    pub(crate) fn this() -> Self {
        let system = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let told = env::var_os(HOST).filter(|name| !name.is_empty());
        Self {
            name: told.map_or_else(
                || text(system.nodename()),
                |name| name.to_string_lossy().into_owned(),
            ),
            release: text(system.release()),
            machine: text(system.machine()),
        }
    }
}

impl Made {
    /// Made now, here, by this command line, of these paths.
    pub(crate) fn of(paths: &[PathBuf]) -> Self {
        let now = SystemTime::now();
        let host = Host::this();
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let word = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        Self {
            time: humantime::format_rfc3339_seconds(now).to_string(),
            time_ns: now
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64),
            host: host.name,
            version: env!("INDEF_VERSION").to_owned(),
            kernel: host.release,
            machine: host.machine,
            command: env::args_os().map(word).collect(),
            directory: env::current_dir()
                .ok()
                .map(|path| PathJson::from(path.as_path())),
            paths: paths
                .iter()
                .map(absolute)
                .map(|path| PathJson::from(path.as_path()))
                .collect(),
            file_systems: places(paths).iter().map(MadeOn::from).collect(),
        }
    }
}

/// The same for the metrics of `watch`.
pub(crate) fn about(paths: impl Iterator<Item = PathBuf>) -> About {
    let host = Host::this();
    let one = |path: PathBuf| {
        let on = MadeOn::from(places(std::slice::from_ref(&path)).first()?);
        Some(FileSystemInfo {
            path,
            fs: on.fs,
            uuid: on.uuid.unwrap_or_default(),
            device: on.device.unwrap_or_default(),
            model: on.model.unwrap_or_default(),
        })
    };
    About {
        version: env!("INDEF_VERSION").to_owned(),
        host: host.name,
        kernel: host.release,
        machine: host.machine,
        file_systems: paths.filter_map(one).collect(),
    }
}

impl From<&Place> for MadeOn {
    fn from(place: &Place) -> Self {
        let mount = place.mount.as_ref();
        let drive = place.drive.as_ref();
        Self {
            fs: place.kind.to_string(),
            uuid: place.uuid.clone(),
            mounted_at: mount.map(|mount| mount.point.display().to_string()),
            source: mount.map(|mount| mount.source.display().to_string()),
            device: drive.map(|drive| drive.path.display().to_string()),
            model: drive.and_then(|drive| drive.model.clone()),
        }
    }
}
