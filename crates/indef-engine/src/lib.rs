//! The executor.

#![deny(unsafe_code)]

mod copier;

pub use copier::Copier;
