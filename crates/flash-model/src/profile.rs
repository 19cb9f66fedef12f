//! The numbers that make a device: sizes and times.

use units::Bytes;

use crate::geometry::{Geometry, ZoneGeometry};

/// Names of the built-in profiles.
pub const BUILTIN: [&str; 1] = ["zero"];

/// The numbers that make a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    name: String,
    description: String,
    geometry: Geometry,
    buffer: Bytes,
}

/// A profile that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct ProfileError {
    /// The file, as it was named by the caller.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl Profile {
    /// A built-in profile; one of [`BUILTIN`].
    #[must_use]
    pub fn builtin(name: &str) -> Option<Self> {
        (name == "zero").then(|| Self {
            name: name.to_owned(),
            description: "everything at once".to_owned(),
            geometry: Geometry {
                channels: 8,
                dies_per_channel: 2,
                planes: 1,
                page: Bytes::kib(16),
                pages_per_block: 128,
                unit: Bytes::kib(16),
                zone: ZoneGeometry {
                    size: Bytes::mib(32),
                    capacity: Bytes::mib(32),
                    interleave: Bytes::kib(4),
                    dies: 16,
                    max_active: 0,
                    max_open: 0,
                },
            },
            buffer: Bytes::mib(16),
        })
    }

    /// Short name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is like, in a sentence.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Parallel units and sizes.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Size of the volatile write buffer.
    #[must_use]
    pub const fn buffer_size(&self) -> Bytes {
        self.buffer
    }

    /// Whether every command is done when it is submitted.
    #[must_use]
    pub const fn is_instant(&self) -> bool {
        true
    }
}
