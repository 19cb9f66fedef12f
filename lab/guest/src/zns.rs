//! A zoned SSD for a guest, set up as F2FS wants it.
//!
//! Either flashd, served by this process over NVMe/TCP: its model tells device time, it does
//! In_Device_Defragment, its power can be cut, and it outlives guests. Or QEMU's own NVMe device,
//! which knows the standard commands only and forgets its zones' write pointers when the guest
//! ends.
//!
//! Both have logical blocks of 512 bytes and zones of 32 MiB (16 segments of F2FS; 2 GiB are 64 zones),
//! and beside them a conventional disk of 64 MiB for F2FS's metadata: flashd's second namespace, so that
//! one recording and one power cut have both, or a virtio disk beside QEMU's. With a larger one F2FS puts
//! data there.
//!
//! It ignores: other file systems (`ZnsSetup::Attached` leaves the disks as they are), several
//! paths to a namespace (they are switched off: a disk on top of them has no request queue of its
//! own).

use std::{
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use flash_model::{NamespaceKind, Profile};
use flashd::{
    device::{Device, DeviceOptions, NamespaceOptions},
    serve::{Target, TargetOptions},
};
use units::Bytes;

use crate::{LabError, programs, scratch::scratch};

/// Maximum size for F2FS's metadata if all data is to be in zones.
const CONVENTIONAL: Bytes = Bytes::mib(64);
const BLOCK_BYTES: u64 = 512;

/// The device that provides the SSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZnsDevice {
    /// flashd, over NVMe/TCP.
    #[default]
    Flashd,
    /// QEMU's NVMe device.
    Qemu,
}

impl ZnsDevice {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Flashd, Self::Qemu];

    /// `flashd`, `qemu`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Flashd => "flashd",
            Self::Qemu => "qemu",
        }
    }
}

impl std::fmt::Display for ZnsDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for ZnsDevice {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Self, LabError> {
        Self::ALL
            .into_iter()
            .find(|device| device.name() == name)
            .ok_or_else(|| LabError::Request(format!("there is no device {name}")))
    }
}

/// The state of the SSD when the command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZnsSetup {
    /// The disks are attached, with their content.
    Attached,
    /// F2FS is made on them, but not mounted.
    Formatted,
    /// F2FS is made and mounted.
    Mounted,
    /// The existing F2FS on them is mounted (flashd, from an earlier guest).
    Kept,
}

impl ZnsSetup {
    /// Its name in the guest's script.
    fn name(self) -> &'static str {
        match self {
            Self::Attached => "attached",
            Self::Formatted => "formatted",
            Self::Mounted => "mounted",
            Self::Kept => "kept",
        }
    }
}

impl std::fmt::Display for ZnsSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for ZnsSetup {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Self, LabError> {
        [Self::Attached, Self::Formatted, Self::Mounted, Self::Kept]
            .into_iter()
            .find(|setup| setup.name() == name)
            .ok_or_else(|| LabError::Request(format!("an SSD is not set up as {name}")))
    }
}

/// Properties of a zoned SSD to be made.
#[derive(Clone, Debug)]
pub struct ZnsOptions {
    /// The device that provides it.
    pub device: ZnsDevice,
    /// Bytes of the zoned namespace; a multiple of the zone's 32 MiB.
    pub size: Bytes,
    /// flashd's profile; its zones have to have 32 MiB.
    pub profile: String,
    /// How many times slower than the model's time flashd's real time goes.
    pub time_scale: f64,
    /// The file to which all operations on flashd are recorded from the start.
    pub record: Option<PathBuf>,
    /// More properties of QEMU's zoned namespace, separated by commas (`ms=8,pi=1`: with protection
    /// information).
    pub namespace: String,
    /// Whether flashd offers only standard commands: Copy, and no `In_Device_Defragment`.
    pub standard_only: bool,
    /// Options for mkfs.f2fs, as in a shell.
    pub mkfs: String,
    /// Options for the mount, separated by commas.
    pub mount: String,
}

impl Default for ZnsOptions {
    /// flashd with 2 GiB and the profile `zero`: the paper's geometry, and no latencies.
    fn default() -> Self {
        Self {
            device: ZnsDevice::Flashd,
            size: Bytes::gib(2),
            profile: "zero".into(),
            time_scale: 1.0,
            record: None,
            namespace: String::new(),
            standard_only: false,
            mkfs: String::new(),
            mount: String::new(),
        }
    }
}

impl ZnsOptions {
    /// The options for opening flashd, for callers that extend them and then call [`Zns::serving`].
    ///
    /// # Errors
    ///
    /// There is no such profile.
    pub fn flashd(&self) -> Result<DeviceOptions, LabError> {
        let profile = Profile::builtin(&self.profile).ok_or_else(|| {
            LabError::Request(format!(
                "flashd has no profile {}; it has {}",
                self.profile,
                flash_model::BUILTIN.join(", ")
            ))
        })?;
        let namespaces = [
            (NamespaceKind::Zoned, self.size),
            (NamespaceKind::Conventional, CONVENTIONAL),
        ]
        .map(|(kind, size)| NamespaceOptions { kind, size });
        Ok(DeviceOptions {
            block_bytes: BLOCK_BYTES,
            time_scale: self.time_scale,
            record: self.record.clone(),
            ..DeviceOptions::in_memory(profile, &namespaces)
        })
    }
}

/// A zoned SSD, for one guest at a time.
///
/// A command in a guest that has it ([`Guest::zns`](crate::Guest::zns)) finds: the environment variables `ZNS_ZONED`
/// (`/dev/nvme0n1`), `ZNS_CONVENTIONAL` (`/dev/conventional`, a link to `/dev/nvme0n2`, or to
/// `/dev/vda` with QEMU's; disks of [`Guest::disk`](crate::Guest::disk) then begin at `/dev/vdb`) and `ZNS_MOUNT`
/// (`/mnt/f2fs`, where F2FS is with [`ZnsSetup::Mounted`]); `mkfs.f2fs` and `fsck.f2fs`, as far as
/// the host has them.
///
/// ```no_run
/// # fn main() -> Result<(), guest::LabError> {
/// use guest::{Guest, Release, Zns, ZnsOptions, ZnsSetup};
///
/// let zns = Zns::new(ZnsOptions::default())?;
/// let guest = Guest::with(Release::Linux6_12)?.zns(&zns, ZnsSetup::Mounted)?;
/// let outcome = guest.run(["sh", "-c", "echo hello >$ZNS_MOUNT/file && umount $ZNS_MOUNT"])?;
/// let programmed = zns.flashd().unwrap().stats().model;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Zns {
    options: ZnsOptions,
    served: Option<Served>,
    /// The folder for the images of QEMU's device.
    folder: Option<tempfile::TempDir>,
}

#[derive(Debug)]
struct Served {
    // Dropped first: connections end before the device does.
    target: Target,
    device: Arc<Device>,
}

impl Zns {
    /// Make the SSD. flashd is served on a free port of loopback from now on, until this is
    /// dropped.
    ///
    /// # Errors
    ///
    /// The options are inconsistent, or the device cannot be made.
    pub fn new(options: ZnsOptions) -> Result<Self, LabError> {
        let zone = Bytes::mib(32);
        if options.size.get() == 0 || !options.size.get().is_multiple_of(zone.get()) {
            return Err(LabError::Request(format!(
                "{} are no multiple of the zone's {zone}",
                options.size
            )));
        }
        match options.device {
            ZnsDevice::Flashd => {
                let device = Device::open(&options.flashd()?)
                    .map_err(|error| LabError::Device(error.to_string()))?;
                Self::serving(device, options)
            }
            ZnsDevice::Qemu => Ok(Self {
                options,
                served: None,
                folder: Some(scratch()?),
            }),
        }
    }

    /// The same with a flashd of the caller's: namespace 1 has zones, namespace 2 has none and has
    /// 64 MiB, both have logical blocks of 512 bytes. (A device made from a recording, say.)
    ///
    /// # Errors
    ///
    /// It cannot be served.
    pub fn serving(device: Arc<Device>, options: ZnsOptions) -> Result<Self, LabError> {
        let target = Target::listen(
            Arc::clone(&device),
            std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
            TargetOptions {
                standard_only: options.standard_only,
                ..TargetOptions::default()
            },
        )
        .map_err(|error| LabError::Device(format!("cannot be served: {error}")))?;
        Ok(Self {
            options,
            served: Some(Served { target, device }),
            folder: None,
        })
    }

    /// The device, where it is flashd: statistics, power cuts, recording.
    #[must_use]
    pub fn flashd(&self) -> Option<&Arc<Device>> {
        self.served.as_ref().map(|served| &served.device)
    }

    /// The options that it was made with.
    #[must_use]
    pub fn options(&self) -> &ZnsOptions {
        &self.options
    }

    /// Lines for `/lab/job`.
    pub(crate) fn settings(&self, setup: ZnsSetup, cpus: u32) -> Result<String, LabError> {
        let (port, nqn, conventional) = match &self.served {
            Some(served) => (
                served.target.address().port().to_string(),
                served.target.nqn(),
                "2",
            ),
            None => (String::new(), "", ""),
        };
        for text in [&self.options.mkfs, &self.options.mount] {
            if text.contains(['\'', '\n']) {
                return Err(LabError::Request(format!(
                    "options with quotes or line ends: {text}"
                )));
            }
        }
        Ok(format!(
            "zns={}\nzns_port={port}\nzns_nqn='{nqn}'\nzns_zoned_id=1\nzns_conventional_id={conventional}\n\
             zns_queues={cpus}\nzns_mkfs='{}'\nzns_mount='{}'\n",
            setup.name(),
            self.options.mkfs,
            self.options.mount,
        ))
    }

    /// The programs of the host that a guest needs for it.
    pub(crate) fn programs(&self, setup: ZnsSetup) -> Result<Vec<&'static str>, LabError> {
        let mut there = Vec::new();
        for program in ["mkfs.f2fs", "fsck.f2fs"] {
            if programs::find(Path::new(program)).is_some() {
                there.push(program);
            } else if matches!(setup, ZnsSetup::Formatted | ZnsSetup::Mounted) {
                return Err(LabError::missing(format!(
                    "{program} (package f2fs-tools) is not installed"
                )));
            }
        }
        Ok(there)
    }

    /// The device of a guest's QEMU, with empty zones; `None` if flashd is served.
    pub(crate) fn qemu_device(&self) -> Result<Option<QemuDevice>, LabError> {
        let Some(folder) = &self.folder else {
            return Ok(None);
        };
        // QEMU begins with empty zones, whatever the image held.
        let zoned = folder.path().join("zoned");
        let _ = fs::remove_file(&zoned);
        File::create(&zoned)
            .and_then(|file| file.set_len(self.options.size.get()))
            .map_err(LabError::at(&zoned))?;
        let drive = format!(
            "if=none,id=zoned,format=raw,cache=unsafe,discard=unmap,file={}",
            zoned.display().to_string().replace(',', ",,")
        );
        // A Copy may have as many ranges and blocks as QEMU allows; the default of 128 blocks of
        // 512 bytes in a range is 64 KiB.
        let mut namespace = format!(
            "nvme-ns,drive=zoned,bus=nvme,nsid=1,zoned=true,zoned.zone_size=32M,\
             zoned.zone_capacity=32M,logical_block_size={BLOCK_BYTES},\
             physical_block_size={BLOCK_BYTES},mssrl=32768,mcl=65536,msrc=127"
        );
        if !self.options.namespace.is_empty() {
            namespace = format!("{namespace},{}", self.options.namespace);
        }
        let arguments = [
            "-drive",
            &drive,
            "-device",
            "nvme,id=nvme,serial=lab",
            "-device",
            &namespace,
        ];
        Ok(Some(QemuDevice {
            first_disk: CONVENTIONAL,
            arguments: arguments.map(OsString::from).to_vec(),
        }))
    }
}

/// QEMU's own zoned SSD.
pub(crate) struct QemuDevice {
    /// The size of the disk beside it, which comes before all others.
    pub(crate) first_disk: Bytes,
    /// QEMU's arguments.
    pub(crate) arguments: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_said() {
        let wrong = |options| Zns::new(options).unwrap_err().to_string();
        let said = wrong(ZnsOptions {
            size: Bytes::mib(33),
            ..ZnsOptions::default()
        });
        assert!(said.contains("no multiple"), "{said}");
        let said = wrong(ZnsOptions {
            profile: "nothing".into(),
            ..ZnsOptions::default()
        });
        assert!(said.contains("no profile nothing"), "{said}");
        let zns = Zns::new(ZnsOptions {
            mount: "it's".into(),
            ..ZnsOptions::default()
        })
        .unwrap();
        assert!(zns.settings(ZnsSetup::Mounted, 1).is_err());
    }

    #[test]
    fn flashd_has_what_f2fs_wants() {
        let zns = Zns::new(ZnsOptions::default()).unwrap();
        let device = zns.flashd().unwrap();
        let [zoned, conventional] = device.namespaces() else {
            panic!("{:?}", device.namespaces());
        };
        assert_eq!((zoned.kind, zoned.block_bytes), (NamespaceKind::Zoned, 512));
        assert_eq!(conventional.size_bytes, CONVENTIONAL.get());
        assert_eq!(device.geometry().zone.size, Bytes::mib(32));
    }
}
