//! Operations on a file system: detect it, map a file, relocate ranges of it.
//!
//! [`detect`] tells which file system an open file is on, [`Filesystem::engines`] which engines may
//! serve it, and [`relocator`] returns one of them. [`map`] turns FIEMAP into a
//! [`indef_core::layout::Layout`], and [`Inodes`] tells the layout of many contiguous files
//! at once. [`device_geometry`] asks the device how it spreads addresses over its flash.
//! [`Target::open`] opens a file for moving, or returns the reason why not; a [`Root`] finds files
//! beneath a directory, without being led elsewhere. A [`Relocator`] gives ranges of a file new,
//! contiguous blocks, in bounded steps that are each atomic for the file's contents: the process
//! may be killed, or the power cut, between any two instructions.
//!
//! This crate knows nothing of priority, plans, workers or progress: it moves the ranges that it is
//! given.
//!
//! To add a file system: one module with a `Relocator`, one arm in [`Filesystem::engines`] and one
//! in [`relocator`].

#![forbid(unsafe_code)]

mod aim;
mod balloon;
mod btrfs;
mod cache;
mod covered;
mod cut;
mod device;
mod emptier;
mod engine;
mod error;
mod ext4;
mod f2fs;
mod filesystem;
mod free;
mod held;
mod hold;
mod identity;
mod in_threads;
mod inodes;
mod kind;
mod map;
mod mounts;
mod nature;
mod options;
mod own;
mod relocate;
mod root;
mod share;
mod survey;
mod swap;
mod target;
#[cfg(test)]
mod test_layout;
mod xfs;

pub use balloon::{Balloon, Grounds};
pub use btrfs::{Change, Folders, Numbered, SubvolumeFiles, TreeChunk, can_reclaim};
pub use cache::{CacheRecord, Settler};
pub use device::{DeviceGeometry, Drive, Layer, NoGeometry, PageError, device_geometry};
pub use emptier::{Emptier, Emptying, NoEmptier, NotEmptied, Part, PartKind, PartMap, emptier};
pub use engine::relocator;
pub use error::{Finding, FsError, NoCheckpoint, NotTakenBack, Refusal};
pub use f2fs::blocks_collected;
pub use filesystem::{FileSystemKey, Filesystem, Space, detect, free_space_ok};
pub use free::{SpaceMap, free_space, space_map};
pub use held::partly_reached;
pub use identity::TargetId;
pub use inodes::{Expected, InodeChunk, InodeFacts, InodePlace, Inodes};
pub use kind::{EngineKind, FsKind, UnknownEngine};
/// A reusable buffer for [`map`].
pub use linux_abi::fiemap::Mapper;
pub use map::map;
pub use mounts::Mount;
pub use nature::Nature;
pub use options::EngineOptions;
pub use relocate::{
    Beyond, CountedRange, Moved, RangeCopier, Relocation, Relocator, Step, StepLimit,
};
pub use root::{Mounts, Root, RootEntry, Roots, reopen};
pub use survey::count_ranges;
pub use target::{Attributes, FileTime, Target};
pub use xfs::{Sweep, SweptInode};
