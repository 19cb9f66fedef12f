//! Bytes into and out of the cells, and their causes.

/// The cause of an operation of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A read or write of the host.
    Host,
    /// Garbage collection of a conventional namespace.
    Gc,
    /// Wear levelling of a conventional namespace.
    Wear,
    /// Emptying the SLC cache of a conventional namespace.
    Fold,
    /// Copy or migration inside the device.
    Migration,
    /// The rest of a zone that was finished.
    Padding,
    /// A page that was not complete when a flush wanted it.
    Flush,
}

impl Cause {
    /// The number of causes.
    pub(crate) const COUNT: usize = 7;
}

/// Bytes that went into and out of the cells, by [`Cause`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) sensed: [u64; Cause::COUNT],
    pub(crate) programmed: [u64; Cause::COUNT],
    pub(crate) copied_back: [u64; Cause::COUNT],
}
