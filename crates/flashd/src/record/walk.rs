//! One pass over a recording, for states at many marks of it.
//!
//! [`replay`](super::replay()) reads a recording from its beginning for each state. A [`Walk`] goes from
//! mark to mark: what is durable by then is in its base, an image that only grows newer; what is not is
//! kept apart. A state is a copy of the base, by reference where the host's file system can, and as much of
//! the rest as its [`Keep`] says. It is the same, byte for byte, that `replay` makes.
//!
//! For recordings of one conventional namespace.

#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::fs::FallocateFlags;

use super::{
    Entry, Keep, Mark, Reader, RecordError, Replayed,
    replay::{SplitMix, keep_parts, len_of},
};
use crate::store::Change;

/// See the module.
#[derive(Debug)]
pub struct Walk {
    recording: PathBuf,
    reader: Reader,
    block: u64,
    base: Image,
    volatile: Vec<Volatile>,
    flushes: u64,
}

/// A change since the last flush.
#[derive(Debug)]
enum Volatile {
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
}

impl Volatile {
    fn change(&self) -> Change<'_> {
        match *self {
            Self::Write {
                offset,
                ref data,
                fua,
            } => Change::Write { offset, data, fua },
            Self::Zero { offset, len, fua } => Change::Zero { offset, len, fua },
        }
    }
}

impl Walk {
    /// At the beginning of a recording. The base will be at `base`, a file that is not there yet.
    ///
    /// # Errors
    ///
    /// The recording cannot be read or has something else than one conventional namespace, or the
    /// file cannot be made.
    pub fn open(recording: &Path, base: &Path) -> Result<Self, RecordError> {
        let reader = Reader::open(recording)?;
        let [only] = &reader.header().namespaces[..] else {
            return Err(unusable(recording, "it has several namespaces"));
        };
        if only.zones.is_some() {
            return Err(unusable(recording, "its namespace has zones"));
        }
        let block = only.block_bytes;
        let file = File::create_new(base)
            .and_then(|file| file.set_len(only.size_bytes).map(|()| file))
            .map_err(|source| RecordError::io(base, source))?;
        let path = base.to_owned();
        Ok(Self {
            recording: recording.to_owned(),
            reader,
            block,
            base: Image { file, path },
            volatile: Vec::new(),
            flushes: 0,
        })
    }

    /// Go on to the next mark with this name.
    ///
    /// # Errors
    ///
    /// It does not come any more, the recording is damaged, or the base cannot be written.
    pub fn go_to(&mut self, name: &str) -> Result<(), RecordError> {
        while let Some(entry) = self.reader.next_entry()? {
            let change = match entry {
                Entry::Mark { name: found } if found == name => return Ok(()),
                Entry::Mark { .. } | Entry::PowerCut => continue,
                Entry::Change { change, .. } => change,
            };
            match change {
                Change::Flush => {
                    self.flushes += 1;
                    for volatile in self.volatile.drain(..) {
                        self.base.apply(&volatile.change())?;
                    }
                }
                Change::Write { offset, data, fua } => {
                    let data = data.to_vec();
                    self.volatile.push(Volatile::Write { offset, data, fua });
                }
                Change::Zero { offset, len, fua } => {
                    self.volatile.push(Volatile::Zero { offset, len, fua });
                }
                Change::Zone { .. } => {
                    return Err(unusable(
                        &self.recording,
                        "a zone changes, and there is none",
                    ));
                }
            }
        }
        Err(RecordError::NoSuchMark {
            path: self.recording.clone(),
            mark: Mark::Name(name.to_owned()).to_string(),
        })
    }

    /// Make the image of a state here, in a file that is not there yet.
    ///
    /// # Errors
    ///
    /// The file cannot be made.
    pub fn state(&self, keep: Keep, to: &Path) -> Result<Replayed, RecordError> {
        let failed = |source| RecordError::io(to, source);
        let file = File::create_new(to).map_err(failed)?;
        if rustix::fs::ioctl_ficlone(&file, &self.base.file).is_err() {
            fs::copy(&self.base.path, to).map_err(failed)?;
        }
        let path = to.to_owned();
        let image = Image { file, path };
        let mut random = SplitMix::of(keep);
        let mut done = Replayed {
            entries: self.reader.sequence(),
            flushes: self.flushes,
            ..Replayed::default()
        };
        for volatile in &self.volatile {
            let change = volatile.change();
            // What FUA covers stays in its place among the others: it is newer than those before it.
            let (Change::Write { fua: false, .. } | Change::Zero { fua: false, .. }) = change
            else {
                image.apply(&change)?;
                continue;
            };
            let len = len_of(&change);
            let kept = keep_parts(&change, self.block, keep, &mut random, |part| {
                image.apply(part)
            })?;
            done.volatile_bytes += len;
            done.left_out_bytes += len - kept;
        }
        Ok(done)
    }
}

fn unusable(recording: &Path, reason: &str) -> RecordError {
    RecordError::Unusable {
        path: recording.to_owned(),
        reason: reason.to_owned(),
    }
}

/// The bytes of a namespace in a file.
#[derive(Debug)]
struct Image {
    file: File,
    path: PathBuf,
}

impl Image {
    fn apply(&self, change: &Change<'_>) -> Result<(), RecordError> {
        let done = match *change {
            Change::Write { offset, data, .. } => self.file.write_all_at(data, offset),
            Change::Zero { offset, len, .. } => self.zero(offset, len),
            Change::Flush | Change::Zone { .. } => Ok(()),
        };
        done.map_err(|source| RecordError::io(&self.path, source))
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, mode, offset, len)?)
    }
}
