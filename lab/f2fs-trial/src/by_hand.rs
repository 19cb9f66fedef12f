//! Two uses of the ioctl by hand.

use std::{fs::File, os::fd::AsFd, path::Path};

use anyhow::{Context, Result, ensure};
use linux_abi::f2fs::offload::{Flags, Range, Status, offload, query as ask};

/// Print the device's capabilities.
pub(crate) fn query(folder: &Path) -> Result<()> {
    let folder = File::open(folder).with_context(|| folder.display().to_string())?;
    println!("{:?}", ask(&folder, Flags::empty())?);
    Ok(())
}

/// Move whole files, and print the result.
pub(crate) fn relocate(paths: &[&str]) -> Result<()> {
    let mut failed = 0;
    for path in paths {
        let file = File::open(path).with_context(|| (*path).to_owned())?;
        let range = Range {
            file: file.as_fd(),
            start: 0,
            len: file.metadata()?.len().next_multiple_of(4096),
        };
        let report = offload(&file, &[range], Flags::CHECKPOINT)?;
        println!("{path}: {report:?}");
        failed += usize::from(!matches!(
            report.ranges[0].status,
            Status::Done | Status::Contiguous
        ));
    }
    ensure!(failed == 0, "{failed} files were not moved");
    Ok(())
}
