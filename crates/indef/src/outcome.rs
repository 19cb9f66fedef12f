//! How a command ended.

/// How a command ended when it did not fail as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything requested is done.
    Done,
    /// A limit or a signal stopped it; work is left.
    Stopped,
}
