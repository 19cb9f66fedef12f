//! The format of a recording.
//!
//! A header (magic, version, length, checksum, JSON), then entries: 40 bytes with a checksum,
//! followed by the entry's data, if any, whose checksum is in the 40 bytes. Numbers are
//! little-endian.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::store::{Change, StoreError, StoreKind, ZoneChange};

const MAGIC: &[u8; 8] = b"flashdRC";
/// Format of the file. Other formats are refused.
const VERSION: u32 = 1;
const ENTRY_BYTES: usize = 40;
/// The largest data of an entry; a larger length is damage.
const LARGEST_DATA: u64 = 1 << 30;

/// Why a file is of no use as a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableRecording {
    /// It is too short.
    #[error("this is no recording, or its head is torn")]
    NoHead,
    /// It begins as no recording does.
    #[error("this is no recording of flashd")]
    Foreign,
    /// A later format.
    #[error("its format is not known to this flashd")]
    Version,
    /// The description of the device.
    #[error("its header is damaged")]
    Header,
    /// An entry that is not the last one.
    #[error("entry {number} is damaged ({part})")]
    Entry {
        /// From 1.
        number: u64,
        /// The part of it.
        part: RecordPart,
    },
    /// An image is of one namespace.
    #[error("it has several namespaces")]
    SeveralNamespaces,
    /// An image has no zones.
    #[error("its namespace has zones")]
    HasZones,
}

/// A part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum RecordPart {
    #[error("checksum or number")]
    Head,
    #[error("length")]
    Length,
    #[error("data")]
    Data,
    #[error("name")]
    Name,
    #[error("kind")]
    Kind,
    #[error("namespace")]
    Namespace,
    #[error("place")]
    Place,
    #[error("zone")]
    Zone,
}

/// A recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The recording.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is something else, or damaged.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The recording.
        path: PathBuf,
        /// The mistake.
        reason: UnusableRecording,
    },
    /// The recording has no such mark.
    #[error("{}: there is no {mark}; `flashd replay --list` shows what there is", path.display())]
    NoSuchMark {
        /// The recording.
        path: PathBuf,
        /// The mark that was asked for.
        mark: String,
    },
    /// A recording goes on already; there is one at a time.
    #[error("{} is being recorded to already; end that first", path.display())]
    Already {
        /// The recording that goes on.
        path: PathBuf,
    },
    /// No recording goes on.
    #[error("nothing is being recorded; begin with `flashd record start FILE`")]
    NotRecording,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RecordError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// The recorded device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordHeader {
    /// The profile's name.
    pub profile: String,
    /// The namespaces.
    pub namespaces: Vec<StoreKind>,
}

impl RecordHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let json = serde_json::to_vec(self).expect("plain data serialises");
        let mut bytes = Vec::with_capacity(20 + json.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&json).to_le_bytes());
        bytes.extend_from_slice(&json);
        bytes
    }
}

/// One event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEntry<'a> {
    /// A namespace (1 …) was changed.
    Change {
        /// The namespace.
        namespace: u32,
        /// The change.
        change: Change<'a>,
    },
    /// A name was put on this place.
    Mark {
        /// The name.
        name: &'a str,
    },
    /// The power was cut.
    PowerCut,
}

impl<'a> RecordEntry<'a> {
    /// The 40 bytes, and the data that follows them.
    pub(super) fn encode(&self, sequence: u64) -> ([u8; ENTRY_BYTES], &'a [u8]) {
        let none: &'a [u8] = &[];
        let (kind, fua, namespace, place, len, data) = match *self {
            Self::Mark { name } => (10, false, 0, 0, name.len() as u64, name.as_bytes()),
            Self::PowerCut => (11, false, 0, 0, 0, none),
            Self::Change { namespace, change } => match change {
                Change::Write { offset, data, fua } => {
                    (1, fua, namespace, offset, data.len() as u64, data)
                }
                Change::Zero { offset, len, fua } => (2, fua, namespace, offset, len, none),
                Change::Flush => (3, false, namespace, 0, 0, none),
                Change::Zone { zone, change } => {
                    let kind = match change {
                        ZoneChange::Reset => 4,
                        ZoneChange::Finish => 5,
                        ZoneChange::ReadOnly => 6,
                        ZoneChange::Offline => 7,
                    };
                    (kind, false, namespace, zone as u64, 0, none)
                }
            },
        };
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0] = kind;
        bytes[1] = u8::from(fua);
        bytes[4..8].copy_from_slice(&namespace.to_le_bytes());
        bytes[8..16].copy_from_slice(&place.to_le_bytes());
        bytes[16..24].copy_from_slice(&len.to_le_bytes());
        bytes[24..32].copy_from_slice(&sequence.to_le_bytes());
        bytes[32..36].copy_from_slice(&crc32c::crc32c(data).to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&sum.to_le_bytes());
        (bytes, data)
    }
}

/// Reads a recording from its beginning.
#[derive(Debug)]
pub struct RecordReader {
    path: PathBuf,
    input: BufReader<File>,
    header: RecordHeader,
    sequence: u64,
    data: Vec<u8>,
    torn: bool,
}

impl RecordReader {
    /// Open a recording.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is something else.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let unusable = |reason| RecordError::Unusable {
            path: path.to_owned(),
            reason,
        };
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::UnexpectedEof => unusable(UnusableRecording::NoHead),
            _ => RecordError::io(path, source),
        };
        let file = File::open(path).map_err(failed)?;
        let mut input = BufReader::with_capacity(1 << 20, file);
        let mut head = [0; 20];
        input.read_exact(&mut head).map_err(failed)?;
        let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        if &head[..8] != MAGIC {
            return Err(unusable(UnusableRecording::Foreign));
        }
        if half(8) != VERSION {
            return Err(unusable(UnusableRecording::Version));
        }
        if half(12) > 1 << 20 {
            return Err(unusable(UnusableRecording::Header));
        }
        let mut json = vec![0; half(12) as usize];
        input.read_exact(&mut json).map_err(failed)?;
        if crc32c::crc32c(&json) != half(16) {
            return Err(unusable(UnusableRecording::Header));
        }
        let header =
            serde_json::from_slice(&json).map_err(|_| unusable(UnusableRecording::Header))?;
        Ok(Self {
            path: path.to_owned(),
            input,
            header,
            sequence: 0,
            data: Vec::new(),
            torn: false,
        })
    }

    /// The recorded device.
    #[must_use]
    pub fn header(&self) -> &RecordHeader {
        &self.header
    }

    /// Number of the entry that was read last, from 1.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the recording ended in the middle of an entry, as a kill leaves it.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// The next entry.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is damaged (in the middle: a torn end just ends it).
    pub fn next_entry(&mut self) -> Result<Option<RecordEntry<'_>>, RecordError> {
        let mut head = [0; ENTRY_BYTES];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let damaged = |path: &Path, part| RecordError::Unusable {
            path: path.to_owned(),
            reason: UnusableRecording::Entry {
                number: self.sequence + 1,
                part,
            },
        };
        let (namespace, place, len) = (half(4), word(8), word(16));
        if half(36) != crc32c::crc32c(&head[..36]) || word(24) != self.sequence + 1 {
            return Err(damaged(&self.path, RecordPart::Head));
        }
        let has_data = matches!(head[0], 1 | 10);
        if has_data && len > LARGEST_DATA {
            return Err(damaged(&self.path, RecordPart::Length));
        }
        let mut data = std::mem::take(&mut self.data);
        data.resize(if has_data { len as usize } else { 0 }, 0);
        let whole = self.fill(&mut data)?;
        self.data = data;
        if !whole {
            // An entry that lacks all of its data is a torn end, too.
            self.torn = true;
            return Ok(None);
        }
        self.sequence += 1;
        let bad = |part| RecordError::Unusable {
            path: self.path.clone(),
            reason: UnusableRecording::Entry {
                number: self.sequence,
                part,
            },
        };
        if crc32c::crc32c(&self.data) != half(32) {
            return Err(bad(RecordPart::Data));
        }
        let fua = head[1] == 1;
        let zone = |change| Change::Zone {
            zone: place as usize,
            change,
        };
        let change = match head[0] {
            1 => Change::Write {
                offset: place,
                data: &self.data,
                fua,
            },
            2 => Change::Zero {
                offset: place,
                len,
                fua,
            },
            3 => Change::Flush,
            4 => zone(ZoneChange::Reset),
            5 => zone(ZoneChange::Finish),
            6 => zone(ZoneChange::ReadOnly),
            7 => zone(ZoneChange::Offline),
            10 => {
                let name = std::str::from_utf8(&self.data).map_err(|_| bad(RecordPart::Name))?;
                return Ok(Some(RecordEntry::Mark { name }));
            }
            11 => return Ok(Some(RecordEntry::PowerCut)),
            _ => return Err(bad(RecordPart::Kind)),
        };
        self.fits(namespace, &change).map_err(bad)?;
        Ok(Some(RecordEntry::Change { namespace, change }))
    }

    /// Check that a change is inside of its namespace: the code that applies it relies on that.
    fn fits(&self, namespace: u32, change: &Change<'_>) -> Result<(), RecordPart> {
        let kind = (namespace as usize)
            .checked_sub(1)
            .and_then(|index| self.header.namespaces.get(index))
            .ok_or(RecordPart::Namespace)?;
        let range = |offset: u64, len: u64| {
            let whole =
                offset.is_multiple_of(kind.block_bytes) && len.is_multiple_of(kind.block_bytes);
            match offset.checked_add(len) {
                Some(end) if whole && end <= kind.size_bytes => Ok(()),
                _ => Err(RecordPart::Place),
            }
        };
        match *change {
            Change::Write { offset, data, .. } => range(offset, data.len() as u64),
            Change::Zero { offset, len, .. } => range(offset, len),
            Change::Flush => Ok(()),
            Change::Zone { zone, .. } => match kind.zones {
                Some(zones) if zone < zones.count => Ok(()),
                _ => Err(RecordPart::Zone),
            },
        }
    }

    /// Fill `into`; `false` if the recording ends before that.
    fn fill(&mut self, into: &mut [u8]) -> Result<bool, RecordError> {
        let mut len = 0;
        while len < into.len() {
            match self.input.read(&mut into[len..]) {
                Ok(0) => {
                    self.torn |= len > 0;
                    return Ok(false);
                }
                Ok(read) => len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(RecordError::io(&self.path, source)),
            }
        }
        Ok(true)
    }
}
