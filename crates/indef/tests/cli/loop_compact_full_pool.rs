//! `indef compact` and `indef run` on a thin volume whose pool is full: what the file system has free, the device refuses.

use std::fs;

use scratch_fs::{ScratchFs, fill_pool, require};
use units::Bytes;

use crate::{
    common::{Run, hashes, indef_with_state, make_several},
    loop_compact::{self as files, compact, number},
    loop_compact_chunks as chunks,
};

/// What the error says.
const FULL: &str = "the device has no space left";

/// A pool for a volume of this size, and what its own file system takes.
fn pool(size: Bytes) -> Option<ScratchFs> {
    require(ScratchFs::builder("ext4", size + Bytes::mib(128)).build())
}

/// The run ends after its first round, and says why, of each file that has failed and of the file system.
fn loses_nothing(kind: &str) {
    let Some(pool) = pool(files::VOLUME) else {
        return;
    };
    let builder = files::builder(kind).folder(pool.path());
    let Some((mut scratch, paths)) = files::aged(builder) else {
        return;
    };
    // Reading changes access times, the first time.
    let bytes = files::contents(&scratch);
    let before = files::facts(&paths);
    let filler = fill_pool(&mut scratch, &pool, Bytes::ZERO).unwrap();
    let ran = compact(&["--want", "16MiB"], scratch.path());
    files::are_whole(&scratch, &bytes);
    assert_eq!(ran.status, 1, "{ran:?}");
    let done = ran.json();
    assert_eq!(done["ended"], "failed", "{}", ran.err);
    let error = done["error"].as_str().unwrap();
    assert!(error.contains(FULL), "{error}");
    assert!(!error.contains("look at its space"), "{error}");
    let failed = number(&done, "files_failed");
    let told = ran.err.matches(FULL).count() as u64;
    assert!(
        failed > 0 && told == failed + 1,
        "{failed} failed, {told} told"
    );
    // XFS repeats what it could not write of its own.
    fs::remove_file(filler).unwrap();
    pool.sync().unwrap();
    scratch.remount().unwrap();
    files::unchanged(&before, &paths);
    files::are_whole(&scratch, &bytes);
    let ran = compact(&["--want", "16MiB"], scratch.path());
    assert_eq!(ran.json()["ended"], "reached", "{}", ran.err);
    files::are_whole(&scratch, &bytes);
    scratch.fsck().unwrap();
}

#[test]
fn loop_a_full_pool_of_ext4_is_told() {
    loses_nothing("ext4");
}

#[test]
fn loop_a_full_pool_of_xfs_is_told() {
    loses_nothing("xfs");
}

#[test]
fn loop_a_full_pool_of_btrfs_is_told() {
    let Some(pool) = pool(chunks::VOLUME) else {
        return;
    };
    let builder = ScratchFs::builder("btrfs", chunks::VOLUME).folder(pool.path());
    let Some(mut scratch) = chunks::aged_as(builder, chunks::VOLUME) else {
        return;
    };
    let place = scratch.path().join("files");
    let (bytes, extents) = (chunks::contents(&place), chunks::extents(&place));
    let filler = fill_pool(&mut scratch, &pool, Bytes::ZERO).unwrap();
    let ran = compact(&["--want", "64MiB"], scratch.path());
    assert!(chunks::contents(&place) == bytes);
    assert_eq!(ran.status, 1, "{ran:?}");
    let done = ran.json();
    assert_eq!(done["ended"], "failed", "{}", ran.err);
    let error = done["error"].as_str().unwrap();
    assert!(
        error.contains("a chunk could not be emptied") && error.contains(FULL),
        "{error}"
    );
    fs::remove_file(filler).unwrap();
    pool.sync().unwrap();
    scratch.remount().unwrap();
    assert!(chunks::contents(&place) == bytes);
    assert!(chunks::extents(&place) <= extents);
    let ran = compact(&["--want", "64MiB"], scratch.path());
    assert_eq!(ran.json()["ended"], "reached", "{}", ran.err);
    assert!(chunks::contents(&place) == bytes);
    scratch.fsck().unwrap();
}

/// A run ends with the first file, and goes on when there is room again.
#[test]
fn loop_a_run_on_a_full_pool_ends_with_the_first_file() {
    const FILES: usize = 30;
    let Some(pool) = pool(files::VOLUME) else {
        return;
    };
    let builder = files::builder("ext4").folder(pool.path());
    let Some(mut scratch) = require(builder.build()) else {
        return;
    };
    make_several(scratch.path(), FILES, Bytes::kib(256), Bytes::kib(16));
    let bytes = hashes(scratch.path());
    let filler = fill_pool(&mut scratch, &pool, Bytes::ZERO).unwrap();
    let state = tempfile::tempdir().unwrap();
    let indef = || indef_with_state(state.path());
    let ran = indef()
        .args(["run", "--json", "--jobs", "1"])
        .arg(scratch.path())
        .ran();
    assert_eq!(hashes(scratch.path()), bytes);
    assert_eq!(ran.status, 1, "{ran:?}");
    let done = ran.json();
    assert_eq!(done["stopped"], "device-full", "{done}");
    assert_eq!(done["totals"]["files_failed"], 1, "{}", ran.err);
    assert_eq!(ran.err.matches(FULL).count(), 1, "{}", ran.err);
    assert!(
        ran.err.contains("nothing more is moved there"),
        "{}",
        ran.err
    );
    fs::remove_file(filler).unwrap();
    pool.sync().unwrap();
    let ran = indef().args(["run", "--json", "--resume"]).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let moved = &ran.json()["totals"]["files_moved"];
    assert!(
        moved
            .as_u64()
            .is_some_and(|moved| moved >= FILES as u64 - 1),
        "{ran:?}"
    );
    assert_eq!(hashes(scratch.path()), bytes);
    scratch.fsck().unwrap();
}
