//! Files in as many pieces as wanted.

use std::{io, path::Path};

use units::Bytes;

use crate::{Segment, Shape};

/// How a file is to be fragmented.
#[derive(Clone, Copy, Debug)]
pub struct FragmentOptions {
    /// Size of the file.
    pub size: Bytes,
    /// Size of each piece.
    pub piece: Bytes,
    /// Seed of the (reproducible) content.
    pub seed: u64,
}

/// Make `path` a file of `options.size` bytes in fragments of `options.piece`, by growing it in
/// turn with a dummy file beside it, which is deleted afterwards (so free space is in pieces, too).
///
/// # Errors
///
/// The kernel's error, or that the file did not get the fragments asked for.
pub fn fragment(path: &Path, options: FragmentOptions) -> io::Result<()> {
    Shape::new(options.seed)
        .with(Segment::Data {
            len: options.size,
            piece: options.piece,
        })
        .make(path)
}
