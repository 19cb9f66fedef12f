//! Extents that a file holds on the device as a whole, and reaches only in part.
//!
//! A file system that frees an extent only when nothing refers to any of it (Btrfs) keeps the parts
//! of it that were overwritten, punched or cut off: nobody can reach them, and they are not free.
//!
//! Bytes of an extent that a file does not reach are *unreachable* only if no other file refers to
//! the extent. Others are not looked for one by one: the flag [`ExtentFlags::SHARED`] of the file's
//! layout says of each extent whether there are any. So a file's unreachable bytes are exact where it
//! has an extent for itself, and what it does not reach of shared extents is told apart, as an upper
//! bound.
//!
//! Of a compressed extent nobody knows which of its bytes on the device hold which part of the data.
//! Each part that is reached is reckoned with the share of the device's bytes that it has of the data,
//! in whole blocks of 4 KiB, as it takes by itself; the rest is unreachable.
//!
//! Memory, which a file with millions of extents takes while it is looked at: 56 B for each reference to a part of an
//! extent and 8 B for each to a whole one while they are collected (the vectors double), and then some 100 B for each
//! extent that is reached in part (64, and 16 with an allocation for each of its parts).

use units::{Bytes, FileRange, PhysOffset};

use super::{ExtentFlags, Layout};

/// The least that compressed data takes by itself: the smallest sector of a Btrfs.
const BLOCK: Bytes = Bytes::kib(4);

/// A reference of a file to a part of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRef {
    /// The bytes of the file.
    pub range: FileRange,
    /// The place of the whole extent.
    pub extent: PhysOffset,
    /// Bytes that the extent takes on the device.
    pub allocated: Bytes,
    /// Bytes of data in all of it: more than `allocated` where it is compressed.
    pub data_len: Bytes,
    /// The first of these bytes that the file refers to.
    pub from: Bytes,
    /// [`ExtentFlags::UNWRITTEN`] and [`ExtentFlags::ENCODED`], where they hold.
    pub flags: ExtentFlags,
}

/// An extent that a file reaches only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldExtent {
    /// Its place.
    pub extent: PhysOffset,
    /// Bytes that it takes on the device.
    pub allocated: Bytes,
    /// Bytes of data in all of it.
    pub data_len: Bytes,
    /// Bytes of data that the file reaches, each counted once.
    pub reached: Bytes,
    /// The flags of any of its parts; [`ExtentFlags::SHARED`] as far as it was [noted](Self::note_shared).
    pub flags: ExtentFlags,
    /// The ranges of the file that refer to it, in order.
    pub parts: Vec<FileRange>,
}

impl HeldExtent {
    /// Bytes on the device that the file does not reach.
    #[must_use]
    pub fn unreached(&self) -> Bytes {
        let needed = match self.flags.contains(ExtentFlags::ENCODED) {
            true => self.parts.iter().map(|part| self.share(part.len)).sum(),
            false => self.reached,
        };
        self.allocated.saturating_sub(needed)
    }

    /// The bytes on the device that so much of its data takes by itself.
    fn share(&self, len: Bytes) -> Bytes {
        let share = u128::from(self.allocated.get()) * u128::from(len.get());
        let share = share.div_ceil(u128::from(self.data_len.get().max(1)));
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        Bytes(share.div_ceil(BLOCK.get()).saturating_mul(BLOCK.get()))
    }

    /// Bytes of the file that refer to it: at most so many are written to let it go.
    #[must_use]
    pub fn referring(&self) -> Bytes {
        self.parts.iter().map(|part| part.len).sum()
    }

    /// Whether it is shared: by others, as the layout says or was [noted](Self::note_shared), or by parts of the
    /// file among themselves.
    #[must_use]
    pub fn is_shared(&self, layout: &Layout) -> bool {
        self.flags.contains(ExtentFlags::SHARED)
            || self.referring() > self.reached
            || self.has_shared_part(layout)
    }

    /// Note that others refer to it where the layout of a further range says so: that of a file ends with its size,
    /// and parts may lie past that.
    pub fn note_shared(&mut self, further: &Layout) {
        if self.has_shared_part(further) {
            self.flags |= ExtentFlags::SHARED;
        }
    }

    fn has_shared_part(&self, layout: &Layout) -> bool {
        self.parts.iter().any(|part| {
            let mut extents = layout.clipped(*part);
            extents.any(|extent| extent.flags.contains(ExtentFlags::SHARED))
        })
    }
}

/// Collects a file's references, in any order.
#[derive(Debug, Default)]
pub struct HeldExtents {
    in_part: Vec<ExtentRef>,
    whole: Vec<PhysOffset>,
}

impl HeldExtents {
    /// Add a reference.
    pub fn add(&mut self, reference: ExtentRef) {
        let is_whole = reference.from.is_zero() && reference.range.len >= reference.data_len;
        if is_whole {
            self.whole.push(reference.extent);
        } else {
            self.in_part.push(reference);
        }
    }

    /// The extents that are reached only in part, in the order of their first parts.
    #[must_use]
    pub fn partly_reached(mut self) -> Vec<HeldExtent> {
        self.whole.sort_unstable();
        self.in_part
            .sort_unstable_by_key(|one| (one.extent, one.from, one.range.start));
        let references = self.in_part.chunk_by(|a, b| a.extent == b.extent);
        let mut held: Vec<_> = references
            .filter(|of| self.whole.binary_search(&of[0].extent).is_err())
            .filter_map(held)
            .collect();
        held.sort_unstable_by_key(|held| held.parts.first().map(|part| part.start));
        held
    }
}

/// The extent with these references, by their places in it; `None` if they reach all of it.
fn held(references: &[ExtentRef]) -> Option<HeldExtent> {
    let first = *references.first()?;
    let (mut reached, mut end) = (0, 0);
    let mut flags = ExtentFlags::empty();
    for reference in references {
        let from = reference.from.get().max(end);
        let to = reference.from.saturating_add(reference.range.len);
        let to = to.get().min(first.data_len.get());
        reached += to.saturating_sub(from);
        end = end.max(to);
        flags |= reference.flags;
    }
    if reached >= first.data_len.get() {
        return None;
    }
    let mut parts: Vec<_> = references.iter().map(|one| one.range).collect();
    parts.sort_unstable();
    Some(HeldExtent {
        extent: first.extent,
        allocated: first.allocated,
        data_len: first.data_len,
        reached: Bytes(reached),
        flags,
        parts,
    })
}

/// Bytes on the device that a file holds and does not reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unreachable {
    /// Of extents that nobody else refers to: nobody can reach them.
    pub alone: Bytes,
    /// Of extents that others refer to, who may reach them.
    pub shared: Bytes,
}

impl Unreachable {
    /// The sum of a file with this layout.
    #[must_use]
    pub fn of(layout: &Layout, held: &[HeldExtent]) -> Self {
        let mut sum = Self::default();
        for extent in held {
            let to = match extent.is_shared(layout) {
                true => &mut sum.shared,
                false => &mut sum.alone,
            };
            *to = to.saturating_add(extent.unreached());
        }
        sum
    }

    /// Add those of another file.
    pub fn add(&mut self, other: Self) {
        self.alone = self.alone.saturating_add(other.alone);
        self.shared = self.shared.saturating_add(other.shared);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::FileOffset;

    use super::*;
    use crate::layout::Extent;

    const SIZE: u64 = 64;

    fn reference(file: u64, from: u64, len: u64) -> ExtentRef {
        ExtentRef {
            range: FileRange::new(file, len),
            extent: PhysOffset(1000),
            allocated: Bytes(SIZE),
            data_len: Bytes(SIZE),
            from: Bytes(from),
            flags: ExtentFlags::empty(),
        }
    }

    fn collect(references: &[ExtentRef]) -> Vec<HeldExtent> {
        let mut held = HeldExtents::default();
        references.iter().for_each(|one| held.add(*one));
        held.partly_reached()
    }

    #[test]
    fn what_is_cut_off_or_overwritten_is_not_reached() {
        let truncated = &collect(&[reference(0, 0, 4)])[0];
        assert_eq!(
            (truncated.unreached(), truncated.referring()),
            (Bytes(60), Bytes(4))
        );
        let middle = &collect(&[reference(40, 40, 24), reference(0, 0, 32)])[0];
        assert_eq!(middle.unreached(), Bytes(8));
        assert_eq!(
            middle.parts,
            [FileRange::new(0, 32), FileRange::new(40, 24)]
        );
        let whole = [reference(0, 0, 32), reference(32, 32, 32)];
        assert!(collect(&whole).is_empty());
        assert!(collect(&[reference(0, 0, 64), reference(100, 0, 4)]).is_empty());
    }

    #[test]
    fn compressed_data_takes_its_share() {
        let part = |file: u64, from: u64, len: u64| ExtentRef {
            range: FileRange::new(file << 10, len << 10),
            extent: PhysOffset(1000),
            allocated: Bytes::kib(68),
            data_len: Bytes::kib(128),
            from: Bytes::kib(from),
            flags: ExtentFlags::ENCODED,
        };
        // 17 KiB each take 20.
        let held = &collect(&[part(0, 0, 32), part(96, 96, 32)])[0];
        assert_eq!(held.unreached(), Bytes::kib(28));
        let all_but_one = &collect(&[part(0, 0, 124)])[0];
        assert_eq!(all_but_one.unreached(), Bytes::ZERO);
    }

    #[test]
    fn shared_extents_are_told_apart() {
        let layout = |flags| {
            Layout::new(vec![Extent {
                file: FileOffset(0),
                phys: PhysOffset(1000),
                len: Bytes(4),
                flags,
            }])
        };
        let held = collect(&[reference(0, 0, 4)]);
        let (alone, shared) = (Bytes(60), Bytes(60));
        let none = Unreachable::default();
        assert_eq!(
            Unreachable::of(&layout(ExtentFlags::empty()), &held),
            Unreachable { alone, ..none }
        );
        assert_eq!(
            Unreachable::of(&layout(ExtentFlags::SHARED), &held),
            Unreachable { shared, ..none }
        );
        // Two ranges of the file have the same data.
        let twice = &collect(&[reference(0, 0, 4), reference(8, 2, 4)])[0];
        assert_eq!((twice.reached, twice.referring()), (Bytes(6), Bytes(8)));
        assert!(twice.is_shared(&Layout::default()));
        // A part past the end of the layout.
        let mut past = collect(&[reference(0, 0, 4)]);
        assert!(!past[0].is_shared(&Layout::default()));
        past[0].note_shared(&layout(ExtentFlags::empty()));
        assert!(!past[0].is_shared(&Layout::default()));
        past[0].note_shared(&layout(ExtentFlags::SHARED));
        assert!(past[0].is_shared(&Layout::default()));
    }

    /// The figures of the module's page, in a process that other tests may use, too.
    #[test]
    fn memory_is_as_told() {
        const EXTENTS: u64 = 1 << 19;
        let kib = |name: &str| -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        assert_eq!((size_of::<ExtentRef>(), size_of::<HeldExtent>()), (56, 64));
        let before = kib("VmRSS");
        let mut held = HeldExtents::default();
        for n in 0..EXTENTS {
            held.add(ExtentRef {
                extent: PhysOffset(n << 20),
                ..reference(n * 4, 0, 4)
            });
        }
        let held = held.partly_reached();
        let peak = kib("VmHWM").saturating_sub(before) << 10;
        assert_eq!(held.len() as u64, EXTENTS);
        let each = peak / EXTENTS;
        assert!(each < 56 + 100 + 40, "{each} B for each extent");
    }

    proptest! {
        /// Byte by byte.
        #[test]
        fn each_byte_is_counted_once(parts in prop::collection::vec((0..SIZE, 1..SIZE), 0..12)) {
            let mut references = Vec::new();
            let mut reached = [false; SIZE as usize];
            let mut file = 0;
            for (from, len) in parts {
                let len = len.min(SIZE - from);
                references.push(reference(file, from, len));
                file += len;
                reached[from as usize..(from + len) as usize].fill(true);
            }
            let missing = reached.iter().filter(|byte| !**byte).count() as u64;
            let held = collect(&references);
            match held.as_slice() {
                [] => prop_assert!(missing == 0 || references.is_empty()),
                [held] => {
                    prop_assert_eq!(held.unreached(), Bytes(missing));
                    prop_assert_eq!(held.reached + held.unreached(), held.allocated);
                    prop_assert_eq!(held.referring(), Bytes(file));
                }
                more => prop_assert!(false, "{:?}", more),
            }
        }
    }
}
