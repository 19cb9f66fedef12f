//! Finds the files that hold the extents of a window: in all subvolumes, whether these are mounted or not.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
};

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags, Layout},
};
use linux_abi::{
    btrfs::{self, ExtentParts, Holders, Reference},
    fiemap::Mapper,
    handle::{self, FileHandle},
};
use rustix::io::Errno;
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use super::apart::{looking, sharing};
use crate::{
    Refusal, Target, map,
    share::{
        claims::{Arrivals, Claim},
        holder::{
            Found, Holder, HolderId, LONGEST_HULL, MOST_HOLDERS, MOST_PARTS, MOST_PARTS_OF_ALL,
            go_on, open,
        },
        place::HolderFinder,
        select::{FileParts, Part, PartState},
    },
};

/// Whether a holder is in a subvolume, and not in a tree of the kernel's own: a balance keeps what it moves in a file
/// that can be opened, too (`BTRFS_DATA_RELOC_TREE_OBJECTID`).
const fn is_users(holder: HolderId) -> bool {
    const TOP: u64 = 5;
    const FIRST: u64 = 256;
    const LAST: u64 = 256_u64.wrapping_neg();
    holder.subvolume == TOP || (holder.subvolume >= FIRST && holder.subvolume <= LAST)
}

/// A part as all file systems have it.
fn part(of: btrfs::ExtentPart) -> Part {
    Part {
        offset: of.offset,
        len: of.len,
        extent: of.extent,
        into: of.into,
        state: match of.state {
            btrfs::PartState::Written => PartState::Written,
            btrfs::PartState::Encoded => PartState::Encoded,
            btrfs::PartState::Unwritten => PartState::Unwritten,
        },
    }
}

/// What a look at a window asks while it goes on.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    /// Whether it is to end.
    pub(super) is_stopping: &'a dyn Fn() -> bool,
    /// Whether to move an extent with these holders costs more than the window may.
    pub(super) is_too_costly: &'a dyn Fn(&BTreeSet<HolderId>) -> Result<bool, Refusal>,
}

/// Finds holders; buffers that are used again.
#[derive(Default)]
pub(super) struct Finder {
    holders: Holders,
    parts: ExtentParts,
    mapper: Mapper,
    /// The file system was synced, so that the tree has all extents from before.
    synced: bool,
}

impl Finder {
    /// Whether the file's data may be shared and moved by comparing: with checksums, and not written in place.
    pub(super) fn is_ordinary(&mut self, target: &Target, subvolume: u64) -> io::Result<bool> {
        let facts = (self.parts).inode(&target.file, subvolume, target.id.inode)?;
        Ok(facts.is_some_and(|facts| facts.flags.is_empty()))
    }

    /// The parts of the target that begin in `range`, up to `most` bytes of them and the one that exceeds these.
    pub(super) fn parts_of(
        &mut self,
        target: &Target,
        subvolume: u64,
        range: FileRange,
        most: Bytes,
    ) -> Result<Vec<Part>, Refusal> {
        let (mut parts, mut bytes) = (Vec::new(), 0);
        let (start, end) = (range.start.get(), range.end().get());
        let file = (subvolume, target.id.inode);
        let visited = self.parts.visit(&target.file, file, start, end, |of| {
            bytes += of.len;
            parts.push(part(of));
            bytes < most.get()
        });
        visited.map_err(|error| refuse(target, error))?;
        Ok(parts)
    }

    /// The target by itself: its layout around these parts of it, which lie in `hull`. Extents that are not `claim`ed
    /// stay.
    pub(super) fn alone(
        &mut self,
        target: &Target,
        parts: Vec<Part>,
        hull: FileRange,
        (claim, arrivals): (&Claim, &Arrivals),
    ) -> Result<Found, Refusal> {
        let block = target.block_size;
        let around = FileRange::between(
            FileOffset(hull.start.get().saturating_sub(block.get())),
            FileOffset(hull.end().get().saturating_add(block.get())),
        );
        let layout = map(&target.file, &target.path, around, false, &mut self.mapper)?;
        let mut found = Found {
            target: FileParts {
                parts,
                layout,
                size: target.size,
            },
            ..Found::default()
        };
        for part in &found.target.parts {
            if !claim.has(part.extent) {
                let reason = arrivals.reason(part.extent);
                found.staying.insert(part.extent, reason);
            }
        }
        Ok(found)
    }

    /// Find everybody who holds an extent of the target.
    pub(super) fn find(
        &mut self,
        target: &Target,
        own: HolderId,
        mut found: Found,
        asking: Asking<'_>,
    ) -> Result<Found, Refusal> {
        let references = self.references(target, own, &mut found, asking)?;
        if references.len() > MOST_HOLDERS {
            found.stay(SkipReason::ManyHolders);
            return Ok(found);
        }
        let mut left = MOST_PARTS_OF_ALL;
        for (id, (first, last)) in references {
            go_on(asking.is_stopping)?;
            match self.holder(target, id, first, last) {
                Ok(None) => {}
                Ok(Some(holder)) if holder.has.parts.len() <= left => {
                    left -= holder.has.parts.len();
                    found.holders.push(holder);
                }
                Ok(Some(_)) => {
                    found.stay(SkipReason::ManyHolders);
                    break;
                }
                Err(Refusal::Skip(reason)) => {
                    found.stay(reason);
                    break;
                }
                Err(failed) => return Err(failed),
            }
        }
        Ok(found)
    }

    /// Everybody but the target who refers to its extents: the first and the last place of each in its file. Ends
    /// early where there are too many. Tells of none where each extent is too costly by itself: nothing would move,
    /// and to look at many holders of many small files takes long.
    fn references(
        &mut self,
        target: &Target,
        own: HolderId,
        found: &mut Found,
        asking: Asking<'_>,
    ) -> Result<BTreeMap<HolderId, (u64, u64)>, Refusal> {
        let (mut shared, mut costly) = (false, true);
        let mut references = BTreeMap::new();
        let own_places: BTreeSet<u64> = (found.target.parts.iter())
            .map(|part| part.offset)
            .collect();
        let extents: BTreeSet<u64> = (found.target.parts.iter())
            .map(|part| part.extent)
            .filter(|extent| !found.staying.contains_key(extent))
            .collect();
        for extent in extents {
            go_on(asking.is_stopping)?;
            if references.len() > MOST_HOLDERS {
                break;
            }
            let (mut elsewhere, mut others) = (false, BTreeSet::new());
            let mut add = |id: HolderId, offset: u64| {
                if id == own {
                    elsewhere |= !own_places.contains(&offset);
                    return;
                }
                others.insert(id);
                let range = references.entry(id).or_insert((offset, offset));
                range.0 = range.0.min(offset);
                range.1 = range.1.max(offset);
            };
            let mut asked = self.ask(target, extent, &mut add);
            if is(&asked, Errno::NOENT) && !self.synced {
                // The tree has it after the next commit. An error may be one of other files' data, and of a commit that has
                // failed the tree tells.
                self.synced = true;
                let _ = rustix::fs::syncfs(&target.file);
                asked = self.ask(target, extent, &mut add);
            }
            let reason = match &asked {
                Ok(()) if elsewhere => Some(SkipReason::HoldersDiffer),
                Ok(()) => None,
                _ if is(&asked, Errno::NOENT) => Some(SkipReason::Changed),
                _ if is(&asked, Errno::OVERFLOW) || is(&asked, Errno::NOMEM) => {
                    Some(SkipReason::ManyHolders)
                }
                Err(_) => None,
            };
            match (reason, asked) {
                (Some(reason), _) => {
                    found.staying.insert(extent, reason);
                }
                (None, Ok(())) if !others.is_empty() => {
                    shared = true;
                    costly = costly && (asking.is_too_costly)(&others)?;
                }
                (None, Ok(())) => {}
                (None, Err(error)) => return Err(refuse(target, error)),
            }
        }
        if shared && costly {
            found.stay(SkipReason::MetadataCost);
            references.clear();
        }
        Ok(references)
    }

    /// Ask for all references to an extent: file, and place in it.
    fn ask(
        &mut self,
        target: &Target,
        extent: u64,
        add: &mut dyn FnMut(HolderId, u64),
    ) -> io::Result<()> {
        let _looking = looking();
        let all = self.holders.of(&target.file, extent)?;
        all.for_each(|reference: Reference| {
            let id = HolderId {
                subvolume: reference.subvolume,
                inode: reference.inode,
            };
            add(id, reference.offset);
        });
        Ok(())
    }

    /// Look at a holder, between its first and its last reference; `None` if it is gone.
    ///
    /// A subvolume that is deleted is gone for all but its extents, which it holds until the kernel comes to it: after a
    /// commit, and those that were deleted before, and not while anybody has a file of it open (fs/btrfs/inode.c,
    /// `btrfs_del_inode_from_root`, v6.18).
    fn holder(
        &mut self,
        target: &Target,
        id: HolderId,
        first: u64,
        last: u64,
    ) -> Result<Option<Holder>, Refusal> {
        if !is_users(id) {
            return Err(SkipReason::HoldersUnreachable.into());
        }
        let facts = match self.parts.inode(&target.file, id.subvolume, id.inode) {
            Ok(Some(facts)) => facts,
            Ok(None) => return Ok(None),
            Err(_) => return Err(SkipReason::HoldersUnreachable.into()),
        };
        let handle = FileHandle::Btrfs {
            inode: id.inode,
            subvolume: id.subvolume,
            // As much of it as a handle has (fs/btrfs/export.c, v6.18).
            generation: facts.generation as u32,
        };
        let Some((file, status)) = open(target, handle)? else {
            return Ok(None);
        };
        if last - first > LONGEST_HULL {
            return Err(SkipReason::HoldersDiffer.into());
        }
        let mut parts = Vec::new();
        let (file_id, end) = ((id.subvolume, id.inode), last.saturating_add(1));
        let visited = self.parts.visit(&target.file, file_id, first, end, |of| {
            parts.push(part(of));
            parts.len() <= MOST_PARTS
        });
        match visited {
            Ok(()) => {}
            error if is(&error, Errno::NOENT) => return Ok(None),
            Err(error) => return Err(refuse(target, error)),
        }
        if parts.len() > MOST_PARTS {
            return Err(SkipReason::HoldersDiffer.into());
        }
        let (Some(start), Some(last)) = (parts.first(), parts.last()) else {
            // It does not hold anything any more.
            return Ok(None);
        };
        let (start, end) = (start.offset, last.offset + last.len);
        let block = target.block_size.get();
        let mut extents: Vec<Extent> = parts.iter().map(extent).collect();
        // The neighbours tell whether a move cuts.
        for (start, len) in [
            (start.saturating_sub(block), block.min(start)),
            (end, block),
        ] {
            let range = FileRange::new(start, len);
            let edge = map(&file, &target.path, range, false, &mut self.mapper)?;
            extents.extend(edge.extents());
        }
        Ok(Some(Holder {
            id,
            handle,
            has: FileParts {
                parts,
                layout: Layout::new(extents),
                size: Bytes(status.stx_size),
            },
        }))
    }
}

impl HolderFinder for Finder {
    type Apart = std::sync::RwLockReadGuard<'static, ()>;

    fn apart() -> Self::Apart {
        sharing()
    }

    fn extents_of_copy(
        &mut self,
        target: &Target,
        copy: &File,
        range: FileRange,
    ) -> Result<BTreeSet<u64>, Refusal> {
        let FileHandle::Btrfs {
            inode, subvolume, ..
        } = handle::of(copy).map_err(|error| refuse(target, error))?
        else {
            return Err(SkipReason::Unsupported.into());
        };
        let mut extents = BTreeSet::new();
        let (start, end) = (range.start.get(), range.end().get());
        let visited = (self.parts).visit(copy, (subvolume, inode), start, end, |part| {
            extents.insert(part.extent);
            true
        });
        visited.map_err(|error| refuse(target, error))?;
        Ok(extents)
    }

    fn strangers(
        &mut self,
        target: &Target,
        parts: &[Part],
        known: &dyn Fn(HolderId, u64) -> bool,
        is_stopping: &dyn Fn() -> bool,
    ) -> Option<SkipReason> {
        let extents: BTreeSet<u64> = parts.iter().map(|part| part.extent).collect();
        for extent in extents {
            if let Err(stopped) = go_on(is_stopping) {
                return Some(stopped);
            }
            let mut stranger = false;
            let asked = self.ask(target, extent, &mut |id, offset| {
                stranger |= !known(id, offset);
            });
            match asked {
                Ok(()) if stranger => return Some(SkipReason::Changed),
                Ok(()) => {}
                // Nobody has it any more.
                _ if is(&asked, Errno::NOENT) => {}
                Err(_) => return Some(SkipReason::HoldersUnreachable),
            }
        }
        None
    }
}

/// A part as a layout has it.
fn extent(part: &Part) -> Extent {
    Extent {
        file: FileOffset(part.offset),
        phys: PhysOffset(part.extent + part.into),
        len: Bytes(part.len),
        flags: match part.state {
            PartState::Written => ExtentFlags::empty(),
            PartState::Encoded => ExtentFlags::ENCODED,
            PartState::Unwritten => ExtentFlags::UNWRITTEN,
        },
    }
}

fn is<T>(result: &io::Result<T>, errno: Errno) -> bool {
    let error = result.as_ref().err();
    error.and_then(Errno::from_io_error) == Some(errno)
}

fn refuse(target: &Target, error: io::Error) -> Refusal {
    match Errno::from_io_error(&error) {
        Some(Errno::PERM) => SkipReason::NotPermitted.into(),
        // The target's own subvolume is deleted: nobody is told of its tree any more, also not who has a file of it open.
        Some(Errno::NOENT) => SkipReason::Gone.into(),
        _ => target.error("look for the holders", None, error).into(),
    }
}
