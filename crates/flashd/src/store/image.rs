//! The device model's state in the file: mapping, wear, zones.
//!
//! Two places take turns. A new image goes to the place of the older one: first its bytes, then the
//! header with their checksum. If that is interrupted, the other one is still whole.

use std::{fs::File, io, os::unix::fs::FileExt};

/// Bytes of a header; the image follows.
const HEADER_BYTES: usize = 4096;
/// Bytes of a header that are an image's; a record of the device's life follows.
pub(super) const HEADER_USED: u64 = 64;
const MAGIC: &[u8; 8] = b"flashdIM";
/// Format of the header.
const VERSION: u32 = 1;

/// An image does not fit into its place.
#[derive(Debug, thiserror::Error)]
#[error("an image of {image} bytes has no room in {place}")]
struct ImageTooLarge {
    image: usize,
    place: u64,
}

/// The places in which images are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImagePlaces {
    /// First byte of the first place.
    pub(super) start: u64,
    /// Bytes of each of the two.
    pub(super) len: u64,
}

/// The result of reading the places.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImageFound {
    /// No image was ever written.
    Nothing,
    /// The newest whole one, and its generation.
    Image(u64, Vec<u8>),
    /// There are images, and none is whole.
    Damaged,
}

impl ImagePlaces {
    /// Read the newest whole image.
    pub(super) fn load(&self, file: &File) -> io::Result<ImageFound> {
        let mut newest = ImageFound::Nothing;
        for place in 0..2 {
            match (self.load_place(file, place)?, &newest) {
                (ImageFound::Image(generation, _), ImageFound::Image(other, _))
                    if generation < *other => {}
                (image @ ImageFound::Image(..), _) => newest = image,
                (ImageFound::Damaged, ImageFound::Nothing) => newest = ImageFound::Damaged,
                _ => {}
            }
        }
        Ok(newest)
    }

    /// Write an image of a generation one higher than the last.
    pub(super) fn save(&self, file: &File, generation: u64, image: &[u8]) -> io::Result<()> {
        if image.len() as u64 + HEADER_BYTES as u64 > self.len {
            let (image, place) = (image.len(), self.len);
            let too_large = ImageTooLarge { image, place };
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, too_large));
        }
        let start = self.start + generation % 2 * self.len;
        file.write_all_at(image, start + HEADER_BYTES as u64)?;
        let mut header = [0; 40];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&generation.to_le_bytes());
        header[24..32].copy_from_slice(&(image.len() as u64).to_le_bytes());
        header[32..36].copy_from_slice(&crc32c::crc32c(image).to_le_bytes());
        let sum = crc32c::crc32c(&header[..36]);
        header[36..40].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&header, start)
    }

    fn load_place(&self, file: &File, place: u64) -> io::Result<ImageFound> {
        let start = self.start + place * self.len;
        let mut header = [0; 40];
        match file.read_exact_at(&mut header, start) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(ImageFound::Nothing);
            }
            other => other?,
        }
        if header.iter().all(|byte| *byte == 0) {
            return Ok(ImageFound::Nothing);
        }
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let half = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let (generation, len) = (word(16), word(24));
        let whole = &header[..8] == MAGIC
            && half(8) == VERSION
            && half(36) == crc32c::crc32c(&header[..36])
            && len + HEADER_BYTES as u64 <= self.len;
        if !whole {
            return Ok(ImageFound::Damaged);
        }
        let mut image = vec![0; len as usize];
        match file.read_exact_at(&mut image, start + HEADER_BYTES as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(ImageFound::Damaged);
            }
            other => other?,
        }
        Ok(if crc32c::crc32c(&image) == half(32) {
            ImageFound::Image(generation, image)
        } else {
            ImageFound::Damaged
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: ImagePlaces = ImagePlaces {
        start: 512,
        len: 1 << 16,
    };

    #[test]
    fn the_newest_whole_image_is_found() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(PLACES.load(&file).unwrap(), ImageFound::Nothing);
        PLACES.save(&file, 1, b"one").unwrap();
        PLACES.save(&file, 2, b"two").unwrap();
        assert_eq!(
            PLACES.load(&file).unwrap(),
            ImageFound::Image(2, b"two".to_vec())
        );
        // The third is cut off anywhere: the second one is still there.
        file.write_all_at(b"thr", 512 + (1 << 16) + 4096).unwrap();
        assert_eq!(
            PLACES.load(&file).unwrap(),
            ImageFound::Image(2, b"two".to_vec())
        );
        file.write_all_at(b"x", 512 + 20).unwrap();
        assert_eq!(PLACES.load(&file).unwrap(), ImageFound::Damaged);
        PLACES.save(&file, 3, b"three").unwrap();
        assert_eq!(
            PLACES.load(&file).unwrap(),
            ImageFound::Image(3, b"three".to_vec())
        );
        assert!(PLACES.save(&file, 4, &vec![0; 1 << 16]).is_err());
    }
}
