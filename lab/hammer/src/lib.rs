//! A hammer for defragmenters.
//!
//! Actors do everything that changes the content or the mapping of files while a mover works beside
//! them; the power is cut again and again; and an oracle reports every state that is not allowed. Its
//! principles:
//!
//! - **Blocks identify themselves** ([`Stamp`]): file, block, version; every byte follows from these.
//! - **The model has the allowed values** (`model`): for each block the values that a power cut may
//!   leave, which are the one known to be durable and each newer one. It accepts nothing else.
//! - **A cut is the device at an instant** (`medium`): an image, cloned, or a mark in the recording of a
//!   software SSD with a volatile cache, from which several states are made. They are examined after the
//!   round, so they do not slow the actors.
//! - **Operations follow from the seed alone** (`script`), their timing does not.
//! - **A round in which nothing was moved is void**, and reported so.
//!
//! The hammer knows indef only as a program that it runs. Volumes that this kernel lacks are hammered in a
//! guest of the lab, by the same program.

#![forbid(unsafe_code)]

mod actor;
mod age;
mod checker;
mod director;
mod disk;
mod examine;
mod fray;
mod front;
mod lock;
mod medium;
mod model;
mod mover;
mod program;
mod round;
mod script;
mod shared;
mod shrink;
mod stamp;
mod volume;

use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use anyhow::Result;
use scratch_fs::ScratchError;

pub use medium::{Attach, Beginning, MediumKind, serve_medium};
pub use mover::Mover;
pub use round::{Options, Round};
pub use script::Mood;
pub use stamp::Stamp;
pub use volume::{VOLUMES, Volume};

/// Rounds on one machine.
#[derive(Debug)]
pub struct Hammer {
    host: disk::Host,
    options: Options,
}

impl Hammer {
    /// Prepare rounds: media lie below `folder`; `tools` has newer tools for XFS; `program` runs
    /// [`serve_medium`] when it is called as `PROGRAM medium FOLDER fuse|nvme` and with a [`Beginning`].
    ///
    /// # Errors
    ///
    /// The outer file system could not be made.
    pub fn new(
        folder: &Path,
        tools: Option<PathBuf>,
        program: PathBuf,
        options: Options,
    ) -> Result<Self, ScratchError> {
        let host = disk::Host::new(folder, tools, program)?;
        Ok(Self { host, options })
    }

    /// Run the round of this seed.
    ///
    /// # Errors
    ///
    /// The round could not be run; its findings are in its result.
    pub fn round(&self, volume: &'static Volume, seed: u64) -> Result<Round> {
        let script = self.script(volume, seed);
        round::run(&self.host, volume, seed, &script, &self.options)
    }

    fn script(&self, volume: &Volume, seed: u64) -> script::Script {
        script::Script::new(volume, seed, self.options.states, self.options.mood)
    }

    /// Leave out steps of a round with violations as long as it still has some, in at most `tries`
    /// rounds. Returns the steps that are left, and the violations.
    ///
    /// # Errors
    ///
    /// As [`Self::round`].
    pub fn shrink(
        &self,
        volume: &'static Volume,
        seed: u64,
        tries: u32,
    ) -> Result<(Vec<String>, Vec<String>)> {
        let script = self.script(volume, seed);
        let run = |part: &script::Script| {
            if self.options.signal.load(Ordering::Relaxed) != 0 {
                return Ok(Vec::new());
            }
            let round = round::run(&self.host, volume, seed, part, &self.options)?;
            Ok(round.violations)
        };
        shrink::shrink(&script, tries, run)
    }
}
