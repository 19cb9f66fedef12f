//! The plan file (docs/plan.md): JSON Lines, written once, read and checked before it is run.
//!
//! ```text
//! header    {"indef-plan":2, the options}
//! file      {"path":…, …, "chunks":[…], "more":false}     one for each file
//! chunks    {"chunks":[…], "more":false}                  only after a line with "more":true
//! totals    {"totals":{…}}                                so that a cut-off file is noticed
//! ```
//!
//! No line is longer than [`MAX_LINE`] bytes: a file with many chunks goes on in the next line. That
//! bounds what a reader holds beside the chunks themselves, whatever it is given.

mod error;
mod reader;
mod wire;
mod writer;

pub use error::{Absurd, ChunkFault, PlanError, PlanProblem};
pub use reader::PlanReader;
pub use writer::PlanWriter;

/// The newest version; this one and all before it are read. Version 1 has neither birth times nor
/// the length of the given path, version 2 cannot give space back.
pub const VERSION: u64 = 3;

/// The version of plans that do not give space back: programs from before that read them, too.
const WITHOUT_RECLAIM: u64 = 2;

/// The longest line, without its end.
pub const MAX_LINE: usize = 1 << 20;

/// Chunks on one line: at under 500 bytes each they leave half of [`MAX_LINE`] for the path.
const CHUNKS_PER_LINE: usize = 1024;

#[cfg(test)]
mod tests;
