//! The end of each zone's data, and of its durable data.
//!
//! In a file, each zone has a record of 32 bytes with a checksum of its own, replaced in place: a
//! record lies within one page, so a kill leaves the old or the new one. A record of zeroes is a
//! zone that was never written. The order is always data first, record second, so that a record
//! never promises bytes that are not there.

use super::{
    StoreError,
    base::{Base, Region},
    kind::ZoneLayout,
};

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 32;

/// The state of a zone after a power cut or at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneRest {
    /// Written up to this many bytes from its start (0: empty, capacity: full).
    Written(u64),
    /// Full because the host finished it, with data up to there.
    Finished(u64),
    /// Can no longer be written; data up to there.
    ReadOnly(u64),
    /// Dead: taken out of service by the host, or its record is damaged.
    Offline,
}

impl ZoneRest {
    /// Bytes from the start that hold data.
    #[must_use]
    pub fn written(self) -> u64 {
        match self {
            Self::Written(bytes) | Self::Finished(bytes) | Self::ReadOnly(bytes) => bytes,
            Self::Offline => 0,
        }
    }

    fn with_written(self, bytes: u64) -> Self {
        match self {
            Self::Written(_) => Self::Written(bytes),
            Self::Finished(_) => Self::Finished(bytes),
            Self::ReadOnly(_) => Self::ReadOnly(bytes),
            Self::Offline => Self::Offline,
        }
    }

    /// The record of zone `zone`.
    fn encode(self, zone: usize) -> [u8; RECORD_BYTES] {
        let (kind, bytes) = match self {
            Self::Written(bytes) => (1, bytes),
            Self::Finished(bytes) => (2, bytes),
            Self::ReadOnly(bytes) => (3, bytes),
            Self::Offline => (4, 0),
        };
        let mut record = [0; RECORD_BYTES];
        record[0..8].copy_from_slice(&u64::to_le_bytes(bytes));
        record[8] = kind;
        record[12..20].copy_from_slice(&(zone as u64).to_le_bytes());
        let sum = crc32c::crc32c(&record[..28]);
        record[28..].copy_from_slice(&sum.to_le_bytes());
        record
    }

    /// The state in a record; `None` where it is damaged.
    fn decode(record: &[u8], zone: usize, capacity: u64) -> Option<Self> {
        if record.iter().all(|byte| *byte == 0) {
            return Some(Self::Written(0));
        }
        let word = |at: usize| Some(u64::from_le_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let sum = u32::from_le_bytes(record.get(28..32)?.try_into().ok()?);
        let bytes = word(0)?;
        if sum != crc32c::crc32c(&record[..28]) || word(12)? != zone as u64 || bytes > capacity {
            return None;
        }
        match record[8] {
            1 => Some(Self::Written(bytes)),
            2 => Some(Self::Finished(bytes)),
            3 => Some(Self::ReadOnly(bytes)),
            4 => Some(Self::Offline),
            _ => None,
        }
    }
}

/// The zones of one namespace and their records.
#[derive(Debug)]
pub(super) struct Zones {
    layout: ZoneLayout,
    /// The durable state of each zone.
    durable: Vec<ZoneRest>,
    /// Bytes from each zone's start that were written, durable or not.
    written: Vec<u64>,
    /// The place of the records, for a namespace in a file.
    records: Option<Region>,
}

impl Zones {
    /// Zones in memory, all empty.
    pub(super) fn empty(layout: ZoneLayout) -> Self {
        Self {
            layout,
            durable: vec![ZoneRest::Written(0); layout.count],
            written: vec![0; layout.count],
            records: None,
        }
    }

    /// Zones as the records say. A damaged record takes its zone offline; their numbers are the
    /// second part of the result.
    pub(super) fn load(
        layout: ZoneLayout,
        region: Region,
    ) -> Result<(Self, Vec<usize>), StoreError> {
        let base = Base::File(region.clone());
        let mut bytes = vec![0; layout.count * RECORD_BYTES];
        base.read(0, &mut bytes)?;
        let mut damaged = Vec::new();
        let durable: Vec<ZoneRest> = bytes
            .chunks_exact(RECORD_BYTES)
            .enumerate()
            .map(|(zone, record)| {
                ZoneRest::decode(record, zone, layout.capacity_bytes).unwrap_or_else(|| {
                    damaged.push(zone);
                    ZoneRest::Offline
                })
            })
            .collect();
        let zones = Self {
            layout,
            written: durable.iter().map(|rest| rest.written()).collect(),
            durable,
            records: Some(region),
        };
        Ok((zones, damaged))
    }

    pub(super) fn layout(&self) -> ZoneLayout {
        self.layout
    }

    /// Zone and place in it of a byte of the namespace.
    pub(super) fn locate(&self, offset: u64) -> (usize, u64) {
        (
            (offset / self.layout.size_bytes) as usize,
            offset % self.layout.size_bytes,
        )
    }

    /// First byte of a zone.
    pub(super) fn start(&self, zone: usize) -> u64 {
        zone as u64 * self.layout.size_bytes
    }

    /// Bytes of a zone that were written, durable or not.
    pub(super) fn written(&self, zone: usize) -> u64 {
        self.written[zone]
    }

    /// Note that a zone was written up to here.
    pub(super) fn advance(&mut self, zone: usize, end: u64) {
        self.written[zone] = self.written[zone].max(end);
    }

    pub(super) fn durable(&self) -> &[ZoneRest] {
        &self.durable
    }

    /// The state of each zone, durable or not.
    pub(super) fn now(&self) -> Vec<ZoneRest> {
        let both = self.durable.iter().zip(&self.written);
        both.map(|(rest, written)| rest.with_written(*written))
            .collect()
    }

    /// Bytes of a zone that are durable.
    pub(super) fn durable_bytes(&self, zone: usize) -> u64 {
        self.durable[zone].written()
    }

    /// The data of a zone is durable up to `end`.
    pub(super) fn make_durable(&mut self, zone: usize, end: u64) -> Result<(), StoreError> {
        if end > self.durable_bytes(zone) {
            let rest = self.durable[zone].with_written(end);
            self.set(zone, rest)?;
        }
        Ok(())
    }

    /// Put a zone into a state, durably.
    pub(super) fn set(&mut self, zone: usize, rest: ZoneRest) -> Result<(), StoreError> {
        if let Some(region) = &self.records {
            Base::File(region.clone()).write((zone * RECORD_BYTES) as u64, &rest.encode(zone))?;
        }
        self.durable[zone] = rest;
        self.written[zone] = match rest {
            ZoneRest::Offline => 0,
            _ => self.written[zone].max(rest.written()),
        };
        Ok(())
    }

    /// Forget the data that was written and is not durable.
    pub(super) fn power_cut(&mut self) {
        for (written, durable) in self.written.iter_mut().zip(&self.durable) {
            *written = durable.written();
        }
    }

    /// Empty a zone, durably.
    pub(super) fn reset(&mut self, zone: usize) -> Result<(), StoreError> {
        self.set(zone, ZoneRest::Written(0))?;
        self.written[zone] = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_a_changed_bit_is_seen() {
        for rest in [
            ZoneRest::Written(4096),
            ZoneRest::Finished(0),
            ZoneRest::ReadOnly(8192),
            ZoneRest::Offline,
        ] {
            let record = rest.encode(3);
            assert_eq!(ZoneRest::decode(&record, 3, 8192), Some(rest));
            assert_eq!(ZoneRest::decode(&record, 4, 8192), None, "another zone's");
            for bit in 0..RECORD_BYTES * 8 {
                let mut damaged = record;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(ZoneRest::decode(&damaged, 3, 8192), None, "bit {bit}");
            }
        }
        assert_eq!(
            ZoneRest::decode(&[0; RECORD_BYTES], 3, 8192),
            Some(ZoneRest::Written(0))
        );
        let beyond = ZoneRest::Written(8193).encode(3);
        assert_eq!(ZoneRest::decode(&beyond, 3, 8192), None);
    }
}
