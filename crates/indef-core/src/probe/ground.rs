//! The pieces of the probe's file (or of a device) that can be read: each contiguous on the device and
//! written in order, so that a distance in it is a distance on the device.

use units::{Bytes, FileRange};

use super::BLOCK;
use crate::draw::Draw;

/// A shorter piece says nothing about stripes.
pub const SHORTEST_PIECE: Bytes = Bytes::mib(1);

/// All that can be read.
#[derive(Clone, Debug)]
pub struct Ground {
    pieces: Vec<FileRange>,
}

impl Ground {
    /// The ground of these pieces, without those that are too short to be of use.
    #[must_use]
    pub fn new(pieces: impl IntoIterator<Item = FileRange>) -> Self {
        let whole = |piece: FileRange| {
            let start = piece.start.align_up(Bytes(BLOCK));
            let end = piece.end().align_down(Bytes(BLOCK));
            FileRange::between(start, end)
        };
        let long = |piece: &FileRange| piece.len >= SHORTEST_PIECE;
        Self {
            pieces: pieces.into_iter().map(whole).filter(long).collect(),
        }
    }

    /// Number of pieces.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.pieces.iter().map(|piece| piece.len.0).sum())
    }

    /// Bytes of the longest piece.
    #[must_use]
    pub fn longest(&self) -> Bytes {
        let lengths = self.pieces.iter().map(|piece| piece.len);
        lengths.max().unwrap_or_default()
    }

    /// Any place that `span` bytes of one piece follow.
    pub(super) fn place(&self, draw: &mut Draw, span: u64) -> Option<u64> {
        self.place_in_phase(draw, span, None)
    }

    /// A place that `span` bytes of one piece follow, among which is any block of such pieces, each as often: pages at
    /// the ends of a piece count as much as those in its middle.
    pub(super) fn around(&self, draw: &mut Draw, span: u64) -> Option<u64> {
        let mut long = self.pieces.iter().filter(|piece| piece.len.0 >= span);
        let all: u64 = long.clone().map(|piece| piece.len.0 / BLOCK).sum();
        let mut nth = (all > 0).then(|| draw.below(all))?;
        long.find_map(|piece| match nth.checked_sub(piece.len.0 / BLOCK) {
            Some(rest) => {
                nth = rest;
                None
            }
            None => {
                let before = (nth * BLOCK).saturating_sub(span / 2 / BLOCK * BLOCK);
                let last = (piece.len.0 - span) / BLOCK * BLOCK;
                Some(piece.start.0 + before.min(last))
            }
        })
    }

    /// Any place that `span` bytes of one piece follow, as many bytes as the phase after a multiple of the period: (phase, period).
    pub(super) fn place_in_phase(
        &self,
        draw: &mut Draw,
        span: u64,
        phase: Option<(u64, u64)>,
    ) -> Option<u64> {
        let (phase, period) = phase.unwrap_or((0, BLOCK));
        // First and number of the places in each piece.
        let places = |piece: &FileRange| {
            let start = piece.start.0;
            let first = start + (phase % period + period - start % period) % period;
            let last = piece.end().0.checked_sub(span)?;
            (first <= last).then(|| (first, (last - first) / period + 1))
        };
        let all: u64 = self.pieces.iter().filter_map(places).map(|(_, n)| n).sum();
        let mut nth = (all > 0).then(|| draw.below(all))?;
        for (first, count) in self.pieces.iter().filter_map(places) {
            match nth.checked_sub(count) {
                Some(rest) => nth = rest,
                None => return Some(first + nth * period),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_one_piece_aligned_and_in_phase() {
        let mib = 1 << 20;
        let ground = Ground::new([
            FileRange::new(0, mib - 1),
            FileRange::new(2 * mib + 100, 2 * mib),
            FileRange::new(8 * mib, 3 * mib),
        ]);
        assert_eq!(ground.pieces(), 2);
        assert_eq!(ground.longest(), Bytes::mib(3));
        let mut draw = Draw::new(1);
        for span in [BLOCK, mib, 3 * mib] {
            for _ in 0..200 {
                let at = ground.place(&mut draw, span).unwrap();
                let inside = |start: u64, end: u64| at >= start && at + span <= end;
                assert!(inside(2 * mib + 100, 4 * mib + 100) || inside(8 * mib, 11 * mib));
                assert_eq!(at % BLOCK, 0);
            }
        }
        assert_eq!(ground.place(&mut draw, 3 * mib + BLOCK), None);
        // The first and the last one are as many as blocks are near the ends.
        let around: Vec<u64> = (0..300)
            .map(|_| ground.around(&mut draw, 2 * mib + mib / 2).unwrap())
            .collect();
        assert!(around.contains(&(8 * mib)) && around.contains(&(8 * mib + mib / 2)));
        assert!(
            around
                .iter()
                .all(|at| (8 * mib..=8 * mib + mib / 2).contains(at))
        );
        assert_eq!(ground.around(&mut draw, 3 * mib + BLOCK), None);
        let period = 96 << 10;
        for _ in 0..200 {
            let phase = Some((8192, period));
            let at = ground.place_in_phase(&mut draw, mib, phase).unwrap();
            assert_eq!(at % period, 8192);
        }
    }
}
