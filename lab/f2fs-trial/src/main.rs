//! Tests the ioctl of `kernel/f2fs` in a guest: makes files whose every block is known, has them
//! moved, and examines blocks, content and answers.
//!
//! `f2fs-trial SUBJECT FOLDER …`; each subject is a module. It exits with 0 if everything was
//! right. It is also of use by hand: `f2fs-trial query FOLDER`, `f2fs-trial move FILE…`.
//!
//! It ignores: the behaviour of kernels without the patches.

#![forbid(unsafe_code)]

mod basics;
mod beside;
mod by_hand;
mod churn;
mod crash;
mod encrypted;
mod failing;
mod file;
mod finish;
mod given_back;
mod killed;
mod logs;
mod oracle;
mod refusals;
mod several;
mod space;

use std::{path::Path, process::ExitCode};

use anyhow::{Result, bail};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("f2fs-trial: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["query", folder] => by_hand::query(Path::new(folder)),
        ["move", files @ ..] if !files.is_empty() => by_hand::relocate(files),
        ["basics", folder, way] => basics::run(Path::new(folder), way),
        ["refusals", folder, elsewhere] => refusals::run(Path::new(folder), Path::new(elsewhere)),
        ["refused", cases @ ..] => refusals::refused(cases),
        ["read-only", folder] => refusals::read_only(Path::new(folder)),
        ["failing", folder, zoned, way] => {
            failing::run(Path::new(folder), Path::new(zoned), basics::way(way)?.1)
        }
        ["finish", folder, zoned, milliseconds] => {
            finish::run(Path::new(folder), Path::new(zoned), milliseconds.parse()?)
        }
        ["leave-free", folder, zoned, milliseconds] => {
            finish::leave_what_is_free(Path::new(folder), Path::new(zoned), milliseconds.parse()?)
        }
        ["encrypted", folder] => encrypted::run(Path::new(folder)),
        ["several", folder] => several::run(Path::new(folder)),
        ["logs", folder] => logs::run(Path::new(folder)),
        ["dirty-together", folder] => several::dirty(Path::new(folder)),
        ["unreadable", folder, asked] => several::unreadable(Path::new(folder), Path::new(asked)),
        ["given-back", folder, asked] => given_back::run(Path::new(folder), Path::new(asked)),
        ["beside", folder, seconds] => beside::run(Path::new(folder), seconds.parse()?),
        ["move-together", files @ ..] => several::relocate(files),
        ["killed-together", folder] => several::killed(Path::new(folder)),
        ["killed", folder, attempts] => killed::run(Path::new(folder), attempts.parse()?),
        ["space", folder, disk, zoned, how @ ("checkpointed" | "any")] => space::run(
            Path::new(folder),
            Path::new(disk),
            Path::new(zoned),
            *how == "any",
        ),
        ["prepare", folder] => crash::prepare(Path::new(folder)),
        ["migrate", folder, marks] => crash::migrate(Path::new(folder), Path::new(marks)),
        ["synced", folder, marks] => crash::synced(Path::new(folder), Path::new(marks)),
        ["checkpointed", folder, marks] => crash::checkpointed(Path::new(folder), Path::new(marks)),
        ["overwritten", folder, marks] => crash::overwritten(Path::new(folder), Path::new(marks)),
        ["synced-together", folder, marks] => {
            crash::synced_together(Path::new(folder), Path::new(marks))
        }
        ["after", folder, marks] => crash::after(Path::new(folder), marks),
        ["churn", folder, seconds] => churn::run(Path::new(folder), seconds.parse()?),
        _ => bail!("usage: f2fs-trial query FOLDER | move FILE… | SUBJECT FOLDER …"),
    }
}
