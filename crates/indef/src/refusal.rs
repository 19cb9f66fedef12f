//! Refusals and errors of the libraries as one line for a person: the subject, the event, and the
//! remedy.

use std::{fs, io, os::unix::fs::FileTypeExt, path::Path};

use anyhow::anyhow;
use indef_core::SkipReason;
use indef_fs::{FsError, NoEmptier, Refusal};
use indef_pipeline::{CannotCompact, Error};

use crate::{
    advice::Advice,
    output::{Console, Name},
};

/// What whoever knows mkfs and fsck may have meant.
const A_DEVICE: &str = "it is a device; give the directory where its file system is mounted";

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|is| is.file_type().is_block_device())
}

/// Report a refused path. A skip is a note, a failure an error. Returns the reason if it was a
/// skip.
pub(crate) fn tell(console: &Console, path: &Path, refusal: &Refusal) -> Option<SkipReason> {
    match refusal {
        Refusal::Skip(reason) => {
            let why = match reason {
                SkipReason::NotRegular | SkipReason::SymbolicLink if is_device(path) => {
                    A_DEVICE.into()
                }
                reason => reason.advice(),
            };
            console.note(format_args!("{}: skipped: {why}", Name(path)));
            Some(*reason)
        }
        Refusal::Failed(error) => {
            console.error(failure(error), advice(&error.source));
            None
        }
    }
}

/// Convert an error of a stage of the pipeline, and add the remedy.
pub(crate) fn explain(error: Error) -> anyhow::Error {
    match error {
        Error::Open { path, source } => unusable(&path, &source),
        Error::Write { path, what, source } => {
            anyhow::Error::new(source).context(format!("{}: cannot write {what}", Name(&path)))
        }
        Error::Profile { path, source } => anyhow!("{}: {source}", Name(&path)),
        Error::Plan { path, source } => anyhow!("{}: {source}", Name(&path)),
        Error::Claimed {
            path: Some(path),
            why,
        } => anyhow!("{}: {why}", Name(&path)),
        Error::NoStore { path } => anyhow!(
            "{}: there is something else than a profile store; name another file, or import it \
             (indef profile import)",
            Name(&path)
        ),
        Error::IsStore { path } => anyhow!(
            "{}: there is a profile store; --raw writes lines, so name another file",
            Name(&path)
        ),
        Error::Rescued { path, why } => anyhow!(
            "{why}. What was not yet in it is kept in {0}; add it with: indef profile import PROFILE {0}",
            Name(&path)
        ),
        Error::NotRescued { why, source } => {
            anyhow!("{why}. It could not be kept elsewhere either: {source}")
        }
        Error::UnreachableUntold { path } => anyhow!(
            "{}: only root may read which space of Btrfs no file reaches; run --reclaim as root",
            Name(&path)
        ),
        Error::ReclaimNeedsKernel { path } => anyhow!(
            "{}: --reclaim needs Linux 6.17 or newer: kernels before leave out parts that they are asked to rewrite, and \
             nothing would come free",
            Name(&path)
        ),
        // That of /dev is meant by nobody.
        Error::CannotCompact {
            path,
            why: CannotCompact::Kind(_),
            ..
        } if is_device(&path) => anyhow!("{}: {A_DEVICE}", Name(&path)),
        Error::CannotCompact { path, why, .. } => {
            anyhow!("{}: {}", Name(&path), cannot_compact(&why))
        }
        Error::NothingStopped => {
            anyhow!("no run was stopped with work left: give a PATH or --plan")
        }
        error => error.into(),
    }
}

/// Why free space cannot be made whole, and what can be done.
fn cannot_compact(why: &CannotCompact) -> String {
    match why {
        CannotCompact::Kind(kind) => {
            format!("indef cannot make free space of {kind} whole; it can on ext4, XFS, Btrfs and F2FS")
        }
        CannotCompact::Parts(NoEmptier::Unknown) => "its data is stored in a way that is newer than this program, which cannot \
             tell which chunks lie side by side; btrfs balance start -dusage=50 PATH empties those that are half used"
            .into(),
        CannotCompact::Parts(NoEmptier::Mixed) => "its chunks have data and metadata (mkfs.btrfs --mixed), and \
             indef does not know whether metadata finds a place elsewhere; btrfs balance start PATH empties all of them"
            .into(),
        CannotCompact::Parts(NoEmptier::ByItself) => {
            "it is on a device with zones, of which the kernel empties chunks by itself; there is nothing to do".into()
        }
        CannotCompact::Parts(NoEmptier::Untold) => "the kernel does not tell how its free space lies: Btrfs needs the free space \
             tree (mount once with space_cache=v2), F2FS /proc/fs/f2fs"
            .into(),
        CannotCompact::NotByFile => "Btrfs and F2FS empty parts of the whole file system, whoever has what lies there: --exclude \
             and --engine do not go with that; leave them out"
            .into(),
        CannotCompact::Busy => "the kernel does one thing at a time there, and is at another: a balance, perhaps a paused one, or a \
             device that is added, removed or resized; see `btrfs balance status`, and run again"
            .into(),
        CannotCompact::Ended => "somebody has paused or cancelled the balance that emptied a chunk, and it was given up; what was \
             moved stays where it is, run again to go on"
            .into(),
        CannotCompact::NotRoot => {
            "only root may see the space of all files, and move them out of the way; run as root".into()
        }
        CannotCompact::Engine {
            engine,
            kind,
            others,
        } => {
            let others: Vec<&str> = others.iter().map(|engine| engine.name()).collect();
            format!(
                "--engine {engine} moves nothing out of the way on {kind}; leave --engine out, or give {}",
                others.join(" or ")
            )
        }
        CannotCompact::Refused(reason) => {
            format!("nothing can be moved out of the way there: {}", reason.advice())
        }
        CannotCompact::Full => "it is full: there is no free space to make whole; delete files first".into(),
        CannotCompact::WantsMore {
            wanted,
            free,
            size,
            most,
            min_free_pct,
        } => {
            let there = match wanted > size {
                true => format!("the file system has ({size}, of which {free} are free)"),
                false => format!("the {free} that are free"),
            };
            // As it can be typed, and no more than there is.
            let possible = match most.get() >> 20 {
                0 => "nothing".to_owned(),
                mib => format!("at most {mib}MiB"),
            };
            format!(
                "--want {wanted} is more than {there}; {possible} can become one free run now, since --min-free keeps \
                 {min_free_pct} % of the file system free: want less, or delete files first"
            )
        }
        CannotCompact::Space(error) => format!("cannot look at its space: {}", plain(error)),
        CannotCompact::Unwritten(error) => {
            format!("data could not be written back: {}", plain(error))
        }
        CannotCompact::NotEmptied { part, error } => {
            format!("a {} could not be emptied: {}", part.as_str(), plain(error))
        }
        why => why.to_string(),
    }
}

/// The error for a given path that cannot be used, with the remedy.
pub(crate) fn unusable(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("{}: {}", Name(path), with_remedy(plain(error), error))
}

/// An error with its causes as one line for a person: where the last one is of the operating system, without its number,
/// and with the remedy. A cause that the error before it has told already is not told again.
pub(crate) fn line(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if told.ends_with(&text) {
            told.truncate(told.len() - text.len());
        } else if !told.is_empty() {
            told += ": ";
        }
        match cause.downcast_ref::<io::Error>() {
            Some(last) if cause.source().is_none() => {
                return with_remedy(told + &plain(last), last);
            }
            _ => told += &text,
        }
    }
    told
}

fn with_remedy(told: String, error: &io::Error) -> String {
    match advice(error) {
        "" => told,
        remedy => format!("{told}: {remedy}"),
    }
}

/// The failure, without advice.
pub(crate) fn failure(error: &FsError) -> String {
    let place = error
        .offset
        .map_or_else(String::new, |offset| format!(" at byte {offset}"));
    match error.source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if error.offset.is_none() => {
            format!("{}: {}", Name(&error.path), plain(&error.source))
        }
        _ => format!(
            "{}: cannot {}{place}: {}",
            Name(&error.path),
            error.operation,
            plain(&error.source)
        ),
    }
}

/// An operating system error without its number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

/// Advice about an operating system error.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::NotFound | Kind::NotADirectory => "check the path",
        Kind::PermissionDenied => "try as root, or give a path of your own",
        Kind::InvalidFilename => "the path is too long; change to a directory nearer to it",
        Kind::ReadOnlyFilesystem => "mount it for writing first",
        Kind::StorageFull => "make room first",
        _ => match rustix::io::Errno::from_io_error(error) {
            Some(rustix::io::Errno::LOOP) => "its symbolic links lead in a circle",
            Some(rustix::io::Errno::IO) => "the device reports an error; check it",
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                "too many open files; use fewer --jobs"
            }
            _ => "",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cause_is_told_with_its_remedy() {
        let full = || io::Error::from_raw_os_error(28);
        let error = anyhow::Error::new(full()).context("a: cannot write");
        assert_eq!(
            line(&error),
            "a: cannot write: no space left on device: make room first"
        );
        assert_eq!(
            line(&full().into()),
            "no space left on device: make room first"
        );
        // As the crate tempfile has it, with a name that nobody knows.
        let told = "No such file or directory (os error 2) at path \"/no/.tmp\"";
        let error = io::Error::new(io::ErrorKind::NotFound, told);
        let error = anyhow::Error::new(error);
        assert_eq!(
            line(&error.context("/no/a")),
            "/no/a: no such file or directory: check the path"
        );
        let nested = io::Error::other("a (b)");
        assert_eq!(line(&anyhow!(nested).context("c")), "c: a (b)");
        assert_eq!(line(&anyhow!("d").context("c")), "c: d");
        let error = FsError {
            path: "/file".into(),
            operation: "open",
            offset: None,
            source: full(),
        };
        assert_eq!(line(&error.into()).matches("no space left").count(), 1);
    }

    #[test]
    fn errors_name_the_path_and_say_what_to_do() {
        let error = FsError {
            path: "/no\nsuch".into(),
            operation: "open",
            offset: None,
            source: io::Error::from_raw_os_error(2),
        };
        assert_eq!(failure(&error), "/no\\nsuch: no such file or directory");
        assert_eq!(advice(&error.source), "check the path");
        let error = FsError {
            path: "/file".into(),
            operation: "map extents",
            offset: Some(units::FileOffset(7)),
            source: io::Error::from_raw_os_error(5),
        };
        assert_eq!(
            failure(&error),
            "/file: cannot map extents at byte 7: input/output error"
        );
        assert!(advice(&error.source).contains("device"));
    }
}
