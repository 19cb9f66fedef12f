//! One run at a time on a file system.

use std::{collections::HashSet, path::PathBuf, slice, sync::Arc};

use indef_core::plan::FilePlan;
use indef_engine::{
    Cancel,
    claim::{Claim, ClaimError, Holder, holder},
};
use indef_fs::{FileSystemKey, Mounts, RootEntry, Roots};

use crate::{
    error::Error,
    note::{Note, Notes},
};

/// Receives the process to which a run yields.
pub type OnYield = Arc<dyn Fn(&Holder) + Send + Sync>;

/// Claim the file systems that this run will work on: another one there would move the same
/// files, and both write everything. A user's run ends in order when root's begins.
pub(super) fn claim(
    roots: &Roots,
    files: &[FilePlan],
    cancel: &Cancel,
    on_yield: Option<OnYield>,
    notes: &dyn Notes,
) -> Result<Option<Claim>, Error> {
    let found = file_systems(roots, files).into_iter();
    let places: Vec<_> = found.map(|of| (of.key, of.path)).collect();
    take(&places, cancel, on_yield, notes)
}

/// Claim these file systems, each with a path on it for messages. `None` where nothing can be claimed, which is noted.
///
/// # Errors
///
/// Another run works on one of them.
pub(crate) fn take(
    places: &[(FileSystemKey, PathBuf)],
    cancel: &Cancel,
    on_yield: Option<OnYield>,
    notes: &dyn Notes,
) -> Result<Option<Claim>, Error> {
    let mut claim = match Claim::take(places.iter().map(|(key, _)| key.clone())) {
        Ok(claim) => claim,
        Err(why @ ClaimError::Held(_)) => {
            let is_held = |key: &FileSystemKey| matches!(holder(slice::from_ref(key)), Ok(Some(_)));
            let place = { places.iter() }.find(|(key, _)| is_held(key));
            return Err(Error::Claimed {
                path: place.or(places.first()).map(|(_, path)| path.clone()),
                why,
            });
        }
        Err(error) => {
            notes.note(Note::Unclaimed(&error));
            return Ok(None);
        }
    };
    let cancel = cancel.clone();
    claim.watch(move |holder| {
        stop(&cancel, || {
            if let Some(on_yield) = on_yield {
                on_yield(holder);
            }
        });
    });
    Ok(Some(claim))
}

/// Stop a run, and then tell why: a terminal that takes nothing (Ctrl-S) holds up nobody. One that is being stopped already
/// does not stop for that.
fn stop(cancel: &Cancel, tell: impl FnOnce()) {
    let stops_anyway = cancel.is_cancelled();
    cancel.cancel();
    if !stops_anyway {
        tell();
    }
}

/// The file system of planned files.
pub(super) struct FileSystemOf {
    pub(super) key: FileSystemKey,
    /// A path on it, for messages.
    path: PathBuf,
    /// One of the planned files.
    pub(super) file: RootEntry,
}

/// The file that lies where one was planned, if there is one.
pub(super) fn find(roots: &Roots, plan: &FilePlan) -> Option<RootEntry> {
    let (root, below) = plan.place()?;
    let mounts = match plan.root_len {
        Some(_) => Mounts::Stay,
        None => Mounts::Cross,
    };
    let root = roots.get(root, mounts).ok()?;
    root.find(below).ok()
}

/// The file systems of the planned files.
pub(super) fn file_systems(roots: &Roots, files: &[FilePlan]) -> Vec<FileSystemOf> {
    let mut devices = HashSet::new();
    let mut found = Vec::new();
    for plan in files {
        if devices.contains(&plan.dev) {
            continue;
        }
        let Some((root, _)) = plan.place() else {
            continue;
        };
        // A file that is gone by now has no information; another one has.
        if let Some(file) = find(roots, plan)
            && file.id().dev == plan.dev
            && let Ok(key) = FileSystemKey::of(&file)
        {
            devices.insert(plan.dev);
            let path = match root.as_os_str().is_empty() {
                true => &plan.path,
                false => root,
            };
            found.push(FileSystemOf {
                key,
                path: path.to_owned(),
                file,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stops_before_it_says_why_and_not_for_two_reasons() {
        let cancel = Cancel::new();
        let mut told = 0;
        stop(&cancel, || {
            assert!(cancel.is_cancelled());
            told += 1;
        });
        // As after Ctrl-C.
        stop(&cancel, || told += 1);
        assert!(cancel.is_cancelled());
        assert_eq!(told, 1);
    }
}
