//! From options to the settings that the programs are loaded with.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use super::{Filter, Layer, TraceError, TraceOptions, btrfs, skeleton::types};
use crate::mounts::{self, Mount, kernel_device};

/// `MAX_ROOTS` of the contract.
const MAX_ROOTS: usize = 4096;
/// `MAX_DEVICES` of the contract.
const MAX_DEVICES: usize = 32;

/// Fill in the settings.
pub(super) fn fill(config: &mut types::config, options: &TraceOptions) -> Result<(), TraceError> {
    let filter = &options.filter;
    config.reads = options.reads.into();
    config.writes = options.writes.into();
    config.raw = options.raw.into();
    config.runs = (options.layer == Layer::Syscall && options.readahead.0 > 0).into();
    config.by_task = (filter.only_followed || !filter.pids.is_empty()).into();
    config.by_cgroup = filter.cgroup.is_some().into();
    config.slf = std::process::id();
    if let Some(uid) = filter.uid {
        config.by_uid = 1;
        config.uid = uid;
    }
    if let Some(comm) = &filter.comm {
        // The kernel keeps 15 bytes of a name.
        let name = &comm.as_bytes()[..comm.len().min(15)];
        config.comm[..name.len()].copy_from_slice(name);
        config.comm_len = name.len() as u32;
        // A shorter name must end where ours ends.
        if name.len() < 15 {
            config.comm_len += 1;
        }
    }
    config.by_root = u8::from(!filter.paths.is_empty());
    devices(config, filter)
}

/// `--path`: each file or folder, and every mount below it.
pub(super) fn roots(filter: &Filter) -> Result<Vec<types::root>, TraceError> {
    let mounts = mounts::all();
    let mut roots = Vec::new();
    for path in &filter.paths {
        let wrong = |problem: String| TraceError::Filter {
            path: path.clone(),
            problem,
        };
        let path = fs::canonicalize(path).map_err(|error| wrong(cannot("be found", &error)))?;
        let status = fs::metadata(&path).map_err(|error| wrong(cannot("be looked at", &error)))?;
        if !status.is_dir() && !status.is_file() {
            return Err(wrong("is neither a file nor a folder".to_owned()));
        }
        roots.push(root(&status));
        for mount in &mounts {
            if mount.point != path
                && mount.point.starts_with(&path)
                && let Ok(status) = fs::metadata(&mount.point)
            {
                roots.push(root(&status));
            }
        }
    }
    if roots.len() > MAX_ROOTS {
        return Err(TraceError::TooMany {
            what: "paths, with the mounts below them",
            limit: MAX_ROOTS,
        });
    }
    Ok(roots)
}

fn root(status: &fs::Metadata) -> types::root {
    types::root {
        inode: status.ino(),
        dev: kernel_device(status.dev()),
        reserved: 0,
    }
}

/// `--device`: the device itself, and the file systems that it carries.
fn devices(config: &mut types::config, filter: &Filter) -> Result<(), TraceError> {
    if filter.devices.is_empty() {
        return Ok(());
    }
    let mounts = mounts::everywhere();
    for path in &filter.devices {
        let status = fs::metadata(path).map_err(|error| TraceError::Filter {
            path: path.clone(),
            problem: cannot("be found", &error),
        })?;
        if !status.file_type().is_block_device() {
            return Err(TraceError::Filter {
                path: path.clone(),
                problem: "is not a block device; give one like /dev/nvme0n1p1, or --path for a \
                          mounted file system"
                    .to_owned(),
            });
        }
        let device = kernel_device(status.rdev());
        push_device(config, device)?;
        // A file system with a number of its own (Btrfs) is known by what it is mounted from, which
        // may be another one of its devices.
        let siblings = btrfs::siblings(device);
        for mount in mounts.iter().filter(|mount| is_on(mount, &siblings)) {
            push_device(config, mount.sb_dev)?;
        }
    }
    Ok(())
}

fn is_on(mount: &Mount, devices: &[u32]) -> bool {
    let source = Path::new(&mount.source);
    source.is_absolute()
        && fs::metadata(source).is_ok_and(|status| {
            status.file_type().is_block_device() && devices.contains(&kernel_device(status.rdev()))
        })
}

fn push_device(config: &mut types::config, device: u32) -> Result<(), TraceError> {
    let len = config.devices_len as usize;
    if config.devices[..len].contains(&device) {
        return Ok(());
    }
    let Some(free) = config.devices.get_mut(len) else {
        return Err(TraceError::TooMany {
            what: "devices, with the file systems on them",
            limit: MAX_DEVICES,
        });
    };
    *free = device;
    config.devices_len += 1;
    Ok(())
}

fn cannot(what: &str, error: &std::io::Error) -> String {
    format!("cannot {what}: {error}")
}
