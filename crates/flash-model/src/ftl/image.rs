//! The map, the wear and the open blocks as compact bytes, and back.
//!
//! Everything is a LEB128 number. The map is a list of runs: logical pages that follow each other
//! in slots that follow each other, so that data written in order costs about a byte a page or
//! less. Data that the collector had in motion needs no place: its slots are still mapped where
//! they were.
//!
//! The caller that stores an image protects it with a checksum. Bytes that are wrong nonetheless
//! are refused, and never lead to a map that breaks the invariants.

use super::{
    Damage, Ftl, FtlConfigError, FtlCounters, FtlGeometry, FtlOptions, RESERVED_BLOCKS,
    blocks::{BlockState, OpenBlock},
};

/// With one handle and without an SLC cache. Others write the next version, which tells more.
const VERSION: u64 = 1;
const VERSION_2: u64 = 2;
/// The fewest free blocks that a die has between two calls.
const LEAST_FREE: u32 = RESERVED_BLOCKS - 2;

/// An image that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FtlImageError {
    /// It ends too early.
    #[error("the FTL image ends after {at} bytes, in the middle; it was not written completely")]
    Truncated {
        /// The offset in bytes.
        at: usize,
    },
    /// Another version made it.
    #[error(
        "the FTL image has version {found}; for this device the program reads version {expected}"
    )]
    Version {
        /// The version of the image.
        found: u64,
        /// The version that a device with this geometry has.
        expected: u64,
    },
    /// It belongs to another geometry.
    #[error(
        "the FTL image is of a device with {what} {found}, not {expected}; use the profile and \
         size that it was made with"
    )]
    Geometry {
        /// The property that differs.
        what: &'static str,
        /// The value in the image.
        found: u64,
        /// The value of the device.
        expected: u64,
    },
    /// It contradicts itself.
    #[error("the FTL image is damaged at byte {at}: {damage}; restore an older one")]
    Damaged {
        /// The offset in bytes.
        at: usize,
        /// The kind of damage.
        damage: Damage,
    },
    /// The geometry itself cannot work.
    #[error(transparent)]
    Config(#[from] FtlConfigError),
}

impl Ftl {
    /// Returns the whole state. Data in partly filled pages counts as written: [`pad`](Ftl::pad)
    /// first where that matters.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let version = version(&self.geometry);
        put(&mut out, version);
        for (_, value) in fields(&self.geometry, version) {
            put(&mut out, value);
        }
        put(&mut out, u64::from(self.turn));
        for value in counts(&mut self.counters.clone(), version) {
            put(&mut out, *value);
        }
        if version != VERSION {
            for &written in &self.written {
                put(&mut out, written);
            }
        }
        for die in &self.dies {
            for block in &die.blocks {
                let closed = u64::from(block.state == BlockState::Closed);
                put(&mut out, u64::from(block.erases) << 1 | closed);
            }
            for open in die.host.iter().chain([&die.gc, &die.wear]) {
                put(&mut out, open.map_or(0, |open| u64::from(open.block) + 1));
                put(&mut out, open.map_or(0, |open| u64::from(open.next_slot)));
            }
        }
        self.put_map(&mut out);
        out
    }

    fn put_map(&self, out: &mut Vec<u8>) {
        let (mut lpn, mut written, mut expected) = (0, 0, 0_u32);
        while let Some(gap) = self.slot_of[lpn..].iter().position(|&slot| slot != 0) {
            let start = lpn + gap;
            let first = self.slot_of[start];
            let length = (first..)
                .zip(&self.slot_of[start..])
                .take_while(|&(wanted, &slot)| slot == wanted)
                .count();
            put(out, length as u64);
            put(out, (start - written) as u64);
            put(out, zigzag(i64::from(first) - i64::from(expected)));
            expected = first + length as u32;
            lpn = start + length;
            written = lpn;
        }
        put(out, 0);
    }

    /// Returns the FTL that [`image`](Ftl::image) was taken from.
    ///
    /// # Errors
    /// The image is of another geometry or version, incomplete, or contradicts itself.
    pub fn restore(
        geometry: FtlGeometry,
        options: FtlOptions,
        image: &[u8],
    ) -> Result<Self, FtlImageError> {
        let mut ftl = Self::new(geometry, options)?;
        let mut input = Input {
            bytes: image,
            at: 0,
        };
        let found = input.number()?;
        let version = version(&geometry);
        if found != version {
            return Err(FtlImageError::Version {
                found,
                expected: version,
            });
        }
        for (what, expected) in fields(&geometry, version) {
            let found = input.number()?;
            if found != expected {
                return Err(FtlImageError::Geometry {
                    what,
                    found,
                    expected,
                });
            }
        }
        ftl.turn = input.below(u64::from(geometry.dies), Damage::Turn)?;
        for value in counts(&mut ftl.counters, version) {
            *value = input.number()?;
            if *value >> 60 != 0 {
                return Err(input.damaged(Damage::Count));
            }
        }
        if version != VERSION {
            let unit = geometry.slots_per_reclaim_unit();
            for written in &mut ftl.written {
                *written = input.below(unit, Damage::ReclaimUnit)?.into();
            }
        }
        for die in 0..geometry.dies {
            ftl.restore_die(die, &mut input)?;
        }
        ftl.restore_map(&mut input)?;
        for die in &ftl.dies {
            // There are never fewer, and the collector could not work with fewer.
            if die.free_blocks() < LEAST_FREE {
                return Err(input.damaged(Damage::NoFreeBlocks));
            }
            if die.valid >= ftl.slots_per_die_at_most + geometry.slots_per_granule() {
                return Err(input.damaged(Damage::DieOverfull));
            }
        }
        if input.at != image.len() {
            return Err(input.damaged(Damage::Trailing));
        }
        Ok(ftl)
    }

    fn restore_die(&mut self, die: u32, input: &mut Input<'_>) -> Result<(), FtlImageError> {
        let geometry = self.geometry;
        let die = &mut self.dies[die as usize];
        for (at, block) in (0..).zip(&mut die.blocks) {
            let number = input.below(u64::from(u32::MAX), Damage::Erases)?;
            block.erases = number >> 1;
            if !geometry.is_slc(at) {
                die.erases += u64::from(block.erases);
                die.most_erases = die.most_erases.max(block.erases);
            }
            if number & 1 == 1 {
                block.state = BlockState::Closed;
            }
        }
        let host = die
            .host
            .iter_mut()
            .map(|open| (open, geometry.all_blocks()));
        let own = [&mut die.gc, &mut die.wear].map(|open| (open, geometry.blocks_per_die));
        for (open, blocks) in host.chain(own) {
            let block = input.below(u64::from(blocks) + 1, Damage::OpenBlock)?;
            let next_slot = input.below(u64::from(geometry.slots_per_block()), Damage::OpenSlot)?;
            let Some(block) = block.checked_sub(1) else {
                continue;
            };
            if next_slot >= geometry.pages_in(block) * geometry.slots_per_page {
                return Err(input.damaged(Damage::OpenSlotPastEnd));
            }
            let state = &mut die.blocks[block as usize].state;
            if *state != BlockState::Free {
                return Err(input.damaged(Damage::OpenBlockInUse));
            }
            *state = BlockState::Open;
            *open = Some(OpenBlock { block, next_slot });
        }
        let blocks = &die.blocks;
        let is_free = |block: &u32| blocks[*block as usize].state == BlockState::Free;
        die.free.retain(is_free);
        die.free_slc.retain(is_free);
        Ok(())
    }

    fn restore_map(&mut self, input: &mut Input<'_>) -> Result<(), FtlImageError> {
        let (mut lpn, mut expected) = (0_u64, 0_u32);
        loop {
            let length = input.number()?;
            if length == 0 {
                return Ok(());
            }
            lpn = lpn.saturating_add(input.number()?);
            if lpn.saturating_add(length) > self.geometry.logical_pages {
                return Err(input.damaged(Damage::LogicalPage));
            }
            let first = i64::from(expected).saturating_add(unzigzag(input.number()?));
            let slots = self.geometry.slot_numbers() as i64;
            if first < 1 || first.saturating_add(length as i64) > slots + 1 {
                return Err(input.damaged(Damage::Slot));
            }
            for slot in first as u32 - 1..(first + length as i64) as u32 - 1 {
                if self.logical_in[slot as usize] != 0 {
                    return Err(input.damaged(Damage::SlotTwice));
                }
                if !self.is_filled(slot) {
                    return Err(input.damaged(Damage::SlotNotFilled));
                }
                // The image has no ages: all data counts as old as the device.
                self.map(lpn as u32, slot, 0);
                lpn += 1;
            }
            expected = (first + length as i64) as u32;
        }
    }

    fn is_filled(&self, slot: u32) -> bool {
        let (die, block) = self.geometry.block_of(slot);
        let in_block = slot % self.geometry.slots_per_block();
        if in_block >= self.geometry.pages_in(block) * self.geometry.slots_per_page {
            return false;
        }
        let die = &self.dies[die as usize];
        match die.blocks[block as usize].state {
            BlockState::Free => false,
            BlockState::Closed => true,
            BlockState::Open => die
                .host
                .iter()
                .chain([&die.gc, &die.wear])
                .flatten()
                .any(|open| open.block == block && in_block < open.next_slot),
        }
    }
}

const fn version(geometry: &FtlGeometry) -> u64 {
    if geometry.slc_blocks > 0 || geometry.handles > 1 {
        VERSION_2
    } else {
        VERSION
    }
}

/// Returns the properties that an image of that version tells.
fn fields(geometry: &FtlGeometry, version: u64) -> impl Iterator<Item = (&'static str, u64)> {
    let FtlGeometry {
        dies,
        blocks_per_die,
        pages_per_block,
        slots_per_page,
        granule_pages,
        logical_pages,
        slc_blocks,
        slc_pages,
        handles,
    } = *geometry;
    let all = [
        ("dies", dies.into()),
        ("blocks on each die", blocks_per_die.into()),
        ("pages in a block", pages_per_block.into()),
        ("logical pages in a flash page", slots_per_page.into()),
        ("pages in a granule", granule_pages.into()),
        ("logical pages", logical_pages),
        ("blocks of the SLC cache on each die", slc_blocks.into()),
        ("pages in each of them", slc_pages.into()),
        ("reclaim unit handles", handles.into()),
    ];
    let told = if version == VERSION { 6 } else { all.len() };
    all.into_iter().take(told)
}

/// Returns the counters that an image of that version holds.
fn counts(counters: &mut FtlCounters, version: u64) -> impl Iterator<Item = &mut u64> {
    let FtlCounters {
        host_slots,
        host_programs,
        gc_slots,
        gc_programs,
        wear_slots,
        wear_programs,
        copybacks,
        padded_slots,
        gc_erases,
        wear_erases,
        trimmed_pages,
        hints,
        hints_unmapped,
        hints_no_room,
        hints_worn_die,
        full_dies_skipped,
        fold_slots,
        fold_programs,
        fold_erases,
    } = counters;
    let all = [
        host_slots,
        host_programs,
        gc_slots,
        gc_programs,
        wear_slots,
        wear_programs,
        copybacks,
        padded_slots,
        gc_erases,
        wear_erases,
        trimmed_pages,
        hints,
        hints_unmapped,
        hints_no_room,
        hints_worn_die,
        full_dies_skipped,
        fold_slots,
        fold_programs,
        fold_erases,
    ];
    let held = if version == VERSION { 16 } else { all.len() };
    all.into_iter().take(held)
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn number(&mut self) -> Result<u64, FtlImageError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self
                .bytes
                .get(self.at)
                .ok_or(FtlImageError::Truncated { at: self.at })?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.damaged(Damage::Number))
    }

    fn below(&mut self, limit: u64, otherwise: Damage) -> Result<u32, FtlImageError> {
        let value = self.number()?;
        if value >= limit {
            return Err(self.damaged(otherwise));
        }
        Ok(value as u32)
    }

    const fn damaged(&self, damage: Damage) -> FtlImageError {
        FtlImageError::Damaged {
            at: self.at,
            damage,
        }
    }
}
