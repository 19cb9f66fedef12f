//! The place in which the demo works: a file system of its own, or a folder in a directory of
//! the user's.

use std::{env, fs::File, path::Path};

use anyhow::{Result, anyhow, bail};
use indef_core::SkipReason;
use indef_fs::{EngineOptions, Filesystem, FsKind, Refusal, detect, relocator};
use loop_fs::{ScratchError, ScratchFs};
use tempfile::TempDir;
use units::Bytes;

use crate::{
    advice::Advice,
    args::{DemoArgs, DemoFs},
    output::{Console, Name},
};

/// The advantages of running as root.
const WITH_ROOT: &str = "with root it makes a file system of its own, counts the reads of its device, and checks it with fsck";

/// The place; removed when dropped.
pub(super) enum DemoPlace {
    /// A file system on a loop file.
    Own(ScratchFs),
    /// A folder in the user's directory, and the kind of its file system.
    Folder(TempDir, FsKind),
}

impl DemoPlace {
    /// Make the requested place; without root (or another requirement), a folder.
    pub(super) fn make(args: &DemoArgs, console: &Console) -> Result<Self> {
        if let Some(dir) = &args.dir {
            let (place, reason) =
                folder(dir, args.size()).map_err(|why| anyhow!("{}: {why}", Name(dir)))?;
            if let Some(reason) = reason {
                tell_unmovable(console, &place, reason);
            }
            return Ok(place);
        }
        let kind = args.fs.unwrap_or(DemoFs::Ext4);
        // Four times the data: aged files, the data between them, room to move, and what the file system
        // itself needs.
        let size = Bytes(args.size().get().saturating_mul(4).max(Bytes::gib(1).get()));
        console.note(format_args!(
            "making a file system of its own: {}, {size}",
            kind.name()
        ));
        match ScratchFs::builder(kind.name(), size).build() {
            Ok(scratch) => {
                let file = File::open(scratch.path())?;
                let fs = detect(&file, scratch.path())?;
                // Before minutes go into files that nothing can move.
                if let Some(reason) =
                    refused(&fs).map_err(|why| anyhow!("{}: {why}", kind.name()))?
                {
                    bail!(
                        "{}: nothing can be moved on it here: {}; another one with --fs, or a directory of yours with --dir",
                        kind.name(),
                        reason.advice()
                    );
                }
                Ok(Self::Own(scratch))
            }
            Err(error @ ScratchError::Unavailable { .. }) if args.fs.is_none() => {
                console.note(format_args!("{error}"));
                console.note("working in a folder of yours instead");
                Self::somewhere(args.size(), console)
            }
            Err(error @ ScratchError::Unavailable { .. }) => {
                bail!("{error}: try as root, or use --dir with a directory of yours")
            }
            Err(error) => bail!("{error}"),
        }
    }

    /// The first directory in which an engine can work; failing that, one in which at least the
    /// rest can be shown.
    fn somewhere(size: Bytes, console: &Console) -> Result<Self> {
        let candidates = [
            env::current_dir().ok(),
            env::home_dir(),
            Some(env::temp_dir()),
            Some("/var/tmp".into()),
        ];
        let mut second_best = None;
        let mut refusals = Vec::new();
        for dir in candidates.into_iter().flatten() {
            match folder(&dir, size) {
                Ok((place, None)) => return Ok(place),
                Ok((place, Some(reason))) => second_best = second_best.or(Some((place, reason))),
                Err(why) => refusals.push(format!("{}: {why}", Name(&dir))),
            }
        }
        match second_best {
            Some((place, reason)) => {
                tell_unmovable(console, &place, reason);
                Ok(place)
            }
            None => bail!(
                "no directory to work in ({}): give one with --dir",
                refusals.join("; ")
            ),
        }
    }

    /// Its root directory.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Own(scratch) => scratch.path(),
            Self::Folder(dir, _) => dir.path(),
        }
    }

    /// Its file system.
    pub(super) fn kind(&self) -> FsKind {
        match self {
            Self::Own(scratch) => match scratch.kind() {
                "xfs" => FsKind::Xfs,
                "btrfs" => FsKind::Btrfs,
                _ => FsKind::Ext4,
            },
            Self::Folder(_, kind) => *kind,
        }
    }

    /// Reads that its device has completed, where these can be distinguished from the reads of
    /// other programs.
    pub(super) fn device_reads(&self) -> Option<u64> {
        let Self::Own(scratch) = self else {
            return None;
        };
        let name = Path::new(scratch.device()).file_name()?;
        let statistics = Path::new("/sys/block").join(name).join("stat");
        std::fs::read_to_string(statistics)
            .ok()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    }

    /// Whether its own checker finds it clean; `None` where the checker cannot be run, or
    /// somebody else has the file system mounted.
    pub(super) fn check(&mut self, console: &Console) -> Option<bool> {
        let Self::Own(scratch) = self else {
            return None;
        };
        match scratch.fsck() {
            Ok(()) => Some(true),
            Err(ScratchError::Unavailable { .. }) => None,
            Err(error @ ScratchError::Busy { .. }) => {
                console.note(format_args!(
                    "not checked: {error}; that is no sign of damage, run the demo again"
                ));
                None
            }
            Err(error) => {
                console.error(format_args!("fsck: {error}"), "please report it");
                Some(false)
            }
        }
    }

    /// A remark about the place for the user.
    pub(super) fn remark(&self) -> &'static str {
        match self {
            Self::Own(_) => "",
            Self::Folder(..) => WITH_ROOT,
        }
    }
}

/// Make a folder in that directory; also return the reason if nothing can be moved there.
fn folder(dir: &Path, size: Bytes) -> Result<(DemoPlace, Option<SkipReason>), String> {
    let made = tempfile::Builder::new()
        .prefix("indef-demo-")
        .tempdir_in(dir)
        .map_err(|error| crate::refusal::plain(&error))?;
    let file = File::open(made.path()).map_err(|error| crate::refusal::plain(&error))?;
    let fs = detect(&file, made.path()).map_err(|error| error.to_string())?;
    if fs.engines().is_empty() {
        return Err(format!(
            "{} has no engine; it takes ext4, XFS or Btrfs",
            fs.kind
        ));
    }
    if fs.free.get() / 3 < size.get() {
        return Err(format!("only {} are free; use a smaller --size", fs.free));
    }
    let reason = refused(&fs)?;
    Ok((DemoPlace::Folder(made, fs.kind), reason))
}

/// The reason if none of its engines can move anything on this file system.
fn refused(fs: &Filesystem) -> Result<Option<SkipReason>, String> {
    let mut reason = None;
    for kind in fs.engines() {
        match relocator(kind, fs, &EngineOptions::default()) {
            Ok(_) => return Ok(None),
            Err(Refusal::Skip(refused)) => reason = reason.or(Some(refused)),
            Err(Refusal::Failed(error)) => return Err(error.to_string()),
        }
    }
    Ok(reason.or(Some(SkipReason::NoEngine)))
}

fn tell_unmovable(console: &Console, place: &DemoPlace, reason: SkipReason) {
    console.note(format_args!(
        "{}: nothing can be moved there: {}",
        Name(place.path()),
        reason.advice()
    ));
}
