//! Layouts that the papers make by hand.
//!
//! Their files lie on purpose as they do: here the places are given, and what a reader or a defragmenter makes of them
//! is the result.

use indef_core::layout::{Extent, ExtentFlags, Layout};
use units::{Bytes, FileOffset, PhysOffset};

/// A file in pieces of these sizes, again and again, up to `size`. Between two pieces lie `gap` bytes of others.
#[must_use]
pub fn pieces(sizes: &[Bytes], gap: Bytes, size: Bytes) -> Layout {
    let (mut file, mut phys) = (FileOffset(0), PhysOffset(0));
    let mut extents = Vec::new();
    for piece in sizes.iter().cycle() {
        let len = Bytes(piece.0.min(size.0 - file.0));
        if len.is_zero() {
            break;
        }
        extents.push(Extent {
            file,
            phys,
            len,
            flags: ExtentFlags::empty(),
        });
        file = file + len;
        phys = phys + len + gap;
    }
    Layout::new(extents)
}

/// The pieces of InDeF's file A: 64 of 4 KiB, two of 128 KiB, one of 256 KiB (§IV-A).
#[must_use]
pub fn file_a() -> Vec<Bytes> {
    let mut sizes = vec![Bytes::kib(4); 64];
    sizes.extend([Bytes::kib(128), Bytes::kib(128), Bytes::kib(256)]);
    sizes
}

/// The pieces of FragPicker's file: 32 of 4 KiB, one of 128 KiB (§5.2).
#[must_use]
pub fn fragpicker() -> Vec<Bytes> {
    let mut sizes = vec![Bytes::kib(4); 32];
    sizes.push(Bytes::kib(128));
    sizes
}

/// A file of blocks of one page, each on a chip of choice, none after the one before it (InDeF §IV-A, file B).
///
/// `chips_of`: of each block of the file, the number of its chip. The device has `chips` chips, and consecutive
/// pages on one after the other. Blocks of a chip lie in every other row, so that no two blocks touch.
#[must_use]
pub fn on_chips(chips_of: impl IntoIterator<Item = u32>, chips: u32, page: Bytes) -> Layout {
    let mut rows = vec![0_u64; chips as usize];
    let row_bytes = page.0 * u64::from(chips);
    let place = |(index, chip): (u64, u32)| {
        let row = &mut rows[chip as usize];
        // Neighbouring chips have different rows, so blocks on them do not touch either.
        let at = *row * 2 + u64::from(chip % 2);
        *row += 1;
        Extent {
            file: FileOffset(index * page.0),
            phys: PhysOffset(at * row_bytes + u64::from(chip) * page.0),
            len: page,
            flags: ExtentFlags::empty(),
        }
    };
    Layout::new((0..).zip(chips_of).map(place).collect())
}

/// InDeF's file B: requests of `blocks` blocks, of which each third lies on 2, on 8 and on all chips (§IV-A).
pub fn file_b(requests: u32, blocks: u32, chips: u32) -> impl Iterator<Item = u32> {
    (0..requests).flat_map(move |request| {
        let on = match u64::from(request) * 3 / u64::from(requests.max(1)) {
            0 => 2.min(chips),
            1 => 8.min(chips),
            _ => chips,
        };
        (0..blocks).map(move |block| block % on)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_a_has_requests_of_64_2_and_1_pieces() {
        let layout = pieces(&file_a(), Bytes::kib(4), Bytes::kib(1536));
        let dolf =
            |request: u64| layout.fragments_in(units::FileRange::new(request << 18, 1 << 18));
        let degrees: Vec<u64> = (0..6).map(dolf).collect();
        assert_eq!(degrees, [64, 2, 1, 64, 2, 1]);
        assert_eq!(layout.allocated(), Bytes::kib(1536));
        let short = pieces(&fragpicker(), Bytes::kib(8), Bytes::kib(130));
        assert_eq!(
            (short.fragments(), short.allocated()),
            (33, Bytes::kib(130))
        );
    }

    #[test]
    fn blocks_of_file_b_lie_on_their_chips_and_do_not_touch() {
        let page = Bytes::kib(16);
        let layout = on_chips(file_b(6, 16, 16), 16, page);
        assert_eq!(layout.fragments(), 6 * 16);
        let chips_of = |request: usize| -> std::collections::BTreeSet<u64> {
            let blocks = &layout.extents()[request * 16..(request + 1) * 16];
            blocks.iter().map(|it| it.phys.0 / page.0 % 16).collect()
        };
        let counts: Vec<usize> = (0..6).map(|request| chips_of(request).len()).collect();
        assert_eq!(counts, [2, 2, 8, 8, 16, 16]);
        let mut places: Vec<u64> = layout.extents().iter().map(|it| it.phys.0).collect();
        places.sort_unstable();
        assert!(places.is_sorted_by(|a, b| a < b));
    }
}
