//! What makes files old.

use std::fs;

use anyhow::Result;
use clap::ValueEnum;
use units::Bytes;

use super::{
    files::Files,
    life::{Life, Setting},
    machine::Machine,
    mail::Mail,
    pulls::Pulls,
};

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

    /// Begin it in the folder of this setting, which is made.
    pub(super) fn begin(self, setting: &Setting<'_>) -> Result<Box<dyn Life>> {
        fs::create_dir(setting.folder)?;
        Ok(match self {
            Self::Files => Box::new(Files::begin(setting)?),
            Self::Pulls => Box::new(Pulls::begin(setting)?),
            Self::Mail => Box::new(Mail::begin(setting)),
            Self::Machine => Box::new(Machine::begin(setting)?),
        })
    }
}
