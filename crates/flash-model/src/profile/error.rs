//! A profile that is refused.

/// A profile that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct ProfileError {
    /// The file, as it was named by the caller.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The mistake, and the remedy.
    pub reason: String,
}
