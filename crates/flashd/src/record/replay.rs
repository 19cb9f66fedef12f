//! From a recording back to a device: at a mark, or in any state that a power cut there could have
//! left.
//!
//! By the rules of [`crate::store`] a power cut leaves everything that a flush or FUA
//! covered; of the rest, any blocks at all, each as any of its unflushed writes has left it; in a
//! zone, any number of blocks from its durable end on. Zone management is durable.

use std::{fmt, path::Path, str::FromStr};

use serde::Serialize;

use super::{
    RecordEntry, RecordError, RecordReader,
    keep::{Keep, SplitMix},
    zone_ends::{ZoneCuts, ZoneEnds, zone_at},
};
use crate::store::{Change, FileOptions, Store, StoreKind};

/// A place in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Right after the flush with this number, counted over all namespaces; 0 is the beginning.
    Flush(u64),
    /// Right after the entry with this number, from 1.
    Entry(u64),
    /// At the mark with this name (the last one, if there are several).
    Name(String),
    /// At the end.
    End,
}

/// A mark that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no mark; write flush:N, entry:N, mark:NAME or end")]
pub struct ParseMarkError(String);

impl FromStr for Mark {
    type Err = ParseMarkError;

    fn from_str(text: &str) -> Result<Self, ParseMarkError> {
        let fail = || ParseMarkError(text.to_owned());
        match text.split_once(':') {
            Some(("flush", number)) => number.parse().map(Self::Flush).map_err(|_| fail()),
            Some(("entry", number)) => number.parse().map(Self::Entry).map_err(|_| fail()),
            Some(("mark", name)) if !name.is_empty() => Ok(Self::Name(name.to_owned())),
            None if text == "end" => Ok(Self::End),
            _ => Err(fail()),
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flush(number) => write!(f, "flush:{number}"),
            Self::Entry(number) => write!(f, "entry:{number}"),
            Self::Name(name) => write!(f, "mark:{name}"),
            Self::End => f.write_str("end"),
        }
    }
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Entries before the mark.
    pub entries: u64,
    /// Flushes before it.
    pub flushes: u64,
    /// Bytes that were written and could be lost at the mark.
    pub volatile_bytes: u64,
    /// Bytes of these that were left out.
    pub left_out_bytes: u64,
    /// Whether the recording was torn off before the mark: the daemon was killed there.
    pub torn: bool,
}

/// A mark in a recording, for a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedMark {
    /// As it is written for `--until`.
    pub mark: String,
    /// Entries up to there.
    pub entries: u64,
}

/// All flushes, names and power cuts of a recording. Power cuts are listed as the entry that they
/// are.
///
/// # Errors
///
/// It cannot be read.
pub fn marks(path: &Path) -> Result<Vec<ListedMark>, RecordError> {
    let mut reader = RecordReader::open(path)?;
    let mut marks = Vec::new();
    let mut flushes = 0;
    let mut entries = 0;
    while let Some(entry) = reader.next_entry()? {
        entries += 1;
        let mark = match entry {
            RecordEntry::Mark { name } => Mark::Name(name.to_owned()),
            RecordEntry::PowerCut => Mark::Entry(entries),
            RecordEntry::Change {
                change: Change::Flush,
                ..
            } => {
                flushes += 1;
                Mark::Flush(flushes)
            }
            RecordEntry::Change { .. } => continue,
        };
        marks.push(ListedMark {
            mark: mark.to_string(),
            entries,
        });
    }
    Ok(marks)
}

/// Build the device at a mark: in memory, or in this new file.
///
/// # Errors
///
/// The recording cannot be read or has no such mark, or the store cannot be made or written.
pub fn replay(
    path: &Path,
    until: &Mark,
    keep: Keep,
    file: Option<&FileOptions>,
) -> Result<(Store, Replayed), RecordError> {
    let header = RecordReader::open(path)?.header().clone();
    let store = match file {
        Some(file) => Store::open(file, &header.namespaces, 0, &header.profile)?.0,
        None => Store::in_memory(&header.namespaces, 0)?,
    };
    let replayed = replay_into(&store, path, until, keep)?;
    store.sync_file()?;
    Ok((store, replayed))
}

/// Into an empty store that was made for the recording's namespaces.
fn replay_into(
    store: &Store,
    path: &Path,
    until: &Mark,
    keep: Keep,
) -> Result<Replayed, RecordError> {
    let last = find(path, until)?;
    let mut cut = Cut::survey(path, last, keep)?;
    let mut reader = RecordReader::open(path)?;
    while reader.sequence() < last {
        let Some(entry) = reader.next_entry()? else {
            break;
        };
        if let RecordEntry::Change { namespace, change } = entry {
            cut.apply(namespace, &change, store)?;
        }
        cut.sequence += 1;
    }
    for namespace in &store.namespaces {
        namespace.flush()?;
    }
    Ok(Replayed {
        entries: last,
        torn: cut.torn,
        ..cut.done
    })
}

/// Number of the last entry before a mark.
fn find(path: &Path, until: &Mark) -> Result<u64, RecordError> {
    let mut reader = RecordReader::open(path)?;
    let mut flushes = 0;
    let mut named = None;
    let mut start = None;
    let mut entries = 0;
    while let Some(entry) = reader.next_entry()? {
        entries += 1;
        if start.is_none() && matches!(entry, RecordEntry::Mark { .. }) {
            start = Some(entries);
        }
        match (entry, until) {
            (RecordEntry::Mark { name }, Mark::Name(wanted)) if name == wanted => {
                named = Some(entries)
            }
            (
                RecordEntry::Change {
                    change: Change::Flush,
                    ..
                },
                Mark::Flush(wanted),
            ) => {
                flushes += 1;
                if flushes == *wanted {
                    return Ok(entries);
                }
            }
            (_, Mark::Entry(wanted)) if entries == *wanted => return Ok(entries),
            _ => {}
        }
    }
    let found = match until {
        Mark::End => Some(entries),
        // The content of the device when the recording began.
        Mark::Flush(0) => start,
        Mark::Entry(0) => Some(0),
        _ => named,
    };
    found.ok_or_else(|| RecordError::NoSuchMark {
        path: path.to_owned(),
        mark: until.to_string(),
    })
}

/// The changes that a power cut leaves.
struct Cut {
    keep: Keep,
    random: SplitMix,
    kinds: Vec<StoreKind>,
    /// For each namespace, the number of the entry before which everything is covered: its last
    /// flush.
    covered: Vec<u64>,
    /// The ends of zones after the cut.
    zone_cuts: ZoneCuts,
    /// The zones as they are so far, in the second pass.
    zones: ZoneEnds,
    sequence: u64,
    torn: bool,
    done: Replayed,
}

impl Cut {
    /// First pass: the changes that the flushes before the mark cover, and the ends of zones.
    fn survey(path: &Path, last: u64, keep: Keep) -> Result<Self, RecordError> {
        let mut reader = RecordReader::open(path)?;
        let kinds = reader.header().namespaces.clone();
        let mut cut = Self {
            keep,
            random: SplitMix::of(keep),
            covered: vec![0; kinds.len()],
            kinds,
            zone_cuts: ZoneCuts::default(),
            zones: ZoneEnds::default(),
            sequence: 0,
            torn: false,
            done: Replayed::default(),
        };
        while reader.sequence() < last {
            let Some(entry) = reader.next_entry()? else {
                break;
            };
            cut.sequence += 1;
            match entry {
                RecordEntry::Change { namespace, change } => {
                    cut.look_at(namespace as usize - 1, &change)
                }
                // No entry says which data was lost: the store's own cut was one of many.
                RecordEntry::PowerCut | RecordEntry::Mark { .. } => {}
            }
        }
        cut.torn = reader.is_torn();
        cut.sequence = 0;
        let ends = std::mem::take(&mut cut.zones);
        cut.zone_cuts = ends.cut(&cut.kinds, keep, &mut cut.random);
        Ok(cut)
    }

    fn look_at(&mut self, namespace: usize, change: &Change<'_>) {
        if *change == Change::Flush {
            self.covered[namespace] = self.sequence;
            self.done.flushes += 1;
        }
        if let Some(zones) = self.kinds[namespace].zones {
            self.zones.look_at(namespace, zones, change);
        }
    }

    /// Second pass: apply the kept part of a change. `self.sequence` entries came before it.
    fn apply(
        &mut self,
        namespace: u32,
        change: &Change<'_>,
        into: &Store,
    ) -> Result<(), RecordError> {
        let index = namespace as usize - 1;
        let store = &into.namespaces[index];
        if let Some(zones) = self.kinds[index].zones {
            self.zones.look_at(index, zones, change);
        }
        let (offset, len, fua) = match *change {
            Change::Flush => return Ok(()),
            Change::Zone { .. } => return Ok(store.apply(change)?),
            Change::Write { offset, data, fua } => (offset, data.len() as u64, fua),
            Change::Zero { offset, len, fua } => (offset, len, fua),
        };
        let covered = fua || self.sequence < self.covered[index];
        if let Some(zones) = self.kinds[index].zones {
            let zone = zone_at(zones, offset);
            let epoch = self.zones.epoch(index, zone);
            let kept = self.zone_cuts.kept(index, zone, epoch, offset, len);
            if !covered {
                self.done.volatile_bytes += len;
                self.done.left_out_bytes += len - kept;
            }
            return Ok(part(change, 0, kept).map_or(Ok(()), |change| store.apply(&change))?);
        }
        if covered {
            return Ok(store.apply(change)?);
        }
        let block = self.kinds[index].block_bytes;
        self.done.volatile_bytes += len;
        let kept = keep_parts(change, block, self.keep, &mut self.random, |part| {
            Ok(store.apply(part)?)
        })?;
        self.done.left_out_bytes += len - kept;
        Ok(())
    }
}

/// Bytes that a change writes.
pub(super) fn len_of(change: &Change<'_>) -> u64 {
    match *change {
        Change::Write { data, .. } => data.len() as u64,
        Change::Zero { len, .. } => len,
        Change::Flush | Change::Zone { .. } => 0,
    }
}

/// Apply the part that a power cut leaves of a write to a conventional namespace that nothing
/// covered; return the number of bytes of that part.
pub(super) fn keep_parts(
    change: &Change<'_>,
    block: u64,
    keep: Keep,
    random: &mut SplitMix,
    mut apply: impl FnMut(&Change<'_>) -> Result<(), RecordError>,
) -> Result<u64, RecordError> {
    let len = len_of(change);
    match keep {
        Keep::Everything => apply(change).map(|()| len),
        Keep::Durable => Ok(0),
        Keep::Reordered(_) => {
            // A command is lost as a whole, kept as a whole, or torn: none of these too rarely.
            let quarters = random.below(5);
            let mut kept = 0;
            for start in (0..len).step_by(block as usize) {
                if random.below(4) < quarters
                    && let Some(part) = part(change, start, block)
                {
                    apply(&part)?;
                    kept += block;
                }
            }
            Ok(kept)
        }
    }
}

/// The part of a write that begins `start` bytes into it.
pub(super) fn part<'a>(change: &Change<'a>, start: u64, len: u64) -> Option<Change<'a>> {
    if len == 0 {
        return None;
    }
    match *change {
        Change::Write { offset, data, fua } => Some(Change::Write {
            offset: offset + start,
            data: &data[start as usize..(start + len) as usize],
            fua,
        }),
        Change::Zero { offset, fua, .. } => Some(Change::Zero {
            offset: offset + start,
            len,
            fua,
        }),
        Change::Flush | Change::Zone { .. } => None,
    }
}
