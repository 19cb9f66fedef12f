//! How a repair ended, in one sentence.

use indef_engine::run::FileResult;
use indef_pipeline::watch::{End, Ending};

use crate::{
    advice::Advice,
    output::{Count, counted},
    refusal::failure,
};

/// The sentence.
pub(super) fn sentence(end: &End) -> String {
    match &end.ending {
        Ending::Repaired {
            before,
            after,
            file,
        } => repaired(end, *before, *after, file),
        Ending::Stopped => format!("stopped; {} of it have new blocks", end.written),
        Ending::NotMoved(file) => {
            let reason = file.reason.as_ref();
            reason.map_or_else(|| "no reason".into(), |reason| reason.advice().into_owned())
        }
        Ending::NotPlanned(reason) => reason.advice().into_owned(),
        Ending::NothingToDo => "nothing was to be done".into(),
        Ending::Gone => "gone, replaced, or not permitted to read; nothing was done".into(),
        Ending::Vanished => "the file cannot be opened any more".into(),
        Ending::Unmapped => "its extents cannot be mapped".into(),
        Ending::NoFilesystem(error) => failure(error),
        Ending::Claimed(held) => held.to_string(),
        Ending::NoKey(error) => error.to_string(),
        Ending::Panicked => {
            "the repair panicked; the contents are whole, please report this".into()
        }
    }
}

fn repaired(end: &End, before: u64, after: Option<u64>, file: &FileResult) -> String {
    let after = after.map_or_else(|| "?".to_owned(), |after| Count(after).to_string());
    let mut text = format!(
        "{}, {}: {} → {after} fragments; the file: {} → {}",
        counted(end.order.ranges.len() as u64, "range", "ranges"),
        file.bytes_relocated,
        Count(before),
        Count(file.extents_before),
        Count(file.extents_after),
    );
    if let Some(reason) = &file.reason {
        text += &format!(" (not all: {})", reason.advice());
    }
    text
}
