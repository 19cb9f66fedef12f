//! Notes of the pipeline as lines on stderr, and a progress line while it walks.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use indef_pipeline::{LeftOut, Note, chain, plan::is_fine};

use crate::{
    advice::Advice,
    output::{Console, Name, Progress, counted},
    refusal,
};

/// Shows notes to the user.
pub(crate) struct Teller<'a> {
    console: &'a Console,
    doing: &'static str,
    /// The progress line, from the beginning of the walk.
    progress: OnceLock<Progress>,
}

impl<'a> Teller<'a> {
    /// `doing` names the walk: "planning".
    pub(crate) fn new(console: &'a Console, doing: &'static str) -> Self {
        Self {
            console,
            doing,
            progress: OnceLock::new(),
        }
    }

    /// Show one note.
    pub(crate) fn tell(&self, note: Note<'_>) {
        match (note, self.progress.get()) {
            (Note::Walk, _) => {
                self.progress
                    .get_or_init(|| Progress::counting(self.console, self.doing));
            }
            (Note::File, Some(progress)) => progress.add(1),
            (note, Some(progress)) => progress.suspend(|| tell(self.console, note)),
            (note, None) => tell(self.console, note),
        }
    }

    /// End the progress line: the walk is over.
    pub(crate) fn finish(&self) {
        if let Some(progress) = self.progress.get() {
            progress.finish();
        }
    }
}

/// Show a note, where it has something to say.
pub(crate) fn tell(console: &Console, note: Note<'_>) {
    match note {
        Note::LeftOut { paths, why } => left_out(console, paths, why),
        Note::NoGeometry {
            path,
            why,
            asked_for,
        } => {
            let line = format!("{}: DoPF unknown: {why}", Name(path));
            if asked_for || !why.is_ordinary() {
                console.note(line);
            } else {
                console.detail(line);
            }
        }
        Note::NoWeights { why, probed } => {
            let used = match probed {
                true => "the times that a probe of the drive found",
                false => "the paper's weights",
            };
            console.note(format_args!("--weight measured: {why}; {used} are used"));
        }
        Note::Probed { path, device } => console.note(format_args!(
            "{}: reads are reckoned with the times that indef probe found of {} (unless \
             --device-times or --geometry is given)",
            Name(path),
            Name(device)
        )),
        Note::Emptying {
            part,
            number,
            of,
            used,
        } => console.note(format_args!("{} {number} of {of}: {used} to move", part.as_str())),
        Note::NothingToGain(why) => console.note(format_args!(
            "{why}; nothing is planned (--ignore-times plans all the same)"
        )),
        Note::NothingUnreachable { path, kind } => console.note(format_args!(
            "{}: on {kind}, where files hold no space that they do not reach; --reclaim is for Btrfs",
            Name(path)
        )),
        Note::HoldersNotAsked(why) => console.note(format_args!(
            "what snapshots and reflinks share is left out of this plan: {why}"
        )),
        Note::SharedAmongPaths { files } => console.note(format_args!(
            "the file system does not tell who shares: {} with what the given files share, and nothing where \
             others have the blocks, too",
            counted(
                files,
                "file is planned to move",
                "files are planned to move"
            )
        )),
        Note::Refused { path, refusal } => {
            refusal::tell(console, path, refusal);
        }
        Note::Untouched {
            plan,
            reason,
            named: true,
        } if !is_fine(reason) => console.note(format_args!(
            "{}: skipped: {}",
            Name(&plan.path),
            reason.advice()
        )),
        Note::Source(source) => {
            if let Some(why) = &source.why_not {
                console.detail(format_args!("not seen: {}: {why}", source.what));
            }
        }
        Note::HiddenLayer(layer) => console.note(hidden_layer(layer)),
        Note::Unclaimed(error) => {
            console.note(format_args!("{error}; another run is not kept off"));
        }
        Note::NotStored(error) => {
            let why = chain(error);
            console.note(format_args!("--resume will not be possible: {why}"));
        }
        Note::JournalFailed(error) => {
            let failed = refusal::failure(error);
            let then = match refusal::advice(&error.source) {
                "" => "indef run --resume continues".to_owned(),
                first => format!("{first}, then indef run --resume continues"),
            };
            console.error(
                format_args!("{failed}; stopped before anything more was moved"),
                &then,
            );
        }
        Note::StaysStored(error) => console.note(format_args!("{error}")),
        _ => {}
    }
}

/// Of a layer of an overlay.
pub(crate) fn hidden_layer(layer: &Path) -> String {
    format!(
        "not seen: {}, a layer of an overlay: it lies below another mount, or in a folder that is closed to this user; \
         mount it at another place as well, or run this as root",
        Name(layer)
    )
}

/// One line for all of these files, however many there are.
fn left_out(console: &Console, paths: &[PathBuf], why: LeftOut) {
    let (one, many) = match why {
        LeftOut::Replaced => (
            "replaced since it was profiled, its accesses are left out; profile again",
            "files of the profile were replaced since, their accesses are left out; profile again",
        ),
        LeftOut::Gone => (
            "in the profile, but no longer there; its accesses are left out",
            "files of the profile are no longer there; their accesses are left out",
        ),
    };
    match paths {
        [] => {}
        [path] => console.note(format_args!("{}: {one}", Name(path))),
        paths => {
            let count = paths.len();
            console.note(format_args!("{count} {many} (--verbose names them)"));
            for path in paths {
                console.detail(format_args!("{}: {one}", Name(path)));
            }
        }
    }
}
