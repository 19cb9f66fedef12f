//! Parts of a file system that its kernel empties as a whole.
//!
//! Btrfs gives space to data in *chunks*, and F2FS writes to *sections*: nothing else can use the rest of one while any of
//! it is used. Both kernels can move what is left in one of them elsewhere, of all files and with all that share it, and
//! give it up (`btrfs balance`; F2FS's garbage collector). Which one is the caller's choice.

use std::io;

use indef_core::{SkipReason, layout::Movable};
use units::{Bytes, PhysOffset, PhysRange};

use crate::{
    Filesystem, FsKind, SpaceMap,
    btrfs::{self, NewChunks},
    f2fs,
};

/// Has the kernel empty parts of one file system.
pub trait Emptier: Sync {
    /// What a part is there.
    fn kind(&self) -> PartKind;

    /// All parts, and the free space, as of now.
    ///
    /// # Errors
    ///
    /// The kernel's.
    fn look(&self) -> io::Result<PartMap>;

    /// The lengths of what lies in a part and needs a place in one piece each; empty where anything can be cut.
    ///
    /// # Errors
    ///
    /// The kernel's.
    fn pieces(&self, part: &Part) -> io::Result<Vec<Bytes>>;

    /// Empty a part. `stop` is asked now and then; what was moved until then stays where it is now.
    fn empty(&self, part: &Part, stop: &dyn Fn() -> bool) -> Emptying;
}

/// What became of a part.
#[derive(Debug)]
pub struct Emptying {
    /// The bytes that lie elsewhere now.
    pub moved: Bytes,
    /// The bytes that were written for that, also to no avail.
    pub written: Bytes,
    /// Why it is not empty, if it is not.
    pub left: Option<NotEmptied>,
}

impl Emptying {
    /// It is empty.
    pub(crate) const fn whole(part: &Part) -> Self {
        Self {
            moved: part.used,
            written: part.used,
            left: None,
        }
    }

    /// Nothing of it has moved.
    pub(crate) const fn nothing(why: NotEmptied) -> Self {
        Self {
            moved: Bytes::ZERO,
            written: Bytes::ZERO,
            left: Some(why),
        }
    }
}

/// What a part of a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Of Btrfs.
    Chunk,
    /// Of F2FS.
    Section,
}

impl PartKind {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chunk => "chunk",
            Self::Section => "section",
        }
    }
}

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number for the kernel.
    pub(crate) address: u64,
    /// Where it lies on its device, which counts on from the one before. On F2FS, where parts need not lie side by side, a
    /// place among all of them, as long as what can be won.
    pub place: PhysRange,
    /// The bytes in it that are used.
    pub used: Bytes,
}

impl Part {
    /// What tells it from all others.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }
}

impl From<&Part> for Movable {
    fn from(part: &Part) -> Self {
        Self {
            place: part.place,
            used: part.used,
        }
    }
}

/// The parts of a file system.
#[derive(Clone, Debug, Default)]
pub struct PartMap {
    /// Those with anything in them that can be emptied, in the order of their places.
    pub parts: Vec<Part>,
    /// The runs of the devices that belong to no part or to an empty one, likewise.
    pub vacant: Vec<PhysRange>,
    /// How much of them is the file system's own, wherever that is: no longer run counts before there is more.
    pub kept: Bytes,
    /// What new parts can have, where that is not all that lies side by side.
    pub(crate) new_chunks: Option<NewChunks>,
    /// Free runs in each part, by its number.
    pub(crate) inside: Vec<(u64, Bytes)>,
    /// All free space, as files can get it.
    pub space: SpaceMap,
}

impl PartMap {
    /// The parts but those that stay. Where all free runs are as one, what can be won of a part lies behind it and behind
    /// what can be won of those before: no part that stays lies between.
    pub fn parts_without(&self, stays: impl Fn(&Part) -> bool) -> Vec<Part> {
        let mut parts = self.parts.clone();
        parts.retain(|part| !stays(part));
        if self.space.unit.is_some() {
            let mut start = self.vacant.last().map_or(PhysOffset(0), |run| run.end());
            for part in &mut parts {
                part.place.start = start;
                start = part.place.end();
            }
        }
        parts
    }

    /// The run that there is once these parts of a place are empty.
    pub fn won(&self, place: PhysRange, parts: &[Part]) -> Bytes {
        match &self.new_chunks {
            Some(new) => {
                let is_empty = |number| parts.iter().any(|part| part.address == number);
                new.longest_without(is_empty).min(place.len)
            }
            None => place.len.saturating_sub(self.kept),
        }
    }

    /// The free runs in all parts but these.
    pub fn free_elsewhere<'a>(&'a self, parts: &'a [Part]) -> impl Iterator<Item = Bytes> + 'a {
        let is_one = |number: u64| parts.iter().any(|part| part.address == number);
        let elsewhere = self
            .inside
            .iter()
            .filter(move |(number, _)| !is_one(*number));
        elsewhere.map(|(_, run)| *run)
    }
}

/// Why a part is not empty.
#[derive(Debug)]
pub enum NotEmptied {
    /// It cannot be.
    Stays(SkipReason),
    /// None can be, as the file system is mounted now.
    Refused(SkipReason),
    /// It was asked to stop.
    Stopped,
    /// Somebody else has ended it, which the kernel did as it does for them.
    Ended,
    /// Another such operation is under way on the file system.
    Busy,
    /// The kernel's error.
    Failed(io::Error),
}

/// Why there is no emptier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEmptier {
    /// Files move one by one there, or not at all.
    OtherKind,
    /// Btrfs stores data in a way that is newer than this program.
    Unknown,
    /// Chunks have data and trees.
    Mixed,
    /// It is on a device with zones: its kernel empties them by itself.
    ByItself,
    /// The kernel does not tell what is used of each part.
    Untold,
}

/// Something that empties parts of the file system.
///
/// # Errors
///
/// The kernel's, in the outer result.
pub fn emptier(fs: &Filesystem) -> io::Result<Result<Box<dyn Emptier>, NoEmptier>> {
    Ok(match fs.kind {
        FsKind::Btrfs => btrfs::Chunks::of(fs)?.map(|it| Box::new(it) as Box<dyn Emptier>),
        FsKind::F2fs => f2fs::Sections::of(fs)?.map(|it| Box::new(it) as Box<dyn Emptier>),
        _ => Err(NoEmptier::OtherKind),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_in_other_parts_is_a_place() {
        let part = |address| Part {
            address,
            place: PhysRange::new(address, 8),
            used: Bytes(1),
        };
        let map = PartMap {
            parts: vec![part(0), part(8)],
            inside: vec![(0, Bytes(5)), (8, Bytes(3)), (8, Bytes(4)), (16, Bytes(1))],
            ..PartMap::default()
        };
        let elsewhere: Vec<_> = map.free_elsewhere(&[part(8)]).collect();
        assert_eq!(elsewhere, [Bytes(5), Bytes(1)]);
    }

    #[test]
    fn what_stays_lies_in_nobodys_way_where_free_runs_are_as_one() {
        let part = |address, start, len| Part {
            address,
            place: PhysRange::new(start, len),
            used: Bytes(1),
        };
        let mut map = PartMap {
            parts: vec![part(0, 10, 7), part(1, 17, 6), part(2, 23, 5)],
            vacant: vec![PhysRange::new(0, 10)],
            ..PartMap::default()
        };
        let places = |map: &PartMap| -> Vec<_> {
            let parts = map.parts_without(|part| part.address() == 0);
            parts.iter().map(|part| part.place).collect()
        };
        assert_eq!(places(&map), [PhysRange::new(17, 6), PhysRange::new(23, 5)]);
        map.space.unit = Some(Bytes(1));
        assert_eq!(places(&map), [PhysRange::new(10, 6), PhysRange::new(16, 5)]);
    }
}
