//! The state that outlives the process: the data, the model's mapping, wear and zones, and what SMART counts.

use std::path::Path;

use super::{Device, Failure};
use crate::{lock::lock, record::RecordError, store::StoreError};

impl Device {
    /// Whether the device is still there when the process is gone.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.store.is_persistent()
    }

    /// Keep the model's mapping, wear and zones, and the counters of the device's life, in the backing file. A kill
    /// loses the changes to them since the last time, and never data or write pointers.
    ///
    /// # Errors
    ///
    /// The file cannot be written; the state kept before is still there.
    pub fn save_model(&self) -> Result<(), StoreError> {
        self.store.save_image(|| lock(&self.model).image())?;
        self.save_life()
    }

    /// Make everything durable, down to the host's disk. The device can still be used.
    ///
    /// # Errors
    ///
    /// Some data could not be written.
    pub fn close(&self) -> Result<(), Failure> {
        let flushed = self.flush_all();
        let recorded = self.recording.end();
        if let Err(error @ RecordError::Io { .. }) = recorded {
            tracing::error!(%error, "the recording was not synced");
        }
        let saved = self.save_model();
        // Whatever failed, the disk gets what there is; and the life ends well only where nothing has failed.
        self.store.sync_file()?;
        flushed?;
        saved?;
        self.end_life()?;
        Ok(self.store.sync_file()?)
    }

    /// Begin to record to a new file, starting with the present content of the device.
    ///
    /// # Errors
    ///
    /// There is a recording already, or the file cannot be made.
    pub fn record_to(&self, path: &Path) -> Result<(), RecordError> {
        self.recording
            .begin(path, self.profile.name(), &self.kinds, &self.store)
    }
}
