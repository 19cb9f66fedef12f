//! The log allocator: segments, sections and logs, in the words of F2FS.
//!
//! ```text
//! section  |  segment  |  segment  | …       free ──▶ open ──▶ closed ──▶ empty ──(checkpoint)──▶ free
//!             512 blocks                              a log     by victim    no block is valid
//! ```
//!
//! Seven logs write at once, each into a section of its own: hot, warm and cold data, hot, warm and cold nodes, and
//! one for data that is to be contiguous (F2FS: pinned). A block is written where the head of its log stands; a block
//! that is written again leaves an invalid one behind. Cleaning moves the valid blocks of a section to the cold log;
//! the section is *empty* then, and can be used again after a checkpoint, since the last one may refer to it.
//!
//! In [`LogMode::Lfs`] (zoned devices) heads only ever go to free sections. In [`LogMode::Adaptive`], when free
//! sections are few, they write into the invalid blocks of closed segments instead (slack space recycling, SSR).
//!
//! Left out: a second kind of log for small files, F2FS's age threshold (ATSSR), and the metadata area.

mod shape;
mod space;
mod table;
#[cfg(test)]
mod tests;
mod victim;

pub use self::{
    shape::{Log, Shape},
    space::{Checkpoint, LogMode, LogSpace},
    table::Owner,
    victim::VictimPolicy,
};
