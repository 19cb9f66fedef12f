//! The states that a cut may have left.

use std::path::PathBuf;

/// A state that a cut may have left.
#[derive(Debug)]
pub(crate) struct CutState {
    /// Its description, if there are several.
    pub(crate) what: String,
    /// The device.
    pub(crate) left: Left,
}

/// The form of a state.
#[derive(Debug)]
pub(crate) enum Left {
    /// The bytes of the only disk.
    Image(PathBuf),
    /// The backing file of a device.
    Store(PathBuf),
}
