//! The description of a backing file: two superblocks, each whole by itself.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use serde::{Deserialize, Serialize};

use super::{StoreError, error::Unusable, kind::StoreKind, zones::RECORD_BYTES};

const MAGIC: &[u8; 8] = b"flashdSB";
/// Format of the file. Other formats are refused.
const VERSION: u32 = 1;
/// Room for one.
pub(super) const SUPERBLOCK_BYTES: u64 = 64 << 10;
/// Alignment of the regions that hold data.
const ALIGNMENT: u64 = 1 << 20;

/// The superblock's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Superblock {
    /// Whether the file is still being made.
    pub(super) forming: bool,
    /// The profile's name when the file was made; a hint for people.
    pub(super) profile: String,
    pub(super) namespaces: Vec<Described>,
    pub(super) image_start: u64,
    pub(super) image_len: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Described {
    pub(super) kind: StoreKind,
    pub(super) uuid: [u8; 16],
    pub(super) records_start: u64,
    pub(super) data_start: u64,
}

impl Superblock {
    /// The superblock of a file that is being made.
    pub(super) fn forming() -> Self {
        Self {
            forming: true,
            profile: String::new(),
            namespaces: Vec::new(),
            image_start: 0,
            image_len: 0,
        }
    }
}

/// The superblock of an existing store; `None` for a file that is empty or whose making was
/// interrupted.
pub(super) fn read_superblock(file: &File, path: &Path) -> Result<Option<Superblock>, StoreError> {
    let mut forming = false;
    let mut other_version = None;
    for place in 0..2 {
        match decode(&read_up_to(file, path, place * SUPERBLOCK_BYTES)?) {
            Decoded::Superblock(superblock) if superblock.forming => forming = true,
            Decoded::Superblock(superblock) => return Ok(Some(superblock)),
            Decoded::Version(version) => other_version = Some(version),
            Decoded::Damaged => {}
        }
    }
    let len = file
        .metadata()
        .map_err(|source| StoreError::io(path, "stat", 0, source))?
        .len();
    match other_version {
        Some(found) => Err(StoreError::unusable(
            path,
            Unusable::OtherFormat {
                found,
                known: VERSION,
            },
        )),
        None if forming || len == 0 => Ok(None),
        None => Err(StoreError::unusable(path, Unusable::NoStore)),
    }
}

fn read_up_to(file: &File, path: &Path, start: u64) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0; SUPERBLOCK_BYTES as usize];
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], start + len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(StoreError::io(path, "read", start, source)),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

enum Decoded {
    Superblock(Superblock),
    Version(u32),
    Damaged,
}

fn decode(bytes: &[u8]) -> Decoded {
    let half = |at: usize| {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    };
    let (Some(version), Some(len), Some(sum)) = (half(8), half(12), half(16)) else {
        return Decoded::Damaged;
    };
    if &bytes[..8] != MAGIC {
        return Decoded::Damaged;
    }
    let Some(json) = bytes.get(20..20 + len as usize) else {
        return Decoded::Damaged;
    };
    if crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), json) != sum {
        return Decoded::Damaged;
    }
    if version != VERSION {
        return Decoded::Version(version);
    }
    serde_json::from_slice(json).map_or(Decoded::Damaged, Decoded::Superblock)
}

pub(super) fn encode(superblock: &Superblock) -> Vec<u8> {
    let json = serde_json::to_vec(superblock).expect("plain data serialises");
    let mut bytes = Vec::with_capacity(20 + json.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes), &json);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&json);
    bytes
}

/// The places of all parts of the file.
pub(super) fn plan(kinds: &[StoreKind], profile: &str) -> Superblock {
    let mut at = 2 * SUPERBLOCK_BYTES;
    let mut data = 0;
    let namespaces = kinds
        .iter()
        .map(|kind| {
            let records_start = at;
            let records = kind.zones.map_or(0, |zones| zones.count * RECORD_BYTES) as u64;
            let data_start = (at + records).next_multiple_of(ALIGNMENT);
            at = (data_start + kind.size_bytes).next_multiple_of(ALIGNMENT);
            data += kind.size_bytes;
            Described {
                kind: kind.clone(),
                uuid: new_uuid(),
                records_start,
                data_start,
            }
        })
        .collect();
    Superblock {
        forming: false,
        profile: profile.to_owned(),
        namespaces,
        image_start: at,
        // Mapping and wear take about 0.3 % of the data; unused parts take no space.
        image_len: (data / 32 + (64 << 20)).next_multiple_of(ALIGNMENT),
    }
}

/// A random UUID (RFC 9562 §5.4).
pub(super) fn new_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    // A system without random numbers at start-up waits here; nothing else can fail.
    let _ = rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty());
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// The first superblock of a new file.
#[cfg(test)]
pub(super) fn forming_bytes() -> Vec<u8> {
    encode(&Superblock::forming())
}

/// The place at which a namespace's zone records begin in a file.
#[cfg(test)]
pub(super) fn records_start(path: &Path, index: usize) -> u64 {
    test_superblock(path).namespaces[index].records_start
}

/// The place at which a namespace's bytes begin in a file.
#[cfg(test)]
pub(super) fn data_start(path: &Path, index: usize) -> u64 {
    test_superblock(path).namespaces[index].data_start
}

#[cfg(test)]
fn test_superblock(path: &Path) -> Superblock {
    read_superblock(&File::open(path).unwrap(), path)
        .unwrap()
        .unwrap()
}
