//! The ends of the zones' data after a power cut.
//!
//! Of the data that was written to a zone and is not durable, a power cut leaves any number of
//! blocks from the durable end on. The maker of a state passes all changes before the mark to
//! [`ZoneEnds`], and then gets [`ZoneCuts`] from it.

use std::collections::BTreeMap;

use super::keep::{Keep, SplitMix};
use crate::store::{Change, StoreKind, ZoneChange, ZoneLayout};

/// Index of a namespace, and of a zone in it.
type Key = (usize, usize);

/// How far each zone is written, and how far durably. In the order of zones: the same seed gives
/// the same state.
#[derive(Debug, Default)]
pub(super) struct ZoneEnds(BTreeMap<Key, ZoneEnd>);

#[derive(Clone, Copy, Debug, Default)]
struct ZoneEnd {
    /// Resets before these writes.
    epoch: u64,
    /// Bytes of the namespace: the end of the durable data, and of the written data.
    durable: u64,
    written: u64,
}

impl ZoneEnds {
    /// The next change to a namespace that has these zones.
    pub(super) fn look_at(&mut self, namespace: usize, zones: ZoneLayout, change: &Change<'_>) {
        match *change {
            Change::Flush => {
                for ((of, _), end) in &mut self.0 {
                    if *of == namespace {
                        end.durable = end.written;
                    }
                }
            }
            Change::Write { offset, data, fua } => {
                self.look_at_write(namespace, zones, offset, data.len() as u64, fua);
            }
            Change::Zero { offset, len, fua } => {
                self.look_at_write(namespace, zones, offset, len, fua);
            }
            Change::Zone { zone, change } => {
                let end = self.0.entry((namespace, zone)).or_default();
                match change {
                    ZoneChange::Reset => {
                        let start = zone as u64 * zones.size_bytes;
                        *end = ZoneEnd {
                            epoch: end.epoch + 1,
                            durable: start,
                            written: start,
                        };
                    }
                    ZoneChange::Finish | ZoneChange::ReadOnly | ZoneChange::Offline => {
                        end.durable = end.written;
                    }
                }
            }
        }
    }

    fn look_at_write(
        &mut self,
        namespace: usize,
        zones: ZoneLayout,
        offset: u64,
        len: u64,
        fua: bool,
    ) {
        let zone = zone_at(zones, offset);
        let start = zone as u64 * zones.size_bytes;
        let end = self.0.entry((namespace, zone)).or_default();
        end.durable = end.durable.max(start);
        end.written = end.written.max(offset + len);
        if fua {
            end.durable = end.written;
        }
    }

    /// Resets of a zone so far.
    pub(super) fn epoch(&self, namespace: usize, zone: usize) -> u64 {
        self.0.get(&(namespace, zone)).map_or(0, |end| end.epoch)
    }

    /// Cut the power here.
    pub(super) fn cut(&self, kinds: &[StoreKind], keep: Keep, random: &mut SplitMix) -> ZoneCuts {
        let cuts = self.0.iter().map(|(key, end)| {
            let block = kinds[key.0].block_bytes;
            let blocks = end.written.saturating_sub(end.durable) / block;
            let at = match keep {
                Keep::Everything => end.written,
                Keep::Durable => end.durable,
                Keep::Reordered(_) => end.durable + random.below(blocks + 1) * block,
            };
            (*key, (end.epoch, at))
        });
        ZoneCuts(cuts.collect())
    }
}

/// Number of the zone with this byte of the namespace.
pub(super) fn zone_at(zones: ZoneLayout, offset: u64) -> usize {
    (offset / zones.size_bytes) as usize
}

/// The place up to which each zone's data is kept.
#[derive(Debug, Default)]
pub(super) struct ZoneCuts(BTreeMap<Key, (u64, u64)>);

impl ZoneCuts {
    /// How many of `len` bytes at `offset`, written after `epoch` resets of their zone, are before
    /// its cut.
    pub(super) fn kept(
        &self,
        namespace: usize,
        zone: usize,
        epoch: u64,
        offset: u64,
        len: u64,
    ) -> u64 {
        match self.0.get(&(namespace, zone)) {
            Some((last, cut)) if *last == epoch => cut.saturating_sub(offset).min(len),
            // A later reset discards all of it, so nothing need be cut.
            _ => len,
        }
    }
}
