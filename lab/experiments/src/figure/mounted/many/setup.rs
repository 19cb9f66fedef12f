//! The files, as the parameters of a figure have them.

use units::Bytes;

use super::super::{
    super::{error::FigureError, parameters::Parameters},
    ground::Ground,
};

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super::super) struct Setup {
    pub(super) ground: Ground,
    pub(super) sizes: Sizes,
    /// The workers of the contender that moves many files at a time.
    pub(in super::super::super) workers: usize,
}

/// The size and age of the files of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sizes {
    /// Of all files together.
    pub(super) data: Bytes,
    /// Mean of a file of varmail.
    pub(super) varmail_file: Bytes,
    /// Mean of a file of fileserver.
    pub(super) fileserver_file: Bytes,
    /// Bytes that FFSB appends at once.
    pub(super) ffsb_append: Bytes,
    /// Filebench's flows write so many times the data.
    pub(super) rounds: f64,
    /// After so many bytes all is written back.
    pub(super) write_back: Bytes,
    pub(super) seed: u64,
}

impl Setup {
    pub(in super::super::super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        Ok(Self {
            ground: Ground::new(parameters)?,
            sizes: Sizes::new(parameters)?,
            workers: parameters.count("defraggers")? as usize,
        })
    }
}

impl Sizes {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        let bytes = |name| parameters.bytes(name).map(Bytes);
        let data = bytes("data")?;
        let part = parameters.number("dirty")? / 100.0;
        Ok(Self {
            data,
            varmail_file: bytes("varmail_file")?,
            fileserver_file: bytes("fileserver_file")?,
            ffsb_append: bytes("ffsb_append")?,
            rounds: parameters.number("rounds")? / 100.0,
            write_back: Bytes(((data.0 as f64 * part) as u64).max(1)),
            seed: parameters.count("seed")?,
        })
    }
}
