//! The reasons for which there is no file system.

use std::{fs, io, path::PathBuf};

/// A scratch file system could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// This machine cannot: no root, no mkfs, no loop device, not in the kernel.
    #[error("cannot make a scratch {kind} file system: {why}")]
    Unavailable {
        /// File system.
        kind: String,
        /// The missing part.
        why: Lack,
    },
    /// Something went wrong that should not.
    #[error("{command}: {output}")]
    Command {
        /// The command line.
        command: String,
        /// Its output.
        output: String,
    },
    /// Unmounted here, it is still mounted elsewhere, so that nothing can be said of what is on it.
    #[error(
        "{device} is still in use although it is unmounted here: another mount namespace (a container that started \
         meanwhile, say) holds a copy of the mount"
    )]
    Busy {
        /// The disk.
        device: String,
    },
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The missing part of a machine that cannot have a file system on a loop file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lack {
    /// Devices and mounts are root's.
    #[error("it needs root (loop device, mount)")]
    Root,
    /// It is not built in, and no module.
    #[error("this kernel does not have it")]
    Kernel,
    /// The program that makes it.
    #[error("{} is not installed", .0.display())]
    Program(PathBuf),
    /// There is none, or none is free.
    #[error("no loop device: {0}")]
    LoopDevice(Box<ScratchError>),
    /// The program that checks it.
    #[error("no checker known")]
    Checker,
}

impl ScratchError {
    /// Whether this machine could have done it if it were set up: root, and a kernel that has the
    /// file system. Then a skip says that a tool is missing or that something broke.
    #[must_use]
    pub fn should_have_worked(&self) -> bool {
        match self {
            Self::Unavailable { kind, .. } => {
                rustix::process::geteuid().is_root() && kernel_has(kind).unwrap_or(true)
            }
            Self::Command { .. } | Self::Busy { .. } | Self::Io(_) => true,
        }
    }
}

pub(crate) fn kernel_has(kind: &str) -> io::Result<bool> {
    let supported = fs::read_to_string("/proc/filesystems")?;
    Ok(supported.lines().any(|line| line.trim() == kind))
}

/// A device's `stat` in sysfs that has no such columns; the source of an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("unexpected {device}/stat: {stat}")]
pub(crate) struct UnexpectedStat {
    device: String,
    stat: String,
}

impl UnexpectedStat {
    pub(crate) fn new(device: &str, stat: &str) -> Self {
        Self {
            device: device.to_owned(),
            stat: stat.to_owned(),
        }
    }
}
