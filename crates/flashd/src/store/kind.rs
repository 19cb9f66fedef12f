//! The sizes of namespaces.

use std::fmt;

use serde::{Deserialize, Serialize};
use units::Bytes;

/// The zones of a namespace. All have the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLayout {
    /// Bytes from the start of one zone to that of the next.
    pub size_bytes: u64,
    /// Bytes of a zone that can be written.
    pub capacity_bytes: u64,
    /// Number of zones.
    pub count: usize,
}

/// The size of a namespace, and of its blocks and zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreKind {
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes of a logical block.
    pub block_bytes: u64,
    /// Its zones, if it has any.
    #[serde(with = "zone_layout")]
    pub zones: Option<ZoneLayout>,
}

mod zone_layout {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::ZoneLayout;

    pub(super) fn serialize<S: Serializer>(
        zones: &Option<ZoneLayout>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        zones
            .map(|z| (z.size_bytes, z.capacity_bytes, z.count as u64))
            .serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<ZoneLayout>, D::Error> {
        let zones: Option<(u64, u64, u64)> = Option::deserialize(from)?;
        Ok(zones.map(|(size_bytes, capacity_bytes, count)| ZoneLayout {
            size_bytes,
            capacity_bytes,
            count: count as usize,
        }))
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = format!(
            "{} in blocks of {}",
            Bytes(self.size_bytes),
            self.block_bytes
        );
        match self.zones {
            None => write!(f, "conventional, {blocks}"),
            Some(zones) => write!(
                f,
                "zoned, {blocks}, {} zones of {} (capacity {})",
                zones.count,
                Bytes(zones.size_bytes),
                Bytes(zones.capacity_bytes)
            ),
        }
    }
}
