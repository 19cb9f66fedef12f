//! The aged SSD, in a file that can be copied: every way begins with a copy.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::{Context, Result, bail, ensure};
use flash_model::{NamespaceKind, Profile, Value};
use flashd::{
    device::{Device, DeviceOptions, NamespaceOptions, StoreOptions},
    store::FileOptions,
};
use sha2::{Digest, Sha256};
use units::Bytes;

use super::{
    layout::{BLOCK, Layout},
    virtual_time::ZONED,
};

/// The device takes practically no time.
pub(crate) const FAST: f64 = 0.001;

/// The SSD of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ssd {
    pub(crate) profile: Profile,
    /// Time to program a page, and its bytes.
    pub(crate) program_ns: f64,
    pub(crate) page_bytes: u64,
    pub(crate) zoned: Bytes,
    pub(crate) conventional: Bytes,
}

impl Ssd {
    /// The SSD of a profile with so many zones; these, and so flash blocks, are scaled down by a factor.
    pub(crate) fn new(profile: &str, factor: u64, zones: u64) -> Result<Self> {
        let text = Profile::builtin_text(profile)
            .with_context(|| format!("flashd has no profile {profile}"))?;
        let profile = Profile::parse(profile, &scaled(text, factor)?)?;
        let zone = Bytes::mib(number(&profile, "zones.size", "MiB")?);
        Ok(Self {
            program_ns: number(&profile, "flash.program", "us")? as f64 * 1000.0,
            page_bytes: number(&profile, "geometry.page", "KiB")? << 10,
            profile,
            zoned: zone * zones,
            conventional: conventional(zone, zone * zones),
        })
    }

    /// Open it, with its content in this file.
    pub(crate) fn open(&self, image: &Path) -> Result<Arc<Device>> {
        let namespace = |kind, size| NamespaceOptions { kind, size };
        let namespaces = [
            namespace(NamespaceKind::Zoned, self.zoned),
            namespace(NamespaceKind::Conventional, self.conventional),
        ];
        let options = DeviceOptions {
            block_bytes: 512,
            time_scale: FAST,
            store: StoreOptions::File(FileOptions {
                path: image.to_owned(),
                sparse: true,
                host_sync: false,
            }),
            ..DeviceOptions::in_memory(self.profile.clone(), &namespaces)
        };
        Ok(Device::open(&options)?)
    }
}

/// The bytes without zones: exactly what F2FS's metadata take, as F2FS would put data in the rest.
///
/// As mkfs.f2fs reckons (`f2fs_prepare_super_block`, f2fs-tools 1.15): a superblock's zone, two segments of
/// checkpoints, two copies of the SIT and the NAT, a summary block for each segment, all in whole zones.
pub(crate) fn conventional(zone: Bytes, zoned: Bytes) -> Bytes {
    const SEGMENT: u64 = 2 << 20;
    const BLOCKS: u64 = 512;
    let per_zone = zone.get() / SEGMENT;
    let whole = |blocks: u64| blocks.div_ceil(BLOCKS);
    let mut bytes = 0;
    // More room has more segments to describe.
    loop {
        let all = (bytes + zoned.get()) / SEGMENT - per_zone.min(bytes / SEGMENT);
        let checkpoints_and_sit = 2 + 2 * whole(all.div_ceil(55));
        let nat = 2 * whole(((all - checkpoints_and_sit) * BLOCKS).div_ceil(455));
        let summaries = whole(all - checkpoints_and_sit - nat + 1);
        let segments = (checkpoints_and_sit + nat + summaries).next_multiple_of(per_zone);
        let needed = zone.get() + segments * SEGMENT;
        if needed <= bytes {
            return Bytes(bytes);
        }
        bytes = needed;
    }
}

/// A whole number of a profile, in this unit.
pub(crate) fn number(profile: &Profile, name: &str, unit: &str) -> Result<u64> {
    let mut parameters = profile.parameters().iter();
    let parameter = parameters
        .find(|parameter| parameter.key == name)
        .with_context(|| format!("the profile has no {name}"))?;
    match parameter.value {
        Value::Number(number) if parameter.unit == unit && number.fract() == 0.0 => {
            Ok(number as u64)
        }
        _ => bail!("{name} is no whole number of {unit}"),
    }
}

/// The text of a profile whose flash blocks have fewer pages, and its zones fewer bytes.
pub(crate) fn scaled(profile: &str, factor: u64) -> Result<String> {
    let mut section = "";
    let mut text = String::new();
    let mut divided = 0;
    for line in profile.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        if line.starts_with('[') {
            section = line;
        }
        let is_scaled = matches!(
            (section, name),
            ("[geometry]", "pages_per_block") | ("[zones]", "size" | "capacity")
        );
        match line.split_once("value = ") {
            Some((before, after)) if is_scaled => {
                let (number, after) = after.split_once(',').context("a value without a unit")?;
                let number: u64 = number.parse()?;
                ensure!(
                    number.is_multiple_of(factor),
                    "{name}, {number}, cannot be divided by the factor {factor}"
                );
                text += &format!("{before}value = {},{after}\n", number / factor);
                divided += 1;
            }
            _ => text += &format!("{line}\n"),
        }
    }
    ensure!(
        divided == 3,
        "the profile does not name what has to be scaled"
    );
    Ok(text)
}

/// Copy an image, holes as holes.
pub(crate) fn copy(from: &Path, to: PathBuf) -> Result<PathBuf> {
    let status = Command::new("cp")
        .args(["--sparse=always", "--"])
        .args([from, to.as_path()])
        .status()?;
    ensure!(status.success(), "cp {}: {status}", from.display());
    Ok(to)
}

/// A hash of all files' names, lengths and contents, read from where they lie on the device: also a proof
/// that they lie there.
pub(crate) fn hash(device: &Device, layout: &Layout) -> Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = Vec::new();
    for file in &layout.files {
        hasher.update(file.name.as_bytes());
        hasher.update(file.bytes.to_le_bytes());
        let mut covered = 0;
        for extent in &file.extents {
            ensure!(extent.at == covered, "{} has a hole", file.name);
            buffer.resize(extent.bytes as usize, 0);
            device.read_into(ZONED, extent.place, &mut buffer)?;
            // The ageing wrote that there.
            let block = buffer.get(8..16).and_then(|block| block.try_into().ok());
            ensure!(
                block.map(u64::from_le_bytes) == Some(extent.at / BLOCK),
                "{}: what lies at {} is not its block {}",
                file.name,
                extent.place,
                extent.at / BLOCK
            );
            let length = (file.bytes - extent.at).min(extent.bytes) as usize;
            hasher.update(&buffer[..length]);
            covered += extent.bytes;
        }
        ensure!(covered >= file.bytes, "{} ends early", file.name);
    }
    let bytes = hasher.finalize();
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `mkfs.f2fs -d 1` says where its main area begins.
    #[test]
    fn metadata_have_their_room() {
        let of = |zone, zoned| conventional(Bytes::mib(zone), Bytes::mib(zoned));
        assert_eq!(of(2, 1024), Bytes::mib(22));
        assert_eq!(of(4, 2048), Bytes::mib(32));
        // A zone for the superblocks, and one for all else.
        assert_eq!(of(64, 4096), Bytes::mib(128));
    }

    #[test]
    fn a_scaled_device_has_the_papers_chips_and_number_of_zones() {
        let ssd = Ssd::new("indef-femu", 16, 512).unwrap();
        assert_eq!((ssd.program_ns, ssd.page_bytes), (700_000.0, 16 << 10));
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let device = ssd.open(&image).unwrap();
        let zones = device.zones(ZONED);
        assert_eq!(
            (zones.len(), zones[0].size, zones[0].capacity),
            (512, 2 << 20, 2 << 20)
        );
        assert_eq!(device.geometry().dies(), 16);
        assert!(Ssd::new("indef-femu", 3, 512).is_err());
    }
}
