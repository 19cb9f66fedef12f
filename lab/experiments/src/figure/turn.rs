//! What a module gets that measures on this machine, or in a guest.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::error::FigureError;

/// See the module. Virtual time needs none of it.
pub struct Turn<'a> {
    /// Set by a signal.
    pub stop: &'a Arc<AtomicBool>,
    /// Tells a person what is done now; a line.
    pub say: &'a dyn Fn(&str),
}

impl Turn<'_> {
    /// Say what begins now, unless it is time to stop.
    ///
    /// # Errors
    ///
    /// It is.
    pub(super) fn begin(&self, what: &str) -> Result<(), FigureError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(FigureError::Stopped);
        }
        (self.say)(what);
        Ok(())
    }
}
