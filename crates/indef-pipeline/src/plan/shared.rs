//! Files that others share: which of their ranges can move together with these, and at what price.
//!
//! The walk plans them as if all could. Afterwards each is looked at as a run will, one after the other in the order in
//! which runs move files, since what one file costs may be in the price of another. So a plan is the same every time,
//! and costs what a run may write.

use std::{collections::BTreeMap, mem, path::PathBuf, sync::Arc};

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, Layout},
    plan::{Chunk, Decision, FilePlan, SharedWindow, share},
};
use indef_engine::Cancel;
use indef_fs::{EngineKind, Mapper, Mounts, Refusal, Roots, Target, TargetId, map};
use units::FileRange;

use super::{decide::untouched_reason, named::Found};
use crate::{
    claimed::is_free,
    engines::Engines,
    note::{Note, Notes},
};

/// A file that is left out of a plan; with the failure, if there was one.
pub(super) type LeftOut = (FilePlan, Option<Refusal>);

/// By which files are looked at.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) engines: &'a Engines,
    /// The files that share blocks, where the file system does not tell.
    pub(super) sharers: &'a Found,
}

/// Look at those of the files below `paths` that others share. Returns those of which nothing is left to move, which are
/// taken out.
pub(super) fn look(
    files: &mut Vec<FilePlan>,
    paths: &[PathBuf],
    roots: &Roots,
    known: Known<'_>,
    cancel: &Cancel,
    notes: &dyn Notes,
) -> Vec<LeftOut> {
    let is_shared = |file: &FilePlan| {
        let engine = file.engine.as_deref();
        let kind = engine.and_then(|name| name.parse::<EngineKind>().ok());
        kind.is_some_and(EngineKind::keeps_sharing) && file.migrating().next().is_some()
    };
    let mut order: Vec<usize> = (0..files.len())
        .filter(|index| is_shared(&files[*index]))
        .collect();
    if order.is_empty() {
        return Vec::new();
    }
    let is_free = is_free(paths);
    if let Err(why) = &is_free {
        notes.note(Note::HoldersNotAsked(why));
    }
    let gain = |index: &usize| files[*index].gain_per_byte();
    order.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    let (mut left, mut named) = (BTreeMap::new(), 0);
    for index in order {
        if cancel.is_cancelled() {
            break;
        }
        let file = &mut files[index];
        let looked = match is_free {
            Ok(()) => look_at(file, roots, known, cancel),
            Err(_) => leave_shared(file, roots, known.engines, SkipReason::Shared),
        };
        let failed = match looked {
            Ok(()) => None,
            Err(Refusal::Skip(reason)) => {
                for chunk in file.chunks.iter_mut().filter(|chunk| chunk.migrates()) {
                    chunk.decision = Decision::Skip(reason);
                }
                None
            }
            Err(failed) => Some(failed),
        };
        if failed.is_some() || untouched_reason(&file.chunks).is_some() {
            left.insert(index, failed);
        } else {
            named += u64::from(file.named.as_ref().is_some_and(|named| !named.is_empty()));
        }
    }
    if named > 0 {
        notes.note(Note::SharedAmongPaths { files: named });
    }
    let mut out = Vec::new();
    for (index, file) in mem::take(files).into_iter().enumerate() {
        match left.remove(&index) {
            None => files.push(file),
            Some(failed) => out.push((file, failed)),
        }
    }
    out
}

fn look_at(
    file: &mut FilePlan,
    roots: &Roots,
    known: Known<'_>,
    cancel: &Cancel,
) -> Result<(), Refusal> {
    let engines = known.engines;
    let Some(engine) = engines.sharing(file.dev) else {
        return Ok(());
    };
    let mut target = open(file, roots)?;
    if engine.needs_names() {
        match known.sharers.with(target.id, &layout_of(&target)?) {
            Ok(named) => target.named = Some(named),
            Err(reason) => {
                // Whoever moves it takes nothing that is shared.
                file.named = Some(Arc::default());
                return leave_shared(file, roots, engines, reason);
            }
        }
        file.named.clone_from(&target.named);
    }
    match engine.admit(&target) {
        Ok(()) => {
            let windows = engine.foresee(&target, &file.runs(), &|| cancel.is_cancelled())?;
            share(&mut file.chunks, &windows);
            Ok(())
        }
        // The other one takes it.
        Err(Refusal::Skip(SkipReason::Unsupported | SkipReason::NoEngine)) => {
            leave_shared(file, roots, engines, SkipReason::Shared)
        }
        Err(refusal) => Err(refusal),
    }
}

fn open(file: &FilePlan, roots: &Roots) -> Result<Target, Refusal> {
    let (root, below) = file.place().ok_or(SkipReason::Changed)?;
    let root = roots.get(root, Mounts::Stay)?;
    let id = TargetId {
        dev: file.dev,
        inode: file.inode,
    };
    Target::look_beneath(&root, below, Some((id, file.born)))
}

/// Leave the file to the engine that moves what nobody shares. The rest stays for a reason.
fn leave_shared(
    file: &mut FilePlan,
    roots: &Roots,
    engines: &Engines,
    reason: SkipReason,
) -> Result<(), Refusal> {
    let target = open(file, roots)?;
    file.engine = engines.main(file.dev).map(|kind| kind.name().into());
    let window = without_shared(file, &target, reason)?;
    share(&mut file.chunks, &[window]);
    Ok(())
}

/// For an engine that leaves shared ranges alone: the chunks of which nobody shares anything.
fn without_shared(
    file: &FilePlan,
    target: &Target,
    reason: SkipReason,
) -> Result<SharedWindow, Refusal> {
    let layout = layout_of(target)?;
    let is_shared = |chunk: &&Chunk| {
        let mut extents = layout.clipped(chunk.range);
        extents.any(|extent| extent.flags.contains(ExtentFlags::SHARED))
    };
    let (shared, alone): (Vec<&Chunk>, Vec<&Chunk>) = file.migrating().partition(is_shared);
    Ok(SharedWindow {
        asked: file.runs(),
        alone: alone.iter().map(|chunk| chunk.range).collect(),
        staying: { shared.iter() }
            .map(|chunk| (chunk.range, reason))
            .collect(),
        ..SharedWindow::default()
    })
}

fn layout_of(target: &Target) -> Result<Layout, Refusal> {
    let (whole, path) = (FileRange::new(0, u64::MAX), &target.path);
    map(&target.file, path, whole, false, &mut Mapper::default())
}
