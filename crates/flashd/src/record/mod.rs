//! The ordered log of everything that is done to a device, and the way back from it.
//!
//! [`Recording`] notes each change in the order in which the store takes it; the earlier content of
//! the device comes first. [`replay`](mod@replay) builds from it the device at any mark, or any
//! state that a power cut could have left there; [`walk`] does so for many marks in one pass.
//! Together they are a way to test the crash consistency of the software above: record, then check
//! every flush boundary, and states in between.
//!
//! [`entry`] is the format of the file; one whose end is torn off reads up to there.

mod entry;
mod keep;
mod replay;
#[cfg(test)]
mod tests;
mod walk;
mod zone_ends;

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard},
};

pub use entry::{
    RecordEntry, RecordError, RecordHeader, RecordPart, RecordReader, UnusableRecording,
};
pub use keep::Keep;
pub use replay::{Mark, ParseMarkError, Replayed, marks, replay};
pub use walk::{Form, Walk};

use crate::store::{Change, Store, StoreError, StoreKind, ZoneChange, ZoneRest};

/// Bytes that are read at once of the content of a device when a recording begins.
const STEP: usize = 128 << 10;

/// The recording of a device, on or off.
#[derive(Debug, Default)]
pub struct Recording {
    /// Shared by all changes; taken alone to switch it on or off between two of them.
    gate: RwLock<bool>,
    log: Mutex<Log>,
}

/// The log that is being written, if it is.
#[derive(Debug, Default)]
pub struct Log {
    to: Option<Recorder>,
    /// The reason why it ended, if it failed.
    failed: Option<String>,
}

#[derive(Debug)]
struct Recorder {
    file: File,
    path: PathBuf,
    entries: u64,
    flushes: u64,
}

/// A recording's progress.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RecordingState {
    /// The file, while it is being written.
    pub path: Option<PathBuf>,
    /// Entries so far.
    pub entries: u64,
    /// Flushes so far.
    pub flushes: u64,
    /// The reason why it ended early.
    pub failed: Option<String>,
}

impl Recording {
    /// Begin to record to a new file, starting with the present content of the store.
    ///
    /// # Errors
    ///
    /// There is a recording already, the file exists or cannot be written, or the store cannot be
    /// read.
    pub fn begin(
        &self,
        path: &Path,
        profile: &str,
        kinds: &[StoreKind],
        store: &Store,
    ) -> Result<(), RecordError> {
        let mut on = self.gate.write().unwrap_or_else(|e| e.into_inner());
        let mut log = self.lock();
        if let Some(recorder) = &log.to {
            return Err(RecordError::Already {
                path: recorder.path.clone(),
            });
        }
        let file = File::create_new(path).map_err(|source| RecordError::io(path, source))?;
        let mut recorder = Recorder {
            file,
            path: path.to_owned(),
            entries: 0,
            flushes: 0,
        };
        let header = RecordHeader {
            profile: profile.to_owned(),
            namespaces: kinds.to_vec(),
        };
        recorder
            .file
            .write_all(&header.encode())
            .map_err(|source| RecordError::io(path, source))?;
        recorder.baseline(store)?;
        *log = Log {
            to: Some(recorder),
            failed: None,
        };
        *on = true;
        tracing::info!(path = %path.display(), "recording");
        Ok(())
    }

    /// Put a name on this place in the log.
    ///
    /// # Errors
    ///
    /// Nothing is being recorded, or the file cannot be written.
    pub fn mark(&self, name: &str) -> Result<(), RecordError> {
        let mut log = self.lock();
        let recorder = log.to.as_mut().ok_or(RecordError::NotRecording)?;
        recorder.append(&RecordEntry::Mark { name })
    }

    /// End it. Return its final progress.
    ///
    /// # Errors
    ///
    /// Nothing is being recorded, or the file cannot be synced.
    pub fn end(&self) -> Result<RecordingState, RecordError> {
        let mut on = self.gate.write().unwrap_or_else(|e| e.into_inner());
        *on = false;
        let state = self.state();
        let recorder = self.lock().to.take().ok_or(RecordError::NotRecording)?;
        recorder
            .file
            .sync_all()
            .map_err(|source| RecordError::io(&recorder.path, source))?;
        Ok(state)
    }

    /// Its progress.
    #[must_use]
    pub fn state(&self) -> RecordingState {
        let log = self.lock();
        RecordingState {
            path: log.to.as_ref().map(|recorder| recorder.path.clone()),
            entries: log.to.as_ref().map_or(0, |recorder| recorder.entries),
            flushes: log.to.as_ref().map_or(0, |recorder| recorder.flushes),
            failed: log.failed.clone(),
        }
    }

    /// To be held over a change to the store: whether it must be noted in [`Self::lock`]'s log,
    /// with that lock held over both.
    pub(crate) fn gate(&self) -> RwLockReadGuard<'_, bool> {
        self.gate.read().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Log {
    /// Note a change to a namespace (1 …).
    pub(crate) fn note(&mut self, namespace: u32, change: &Change<'_>) {
        self.append(&RecordEntry::Change {
            namespace,
            change: *change,
        });
    }

    /// Note that the power was cut, and end: no entry records which data was lost, so later entries
    /// would start from an unknown state.
    pub(crate) fn power_cut(&mut self) {
        if self.to.is_some() {
            self.append(&RecordEntry::PowerCut);
            self.to = None;
            self.failed = Some("it ended with the power cut".to_owned());
        }
    }

    /// A change failed. A part of a write may be there all the same, and no entry could say which.
    pub(crate) fn failed(&mut self, change: &Change<'_>, error: &StoreError) {
        if self.to.is_some() && matches!(change, Change::Write { .. } | Change::Zero { .. }) {
            tracing::error!(%error, "the recording has ended with a write that failed");
            self.failed = Some(format!("it ended with a write that failed: {error}"));
            self.to = None;
        }
    }

    /// The device goes on whatever happens to its recording.
    fn append(&mut self, entry: &RecordEntry<'_>) {
        let Some(recorder) = &mut self.to else {
            return;
        };
        if let Err(error) = recorder.append(entry) {
            tracing::error!(%error, "the recording has ended");
            self.failed = Some(error.to_string());
            self.to = None;
        }
    }
}

impl Recorder {
    fn append(&mut self, entry: &RecordEntry<'_>) -> Result<(), RecordError> {
        self.entries += 1;
        if let RecordEntry::Change {
            change: Change::Flush,
            ..
        } = entry
        {
            self.flushes += 1;
        }
        let (header, data) = entry.encode(self.entries);
        self.file
            .write_all(&header)
            .and_then(|()| self.file.write_all(data))
            .map_err(|source| RecordError::io(&self.path, source))
    }

    /// The content of the store, which becomes durable, as writes. Not counted as flushes: marks begin after it.
    fn baseline(&mut self, store: &Store) -> Result<(), RecordError> {
        let mut buffer = vec![0; STEP];
        for (id, namespace) in (1..).zip(&store.namespaces) {
            // A power cut at a mark leaves all of it, and so has it to be here.
            namespace.flush()?;
            let layout = namespace.zone_layout();
            let mut offset = 0;
            while offset < namespace.size_bytes() {
                // Zones may be smaller than a step: each ends where its own data does.
                let until = layout.map_or(namespace.size_bytes(), |zones| {
                    offset - offset % zones.size_bytes + zones.size_bytes
                });
                let part = (until - offset).min(STEP as u64) as usize;
                let data = &mut buffer[..part];
                namespace.read(offset, data)?;
                let end = written_end(&namespace.zones_now(), layout, offset);
                // Blocks in a zone count even when they hold zeroes; elsewhere zeroes are nothing.
                let zeroes = data.iter().all(|byte| *byte == 0);
                let len = end.map_or(if zeroes { 0 } else { part as u64 }, |end| {
                    end.saturating_sub(offset).min(part as u64)
                });
                if len > 0 {
                    let change = Change::Write {
                        offset,
                        data: &data[..len as usize],
                        fua: true,
                    };
                    self.append(&RecordEntry::Change {
                        namespace: id,
                        change,
                    })?;
                }
                offset += part as u64;
            }
            for (zone, rest) in namespace.zones_now().into_iter().enumerate() {
                let change = match rest {
                    ZoneRest::Written(_) => continue,
                    ZoneRest::Finished(_) => ZoneChange::Finish,
                    ZoneRest::ReadOnly(_) => ZoneChange::ReadOnly,
                    ZoneRest::Offline => ZoneChange::Offline,
                };
                self.append(&RecordEntry::Change {
                    namespace: id,
                    change: Change::Zone { zone, change },
                })?;
            }
        }
        self.append(&RecordEntry::Mark { name: "start" })
    }
}

/// The end of the data of the zone at `offset`; `None` without zones.
fn written_end(
    zones: &[ZoneRest],
    layout: Option<crate::store::ZoneLayout>,
    offset: u64,
) -> Option<u64> {
    let layout = layout?;
    let zone = offset / layout.size_bytes;
    let written = zones.get(zone as usize)?.written();
    Some(zone * layout.size_bytes + written)
}
