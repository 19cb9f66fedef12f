//! A test that cannot have its guest reports that, and is counted.

use crate::LabError;

/// The value, or `None` with the skip reported (see [`scratch_fs::skip`]) where this machine has no
/// guests.
///
/// # Panics
///
/// A failure that is no lack of the machine; and, with `CI=true` in the environment, a missing
/// component that could have been installed.
#[must_use]
#[track_caller]
pub fn require<T>(made: Result<T, LabError>) -> Option<T> {
    match made {
        Ok(value) => Some(value),
        Err(error @ LabError::Unavailable { foreseen, .. }) => {
            let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
            assert!(foreseen || !in_ci, "CI must not skip this: {error}");
            scratch_fs::skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}
