//! The places of a file's bytes, and their degree of fragmentation.
//!
//! An [`Extent`] is an entry in the file system's report; neighbours that touch, logically and
//! physically, are one *fragment*. Every count in indef (extents, DoF, DoLF) counts fragments,
//! never raw extents, because a device sees no difference between one extent and two that touch.

mod count;
mod device;
mod extent;
mod free;
mod geometry;
mod held;
mod joints;
mod measure;
mod region;
mod row;
mod spread;
mod windows;

pub use count::{FragmentCount, FragmentCounter};
pub use device::DeviceTimes;
pub use extent::{Extent, ExtentFlags, Layout};
pub use free::{FreeRuns, FreeSpace};
pub use geometry::{Geometry, GeometryProblem, ParseGeometryError};
pub use held::{ExtentRef, HeldExtent, HeldExtents, Unreachable};
pub use joints::Joints;
pub use measure::Fragmentation;
pub(crate) use measure::Scan;
pub use region::{Movable, Region, cheapest_region};
pub use row::Row;
pub use windows::{WindowedDolf, WindowedDopf};

#[cfg(test)]
pub(crate) mod tests;
