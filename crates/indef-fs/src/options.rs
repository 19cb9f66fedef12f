//! The options of engines.

use indef_core::layout::Row;

/// Options that every engine gets.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Ranges that share their blocks with a reflink or a snapshot may be moved, which gives the
    /// sharing up.
    pub allow_unshare: bool,
    /// Leave a file alone while somebody else has it open, wherever a write to it that was reported
    /// durable could be lost in a power cut right after a step.
    pub strict: bool,
    /// The engine was asked for by name: its warnings are known.
    pub by_name: bool,
    /// How many requests an engine keeps in flight for one file.
    pub queue_depth: u32,
    /// The device's rows, where they are known: engines that can, place data congruently to them.
    pub row: Option<Row>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            allow_unshare: false,
            strict: false,
            by_name: false,
            queue_depth: 32,
            row: None,
        }
    }
}
