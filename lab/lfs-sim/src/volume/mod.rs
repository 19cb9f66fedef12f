//! A volume: files, and an allocator that gives them blocks.
//!
//! Every function takes effect at once and takes no time. What it wants from the device it adds to a list, in the
//! order in which the device has to get it; [`crate::host`] knows when.
//!
//! Invariants, after each call: a mapped block has one owner, and that owner maps it; blocks that nobody maps are free,
//! or invalid until a checkpoint, or in a file's preallocation window.

mod any;
mod in_place;
mod log_structured;
mod placed;
#[cfg(test)]
mod tests;

pub use self::{
    any::Volume,
    in_place::InPlaceVolume,
    log_structured::{LogVolume, Mover},
    placed::Placed,
};
