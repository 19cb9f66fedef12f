//! The device as a file for a loop device: `DIR/disk`, through FUSE.
//!
//! ```text
//! losetup --direct-io=on -b 4096 -f --show DIR/disk
//! ```
//!
//! It needs all of these: asynchronous direct I/O (else one request is in
//! flight), 256 background requests, no page cache in between, all memory there before the first
//! request and marked as that of an I/O path (`PR_SET_IO_FLUSHER`), because the host's writeback
//! goes through this process and must not wait for itself.
//!
//! Reads and writes are answered at the model's time. A loop device lets a flush, a discard or
//! zeroing hold up all other requests, so these are accounted in the model and answered at once.

mod disk;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::{mm::MlockAllFlags, mount::UnmountFlags};

use crate::device::Device;
pub use disk::DISK_NAME;
use disk::Disk;

/// Why a device cannot be mounted at a place.
#[derive(Debug, thiserror::Error)]
pub enum NoMountPoint {
    /// It is not there, or no directory.
    #[error("{0}")]
    Unreadable(io::Error),
    /// There is something in it.
    #[error("it is not empty; give an empty directory")]
    NotEmpty,
}

/// A device cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Not a directory, or not empty.
    #[error("{}: {reason}", path.display())]
    Directory {
        /// The place where it should be mounted.
        path: PathBuf,
        /// The mistake.
        reason: NoMountPoint,
    },
    /// FUSE cannot mount it.
    #[error("{}: cannot mount: {source}{}", path.display(), advice(source))]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is still in use.
    #[error(
        "{0}: still in use; unmount what is on it and detach its loop device (losetup -j \
         {0}/{DISK_NAME}), then it ends by itself; another signal ends it now",
        path.display()
    )]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; is FUSE in this kernel (/dev/fuse)?",
        io::ErrorKind::PermissionDenied => "; it needs root, or fusermount3",
        _ => "",
    }
}

/// A device that is mounted. Unmounted when dropped, by force if need be.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    session: Option<JoinHandle<io::Result<()>>>,
}

/// Mark this process as a part of the I/O path, before it has other threads: an allocation does not
/// wait for writeback that waits for it
/// (`PR_SET_IO_FLUSHER`, prctl(2), since 5.6).
pub fn become_io_path() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::warn!(%error, "not marked as an I/O flusher (it needs CAP_SYS_RESOURCE); \
            only memory that is there already is counted on");
    }
}

/// Bring in and lock all memory that this process has now (the model's tables as well), and lock
/// later memory as soon as it is used. To be called when the device is open.
pub fn lock_memory() {
    let later = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let locked =
        rustix::mm::mlockall(MlockAllFlags::CURRENT).and_then(|()| rustix::mm::mlockall(later));
    if let Err(error) = locked {
        tracing::warn!(%error, "memory is not locked (see ulimit -l): it may be swapped out, and \
            under memory pressure the device may wait for itself");
    }
}

impl Mounted {
    /// Mount the first namespace of a device. `ended` is called when somebody has unmounted it.
    ///
    /// # Errors
    ///
    /// `path` is no empty directory, or FUSE refuses.
    pub fn start(
        device: &Arc<Device>,
        path: &Path,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, MountError> {
        let path = prepare(path)?;
        let failed = |source| MountError::Mount {
            path: path.clone(),
            source,
        };
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("flashd".to_owned()),
            MountOption::Subtype("flashd".to_owned()),
            MountOption::NoAtime,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        config.acl = SessionACL::Owner;
        // `Disk` counts on it: a part of a block is written by reading, changing and writing the block.
        config.n_threads = Some(1);
        let disk = Disk::new(Arc::clone(device));
        let session = Session::new(disk, &path, &config).map_err(failed)?;
        let session = std::thread::Builder::new()
            .name("flashd-fuse".to_owned())
            .spawn(move || {
                let result = session.run();
                ended();
                result
            })
            .map_err(failed)?;
        let mounted = Self {
            path,
            session: Some(session),
        };
        let size = device
            .namespaces()
            .first()
            .map_or(0, |first| first.size_bytes);
        disk::touch_request_buffer(&mounted.disk(), size).map_err(|source| MountError::Mount {
            path: mounted.path.clone(),
            source,
        })?;
        Ok(mounted)
    }

    /// The file.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        self.path.join(DISK_NAME)
    }

    /// Unmount, unless it is in use.
    ///
    /// # Errors
    ///
    /// It is in use, or the system refuses.
    pub fn unmount(&mut self) -> Result<(), MountError> {
        self.unmount_with(UnmountFlags::empty())
    }

    /// Unmount as soon as nobody uses it, or by force when `hurry` returns true. Asks a few times a
    /// second.
    pub fn unmount_when_unused(&mut self, hurry: &mut dyn FnMut() -> bool) {
        while matches!(self.unmount(), Err(MountError::Busy { .. })) {
            if hurry() {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Unmount even if it is in use: its users get errors.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn unmount_by_force(&mut self) -> Result<(), MountError> {
        self.unmount_with(UnmountFlags::FORCE | UnmountFlags::DETACH)
    }

    fn unmount_with(&mut self, flags: UnmountFlags) -> Result<(), MountError> {
        let Some(session) = &self.session else {
            return Ok(());
        };
        if !session.is_finished() {
            unmount(&self.path, flags)?;
        }
        // By force the session may live on until its last user has closed the file.
        let patience = Instant::now() + Duration::from_secs(5);
        while !session.is_finished() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(session) = self.session.take_if(|session| session.is_finished()) {
            match session.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the FUSE session ended with an error"),
                Err(_) => tracing::error!("the FUSE session panicked"),
            }
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.unmount_by_force() {
            tracing::warn!(%error, "left mounted");
        }
    }
}

fn unmount(path: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    match rustix::mount::unmount(path, flags) {
        // Nothing is mounted there any more.
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(MountError::Busy {
            path: path.to_owned(),
        }),
        Err(rustix::io::Errno::PERM) => unmount_as_user(path),
        Err(source) => Err(MountError::Mount {
            path: path.to_owned(),
            source: source.into(),
        }),
    }
}

/// Without root, through FUSE's own program.
fn unmount_as_user(path: &Path) -> Result<(), MountError> {
    let output = std::process::Command::new("fusermount3")
        .arg("-u")
        .arg(path)
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => Err(MountError::Busy {
            path: path.to_owned(),
        }),
        Err(source) => Err(MountError::Mount {
            path: path.to_owned(),
            source,
        }),
    }
}

/// An empty directory, with the mount of a daemon that was killed taken away.
fn prepare(path: &Path) -> Result<PathBuf, MountError> {
    let wrong = |reason| MountError::Directory {
        path: path.to_owned(),
        reason,
    };
    if let Err(error) = fs::metadata(path)
        && error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error())
    {
        tracing::warn!(path = %path.display(), "unmounting what a killed daemon has left");
        unmount(path, UnmountFlags::DETACH)?;
    }
    let failed = |error| wrong(NoMountPoint::Unreadable(error));
    let path = path.canonicalize().map_err(failed)?;
    let mut entries = fs::read_dir(&path).map_err(failed)?;
    if entries.next().is_some() {
        return Err(wrong(NoMountPoint::NotEmpty));
    }
    Ok(path)
}
