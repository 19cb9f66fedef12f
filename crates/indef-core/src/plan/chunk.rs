//! A chunk and the decision about it.

use units::{Bytes, FileRange, PhysOffset};

use crate::{SkipReason, layout::FragmentCount};

/// The decision of a plan about a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Give it new, contiguous blocks.
    Migrate,
    /// Leave it, for this reason.
    Skip(SkipReason),
}

/// The cost of a chunk to other files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedMove {
    /// Other files that move along, at most at one place of the file.
    pub holders: u64,
    /// Metadata that is written for them, at most; a part of the chunk's cost.
    pub metadata: Bytes,
}

/// One access range that a plan decided on, or a request-sized piece of a long one. Neighbours of one
/// size that are contiguous already may stand together in one chunk; its degrees are then the highest
/// of any of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chunk {
    /// The bytes of the file, block-aligned.
    pub range: FileRange,
    /// Reads in the profile (1 where the policy works without one).
    pub reads: u64,
    /// Writes in the profile.
    pub writes: u64,
    /// Degree of logical fragmentation: fragments inside the range.
    pub dolf: u64,
    /// Degree of physical fragmentation (eq. 1); 0 where the geometry is unknown.
    pub dopf: f64,
    /// Priority (eq. 2).
    pub iodp: f64,
    /// Migrate or skip.
    pub decision: Decision,
    /// Bytes that migrating writes: the allocated, written bytes of the range, and the metadata of [`Self::shared`].
    pub cost: Bytes,
    /// IODP that migrating removes: priority now less priority of the ideal layout. With
    /// [`Self::lets_go`], the bytes that come free, with the first chunk of each extent.
    pub gain: f64,
    /// The change that migrating makes to the file's number of fragments.
    pub edges: Edges,
    /// Where space is given back: the extent that comes free once all chunks of the file that name
    /// it have migrated. They migrate together, or not at all.
    pub lets_go: Option<PhysOffset>,
    /// Where it moves together with other files that share it: what that costs beside the data.
    pub shared: Option<SharedMove>,
}

impl Chunk {
    /// Whether it is to be moved.
    #[must_use]
    pub fn migrates(&self) -> bool {
        self.decision == Decision::Migrate
    }

    /// Metadata in its cost.
    #[must_use]
    pub fn metadata(&self) -> Bytes {
        self.shared.map_or(Bytes::ZERO, |shared| shared.metadata)
    }
}

/// The part of a [`FragmentCount`] that a plan keeps of a chunk: all that its change to the file's
/// number of fragments depends on. The default assumes the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edges {
    /// Fragments inside the chunk beyond the fewest possible.
    pub excess: u64,
    /// A fragment reaches across its beginning.
    pub cuts_start: bool,
    /// A fragment reaches across its end.
    pub cuts_end: bool,
}

impl Default for Edges {
    fn default() -> Self {
        Self {
            excess: 0,
            cuts_start: true,
            cuts_end: true,
        }
    }
}

impl Edges {
    /// The edges of this chunk and of `next`, which begins where it ends, as one.
    pub(super) fn join(self, next: Self) -> Self {
        FragmentCount::from(self).join(next.into()).into()
    }
}

impl From<FragmentCount> for Edges {
    fn from(count: FragmentCount) -> Self {
        Self {
            excess: count.excess(),
            cuts_start: count.cuts_start,
            cuts_end: count.cuts_end,
        }
    }
}

/// The number of pieces is not kept, and one stands for them: a change depends on the excess alone.
impl From<Edges> for FragmentCount {
    fn from(edges: Edges) -> Self {
        Self {
            fragments: edges.excess.saturating_add(1),
            pieces: 1,
            cuts_start: edges.cuts_start,
            cuts_end: edges.cuts_end,
        }
    }
}
