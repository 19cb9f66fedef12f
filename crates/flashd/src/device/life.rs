//! What the device counts all its life, for SMART.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Device;
use crate::{
    lock::lock,
    store::{Life, StoreError},
};

impl Device {
    /// The counters, those of earlier processes with the same backing file included.
    #[must_use]
    pub fn life(&self) -> Life {
        let before = &self.lived.before;
        let sum = |before: u64, since: &AtomicU64| before + since.load(Ordering::Relaxed);
        let cuts = self.power_cuts();
        Life {
            reads: sum(before.reads, &self.lived.reads),
            writes: sum(before.writes, &self.lived.writes),
            read_bytes: sum(before.read_bytes, &self.lived.read_bytes),
            written_bytes: sum(before.written_bytes, &self.lived.written_bytes),
            media_errors: sum(before.media_errors, &self.lived.media_errors),
            powered_ns: before.powered_ns + self.clock.real_ns(),
            power_cycles: before.power_cycles + cuts,
            unsafe_shutdowns: before.unsafe_shutdowns + cuts,
            in_use: !self.lived.has_ended.load(Ordering::Relaxed),
        }
    }

    /// Count a read of a host.
    pub(crate) fn count_read(&self, bytes: u64) {
        self.lived.reads.fetch_add(1, Ordering::Relaxed);
        self.lived.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Count a write of a host.
    pub(crate) fn count_write(&self, bytes: u64) {
        self.lived.writes.fetch_add(1, Ordering::Relaxed);
        self.lived.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Count a command that failed for the sake of the bytes.
    pub(crate) fn count_media_error(&self) {
        self.lived.media_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters, kept before anybody learns them: a kill that follows takes none of them back.
    pub(crate) fn life_to_tell(&self) -> Life {
        let _keeping = lock(&self.lived.keeping);
        let life = self.life();
        if let Err(error) = self.store.save_life(&life) {
            tracing::warn!(%error, "counters that a host learns are not kept");
        }
        life
    }

    /// Keep the counters in the backing file.
    pub(super) fn save_life(&self) -> Result<(), StoreError> {
        let _keeping = lock(&self.lived.keeping);
        self.store.save_life(&self.life())
    }

    /// The power may go: nothing is lost with it.
    pub(super) fn end_life(&self) -> Result<(), StoreError> {
        self.lived.has_ended.store(true, Ordering::Relaxed);
        self.save_life()
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use flash_model::{NamespaceKind, Profile};
    use units::Bytes;

    use super::*;
    use crate::device::{DeviceOptions, NamespaceOptions, StoreOptions};

    fn open(path: &Path) -> Arc<Device> {
        let namespace = NamespaceOptions {
            kind: NamespaceKind::Conventional,
            size: Bytes::mib(16),
        };
        let profile = Profile::builtin("zero").unwrap();
        let mut options = DeviceOptions::in_memory(profile, &[namespace]);
        options.store = StoreOptions::sparse_file(path);
        Device::open(&options).unwrap()
    }

    #[test]
    fn what_a_drive_counts_goes_on_when_it_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let device = open(&path);
        device.count_read(4096);
        device.count_write(8192);
        device.count_write(512);
        device.count_media_error();
        device.power_cut();
        let ends = device.life();
        device.close().unwrap();
        drop(device);

        let device = open(&path);
        let life = device.life();
        assert!(life.powered_ns > ends.powered_ns);
        let expected = Life {
            reads: 1,
            writes: 2,
            read_bytes: 4096,
            written_bytes: 8704,
            media_errors: 1,
            powered_ns: life.powered_ns,
            // Two starts, and the power was cut.
            power_cycles: 3,
            unsafe_shutdowns: 1,
            in_use: true,
        };
        assert_eq!(life, expected);

        // As good as a kill: what was told is kept, the rest is not.
        device.count_read(1);
        assert_eq!(device.life_to_tell().reads, 2);
        device.count_read(1);
        drop(device);
        let life = open(&path).life();
        assert_eq!((life.reads, life.read_bytes), (2, 4097));
        assert_eq!((life.power_cycles, life.unsafe_shutdowns), (4, 2));
    }
}
