//! The facts about the device's inside that a host tool needs to compute DoPF and to place data.

use serde::{Deserialize, Serialize};
use units::Bytes;

/// The device's parallel units and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashGeometry {
    /// Channels between controller and flash.
    pub channels: u32,
    /// Dies (InDeF: chips) on each channel; die `d` is on channel `d % channels`.
    pub dies_per_channel: u32,
    /// Planes of a die that are programmed together.
    pub planes: u32,
    /// One flash page.
    pub page: Bytes,
    /// Flash pages of a flash block.
    pub pages_per_block: u32,
    /// Bytes that go to a die before the next one's turn, on a conventional namespace
    /// (FAST'24: die allocation granularity).
    pub unit: Bytes,
    /// How zones lie on the dies.
    pub zone: ZoneGeometry,
}

impl FlashGeometry {
    /// Returns the number of all dies: the L of DoPF.
    #[must_use]
    pub const fn dies(&self) -> u32 {
        self.channels * self.dies_per_channel
    }

    /// Returns the bytes that are programmed into a die at once: a page of each plane.
    #[must_use]
    pub const fn program_unit(&self) -> Bytes {
        Bytes(self.page.0 * self.planes as u64)
    }

    /// Returns the die that holds byte `offset` of a zoned namespace.
    #[must_use]
    pub const fn zone_die(&self, offset: u64) -> u32 {
        let zone = offset / self.zone.size.0;
        let within = offset % self.zone.size.0;
        let lane = within / self.zone.interleave.0 % self.zone.dies as u64;
        let first = zone * self.zone.dies as u64;
        ((first + lane) % self.dies() as u64) as u32
    }
}

/// How a zone lies on the dies: `interleave` bytes on each of `dies` dies in turn, zone `z`
/// beginning on die `z × dies mod all dies`. With an interleave of one block and all dies it is
/// InDeF's mapping: block i of a segment on chip i mod chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneGeometry {
    /// Address distance from zone to zone.
    pub size: Bytes,
    /// Bytes of it that can be written.
    pub capacity: Bytes,
    /// Bytes on a die before the next die's turn.
    pub interleave: Bytes,
    /// Dies that a zone spans.
    pub dies: u32,
    /// Zones that may be open or closed with data at once; 0 for no limit.
    pub max_active: u32,
    /// Zones that may be open at once; 0 for no limit.
    pub max_open: u32,
}
