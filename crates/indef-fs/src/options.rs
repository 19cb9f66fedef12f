//! The options of engines.

use std::time::Duration;

use indef_core::layout::Row;
use units::PhysRange;

/// Options that every engine gets.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Ranges that share their blocks with a reflink or a snapshot may be moved, which gives the
    /// sharing up.
    pub allow_unshare: bool,
    /// Ranges are moved so that the extents come free of which they are all that is reached,
    /// however few fragments they have.
    pub reclaim: bool,
    /// Ranges are moved so that nothing of them lies in this region of the device, however few fragments
    /// they have; their files have no more fragments afterwards. The old blocks stay allocated until the
    /// engine goes, where it can keep them.
    pub vacate: Option<PhysRange>,
    /// Leave a file alone while somebody else has it open, wherever a write to it that was reported
    /// durable could be lost in a power cut right after a step.
    pub strict: bool,
    /// The engine was asked for by name: its warnings are known.
    pub by_name: bool,
    /// Locks that are held longer are counted, by an engine that holds them several times in a step
    /// ([`Moved::further_stalls`](crate::Moved::further_stalls)).
    pub max_stall: Duration,
    /// How many requests an engine keeps in flight for one file.
    pub queue_depth: u32,
    /// The device's rows, where they are known: engines that can, place data congruently to them.
    pub row: Option<Row>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            allow_unshare: false,
            reclaim: false,
            vacate: None,
            strict: false,
            by_name: false,
            max_stall: Duration::MAX,
            queue_depth: 32,
            row: None,
        }
    }
}
