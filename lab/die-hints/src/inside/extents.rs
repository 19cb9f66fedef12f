//! Where files are on the device.

use std::{fs::File, path::Path};

use anyhow::{Result, ensure};
use linux_abi::fiemap::{ExtentFlags, FLAG_SYNC, Mapper};
use serde::{Deserialize, Serialize};

/// A file that [`super::run`] has written.
#[derive(Debug, Serialize, Deserialize)]
pub struct Written {
    /// Bytes of the file.
    pub bytes: u64,
    /// Its extents in order, as offset and length on the device.
    pub extents: Vec<(u64, u64)>,
}

/// The extents of a file, which has no holes.
pub(super) fn extents(path: &Path) -> Result<Written> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut mapper = Mapper::default();
    let mut extents = Vec::new();
    let mut at = 0;
    while at < bytes {
        let batch = mapper.batch(&file, at, bytes - at, FLAG_SYNC)?;
        let Some(last) = batch.last() else { break };
        for extent in batch {
            let flags = ExtentFlags::from_bits_retain(extent.flags);
            ensure!(
                !flags.intersects(ExtentFlags::UNKNOWN | ExtentFlags::UNWRITTEN),
                "the file is not written yet: {flags:?}"
            );
            extents.push((extent.physical, extent.length));
        }
        at = last.logical + last.length;
    }
    ensure!(at >= bytes, "{} has a hole at {at}", path.display());
    Ok(Written { bytes, extents })
}
