//! Newtypes for the quantities that cross indef's crate boundaries, and nothing else.
//!
//! A byte count, a place in a file and a place on a device are all `u64`; mixing them up moves the
//! wrong data. Here they are different types, and only the arithmetic that makes sense exists:
//! place + count = place, place − place = count. All of them are in bytes: blocks are those of one file
//! system or device, and stay beside the structure of the kernel or the wire that counts in them.
//!
//! People see and type binary sizes (`4 KiB`, `1.5GiB`); machines get plain numbers: every type
//! serialises as its bare integer.

#![forbid(unsafe_code)]

mod bytes;
mod nanos;
mod place;

pub use bytes::{Bytes, ParseBytesError};
pub use nanos::Nanos;
pub use place::{FileOffset, FileRange, PhysOffset, PhysRange};
