//! A file system on a loop device, whose file lies on this machine's disk or on flashd.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use tempfile::TempDir;
use units::Bytes;

use crate::{Fs, Loop, Mounted, StageError, text};

/// See the module. Taken down when it is dropped: unmounted, then its fields in their order.
pub struct Stage {
    kind: Fs,
    mounted: bool,
    device: Loop,
    flashd: Option<Mounted>,
    folder: TempDir,
}

/// Discards that a device has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards {
    /// Commands.
    pub count: u64,
    /// Their bytes together.
    pub bytes: Bytes,
}

/// Reads and writes that a device has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests that read, as the device gets them.
    pub reads: u64,
    /// Their bytes together.
    pub read: Bytes,
    /// Requests that write.
    pub writes: u64,
    /// Their bytes together.
    pub written: Bytes,
}

impl std::ops::Sub for Traffic {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read: self.read - earlier.read,
            writes: self.writes - earlier.writes,
            written: self.written - earlier.written,
        }
    }
}

impl std::ops::Sub for Discards {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            count: self.count - earlier.count,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

impl Stage {
    /// A new file system on this device: `loop`, a file below `folder`, or a profile of flashd, slower by
    /// `time_scale`. It passes discards on.
    ///
    /// # Errors
    ///
    /// A program is missing or fails, as without root.
    pub fn new(
        kind: Fs,
        device: &str,
        size: Bytes,
        folder: &Path,
        time_scale: f64,
    ) -> Result<Self, StageError> {
        let mut stage = Self::bare(kind, device, size, folder, time_scale)?;
        text(
            Command::new(format!("mkfs.{}", kind.name()))
                .args(kind.mkfs())
                .arg(&stage.device.0),
        )?;
        stage.mount()?;
        Ok(stage)
    }

    /// The file system of an image (see [`Self::into_image`]) on a new device of its size, which gets the image's data in the
    /// order of their places, past the page cache. Otherwise as [`Self::new`].
    ///
    /// # Errors
    ///
    /// A program is missing or fails, as without root; or there is no such image.
    pub fn copy_of(
        kind: Fs,
        image: &Path,
        device: &str,
        folder: &Path,
        time_scale: f64,
    ) -> Result<Self, StageError> {
        let size = fs::metadata(image).map_err(StageError::io(image.display().to_string()))?;
        let mut stage = Self::bare(kind, device, Bytes(size.len()), folder, time_scale)?;
        let to = Path::new(&stage.device.0);
        text(copy(image, to).args(["oflag=direct", "conv=sparse,fsync"]))?;
        stage.mount()?;
        Ok(stage)
    }

    /// The device without a file system.
    fn bare(
        kind: Fs,
        device: &str,
        size: Bytes,
        folder: &Path,
        time_scale: f64,
    ) -> Result<Self, StageError> {
        let made = tempfile::tempdir_in(folder);
        let folder = made.map_err(StageError::io(folder.display().to_string()))?;
        let (flashd, disk) = match device {
            "loop" => {
                let disk = folder.path().join("disk");
                fs::File::create(&disk)
                    .and_then(|file| file.set_len(size.get()))
                    .map_err(StageError::io(disk.display().to_string()))?;
                (None, disk)
            }
            profile => {
                let scale = time_scale.to_string();
                let arguments = ["--profile", profile, "--time-scale", &scale];
                let flashd = Mounted::start(
                    &source_tree::release_binary("flashd")?,
                    size,
                    &arguments.map(str::to_owned),
                )?;
                let disk = flashd.path();
                (Some(flashd), disk)
            }
        };
        Ok(Self {
            kind,
            mounted: false,
            device: Loop::with_discards(&disk)?,
            flashd,
            folder,
        })
    }

    fn mount(&mut self) -> Result<(), StageError> {
        let path = self.path();
        fs::create_dir(&path).map_err(StageError::io(path.display().to_string()))?;
        let mut mount = Command::new("mount");
        mount.args(["-t", self.kind.name(), "-o", "noatime", &self.device.0]);
        text(mount.arg(&path))?;
        self.mounted = true;
        Ok(())
    }

    /// Unmount it, and keep what its device has in a new file, with holes for zeroes.
    ///
    /// # Errors
    ///
    /// It is in use, or there is no room for the image.
    pub fn into_image(mut self, image: &Path) -> Result<(), StageError> {
        text(Command::new("umount").arg(self.path()))?;
        self.mounted = false;
        let from = Path::new(&self.device.0);
        text(copy(from, image).args(["iflag=direct", "conv=sparse,fsync"])).map(drop)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// The flashd below it.
    #[must_use]
    pub fn flashd(&self) -> Option<&Mounted> {
        self.flashd.as_ref()
    }

    /// Have the kernel read at most so far ahead of whoever reads one thing after the other. A file system on one device has
    /// that of the device; Btrfs has its own, which is 4 MiB if nobody says otherwise.
    ///
    /// # Errors
    ///
    /// The kernel has no such setting, or refuses this one.
    pub fn set_readahead(&self, most: Bytes) -> Result<(), StageError> {
        let name = self.device.name();
        let setting = match self.kind {
            Fs::Ext4 | Fs::Xfs => PathBuf::from(format!("/sys/block/{name}/bdi/read_ahead_kb")),
            Fs::Btrfs => btrfs_of(name)?.join("bdi/read_ahead_kb"),
        };
        let kib = (most.0 / 1024).to_string();
        fs::write(&setting, kib).map_err(StageError::io(setting.display().to_string()))
    }

    /// Write everything back.
    ///
    /// # Errors
    ///
    /// That of `sync`.
    pub fn sync(&self) -> Result<(), StageError> {
        text(Command::new("sync").arg("-f").arg(self.path())).map(drop)
    }

    /// Write everything back, and wait until the device of flashd has done what it does for itself: an SLC cache, for one, is
    /// emptied while nobody asks for anything, and what lies there is read faster. At most two minutes.
    ///
    /// # Errors
    ///
    /// That of `sync`, or flashd does not answer.
    pub fn settle(&self) -> Result<(), StageError> {
        self.sync()?;
        let Some(flashd) = self.flashd() else {
            return Ok(());
        };
        let programs = || {
            let stats = flashd.stats()?;
            programs(&stats).ok_or_else(|| StageError::Said {
                what: "flashd stats".to_owned(),
                text: stats.to_string(),
            })
        };
        let mut before = programs()?;
        for _ in 0..120 {
            thread::sleep(Duration::from_secs(1));
            let now = programs()?;
            if now == before {
                break;
            }
            before = now;
        }
        Ok(())
    }

    /// Write everything back and drop everything that is cached, of the whole machine.
    ///
    /// # Errors
    ///
    /// That of `sync`, or no root.
    pub fn drop_caches(&self) -> Result<(), StageError> {
        self.sync()?;
        fs::write("/proc/sys/vm/drop_caches", "3").map_err(StageError::io("cannot drop caches"))
    }

    /// The discards that its device has done so far.
    ///
    /// # Errors
    ///
    /// The kernel does not count them (before Linux 4.19).
    pub fn discards(&self) -> Result<Discards, StageError> {
        self.counted(parse_discards)
    }

    /// The reads and writes that its device has done so far.
    ///
    /// # Errors
    ///
    /// The kernel does not count them.
    pub fn traffic(&self) -> Result<Traffic, StageError> {
        self.counted(parse_traffic)
    }

    fn counted<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, StageError> {
        let file = format!("/sys/block/{}/stat", self.device.name());
        let stat = fs::read_to_string(&file).map_err(StageError::io(file.clone()))?;
        parse(&stat).ok_or(StageError::Said {
            what: file,
            text: stat,
        })
    }
}

/// The pages that all dies have programmed, of what `flashd stats` says.
fn programs(stats: &serde_json::Value) -> Option<u64> {
    let dies = stats["model"]["dies"].as_array()?;
    dies.iter().map(|die| die["programs"].as_u64()).sum()
}

/// A column of a device's `stat`, from 1 (Documentation/block/stat.rst, v6.1).
fn column(stat: &str, number: usize) -> Option<u64> {
    stat.split_whitespace().nth(number - 1)?.parse().ok()
}

/// A column of sectors of 512 bytes.
fn sectors(stat: &str, number: usize) -> Option<Bytes> {
    Some(Bytes(column(stat, number)? * 512))
}

fn parse_discards(stat: &str) -> Option<Discards> {
    Some(Discards {
        count: column(stat, 12)?,
        bytes: sectors(stat, 14)?,
    })
}

fn parse_traffic(stat: &str) -> Option<Traffic> {
    Some(Traffic {
        reads: column(stat, 1)?,
        read: sectors(stat, 3)?,
        writes: column(stat, 5)?,
        written: sectors(stat, 7)?,
    })
}

/// What sysfs has of the mounted Btrfs on this device.
fn btrfs_of(device: &str) -> Result<PathBuf, StageError> {
    let all = Path::new("/sys/fs/btrfs");
    let entries = fs::read_dir(all).map_err(StageError::io(all.display().to_string()))?;
    let mut folders = entries.flatten().map(|entry| entry.path());
    let found = folders.find(|folder| folder.join("devices").join(device).exists());
    found.ok_or_else(|| StageError::Said {
        what: all.display().to_string(),
        text: format!("no file system on {device}"),
    })
}

/// `dd` in pieces that are short enough for holes, and long enough not to wait for each.
fn copy(from: &Path, to: &Path) -> Command {
    let word = |name: &str, path: &Path| {
        let mut word = OsString::from(name);
        word.push(path);
        word
    };
    let mut dd = Command::new("dd");
    dd.args(["bs=128K", "status=none"]);
    dd.args([word("if=", from), word("of=", to)]);
    dd
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.mounted || text(Command::new("umount").arg(self.path())).is_ok() {
            return;
        }
        // Somebody has a file open: it goes out of the tree now, and the kernel finishes later.
        if let Err(error) = text(Command::new("umount").arg("--lazy").arg(self.path())) {
            eprintln!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use scratch_fs::{ScratchFs, require};

    use super::*;

    #[test]
    fn statistics_of_a_device_are_columns() {
        let stat = "  1 2 3 4 5 6 7 8 9 10 11 120 13 1024 15 16 17\n";
        let discards = Discards {
            count: 120,
            bytes: Bytes(1024 * 512),
        };
        assert_eq!(parse_discards(stat), Some(discards));
        assert_eq!(parse_discards("1 2 3 4 5 6 7 8 9 10 11"), None);
        let traffic = Traffic {
            reads: 1,
            read: Bytes(3 * 512),
            writes: 5,
            written: Bytes(7 * 512),
        };
        assert_eq!(parse_traffic(stat), Some(traffic));
        assert_eq!(parse_traffic("1 2 3 4 5 6"), None);
    }

    #[test]
    fn loop_an_image_is_copied_with_its_files_and_its_holes() {
        // Whatever this test needs, a file system of that crate needs, too: it says what is missing.
        let needed = require(ScratchFs::builder("ext4", Bytes::mib(16)).build());
        if needed.is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let stage = Stage::new(Fs::Ext4, "loop", Bytes::mib(64), folder.path(), 1.0).unwrap();
        stage.set_readahead(Bytes::kib(64)).unwrap();
        let before = stage.traffic().unwrap();
        let contents: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
        fs::write(stage.path().join("file"), &contents).unwrap();
        stage.sync().unwrap();
        let traffic = stage.traffic().unwrap() - before;
        assert!(traffic.written.0 >= contents.len() as u64, "{traffic:?}");
        assert!((1..100).contains(&traffic.writes), "{traffic:?}");
        let image = folder.path().join("image");
        stage.into_image(&image).unwrap();
        let size = fs::metadata(&image).unwrap();
        assert_eq!(size.len(), 64 << 20);
        assert!(size.blocks() * 512 < 32 << 20, "{} blocks", size.blocks());
        let copy = Stage::copy_of(Fs::Ext4, &image, "loop", folder.path(), 1.0).unwrap();
        assert_eq!(fs::read(copy.path().join("file")).unwrap(), contents);
        drop(copy);
        // The setting is where the kernel looks for it, whatever the file system.
        let btrfs = Stage::new(Fs::Btrfs, "loop", Bytes::mib(128), folder.path(), 1.0).unwrap();
        btrfs.set_readahead(Bytes::kib(128)).unwrap();
        let setting = btrfs_of(btrfs.device.name())
            .unwrap()
            .join("bdi/read_ahead_kb");
        assert_eq!(fs::read_to_string(setting).unwrap().trim(), "128");
        drop(btrfs);
        // What it needs is named.
        let none = Stage::copy_of(
            Fs::Ext4,
            &folder.path().join("no"),
            "loop",
            folder.path(),
            1.0,
        );
        let error = none.err().unwrap().to_string();
        assert!(error.contains("/no: "), "{error}");
        // Nothing is left behind.
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "the image alone");
    }
}
