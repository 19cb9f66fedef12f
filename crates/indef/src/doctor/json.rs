//! The answers as a JSON document (docs/json.md).

use indef_core::plan::PathJson;
use indef_pipeline::doctor::{Mounted, State};
use serde::Serialize;

use super::examine::Examined;
use crate::{document::SCHEMA, trace::check::LayerCheck};

#[derive(Serialize)]
pub(super) struct DoctorDocument<'a> {
    schema: u64,
    version: &'static str,
    kernel: &'a str,
    machine: &'a str,
    root: bool,
    file_systems: Vec<FileSystemEntry>,
    file_systems_error: Option<String>,
    capabilities: Vec<CapabilityEntry>,
    trace: TraceEntry<'a>,
    lab: Option<PathJson>,
    state: Option<StateEntry>,
    state_error: Option<String>,
    missing: Vec<MissingEntry>,
}

#[derive(Serialize)]
struct FileSystemEntry {
    #[serde(flatten)]
    path: PathJson,
    fs: String,
    source: String,
    device: Option<String>,
    model: Option<String>,
    rotational: Option<bool>,
    free_bytes: Option<u64>,
    size_bytes: Option<u64>,
    engine: Option<&'static str>,
    works: bool,
    reason: Option<&'static str>,
    error: Option<String>,
}

#[derive(Serialize)]
struct CapabilityEntry {
    name: &'static str,
    held: Option<bool>,
    purpose: &'static str,
}

#[derive(Serialize)]
struct TraceEntry<'a> {
    btf: bool,
    layers: &'a [LayerCheck],
}

#[derive(Serialize)]
struct StateEntry {
    #[serde(flatten)]
    path: PathJson,
    exists: bool,
    size_bytes: u64,
    runs_stopped: u64,
    runs_running: u64,
}

#[derive(Serialize)]
struct MissingEntry {
    what: String,
    how: String,
}

pub(super) fn document(found: &Examined) -> DoctorDocument<'_> {
    let (mounted, error) = match &found.file_systems {
        Ok(mounted) => (mounted.as_slice(), None),
        Err(error) => (&[][..], Some(error.to_string())),
    };
    let missing = found.missing().into_iter();
    DoctorDocument {
        schema: SCHEMA,
        version: env!("INDEF_VERSION"),
        kernel: &found.host.release,
        machine: &found.host.machine,
        root: found.is_root,
        file_systems: mounted.iter().map(FileSystemEntry::from).collect(),
        file_systems_error: error,
        capabilities: found
            .rights
            .iter()
            .map(|right| CapabilityEntry {
                name: right.name,
                held: right.held,
                purpose: right.purpose,
            })
            .collect(),
        trace: TraceEntry {
            btf: found.has_types,
            layers: &found.layers,
        },
        lab: found
            .lab
            .as_ref()
            .ok()
            .map(|path| PathJson::from(path.as_path())),
        state: found
            .state
            .as_ref()
            .ok()
            .and_then(|state| state.as_ref().map(StateEntry::from)),
        state_error: found.state.as_ref().err().map(ToString::to_string),
        missing: missing
            .map(|one| MissingEntry {
                what: one.what,
                how: one.how,
            })
            .collect(),
    }
}

impl From<&Mounted> for FileSystemEntry {
    fn from(one: &Mounted) -> Self {
        let served = one.served.as_ref().ok();
        let drive = served.and_then(|served| served.drive.as_ref());
        let space = served.and_then(|served| served.space);
        Self {
            path: PathJson::from(one.mount.point.as_path()),
            fs: one.mount.fs_type.clone(),
            source: one.mount.source.display().to_string(),
            device: drive.map(|drive| drive.path.display().to_string()),
            model: drive.and_then(|drive| drive.model.clone()),
            rotational: drive.map(indef_fs::Drive::is_rotational),
            free_bytes: space.map(|(free, _)| free.get()),
            size_bytes: space.map(|(_, size)| size.get()),
            engine: served.and_then(|served| served.engine.map(indef_fs::EngineKind::name)),
            works: served.is_some_and(indef_pipeline::doctor::Served::works),
            reason: served.and_then(|served| served.refused.map(indef_core::SkipReason::as_str)),
            error: one.served.as_ref().err().map(ToString::to_string),
        }
    }
}

impl From<&State> for StateEntry {
    fn from(state: &State) -> Self {
        Self {
            path: PathJson::from(state.directory.as_path()),
            exists: state.exists,
            size_bytes: state.bytes.get(),
            runs_stopped: state.stopped(),
            runs_running: state.running(),
        }
    }
}
