//! FragPicker's file (§5.2), and the ranges in which it is read and updated.

use lfs_sim::BLOCK;
use units::{Bytes, FileRange};

use super::{
    error::FigureError,
    fragpicker::every,
    fragpicker_fig08::{pieces, strides},
    parameters::Parameters,
};

/// An order of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// One after the other.
    Sequential,
    /// With a stride between two of them.
    Stride,
}

impl Pattern {
    pub(super) const ALL: [Self; 2] = [Self::Sequential, Self::Stride];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Stride => "stride",
        }
    }
}

/// See the module.
pub(super) struct Workload {
    /// The length of a call.
    pub(super) io_size: Bytes,
    pub(super) size: Bytes,
    /// Bytes of others, and of the file after them.
    pub(super) pieces: Vec<(Bytes, Bytes)>,
    sequential: Vec<FileRange>,
    stride: Vec<FileRange>,
}

impl Workload {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        let io_size = Bytes(parameters.bytes("io_size")?);
        let bytes = |blocks: u32| BLOCK * u64::from(blocks);
        let pieces = pieces(parameters)?.into_iter();
        let pieces: Vec<(Bytes, Bytes)> = pieces
            .map(|(gap, piece)| (bytes(gap), bytes(piece)))
            .collect();
        let size = pieces.iter().map(|it| it.1).sum();
        Ok(Self {
            io_size,
            size,
            pieces,
            sequential: every(io_size, io_size, size),
            stride: strides(parameters, io_size, size)?,
        })
    }

    /// The ranges of the calls, in their order.
    pub(super) fn ranges(&self, pattern: Pattern) -> &[FileRange] {
        match pattern {
            Pattern::Sequential => &self.sequential,
            Pattern::Stride => &self.stride,
        }
    }
}
