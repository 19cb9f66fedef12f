//! FAST'24, Figure 12, fileserver: files that grew by appends, read by several threads.

use flash_model::{Device, Profile};
use indef_core::layout::{Extent, ExtentFlags, Layout};
use lfs_sim::{disk::Disk, host::Access, readers::read};
use units::{Bytes, FileOffset, Nanos, PhysOffset};

use super::{
    error::FigureError,
    fast24::profile,
    measured::{Measured, Unit},
    parameters::Parameters,
};
use crate::fast24::{device::without_separation, fileset::Fileset, host::File};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let device = profile(parameters.text("device")?)?;
    let mut measured = parameters.measure(&["request_time", "threads"], |parameters| {
        rows(parameters, &device)
    })?;
    let published = rows(parameters, &without_separation())?;
    measured.add_sensitivity("device", "without separate parts", published);
    Ok(measured)
}

fn rows(parameters: &Parameters, device: &Profile) -> Result<Measured, FigureError> {
    let mut measured = Measured::default();
    for append in parameters.sizes("appends")? {
        let fileset = Fileset {
            profile: device.clone(),
            files: parameters.count("files")?,
            first: parameters.bytes("first")?,
            append,
            mean: parameters.bytes("mean")?,
            seed: parameters.count("seed")?,
        };
        let x = format!("{} KB", append >> 10);
        for (series, written) in [
            ("contiguous", fileset.contiguous()),
            ("without hints", fileset.appended(false)),
            ("with hints", fileset.appended(true)),
        ] {
            let speed = speed(parameters, written)?;
            measured.push(series, x.as_str(), speed, Unit::MbPerS);
        }
    }
    Ok(measured)
}

/// Speed at which threads read all files, each from end to end through the page cache, in MB/s.
fn speed(
    parameters: &Parameters,
    (device, files): (Device, Vec<File>),
) -> Result<f64, FigureError> {
    let mut simulated = lfs_sim::Parameters::default();
    simulated.host.cpus = parameters.count("cpus")? as usize;
    simulated.host.call = Nanos(0);
    simulated.host.block = parameters.time("block_time")?;
    simulated.host.request = parameters.time("request_time")?;
    let access = Access::Buffered {
        call: Bytes(parameters.bytes("window")?),
        readahead: Bytes(parameters.bytes("window")?),
    };
    let threads = parameters.count("threads")? as usize;
    let mut disk = Disk::new(device, simulated.host.queue_depth);
    let layouts = files.iter().map(layout);
    let read =
        read(&simulated, &mut disk, layouts, access, threads).map_err(FigureError::simulation)?;
    Ok(read.megabytes_per_second())
}

fn layout(file: &File) -> Layout {
    let mut at = FileOffset(0);
    let extents = file.pieces().iter().map(|piece| {
        let extent = Extent {
            file: at,
            phys: PhysOffset(piece.offset),
            len: Bytes(piece.len),
            flags: ExtentFlags::empty(),
        };
        at = extent.file_end();
        extent
    });
    Layout::new(extents.collect())
}
