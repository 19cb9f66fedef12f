//! From options to the settings that the programs are loaded with.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use units::Bytes;

use super::{
    btrfs,
    contract::{COMM_BYTES, Comm, Config, MAX_COMMS, MAX_DEVICES, MAX_ROOTS, Root},
    error::{FilterProblem, Limited, TraceError},
    namespace,
    options::{Filter, Layer, TraceOptions},
    overlay::{self, is_overlay},
};
use crate::mounts::{self, Mount, kernel_device};

/// The settings that the programs are loaded with.
pub(super) fn settings(options: &TraceOptions) -> Result<Config, TraceError> {
    let filter = &options.filter;
    let mut config = Config {
        reads: options.reads.into(),
        writes: options.writes.into(),
        raw: options.raw.into(),
        runs: (options.layer == Layer::Syscall && options.readahead != Some(Bytes::ZERO)).into(),
        by_task: (filter.only_followed || !filter.pids.is_empty()).into(),
        by_cgroup: filter.cgroup.is_some().into(),
        by_root: (!filter.paths.is_empty()).into(),
        collector: std::process::id(),
        pid_ns: namespace::own()?,
        is_bounded: (options.sampling.budget().is_some() && !options.raw).into(),
        page_bits: rustix::param::page_size().ilog2() as u8,
        ..Config::default()
    };
    if !filter.pids.is_empty() && !namespace::is_of_proc() {
        return Err(TraceError::ForeignProc);
    }
    if let Some(uid) = filter.uid {
        config.by_uid = 1;
        config.uid = uid;
    }
    if filter.comms.len() > config.comms.len() {
        return Err(TraceError::TooMany {
            what: Limited::Names,
            limit: MAX_COMMS as usize,
        });
    }
    for (comm, name) in config.comms.iter_mut().zip(&filter.comms) {
        *comm = kept_name(name);
    }
    config.comms_len = filter.comms.len() as u32;
    devices(&mut config, filter)?;
    Ok(config)
}

/// A process's name as the kernel keeps it: cut, and filled up with at least one zero.
fn kept_name(name: &str) -> Comm {
    let mut bytes = [0; COMM_BYTES as usize];
    let len = name.len().min(bytes.len() - 1);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    zerocopy::transmute!(bytes)
}

/// `--path`: each file or folder, and every mount below it. Of an overlay, these are the places in its
/// layers: no access is seen on the overlay itself. `hidden` gets layers that cannot be looked at.
pub(super) fn roots(filter: &Filter, hidden: &mut Vec<PathBuf>) -> Result<Vec<Root>, TraceError> {
    let mounts = mounts::all();
    let mut roots = Vec::new();
    for path in &filter.paths {
        let wrong = |problem| TraceError::Filter {
            path: path.clone(),
            problem,
        };
        let path = fs::canonicalize(path).map_err(|error| wrong(FilterProblem::NotFound(error)))?;
        let status = fs::metadata(&path).map_err(|error| wrong(FilterProblem::NoStatus(error)))?;
        if !status.is_dir() && !status.is_file() {
            return Err(wrong(FilterProblem::NoFile));
        }
        roots.push(root(&status));
        if let Some(layers) = overlay::beneath(&mounts, &path) {
            if layers.found.is_empty() {
                return Err(wrong(FilterProblem::HiddenLayers));
            }
            roots.extend(layers.found.iter().map(root));
            hidden.extend(layers.hidden);
        }
        let below = |mount: &&Mount| mount.point != path && mount.point.starts_with(&path);
        for mount in mounts.iter().filter(below) {
            // One that cannot be looked at has no accesses.
            roots.extend(fs::metadata(&mount.point).ok().as_ref().map(root));
            if is_overlay(mount)
                && let Some(layers) = overlay::beneath(&mounts, &mount.point)
            {
                roots.extend(layers.found.iter().map(root));
                hidden.extend(layers.hidden);
            }
        }
    }
    hidden.sort_unstable();
    hidden.dedup();
    roots.sort_unstable_by_key(|root| (root.dev, root.inode));
    roots.dedup_by_key(|root| (root.dev, root.inode));
    if roots.len() > MAX_ROOTS as usize {
        return Err(TraceError::TooMany {
            what: Limited::Paths,
            limit: MAX_ROOTS as usize,
        });
    }
    Ok(roots)
}

fn root(status: &fs::Metadata) -> Root {
    Root {
        inode: status.ino(),
        dev: kernel_device(status.dev()),
        reserved: 0,
    }
}

/// `--device`: the device itself, and the file systems that it carries.
fn devices(config: &mut Config, filter: &Filter) -> Result<(), TraceError> {
    if filter.devices.is_empty() {
        return Ok(());
    }
    let mounts = mounts::everywhere();
    for path in &filter.devices {
        let status = fs::metadata(path).map_err(|error| TraceError::Filter {
            path: path.clone(),
            problem: FilterProblem::NotFound(error),
        })?;
        if !status.file_type().is_block_device() {
            return Err(TraceError::Filter {
                path: path.clone(),
                problem: FilterProblem::NoBlockDevice,
            });
        }
        let device = kernel_device(status.rdev());
        push_device(config, device)?;
        // A file system with a device number of its own (Btrfs) is found by the device that it is
        // mounted from, which may be another one of its devices.
        let siblings = btrfs::siblings(device);
        for mount in mounts.iter().filter(|mount| is_on(mount, &siblings)) {
            push_device(config, mount.sb_dev)?;
        }
    }
    // F2FS may have further devices, which nothing tells; those of Btrfs are in a map of their own.
    config.only_devices = (!mounts.iter().any(|mount| mount.fs_type == "f2fs")).into();
    Ok(())
}

fn is_on(mount: &Mount, devices: &[u32]) -> bool {
    let source = Path::new(&mount.source);
    source.is_absolute()
        && fs::metadata(source).is_ok_and(|status| {
            status.file_type().is_block_device() && devices.contains(&kernel_device(status.rdev()))
        })
}

fn push_device(config: &mut Config, device: u32) -> Result<(), TraceError> {
    let len = config.devices_len as usize;
    if config.devices[..len].contains(&device) {
        return Ok(());
    }
    let Some(free) = config.devices.get_mut(len) else {
        return Err(TraceError::TooMany {
            what: Limited::Devices,
            limit: MAX_DEVICES as usize,
        });
    };
    *free = device;
    config.devices_len += 1;
    Ok(())
}
