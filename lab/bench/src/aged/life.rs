//! A life that files lead.

use std::path::Path;

use anyhow::Result;

/// A life, day by day.
pub(super) trait Life {
    /// The next day.
    fn day(&mut self) -> Result<()>;
}

/// Where a life is led, and for how long.
pub(super) struct Setting<'a> {
    pub(super) folder: &'a Path,
    /// A folder on another file system.
    pub(super) images: &'a Path,
    /// Days before anything is repaired, and after that.
    pub(super) days: u32,
    pub(super) days_after: u32,
    /// The repository to follow; by default this project's.
    pub(super) repository: Option<&'a Path>,
    pub(super) seed: u64,
}
