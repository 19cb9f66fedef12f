//! The process that keeps a shared guest.

use std::{ffi::OsStr, io::Write, time::Duration};

use super::spec::{Start, VARIABLE, folder};
use crate::{
    Cache, Guest, LabError,
    standing::{self, Limits},
};

/// When a keeper ends by itself.
const LIMITS: Limits = Limits {
    idle: Duration::from_secs(600),
    life: Duration::from_secs(12 * 3600),
};

/// Be the keeper of the shared guest with this name, until `stop` is set, its limits are reached, or it
/// ends. A line is written to standard output when commands can arrive.
///
/// # Errors
///
/// It does not come up, or it died.
pub fn keep(name: &OsStr, stop: impl Fn() -> bool) -> Result<(), LabError> {
    let name = name.to_string_lossy();
    let Some(folder) = folder() else {
        return Err(LabError::Request(format!("{VARIABLE} is not set")));
    };
    let start = Start::read(&Start::path(&folder, &name))?;
    let guest = Guest::of_spec(start.spec, start.copy, start.with_tools).share(&folder);
    standing::keep(&Cache::at(&folder), &name, guest, LIMITS, stop, |state| {
        // The process that started us may have ended.
        let _ = writeln!(std::io::stdout(), "{}", state.pid);
    })
}
