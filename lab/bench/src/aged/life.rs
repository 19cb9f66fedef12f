//! The lives that file systems lead.

use std::{fs, path::Path};

use anyhow::Result;
use clap::ValueEnum;
use units::Bytes;

use super::{AgedArgs, files::Files, machine::Machine, mail::Mail, pulls::Pulls};

/// A life, day by day.
pub(super) trait Life {
    /// The next day.
    fn day(&mut self) -> Result<()>;
}

/// What makes files old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum State {
    /// Files of all sizes that come and go until their ages are those of people's disks (Geriatrix, ATC '18)
    Files,
    /// A working tree of git that follows a repository, with its objects ("Fated for Senescence?", FAST '17)
    Pulls,
    /// A mail store (Dovecot's mdbox)
    Mail,
    /// The thin image of a virtual disk, on whose ext4 SQLite commits small transactions
    Machine,
}

impl State {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Pulls => "git pulls",
            Self::Mail => "mail store",
            Self::Machine => "virtual machine",
        }
    }

    /// The size of the file system.
    pub(super) const fn volume(self) -> Bytes {
        match self {
            Self::Files | Self::Pulls | Self::Mail => Bytes::mib(512),
            Self::Machine => Bytes::mib(1536),
        }
    }

    /// Begin it in this folder, which is made.
    pub(super) fn begin(
        self,
        args: &AgedArgs,
        images: &Path,
        folder: &Path,
        seed: u64,
    ) -> Result<Box<dyn Life>> {
        fs::create_dir(folder)?;
        Ok(match self {
            Self::Files => Box::new(Files::begin(folder, args.days, seed)?),
            Self::Pulls => Box::new(Pulls::begin(args, images, folder)?),
            Self::Mail => Box::new(Mail::begin(folder, seed)?),
            Self::Machine => Box::new(Machine::begin(folder, seed)?),
        })
    }
}
