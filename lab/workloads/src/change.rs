//! What a workload does to files, for whoever carries it out.

/// The number of a file; no number is given twice.
pub type FileNumber = u64;

/// A change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write so many bytes past the end of a file, which is made where it is not there.
    Append {
        /// The file.
        file: FileNumber,
        /// How many.
        bytes: u64,
        /// Whether they are made durable before anything else happens (fdatasync).
        durable: bool,
    },
    /// Delete a file.
    Delete(FileNumber),
}
