//! The kinds of damage that an image of the FTL can show.

/// The part of an image that contradicts the rest of it, or the geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The die at turn.
    #[error("the die at turn")]
    Turn,
    /// A count that no flash reaches.
    #[error("a count that no flash reaches")]
    Count,
    /// The fill of a reclaim unit.
    #[error("the fill of a reclaim unit")]
    ReclaimUnit,
    /// A die has no free blocks.
    #[error("a die has no free blocks")]
    NoFreeBlocks,
    /// A die holds more than it may.
    #[error("a die holds more than it may")]
    DieOverfull,
    /// There is more than an image.
    #[error("there is more than an image")]
    Trailing,
    /// A count of erases.
    #[error("a count of erases")]
    Erases,
    /// The number of an open block.
    #[error("an open block")]
    OpenBlock,
    /// The next slot of an open block.
    #[error("an open slot")]
    OpenSlot,
    /// An open slot past the end of its block.
    #[error("an open slot past the end of its block")]
    OpenSlotPastEnd,
    /// An open block has another use.
    #[error("an open block has another use")]
    OpenBlockInUse,
    /// A logical page beyond the end.
    #[error("a logical page beyond the end")]
    LogicalPage,
    /// A slot beyond the end.
    #[error("a slot beyond the end")]
    Slot,
    /// Two logical pages in one slot.
    #[error("two logical pages in one slot")]
    SlotTwice,
    /// A logical page in a slot that was not filled.
    #[error("a logical page in a slot that was not filled")]
    SlotNotFilled,
    /// A number of more than 64 bits.
    #[error("a number of more than 64 bits")]
    Number,
}
