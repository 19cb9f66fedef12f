//! Places in a file and on a file system's device, in bytes.

use std::{
    fmt,
    ops::{Add, Sub},
};

use serde::{Deserialize, Serialize};

use crate::Bytes;

macro_rules! byte_place {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The plain number of bytes from the beginning.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Rounded down to a multiple of `unit` (which must not be zero).
            #[must_use]
            pub const fn align_down(self, unit: Bytes) -> Self {
                Self(self.0 - self.0 % unit.0)
            }

            /// Rounded up to a multiple of `unit` (which must not be zero); saturates at the top.
            #[must_use]
            pub const fn align_up(self, unit: Bytes) -> Self {
                match self.0.checked_next_multiple_of(unit.0) {
                    Some(place) => Self(place),
                    None => Self(u64::MAX - u64::MAX % unit.0),
                }
            }
        }

        impl Add<Bytes> for $name {
            type Output = Self;
            fn add(self, count: Bytes) -> Self {
                Self(self.0 + count.0)
            }
        }

        impl Sub for $name {
            type Output = Bytes;
            fn sub(self, other: Self) -> Bytes {
                Bytes(self.0 - other.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

byte_place! {
    /// A place in a file, in bytes from its beginning.
    FileOffset
}
byte_place! {
    /// A place on the device (or address space) under a file system, in bytes.
    PhysOffset
}

macro_rules! byte_range {
    ($(#[$doc:meta])* $name:ident of $place:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name {
            /// First byte.
            pub start: $place,
            /// Number of bytes.
            pub len: Bytes,
        }

        impl $name {
            /// `len` bytes from `start`.
            #[must_use]
            pub const fn new(start: u64, len: u64) -> Self {
                Self {
                    start: $place(start),
                    len: Bytes(len),
                }
            }

            /// From `start` up to, but not including, `end`; empty if `end` is not past `start`.
            #[must_use]
            pub const fn between(start: $place, end: $place) -> Self {
                Self {
                    start,
                    len: Bytes(end.0.saturating_sub(start.0)),
                }
            }

            /// The first byte past the range (the largest offset if it would overflow).
            #[must_use]
            pub const fn end(self) -> $place {
                $place(self.start.0.saturating_add(self.len.0))
            }

            /// Whether the range is empty.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.len.0 == 0
            }

            /// The bytes that both ranges have.
            #[must_use]
            pub fn intersect(self, other: Self) -> Self {
                Self::between(self.start.max(other.start), self.end().min(other.end()))
            }

            /// Whether they share at least one byte.
            #[must_use]
            pub fn overlaps(self, other: Self) -> bool {
                !self.intersect(other).is_empty()
            }

            /// Whether `other` lies inside as a whole.
            #[must_use]
            pub fn contains(self, other: Self) -> bool {
                self.intersect(other) == other
            }
        }
    };
}

byte_range! {
    /// A half-open byte range of a file: `start..start + len`.
    FileRange of FileOffset
}
byte_range! {
    /// A half-open range of a device: `start..start + len`.
    PhysRange of PhysOffset
}

impl FileRange {
    /// The range, extended outward to multiples of `unit`.
    #[must_use]
    pub const fn align_outward(self, unit: Bytes) -> Self {
        Self::between(self.start.align_down(unit), self.end().align_up(unit))
    }
}

impl fmt::Display for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start.0, self.len.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn alignment_goes_outward() {
        let range = FileRange::new(5000, 4000).align_outward(Bytes::kib(4));
        assert_eq!(range, FileRange::new(4096, 8192));
        assert_eq!(range.align_outward(Bytes::kib(4)), range);
    }

    proptest! {
        #[test]
        fn intersection_is_symmetric_and_inside_both(a in 0u64..100, b in 0u64..100, c in 0u64..100, d in 0u64..100) {
            let (x, y) = (FileRange::new(a, b), FileRange::new(c, d));
            let both = x.intersect(y);
            prop_assert_eq!(both, y.intersect(x));
            for byte in 0..200 {
                let inside = |r: FileRange| r.start.0 <= byte && byte < r.end().0;
                prop_assert_eq!(inside(both), inside(x) && inside(y));
            }
        }

        #[test]
        fn aligning_never_panics(start: u64, len: u64) {
            let aligned = FileRange::new(start, len).align_outward(Bytes::kib(4));
            prop_assert!(aligned.start.0.is_multiple_of(4096));
        }
    }
}
