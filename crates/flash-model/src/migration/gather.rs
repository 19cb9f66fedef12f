//! Parts of pages that are put together to pages of a zone.

use std::vec::Drain;

use crate::zone::ZoneLayout;

/// Bytes of one page that belong to a page that is being put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZonePart {
    pub(crate) zone: u64,
    pub(crate) page: u64,
    pub(crate) bytes: u64,
}

/// The row of pages that is being put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gather {
    zone: u64,
    row: u64,
    /// For each die of the zone, the parts of its page.
    lanes: Vec<Vec<ZonePart>>,
    parts: usize,
}

impl Gather {
    /// Returns whether it holds parts of another row.
    pub(crate) fn is_of_another_row(&self, zone: u64, row: u64) -> bool {
        self.parts > 0 && (self.zone, self.row) != (zone, row)
    }

    pub(crate) fn add(&mut self, layout: &ZoneLayout, zone: u64, page: u64, part: ZonePart) {
        self.lanes.resize_with(layout.lanes as usize, Vec::new);
        (self.zone, self.row) = (zone, page / layout.lanes);
        let lane = &mut self.lanes[(page % layout.lanes) as usize];
        match lane.last_mut() {
            Some(last) if (last.zone, last.page) == (part.zone, part.page) => {
                last.bytes += part.bytes;
            }
            _ => {
                lane.push(part);
                self.parts += 1;
            }
        }
    }

    /// Takes out the parts of one page.
    pub(crate) fn take_page(&mut self, layout: &ZoneLayout, page: u64) -> Drain<'_, ZonePart> {
        self.lanes.resize_with(layout.lanes as usize, Vec::new);
        let lane = &mut self.lanes[(page % layout.lanes) as usize];
        self.parts -= lane.len();
        lane.drain(..)
    }

    /// Takes out all parts.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = ZonePart> {
        self.parts = 0;
        self.lanes.iter_mut().flat_map(|lane| lane.drain(..))
    }
}
