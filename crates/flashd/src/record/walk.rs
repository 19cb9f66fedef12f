//! One pass over a recording, for states at many marks of it.
//!
//! [`replay`](super::replay()) reads a recording from its beginning for each state. A [`Walk`] goes
//! from mark to mark: data that is durable by then is in its base, a file that only grows newer;
//! other data is kept apart. A state is a copy of the base, by reference where the host's file
//! system can, and as much of the rest as its [`Keep`] says. It is the same, byte for byte, that
//! `replay` makes.

mod base;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use super::{
    Keep, Mark, RecordEntry, RecordError, RecordHeader, RecordReader, Replayed, UnusableRecording,
    keep::SplitMix,
    replay::{keep_parts, len_of, part},
    zone_ends::{ZoneEnds, zone_at},
};
use crate::store::{Change, ZoneChange};
use base::Base;
pub use base::Form;

/// See the module.
#[derive(Debug)]
pub struct Walk {
    recording: PathBuf,
    reader: RecordReader,
    header: RecordHeader,
    base: Base,
    volatile: Vec<Volatile>,
    zones: ZoneEnds,
    flushes: u64,
}

/// A change since the last flush of its namespace.
#[derive(Debug)]
struct Volatile {
    /// Its index.
    namespace: usize,
    /// Resets of its zone before it.
    epoch: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Write {
        offset: u64,
        data: Vec<u8>,
        fua: bool,
    },
    Zero {
        offset: u64,
        len: u64,
        fua: bool,
    },
    Zone {
        zone: usize,
        change: ZoneChange,
    },
}

impl Volatile {
    fn change(&self) -> Change<'_> {
        match self.what {
            What::Write {
                offset,
                ref data,
                fua,
            } => Change::Write { offset, data, fua },
            What::Zero { offset, len, fua } => Change::Zero { offset, len, fua },
            What::Zone { zone, change } => Change::Zone { zone, change },
        }
    }
}

impl Walk {
    /// At the beginning of a recording. The base will be at `base`, a file that is not there yet;
    /// it and all states have this form.
    ///
    /// # Errors
    ///
    /// The recording cannot be read or has something else than the form can have, or the file
    /// cannot be made.
    pub fn open(recording: &Path, base: &Path, form: Form) -> Result<Self, RecordError> {
        let reader = RecordReader::open(recording)?;
        let header = reader.header().clone();
        if form == Form::Image {
            let [only] = &header.namespaces[..] else {
                return Err(unusable(recording, UnusableRecording::SeveralNamespaces));
            };
            if only.zones.is_some() {
                return Err(unusable(recording, UnusableRecording::HasZones));
            }
        }
        Ok(Self {
            recording: recording.to_owned(),
            reader,
            base: Base::new(base, form, &header)?,
            header,
            volatile: Vec::new(),
            zones: ZoneEnds::default(),
            flushes: 0,
        })
    }

    /// Go on to the next mark with this name.
    ///
    /// # Errors
    ///
    /// There is no further mark with this name, the recording is damaged, or the base cannot be
    /// written.
    pub fn go_to(&mut self, name: &str) -> Result<(), RecordError> {
        while let Some(entry) = self.reader.next_entry()? {
            let (namespace, change) = match entry {
                RecordEntry::Mark { name: found } if found == name => return self.base.finish(),
                RecordEntry::Mark { .. } | RecordEntry::PowerCut => continue,
                RecordEntry::Change { namespace, change } => (namespace as usize - 1, change),
            };
            let mut epoch = 0;
            if let Some(zones) = self.header.namespaces[namespace].zones {
                if let Change::Write { offset, .. } | Change::Zero { offset, .. } = change {
                    epoch = self.zones.epoch(namespace, zone_at(zones, offset));
                }
                self.zones.look_at(namespace, zones, &change);
            }
            let what = match change {
                Change::Flush => {
                    self.flushes += 1;
                    let durable = |volatile: &mut Volatile| volatile.namespace == namespace;
                    for volatile in self.volatile.extract_if(.., durable) {
                        self.base.apply(namespace, &volatile.change())?;
                    }
                    continue;
                }
                Change::Write { offset, data, fua } => {
                    let data = data.to_vec();
                    What::Write { offset, data, fua }
                }
                Change::Zero { offset, len, fua } => What::Zero { offset, len, fua },
                Change::Zone { zone, change } => What::Zone { zone, change },
            };
            self.volatile.push(Volatile {
                namespace,
                epoch,
                what,
            });
        }
        Err(RecordError::NoSuchMark {
            path: self.recording.clone(),
            mark: Mark::Name(name.to_owned()).to_string(),
        })
    }

    /// Make a state here, in a file that is not there yet.
    ///
    /// # Errors
    ///
    /// The file cannot be made.
    pub fn state(&self, keep: Keep, to: &Path) -> Result<Replayed, RecordError> {
        let state = self.base.copy(to, &self.header)?;
        let mut random = SplitMix::of(keep);
        let mut done = Replayed {
            entries: self.reader.sequence(),
            flushes: self.flushes,
            ..Replayed::default()
        };
        let kinds = &self.header.namespaces;
        let cuts = self.zones.cut(kinds, keep, &mut random);
        for volatile in &self.volatile {
            let (namespace, change) = (volatile.namespace, volatile.change());
            let apply = |change: &Change<'_>| state.apply(namespace, change);
            let (offset, fua) = match change {
                Change::Write { offset, fua, .. } | Change::Zero { offset, fua, .. } => {
                    (offset, fua)
                }
                Change::Zone { .. } | Change::Flush => {
                    apply(&change)?;
                    continue;
                }
            };
            let len = len_of(&change);
            let kept = if let Some(zones) = kinds[namespace].zones {
                let zone = zone_at(zones, offset);
                let kept = cuts.kept(namespace, zone, volatile.epoch, offset, len);
                part(&change, 0, kept).map_or(Ok(()), |change| apply(&change))?;
                kept
            } else if fua {
                // It stays in its place among the others: it is newer than those before it.
                apply(&change).map(|()| len)?
            } else {
                keep_parts(
                    &change,
                    kinds[namespace].block_bytes,
                    keep,
                    &mut random,
                    apply,
                )?
            };
            if !fua {
                done.volatile_bytes += len;
                done.left_out_bytes += len - kept;
            }
        }
        state.finish()?;
        Ok(done)
    }
}

fn unusable(recording: &Path, reason: UnusableRecording) -> RecordError {
    RecordError::Unusable {
        path: recording.to_owned(),
        reason,
    }
}
