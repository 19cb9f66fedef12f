//! The state with which a device goes on after a restart, as bytes.
//!
//! Layout: version (4 bytes), then for each namespace its kind (1 byte) and a length (8 bytes);
//! zones follow as state, write pointer and erases (1 + 8 + 4 bytes each), a conventional namespace
//! as the FTL's own image. All numbers are little-endian. There is no checksum.

use super::{Device, Namespace};
use crate::{
    ftl::{Ftl, FtlImageError},
    zone::ZoneState,
};

const VERSION: u32 = 1;
const ZONED: u8 = 0;
const CONVENTIONAL: u8 = 1;

/// A saved state that cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It has another version of this layout.
    #[error("the saved device state cannot be used: it has version {found}, not {VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// Its namespace has no zones, or not as many.
    #[error("the saved device state cannot be used: namespace {index} has other zones in it")]
    OtherZones {
        /// The number of the namespace, from 0.
        index: usize,
    },
    /// No zone state has this number.
    #[error("the saved device state cannot be used: there is no zone state {code}")]
    ZoneState {
        /// The number.
        code: u8,
    },
    /// Its namespace has zones, or ends too early.
    #[error(
        "the saved device state cannot be used: namespace {index} is not conventional, or cut off"
    )]
    NotConventional {
        /// The number of the namespace, from 0.
        index: usize,
    },
    /// The FTL cannot use its part.
    #[error("the saved device state cannot be used: namespace {index}: {source}")]
    Ftl {
        /// The number of the namespace, from 0.
        index: usize,
        /// The reason.
        source: FtlImageError,
    },
    /// It ends too early.
    #[error("the saved device state cannot be used: it ends too early")]
    Truncated,
    /// Bytes follow after its end.
    #[error("the saved device state cannot be used: it is {bytes} bytes too long")]
    TooLong {
        /// The number of bytes.
        bytes: usize,
    },
}

impl Device {
    /// Returns the state with which the device goes on after a restart: compact bytes, with a
    /// version but without a checksum. Operations in motion count as done.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let mut image = VERSION.to_le_bytes().to_vec();
        for namespace in &self.namespaces {
            match namespace {
                Namespace::Zoned(zoned) => {
                    image.push(ZONED);
                    image.extend((zoned.table.zones().len() as u64).to_le_bytes());
                    for (zone, erases) in zoned.table.zones().iter().zip(zoned.erases()) {
                        image.push(zone.state.code());
                        image.extend(zone.write_pointer.to_le_bytes());
                        image.extend(erases.to_le_bytes());
                    }
                }
                Namespace::Conventional(conventional) => {
                    let ftl = conventional.ftl.image();
                    image.push(CONVENTIONAL);
                    image.extend((ftl.len() as u64).to_le_bytes());
                    image.extend(ftl);
                }
            }
        }
        image
    }

    /// Puts a device that was made with the same profile and namespaces, and has nothing in
    /// motion, into a saved state.
    ///
    /// # Errors
    /// The image does not fit; the device has not changed then.
    pub fn restore(&mut self, image: &[u8]) -> Result<(), ImageError> {
        let mut restored = self.namespaces.clone();
        let mut rest = image;
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version != VERSION {
            return Err(ImageError::Version { found: version });
        }
        for (index, namespace) in restored.iter_mut().enumerate() {
            let [kind] = take(&mut rest)?;
            let length = u64::from_le_bytes(take(&mut rest)?);
            match namespace {
                Namespace::Zoned(zoned) => {
                    if kind != ZONED || length != zoned.table.zones().len() as u64 {
                        return Err(ImageError::OtherZones { index });
                    }
                    for zone in 0..zoned.table.zones().len() {
                        let [code] = take(&mut rest)?;
                        let write_pointer = u64::from_le_bytes(take(&mut rest)?);
                        let state =
                            ZoneState::from_code(code).ok_or(ImageError::ZoneState { code })?;
                        zoned.table.restore(zone, state, write_pointer);
                        zoned.set_erases(zone, u32::from_le_bytes(take(&mut rest)?));
                    }
                }
                Namespace::Conventional(conventional) => {
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    if kind != CONVENTIONAL || length > rest.len() {
                        return Err(ImageError::NotConventional { index });
                    }
                    let (ftl, tail) = rest.split_at(length);
                    let old = &conventional.ftl;
                    conventional.ftl = Ftl::restore(*old.geometry(), *old.options(), ftl)
                        .map_err(|source| ImageError::Ftl { index, source })?;
                    rest = tail;
                }
            }
        }
        if !rest.is_empty() {
            return Err(ImageError::TooLong { bytes: rest.len() });
        }
        self.namespaces = restored;
        self.core.read_cache.clear();
        Ok(())
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], ImageError> {
    let (head, tail) = rest.split_first_chunk().ok_or(ImageError::Truncated)?;
    *rest = tail;
    Ok(*head)
}
