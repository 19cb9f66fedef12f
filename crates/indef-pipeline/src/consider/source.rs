//! Where readings come from.

use std::time::Duration;

use super::reading::CannotTell;

/// The place where readings come from: the kernel, or a folder for tests.
pub trait Source {
    /// The text of a file below `/`, as `proc/pressure/io`.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    fn text(&self, path: &str) -> std::io::Result<String>;

    /// The names in a folder, in order.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    fn names(&self, path: &str) -> std::io::Result<Vec<String>>;

    /// What the drive of this name (`nvme0n1`) tells of its health over its own protocol.
    ///
    /// # Errors
    ///
    /// Why it does not.
    fn health(&self, drive: &str) -> Result<Health, CannotTell>;

    /// Time on a clock that nobody sets.
    fn now(&self) -> Duration;
}

/// What a drive tells of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Health {
    /// Degrees Celsius.
    pub celsius: Option<f64>,
    /// Percent of its endurance.
    pub used_pct: f64,
    /// Critical Warning (NVMe Base §5.16.1.3).
    pub critical: u8,
}

/// Read a file of the source.
pub(super) fn text(source: &impl Source, path: &str) -> Result<String, CannotTell> {
    source.text(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CannotTell::NoFile(path.to_owned()),
        _ => CannotTell::Unreadable {
            path: path.to_owned(),
            why: error.to_string(),
        },
    })
}
