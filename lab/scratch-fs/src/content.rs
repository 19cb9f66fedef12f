//! Bytes that can be told again from seed and offset.

use std::{fs::File, io, os::unix::fs::FileExt};

use units::{Bytes, FileOffset, FileRange};

/// Reproducible bytes for `offset` of a file made with `seed`: they differ from place to place,
/// do not compress, and do not depend on how the file is cut into pieces.
pub fn content(buffer: &mut [u8], seed: u64, offset: FileOffset) {
    let word_at = |word: u64| {
        let mut value = word.wrapping_add(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        value ^= value >> 29;
        value = value.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (value ^ value >> 32).to_le_bytes()
    };
    let mut at = offset.get();
    let mut rest = buffer;
    while !rest.is_empty() {
        let skip = (at % 8) as usize;
        let length = rest.len().min(8 - skip);
        let (now, later) = rest.split_at_mut(length);
        now.copy_from_slice(&word_at(at / 8)[skip..skip + length]);
        at += length as u64;
        rest = later;
    }
}

/// Read `range` of `file` and compare it with what [`content`] says.
///
/// # Errors
///
/// I/O errors, and `InvalidData` naming the first byte that differs.
pub fn verify(file: &File, seed: u64, range: FileRange) -> io::Result<()> {
    const CHUNK: Bytes = Bytes::mib(1);
    let mut read = vec![0; CHUNK.get() as usize];
    let mut wanted = read.clone();
    let mut at = range.start;
    while at < range.end() {
        let length = (range.end() - at).min(CHUNK).get() as usize;
        file.read_exact_at(&mut read[..length], at.get())?;
        content(&mut wanted[..length], seed, at);
        if let Some(i) = (0..length).find(|&i| read[i] != wanted[i]) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("byte {} differs", at.get() + i as u64),
            ));
        }
        at = at + Bytes(length as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_does_not_depend_on_the_cut() {
        let mut whole = vec![0; 1000];
        content(&mut whole, 7, FileOffset(3));
        let mut pieces = Vec::new();
        for (start, length) in [(3_u64, 1), (4, 12), (16, 500), (516, 487)] {
            let mut piece = vec![0; length];
            content(&mut piece, 7, FileOffset(start));
            pieces.extend(piece);
        }
        assert_eq!(whole, pieces);
        let mut other = vec![0; 1000];
        content(&mut other, 8, FileOffset(3));
        assert_ne!(whole, other);
    }
}
