//! The operations that the FTL gives to the flash, and its counters.

use super::PhysPage;

/// One operation of one die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashOp {
    /// Sense a page and send it to the controller. The collector reads a whole page even where it
    /// needs a part.
    Read(PhysPage),
    /// Send a page to the die and program it.
    Program(PhysPage),
    /// Sense a page and program it elsewhere on the same die, without any transfer.
    Copyback {
        /// The page that is read.
        from: PhysPage,
        /// The page that is programmed; on the same die.
        to: PhysPage,
    },
    /// Erase a block.
    Erase {
        /// Its die.
        die: u32,
        /// Its number on the die.
        block: u32,
    },
}

/// The cause of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A command of the host.
    Host,
    /// Garbage collection: room must be made.
    Gc,
    /// Wear levelling: data that never changes moves to a worn block.
    Wear,
    /// The SLC cache is emptied into blocks of the native cells.
    Fold,
}

/// An operation and its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashWork {
    /// The operation.
    pub op: FlashOp,
    /// Its cause.
    pub cause: Cause,
}

/// The place of a write command's first page (FAST'24 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePlacement {
    /// No hint: to the die whose turn it is.
    RoundRobin,
    /// An append: to the die after that of the logical page that precedes it in its file.
    After {
        /// The logical page before this one in the file.
        predecessor: u64,
    },
    /// An overwrite: to the die of the page that it replaces.
    Overwrite,
    /// To the die whose turn it is, and there to blocks that hold the data of this reclaim unit
    /// handle alone. The others write to those of handle 0, as does a handle that there is not.
    Handle(u32),
}

/// The counts of an FTL since it was made; an image carries them, and a restored FTL goes on from
/// there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FtlCounters {
    /// Logical pages written by the host.
    pub host_slots: u64,
    /// Flash pages programmed for the host.
    pub host_programs: u64,
    /// Logical pages moved by garbage collection.
    pub gc_slots: u64,
    /// Flash pages programmed by garbage collection, copybacks included.
    pub gc_programs: u64,
    /// Logical pages moved by wear levelling.
    pub wear_slots: u64,
    /// Flash pages programmed by wear levelling, copybacks included.
    pub wear_programs: u64,
    /// Logical pages moved out of the SLC cache as whole flash pages. Parts of pages are put
    /// together with what garbage collection has, and count there.
    pub fold_slots: u64,
    /// Flash pages programmed for that, copybacks included.
    pub fold_programs: u64,
    /// Blocks of the SLC cache erased.
    pub fold_erases: u64,
    /// Pages of `gc_programs`, `wear_programs` and `fold_programs` that moved as copybacks.
    pub copybacks: u64,
    /// Slots that were programmed empty.
    pub padded_slots: u64,
    /// Blocks erased by garbage collection.
    pub gc_erases: u64,
    /// Blocks erased by wear levelling.
    pub wear_erases: u64,
    /// Logical pages trimmed.
    pub trimmed_pages: u64,
    /// Commands that carried a hint.
    pub hints: u64,
    /// Hints whose neighbour is not mapped: the normal rule was used.
    pub hints_unmapped: u64,
    /// Hints to a die that cannot take more data: the normal rule was used.
    pub hints_no_room: u64,
    /// Hints to a die that is worn more than the others: the normal rule was used.
    pub hints_worn_die: u64,
    /// Times that a die was passed over at its turn because it cannot take more data.
    pub full_dies_skipped: u64,
}

impl FtlCounters {
    /// Returns the flash pages programmed, in slots, for each logical page that the host wrote; 1
    /// before the host has filled its first flash page.
    #[must_use]
    pub fn write_amplification(&self, slots_per_page: u32) -> f64 {
        if self.host_programs == 0 {
            return 1.0;
        }
        let moved = self.gc_programs + self.wear_programs + self.fold_programs;
        let programs = self.host_programs + moved;
        (programs * u64::from(slots_per_page)) as f64 / self.host_slots as f64
    }

    /// Returns the counts since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            host_slots: self.host_slots - earlier.host_slots,
            host_programs: self.host_programs - earlier.host_programs,
            gc_slots: self.gc_slots - earlier.gc_slots,
            gc_programs: self.gc_programs - earlier.gc_programs,
            wear_slots: self.wear_slots - earlier.wear_slots,
            wear_programs: self.wear_programs - earlier.wear_programs,
            fold_slots: self.fold_slots - earlier.fold_slots,
            fold_programs: self.fold_programs - earlier.fold_programs,
            fold_erases: self.fold_erases - earlier.fold_erases,
            copybacks: self.copybacks - earlier.copybacks,
            padded_slots: self.padded_slots - earlier.padded_slots,
            gc_erases: self.gc_erases - earlier.gc_erases,
            wear_erases: self.wear_erases - earlier.wear_erases,
            trimmed_pages: self.trimmed_pages - earlier.trimmed_pages,
            hints: self.hints - earlier.hints,
            hints_unmapped: self.hints_unmapped - earlier.hints_unmapped,
            hints_no_room: self.hints_no_room - earlier.hints_no_room,
            hints_worn_die: self.hints_worn_die - earlier.hints_worn_die,
            full_dies_skipped: self.full_dies_skipped - earlier.full_dies_skipped,
        }
    }
}
