//! A store that takes nothing for a while.

use std::io::Write;

use scratch_fs::{ScratchFs, require};
use units::Bytes;

use super::*;

fn keep(folder: &Path, is_patient: bool) -> Keep {
    Keep {
        path: folder.join("store"),
        raw: false,
        command: String::new(),
        store: StoreOptions::default(),
        is_patient,
    }
}

fn key(inode: u64) -> FileKey {
    FileKey {
        dev: 1,
        inode,
        generation: 3,
        subvolume: 0,
    }
}

fn drained() -> Drained {
    Drained {
        tallies: vec![Tally {
            file: key(2),
            range: FileRange::new(0, 4096),
            reads: 7,
            writes: 0,
            observed: Observed::default(),
        }],
        ..Drained::default()
    }
}

/// Write until nothing more fits.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [64 << 10, 4096, 512] {
        let mut fits = || {
            let written = file.write_all(&vec![1; size]);
            written.and_then(|()| file.sync_all()).is_ok()
        };
        while fits() {}
    }
}

#[test]
fn loop_a_patient_trace_begins_on_a_full_disk_and_stores_at_its_end() {
    let Some(fs) = require(ScratchFs::builder("ext4", Bytes::mib(16)).build()) else {
        return;
    };
    let filler = fs.path().join("filler");
    fill(&filler);
    // Somebody who waits is told at once.
    let refused = ToStore::open(&keep(fs.path(), false), Layer::Fs);
    let full = |error: &Error| matches!(error, Error::Store(error) if error.may_pass());
    assert!(refused.err().is_some_and(|error| full(&error)));

    let mut store = ToStore::open(&keep(fs.path(), true), Layer::Fs).unwrap();
    let began = store.began;
    assert!(store.add(drained()).is_none(), "it is not yet due");
    // Due twice, told once.
    let due = Instant::now().checked_sub(EVERY).unwrap();
    store.written = due;
    assert!(store.add(drained()).is_some_and(|error| error.may_pass()));
    store.written = due;
    assert!(store.add(drained()).is_none());

    let mut tries = 0;
    let mut again = || {
        tries += 1;
        if tries == 2 {
            std::fs::remove_file(&filler).unwrap();
        }
        tries < 5
    };
    store.finish(0, &mut again).unwrap();
    assert_eq!(tries, 2);
    let sessions = Store::open(&fs.path().join("store")).unwrap().sessions();
    let [session] = &sessions.unwrap()[..] else {
        panic!("one session");
    };
    assert_eq!(session.reads, 21);
    assert_eq!(session.began, began);
    assert!(session.ended.is_some());
}

#[test]
fn files_in_memory_and_files_that_are_left_behind_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = ToStore::open(&keep(folder.path(), true), Layer::Fs).unwrap();
    let traced = |inode| TracedFile {
        key: key(inode),
        fs: indef_trace::FsId::default(),
        path: None,
    };
    for part in 0..=10 {
        let first = part * TOO_MANY as u64 / 10;
        store.add(Drained {
            files: (first..first + TOO_MANY as u64 / 10).map(traced).collect(),
            ..Drained::default()
        });
    }
    assert_eq!(store.files.len(), TOO_MANY);

    store.add(drained());
    for _ in 0..MANY_RESCUED {
        store.rescue(folder.path()).unwrap();
    }
    let error = store.rescue(folder.path()).unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
    // Whoever traces by hand is not there every hour.
    store.keep.is_patient = false;
    store.rescue(folder.path()).unwrap();
}
