//! A background reader.

use std::{
    fs::OpenOptions,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Reads the first 128 KiB of a file, bypassing the page cache, some fifty times a second, until it is
/// dropped.
pub(crate) struct Reader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Start reading.
    pub(crate) fn of(path: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
            .open(path)
            .unwrap();
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = scratch_fs::AlignedBuffer::new(128 << 10);
            while !flag.load(Ordering::Relaxed) {
                assert_eq!(file.read_at(buffer.slice(), 0).unwrap(), 128 << 10);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}
