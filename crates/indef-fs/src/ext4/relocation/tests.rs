use std::path::Path;

use linux_abi::cache::{cachestat, start_writeback};
use scratch_fs::{FragmentOptions, ScratchFs, fill_pool, fragment, require};

use super::*;
use crate::{EngineOptions, FsError, NotTakenBack, cache::drop_clean, count_ranges, detect};

const LEN: Bytes = Bytes::mib(2);

/// A move that is taken back writes cached pages to the old blocks. What was reclaimed before is read from the new ones,
/// which could not be written.
#[test]
fn loop_what_was_reclaimed_before_it_is_taken_back_is_told_of() {
    let size = Bytes::mib(128);
    let Some(pool) = require(ScratchFs::builder("ext4", size * 2).build()) else {
        return;
    };
    let thin = ScratchFs::builder("ext4", size).folder(pool.path());
    let mut scratch = require(thin.build()).expect("there is ext4 here");
    let path = scratch.path().join("file");
    let options = FragmentOptions {
        size: LEN,
        piece: Bytes::kib(4),
        seed: 1,
    };
    fragment(&path, options).unwrap();
    let before = std::fs::read(&path).unwrap();
    fill_pool(&mut scratch, &pool, Bytes::ZERO).unwrap();
    for is_reclaimed in [false, true] {
        let error = move_in_vain(&path, is_reclaimed);
        let left = error.source.get_ref();
        let left = left.and_then(|error| error.downcast_ref::<NotTakenBack>());
        match is_reclaimed {
            false => assert!(left.is_none(), "{error}"),
            true => assert_eq!(left.unwrap().bytes, LEN, "{error}"),
        }
        scratch.remount().unwrap();
        let after = std::fs::read(&path).unwrap();
        assert_eq!(after == before, !is_reclaimed);
    }
}

fn move_in_vain(path: &Path, is_reclaimed: bool) -> FsError {
    let fs = detect(File::open(path).unwrap(), path).unwrap();
    let shared = Shared::new(&fs, &EngineOptions::default());
    let target = Target::open(path).unwrap();
    let whole = FileRange::new(0, LEN.get());
    let ranges = count_ranges(&target, &[whole]).unwrap();
    let mut relocation = Ext4Relocation::begin(&shared, &target, &ranges).unwrap();
    assert!(relocation.prepare().unwrap());
    let hold = shared.holds.take(&target, NAPS);
    let (mut moved, began) = (Moved::default(), Instant::now());
    relocation.advance(LEN, &hold, &mut moved).unwrap();
    assert_eq!(moved.relocated, LEN);
    while is_reclaimed && cachestat(&target.file, 0, 0).unwrap().nr_cache > 0 {
        start_writeback(&target.file, 0, 0).unwrap();
        drop_clean(&target.file, whole);
    }
    match relocation.commit(&mut moved, &hold, began) {
        Err(Refusal::Failed(error)) => error,
        other => panic!("{other:?}"),
    }
}
