//! The files that were named with the target, for an XFS that does not tell who has a block: without reverse mapping
//! `FS_IOC_GETFSMAP` tells only whether it is free (`xfs_getfsmap_datadev_bnobt`, fs/xfs/xfs_fsmap.c, v6.18).
//!
//! Each of them is mapped once (FIEMAP), and what it has of the blocks that the target shares is remembered as a
//! reference, in the form in which reverse mapping tells it. References may be old by the time they are used. A holder that
//! has other blocks by then is left out when it is looked at; one that was not found is noticed once all others have
//! moved. So whatever number is among the names, no file is taken for a holder that is none.

use std::{collections::BTreeSet, fs::File};

use indef_core::layout::ExtentFlags;
use linux_abi::{
    fiemap::Mapper,
    fsmap::Reference,
    fsxattr::{Attributes, Flags},
    handle::FileHandle,
    xfs::generation,
};
use units::FileRange;

use crate::{
    Refusal, Target,
    map::next_batch,
    share::{
        holder::{MOST_PARTS_OF_ALL, go_on, open_any},
        select::Part,
    },
};

/// Some of the device: where it begins, and its bytes.
pub(super) type Stretch = (u64, u64);

/// What the target and the files that were named with it have of the blocks that the target shares.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// By the first byte.
    all: Vec<Reference>,
    /// Bytes of the longest one.
    longest: u64,
    /// There are more than are remembered.
    is_full: bool,
}

impl Named {
    /// Look at all of them.
    ///
    /// # Errors
    ///
    /// The target cannot be mapped, or the run ends.
    pub(super) fn look(
        target: &Target,
        mapper: &mut Mapper,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Self, Refusal> {
        let mut found = Self::default();
        let everywhere = [(0, u64::MAX)];
        let file = (&target.file, target.id.inode);
        found.add(target, file, &everywhere, mapper, is_stopping)?;
        let shared = joined(&found.all);
        // A plan may have been changed by hand.
        let named: BTreeSet<u64> = (target.named.iter())
            .flat_map(|named| named.iter().copied())
            .filter(|inode| *inode != target.id.inode)
            .collect();
        for inode in named {
            if found.is_full {
                break;
            }
            go_on(is_stopping)?;
            // What is gone holds nothing. Where another one cannot be looked at, it is as if it was not named.
            let Ok(generation) = generation(&target.file, inode) else {
                continue;
            };
            let handle = FileHandle::Xfs64 { inode, generation };
            let Ok(Some((file, _))) = open_any(target, handle) else {
                continue;
            };
            // Its blocks are on another device.
            let is_elsewhere = |found: Attributes| found.flags().contains(Flags::REALTIME);
            if Attributes::get(&file).is_ok_and(is_elsewhere) {
                continue;
            }
            match found.add(target, (&file, inode), &shared, mapper, is_stopping) {
                Err(Refusal::Failed(error)) => tracing::debug!(inode, %error, "not mapped"),
                added => added?,
            }
        }
        found.all.sort_unstable_by_key(|reference| reference.start);
        Ok(found)
    }

    /// Add what a file has of stretches (ordered, disjoint), as far as it shares that.
    fn add(
        &mut self,
        target: &Target,
        (file, inode): (&File, u64),
        of: &[Stretch],
        mapper: &mut Mapper,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<(), Refusal> {
        let (mut rest, mut batch) = (FileRange::new(0, u64::MAX), Vec::new());
        loop {
            go_on(is_stopping)?;
            let more = next_batch(file, &target.path, rest, false, mapper, &mut batch)?;
            for extent in &batch {
                let is_shared = extent.flags.contains(ExtentFlags::SHARED);
                if !is_shared || extent.flags.contains(ExtentFlags::UNPLACED) {
                    continue;
                }
                let (start, end) = (extent.phys.get(), extent.phys.get() + extent.len.get());
                let first = of.partition_point(|stretch| stretch.0 + stretch.1 <= start);
                for stretch in of[first..].iter().take_while(|stretch| stretch.0 < end) {
                    if self.all.len() >= MOST_PARTS_OF_ALL {
                        self.is_full = true;
                        return Ok(());
                    }
                    let (from, to) = (start.max(stretch.0), end.min(stretch.0 + stretch.1));
                    self.longest = self.longest.max(to - from);
                    self.all.push(Reference {
                        start: from,
                        len: to - from,
                        data: Some((inode, extent.file.get() + (from - start))),
                        is_written: !extent.flags.contains(ExtentFlags::UNWRITTEN),
                    });
                }
            }
            match more {
                Some(next) => rest = FileRange::between(next, rest.end()),
                None => return Ok(()),
            }
        }
    }

    /// The references to a part of the file `own`, its own among them, as it was just found; none if they are more than
    /// `most`, or than are remembered.
    pub(super) fn of(&self, own: u64, part: &Part, most: usize) -> Option<Vec<Reference>> {
        if self.is_full {
            return None;
        }
        let end = part.extent + part.len;
        let first =
            (self.all).partition_point(|one| one.start.saturating_add(self.longest) <= part.extent);
        let last = self.all.partition_point(|one| one.start < end);
        let mut found = vec![Reference {
            start: part.extent,
            len: part.len,
            data: Some((own, part.offset)),
            is_written: true,
        }];
        for one in &self.all[first..last.max(first)] {
            let is_here = one.data.is_some_and(|(inode, offset)| {
                inode == own && offset + part.extent == part.offset + one.start
            });
            if is_here || one.start + one.len <= part.extent {
                continue;
            }
            found.push(*one);
            if found.len() > most {
                return None;
            }
        }
        Some(found)
    }
}

/// The stretches of references, ordered and joined.
fn joined(references: &[Reference]) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = { references.iter() }
        .map(|one| (one.start, one.len))
        .collect();
    all.sort_unstable();
    all.dedup_by(|next, last| {
        let meets = next.0 <= last.0 + last.1;
        if meets {
            last.1 = last.1.max(next.0 + next.1 - last.0);
        }
        meets
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{share::select::PartState, test_layout::reference};

    #[test]
    fn stretches_that_meet_are_one() {
        let all = [
            reference(50, 10, 1, 0),
            reference(10, 10, 1, 0),
            reference(20, 5, 1, 0),
            reference(12, 30, 1, 0),
        ];
        assert_eq!(joined(&all), [(10, 32), (50, 10)]);
    }

    #[test]
    fn a_part_has_the_references_of_all_that_were_named_and_its_own() {
        let part = Part {
            offset: 1000,
            len: 100,
            extent: 5000,
            into: 0,
            state: PartState::Written,
        };
        let mut all = vec![
            // As the target was then, at a place that it has twice, and others before, across, in and after the part.
            reference(4900, 300, 7, 900),
            reference(5040, 10, 7, 3000),
            reference(4000, 1000, 8, 0),
            reference(4950, 70, 8, 2000),
            reference(5060, 500, 9, 40),
            reference(5100, 10, 9, 0),
        ];
        all.sort_unstable_by_key(|one| one.start);
        let mut named = Named {
            all,
            longest: 1000,
            is_full: false,
        };
        let found = named.of(7, &part, 10).unwrap();
        let expected = [
            reference(5000, 100, 7, 1000),
            reference(4950, 70, 8, 2000),
            reference(5040, 10, 7, 3000),
            reference(5060, 500, 9, 40),
        ];
        assert_eq!(found, expected);
        assert!(named.of(7, &part, 3).is_none());
        named.is_full = true;
        assert!(named.of(7, &part, 10).is_none());
    }
}
