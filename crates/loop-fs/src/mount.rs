//! mkfs, attach, mount; and the way back.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, OFlags, flock};
use units::Bytes;

use crate::{
    Lack, ScratchError,
    check::check,
    command::run,
    error::{UnexpectedStat, kernel_has},
};

/// How long to wait for others who have copies of a mount, unless somebody says otherwise.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to check a disk that others keep mounting.
const TRIES: u32 = 3;

/// Bytes that a device has transferred, by its own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceBytes {
    /// Read from it.
    pub read: Bytes,
    /// Written to it.
    pub written: Bytes,
}

impl std::ops::Sub for DeviceBytes {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            read: self.read - earlier.read,
            written: self.written - earlier.written,
        }
    }
}

/// Describes a file system to make.
#[derive(Clone, Debug)]
pub struct ScratchFsBuilder {
    kind: String,
    size: Bytes,
    mkfs: Vec<String>,
    options: String,
    folder: PathBuf,
    copy_of: Option<PathBuf>,
    tools: Option<PathBuf>,
    zoned: Option<(String, String)>,
    patience: Duration,
}

impl ScratchFsBuilder {
    /// Arguments for mkfs, before the device.
    #[must_use]
    pub fn mkfs_args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.mkfs.extend(args.into_iter().map(Into::into));
        self
    }

    /// Mount options, comma separated.
    #[must_use]
    pub fn mount_options(mut self, options: &str) -> Self {
        self.options = options.to_owned();
        self
    }

    /// Keep the loop file below this folder instead of the system's temporary one.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        folder.clone_into(&mut self.folder);
        self
    }

    /// Make no new file system: start from a copy of this image (from [`ScratchFs::image`], when
    /// it was not mounted). Size and mkfs arguments are then of no effect.
    #[must_use]
    pub fn copy_of(mut self, image: &Path) -> Self {
        self.copy_of = Some(image.to_owned());
        self
    }

    /// Take mkfs and the checker from this folder instead of the system's.
    #[must_use]
    pub fn tools(mut self, folder: &Path) -> Self {
        self.tools = Some(folder.to_owned());
        self
    }

    /// No loop file: F2FS on these disks, one without zones and one with. What is on them is lost.
    #[must_use]
    pub fn on_zones(mut self, conventional: &str, zoned: &str) -> Self {
        self.zoned = Some((conventional.to_owned(), zoned.to_owned()));
        self
    }

    /// How long to wait, after an unmount, for others who have a copy of the mount (10 s).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Make it.
    ///
    /// # Errors
    ///
    /// [`ScratchError::Unavailable`] where this machine cannot, else what failed.
    pub fn build(self) -> Result<ScratchFs, ScratchError> {
        ScratchFs::create(self)
    }
}

/// A mounted file system on a loop file in a temporary directory.
#[derive(Debug)]
pub struct ScratchFs {
    kind: String,
    options: String,
    device: String,
    /// Another disk, where there is no loop file.
    zoned: Option<String>,
    mounted: bool,
    tools: Option<PathBuf>,
    patience: Duration,
    root: PathBuf,
    // Declared late: deleted after `drop` has unmounted and detached.
    directory: tempfile::TempDir,
    // Declared last: until then it is somebody's.
    _owned: File,
}

impl ScratchFs {
    /// `kind` is `ext4`, `xfs`, `btrfs` …; `size` is that of the (sparse) loop file.
    #[must_use]
    pub fn builder(kind: &str, size: Bytes) -> ScratchFsBuilder {
        ScratchFsBuilder {
            kind: kind.to_owned(),
            size,
            mkfs: Vec::new(),
            options: String::new(),
            folder: std::env::temp_dir(),
            copy_of: None,
            tools: None,
            zoned: None,
            patience: PATIENCE,
        }
    }

    fn create(builder: ScratchFsBuilder) -> Result<Self, ScratchError> {
        let ScratchFsBuilder {
            kind,
            size,
            mkfs: mkfs_args,
            options,
            folder,
            copy_of,
            tools,
            zoned,
            patience,
        } = builder;
        let unavailable = |why| ScratchError::Unavailable {
            kind: kind.clone(),
            why,
        };
        if !rustix::process::geteuid().is_root() {
            return Err(unavailable(Lack::Root));
        }
        if !kernel_has(&kind)? {
            return Err(unavailable(Lack::Kernel));
        }
        let mut program = PathBuf::from(format!("mkfs.{kind}"));
        let mut folders = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"]
            .map(Path::new)
            .to_vec();
        if let Some(tools) = &tools {
            program = tools.join(program);
            folders = vec![Path::new("")];
        }
        if !folders.iter().any(|dir| dir.join(&program).exists()) {
            return Err(unavailable(Lack::Program(program)));
        }
        let directory = tempfile::Builder::new()
            .prefix("indef-scratch-")
            .tempdir_in(folder)?;
        let owned = own(directory.path())?;
        let root = directory.path().join("mnt");
        fs::create_dir(&root)?;
        if let Some((device, zoned)) = zoned {
            let mut mkfs = Command::new(&program);
            mkfs.args(["-q", "-f", "-m", "-c", &zoned]);
            run(mkfs.args(&mkfs_args).arg(&device))?;
            let mut scratch = Self {
                kind,
                options,
                device,
                zoned: Some(zoned),
                mounted: false,
                tools,
                patience,
                root,
                directory,
                _owned: owned,
            };
            scratch.mount()?;
            return Ok(scratch);
        }
        let image = directory.path().join("image");
        if let Some(original) = copy_of {
            run(Command::new("cp")
                .args(["--sparse=always", "--reflink=auto"])
                .args([&original, &image]))?;
            become_another(&kind, &image)?;
        } else {
            make(&program, &kind, &image, size, &mkfs_args)?;
        }
        let device = run(Command::new("losetup")
            .args(["--show", "-f", "--direct-io=on"])
            .arg(&image))
        .map_err(|error| unavailable(Lack::LoopDevice(Box::new(error))))?;
        // Discards would make holes in the image, which grow again elsewhere.
        let name = device.trim().trim_start_matches("/dev/");
        let _ = fs::write(format!("/sys/block/{name}/queue/discard_max_bytes"), "0");
        let mut scratch = Self {
            kind,
            options,
            device: device.trim().to_owned(),
            zoned: None,
            mounted: false,
            tools,
            patience,
            root,
            directory,
            _owned: owned,
        };
        scratch.mount()?;
        Ok(scratch)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Its loop device, like `/dev/loop3`.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Its kind, as given.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The loop file.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// Bytes that its loop device has read and written so far (`/sys/block/*/stat`, sectors of 512
    /// bytes). Call [`Self::sync`] first to have delayed writes counted.
    ///
    /// # Errors
    ///
    /// Where sysfs cannot be read.
    pub fn device_bytes(&self) -> std::io::Result<DeviceBytes> {
        let disks = [Some(&self.device), self.zoned.as_ref()];
        let mut sum = DeviceBytes::default();
        for disk in disks.into_iter().flatten() {
            // It may be another name of the disk.
            let disk = fs::canonicalize(disk)?;
            let name = disk.file_name().unwrap_or_default().to_string_lossy();
            let stat = fs::read_to_string(format!("/sys/block/{name}/stat"))?;
            let sectors = |column: usize| {
                stat.split_whitespace()
                    .nth(column)
                    .and_then(|word| word.parse().ok())
                    .map(|sectors: u64| Bytes(sectors * 512))
                    .ok_or_else(|| io::Error::other(UnexpectedStat::new(&name, &stat)))
            };
            sum.read += sectors(2)?;
            sum.written += sectors(6)?;
        }
        Ok(sum)
    }

    /// Bytes free for anybody, as `statfs` says.
    ///
    /// # Errors
    ///
    /// The error of `statfs`.
    pub fn free(&self) -> std::io::Result<Bytes> {
        let fs = rustix::fs::statvfs(&self.root)?;
        Ok(Bytes(fs.f_bavail * fs.f_frsize))
    }

    /// Bytes in use by data and metadata, as `statfs` says.
    ///
    /// What is lost is looked for here, not in [`Self::free`]: Btrfs takes room from the latter for each chunk of
    /// metadata that it sets aside, hundreds of MiB at a time, though nothing of it may be in use
    /// (fs/btrfs/super.c, `btrfs_calc_avail_data_space`, Linux 6.18).
    ///
    /// # Errors
    ///
    /// The error of `statfs`.
    pub fn used(&self) -> std::io::Result<Bytes> {
        let fs = rustix::fs::statvfs(&self.root)?;
        Ok(Bytes((fs.f_blocks - fs.f_bfree) * fs.f_frsize))
    }

    /// Write everything of this file system back (`syncfs`).
    ///
    /// # Errors
    ///
    /// The error of `syncfs`.
    pub fn sync(&self) -> std::io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.root)?)?)
    }

    /// Change the mount options from the next [`Self::mount`] or [`Self::remount`] on.
    pub fn set_mount_options(&mut self, options: &str) {
        options.clone_into(&mut self.options);
    }

    /// Mount (after [`Self::unmount`]).
    ///
    /// # Errors
    ///
    /// The output of a failed `mount`.
    pub fn mount(&mut self) -> Result<(), ScratchError> {
        let mut command = Command::new("mount");
        command.args(["-t", &self.kind]);
        if !self.options.is_empty() {
            command.args(["-o", &self.options]);
        }
        run(command.arg(&self.device).arg(&self.root))?;
        self.mounted = true;
        Ok(())
    }

    /// Unmount. Nothing may be open on it.
    ///
    /// "Busy" is tried again for a while: a child that another thread is just starting holds a copy
    /// of every open file of this process until its `execve`, of those just closed here, too.
    ///
    /// # Errors
    ///
    /// The output of a failed `umount`.
    pub fn unmount(&mut self) -> Result<(), ScratchError> {
        let mut tries = 0;
        loop {
            match run(Command::new("umount").arg(&self.root)) {
                Err(ScratchError::Command { output, .. })
                    if tries < 100 && output.contains("target is busy") =>
                {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                unmounted => break unmounted.map(drop)?,
            }
        }
        self.mounted = false;
        self.wait_for_copies();
        Ok(())
    }

    /// Wait until the file system is mounted nowhere else: whoever makes a mount namespace meanwhile (a
    /// container that starts) copies all mounts, and may keep them for a while. A checker would find
    /// the file system in use, and a new mount nothing forgotten. Returns whether that came in time.
    fn wait_for_copies(&self) -> bool {
        let until = Instant::now() + self.patience;
        loop {
            if !self.is_in_use() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether somebody has it mounted. A mounted disk refuses O_EXCL (open(2)).
    fn is_in_use(&self) -> bool {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::EXCL.bits() as i32)
            .open(&self.device);
        opened.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
    }

    /// Unmount and mount again: everything that was only in memory is gone.
    ///
    /// # Errors
    ///
    /// As [`Self::unmount`] and [`Self::mount`].
    pub fn remount(&mut self) -> Result<(), ScratchError> {
        self.unmount()?;
        self.mount()
    }

    /// Unmount, check with the file system's own checker (read-only), mount again.
    ///
    /// # Errors
    ///
    /// [`ScratchError::Busy`] if the disk is mounted elsewhere, and stays so; else the output of a checker that has
    /// found something.
    pub fn fsck(&mut self) -> Result<(), ScratchError> {
        self.unmount()?;
        let checked = self.check_unmounted();
        self.mount()?;
        checked
    }

    /// A checker that meets a mount of somebody else's sees the file system change, or refuses: what it says then is
    /// no finding.
    fn check_unmounted(&self) -> Result<(), ScratchError> {
        let busy = || ScratchError::Busy {
            device: self.device.clone(),
        };
        for _ in 0..TRIES {
            if !self.wait_for_copies() {
                return Err(busy());
            }
            let checked = check(&self.kind, &self.device, self.tools.as_deref());
            if checked.is_ok() || !self.is_in_use() {
                return checked;
            }
        }
        Err(busy())
    }
}

impl Drop for ScratchFs {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            // Something still has a file open: detach from the tree, the kernel finishes later.
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.root));
        }
        if self.zoned.is_none() {
            let _ = run(Command::new("losetup").arg("-d").arg(&self.device));
        }
    }
}

/// Say that a folder is somebody's while the file is open: it is locked, and the kernel lets the lock go with the process,
/// however that ends. Whoever can take it may clear away what is there: mount, loop device and files
/// (`xtask/src/test/abandoned.rs`).
fn own(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Nobody but root can have the lock, either.
    let options = options.write(true).create_new(true).mode(0o600);
    let file = options.open(folder.join("owner"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Give a copy an identity of its own: XFS and Btrfs refuse to mount the same one twice.
fn become_another(kind: &str, image: &Path) -> Result<(), ScratchError> {
    let mut command = match kind {
        "xfs" => Command::new("xfs_admin"),
        "btrfs" => Command::new("btrfstune"),
        _ => return Ok(()),
    };
    match kind {
        "xfs" => command.args(["-U", "generate"]),
        _ => command.args(["-f", "-m"]),
    };
    run(command.arg(image)).map(|_| ())
}

/// An image with a new file system.
fn make(
    program: &Path,
    kind: &str,
    image: &Path,
    size: Bytes,
    mkfs: &[String],
) -> Result<(), ScratchError> {
    File::create(image)?.set_len(size.get())?;
    let quiet: &[&str] = match kind {
        // Below 512 MiB mke2fs would choose 1 KiB blocks, which no real file system has.
        "ext4" => &[
            "-q",
            "-F",
            "-b",
            "4096",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
        ],
        "btrfs" => &["-q", "-f"],
        // As newer tools do by themselves: without it the extents of files cannot be exchanged so that
        // a power cut does no harm.
        "xfs" if !mkfs.iter().any(|arg| arg.contains("rmapbt")) => &["-q", "-f", "-m", "rmapbt=1"],
        "xfs" | "f2fs" => &["-q", "-f"],
        _ => &[],
    };
    run(Command::new(program).args(quiet).args(mkfs).arg(image))?;
    reserve(image, size);
    Ok(())
}

/// Give the image its blocks now, in one go. One that grows in the order in which a fragmented file
/// is written gets as fragmented itself, and deleting it takes minutes where the file system below
/// discards. Not for large ones, of which little may ever be written.
fn reserve(image: &Path, size: Bytes) {
    if size <= Bytes::gib(2)
        && let Ok(image) = fs::OpenOptions::new().write(true).open(image)
    {
        const TMPFS: u64 = 0x0102_1994;
        if rustix::fs::fstatfs(&image).is_ok_and(|fs| fs.f_type as u64 == TMPFS) {
            return;
        }
        // Without room for all of it, it stays sparse.
        let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&image, keep, 0, size.get());
    }
}
