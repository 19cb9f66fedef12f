//! What a drive counts all its life, in the file: two records take turns, each in the header of an image's place.
//!
//! ```text
//! 0    8  magic                    24   64  eight counters of 8 bytes, as in [`Life`]
//! 8    4  format                   88    8  1 as long as the device is in use, else 0
//! 12   4  0                        96    4  CRC-32C of all before it
//! 16   8  number of the record
//! ```
//!
//! Records are numbered; the whole one with the higher number counts. Files that were made before there were records have
//! zeroes or nothing in their place.

use std::{fs::File, io, os::unix::fs::FileExt};

use super::image::{HEADER_USED, ImagePlaces};

/// Bytes of a record.
const RECORD_BYTES: usize = 100;
/// The checksum of what is before it.
const SUM: usize = RECORD_BYTES - 4;
const MAGIC: &[u8; 8] = b"flashdLF";
/// Format of a record.
const VERSION: u32 = 1;

/// Counters that never go back, as of SMART.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Read commands of hosts.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes that hosts read.
    pub read_bytes: u64,
    /// Bytes that hosts wrote.
    pub written_bytes: u64,
    /// Commands that failed for the sake of the bytes.
    pub media_errors: u64,
    /// Nanoseconds with power.
    pub powered_ns: u64,
    /// How often the power came.
    pub power_cycles: u64,
    /// How often it was gone without warning.
    pub unsafe_shutdowns: u64,
    /// The power is there: if it is not told to go, that is an unsafe shutdown.
    pub in_use: bool,
}

/// The newest record of a file, and its number; nothing has happened yet where there is none.
pub(super) fn load(places: &ImagePlaces, file: &File) -> io::Result<(u64, Life)> {
    let mut newest = (0, Life::default());
    for place in 0..2 {
        let mut record = [0; RECORD_BYTES];
        match file.read_exact_at(&mut record, start(places, place)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            other => other?,
        }
        newest = decode(&record)
            .filter(|(number, _)| *number > newest.0)
            .unwrap_or(newest);
    }
    Ok(newest)
}

/// Write a record of a number one higher than the last.
pub(super) fn save(places: &ImagePlaces, file: &File, number: u64, life: &Life) -> io::Result<()> {
    file.write_all_at(&encode(number, life), start(places, number % 2))
}

fn start(places: &ImagePlaces, place: u64) -> u64 {
    places.start + place * places.len + HEADER_USED
}

fn encode(number: u64, life: &Life) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(MAGIC);
    record[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let words = [
        number,
        life.reads,
        life.writes,
        life.read_bytes,
        life.written_bytes,
        life.media_errors,
        life.powered_ns,
        life.power_cycles,
        life.unsafe_shutdowns,
        u64::from(life.in_use),
    ];
    for (at, word) in (16..).step_by(8).zip(words) {
        record[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = crc32c::crc32c(&record[..SUM]);
    record[SUM..].copy_from_slice(&sum.to_le_bytes());
    record
}

fn decode(record: &[u8; RECORD_BYTES]) -> Option<(u64, Life)> {
    let half = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("4 bytes"));
    let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
    let is_whole =
        &record[..8] == MAGIC && half(8) == VERSION && half(SUM) == crc32c::crc32c(&record[..SUM]);
    is_whole.then(|| {
        let life = Life {
            reads: word(24),
            writes: word(32),
            read_bytes: word(40),
            written_bytes: word(48),
            media_errors: word(56),
            powered_ns: word(64),
            power_cycles: word(72),
            unsafe_shutdowns: word(80),
            in_use: word(88) != 0,
        };
        (word(16), life)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::image::ImageFound;

    const PLACES: ImagePlaces = ImagePlaces {
        start: 512,
        len: 1 << 16,
    };

    fn life(reads: u64) -> Life {
        Life {
            reads,
            writes: 2,
            read_bytes: 3,
            written_bytes: 4,
            media_errors: 5,
            powered_ns: 6,
            power_cycles: 7,
            unsafe_shutdowns: 8,
            in_use: reads.is_multiple_of(2),
        }
    }

    #[test]
    fn the_newest_whole_record_counts() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(load(&PLACES, &file).unwrap(), (0, Life::default()));
        // A file of versions that kept none.
        PLACES.save(&file, 1, b"one").unwrap();
        PLACES.save(&file, 2, b"two").unwrap();
        assert_eq!(load(&PLACES, &file).unwrap(), (0, Life::default()));
        for number in 1..=3 {
            save(&PLACES, &file, number, &life(number)).unwrap();
            assert_eq!(load(&PLACES, &file).unwrap(), (number, life(number)));
        }
        // Neither is in the way of the other.
        let two = ImageFound::Image(2, b"two".to_vec());
        assert_eq!(PLACES.load(&file).unwrap(), two);
        PLACES.save(&file, 3, b"three").unwrap();
        assert_eq!(load(&PLACES, &file).unwrap(), (3, life(3)));
        // One that is cut off.
        let newest = start(&PLACES, 1);
        for at in 0..RECORD_BYTES as u64 {
            let mut byte = [0];
            file.read_exact_at(&mut byte, newest + at).unwrap();
            file.write_all_at(&[!byte[0]], newest + at).unwrap();
            assert_eq!(load(&PLACES, &file).unwrap(), (2, life(2)));
            file.write_all_at(&byte, newest + at).unwrap();
        }
    }
}
