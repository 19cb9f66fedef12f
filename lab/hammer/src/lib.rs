//! A hammer for defragmenters.
//!
//! Actors do everything that changes the content or the mapping of files while a mover works beside
//! them; the power is cut again and again; and an oracle says whether anything is there that cannot
//! be. What the hammer rests on:
//!
//! - **Blocks say what they are** ([`Stamp`]): file, block, version; every byte follows from these.
//! - **The model knows what is allowed** (`model`): for each block the values that a power cut may
//!   leave: the one known to be durable and each newer one. It accepts nothing else.
//! - **A cut is a copy of the device at an instant.** The volumes lie in image files of an outer XFS,
//!   and a reflink of the image is atomic: a state that a power cut leaves on a device without a
//!   volatile cache. Copies are examined after the round, so they do not slow the actors.
//! - **Operations follow from the seed alone** (`script`), their timing does not.
//! - **A round in which nothing was moved is void**, and said to be.
//!
//! It knows indef as a program that it runs, and nothing of its insides. It ignores volatile caches
//! of devices (flashd's replay has them) and file systems that this kernel lacks.

#![forbid(unsafe_code)]

mod model;
mod rng;
mod stamp;

pub use stamp::Stamp;
