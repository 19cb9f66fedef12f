use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    sync::atomic::Ordering,
};

use indef_fs::RangeCopier;
use proptest::prelude::*;
use units::FileRange;

use super::{
    Copier,
    pieces::{CopyPiece, CopyPieces},
};

/// Both ways of copying.
fn copiers(depth: u32) -> [Copier; 2] {
    [Copier::new(depth), Copier::without_ring(depth)]
}

fn file() -> File {
    tempfile::tempfile().unwrap()
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64)
        .map(|i| ((i / 8 + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (i % 8 * 8)) as u8)
        .collect()
}

fn filled(length: usize, seed: u64) -> File {
    let file = file();
    file.write_all_at(&bytes(length, seed), 0).unwrap();
    file
}

fn contents(file: &File) -> Vec<u8> {
    let mut all = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut all, 0).unwrap();
    all
}

#[test]
fn io_uring_is_used_where_it_can_be() {
    let copier = Copier::new(4);
    let (from, to) = (filled(1000, 1), file());
    copier.copy(&from, &to, &[FileRange::new(0, 1000)]).unwrap();
    if copier.refused.load(Ordering::Relaxed) {
        eprintln!("skipped: this machine has no io_uring; only the threads were tested");
    } else {
        assert_eq!(copier.idle.lock().unwrap().len(), 1, "the ring is kept");
        copier.copy(&from, &to, &[FileRange::new(0, 1000)]).unwrap();
        assert_eq!(copier.idle.lock().unwrap().len(), 1, "and used again");
    }
}

#[test]
fn only_the_ranges_are_copied() {
    let length = 3 << 20;
    for copier in copiers(8) {
        let (from, to) = (filled(length, 1), filled(length, 2));
        let ranges = [
            FileRange::new(0, 4096),
            FileRange::new(8192, 1 << 20),
            FileRange::new(2 << 20, 700_001),
        ];
        copier.copy(&from, &to, &ranges).unwrap();
        let (source, mut expected) = (bytes(length, 1), bytes(length, 2));
        for range in ranges {
            let range = range.start.get() as usize..range.end().get() as usize;
            expected[range.clone()].copy_from_slice(&source[range]);
        }
        assert!(contents(&to) == expected);
    }
}

#[test]
fn beyond_the_end_of_the_source_are_zeros() {
    for copier in copiers(3) {
        let (from, to) = (filled(300_000, 1), filled(600_000, 2));
        copier
            .copy(&from, &to, &[FileRange::new(4096, 499_712)])
            .unwrap();
        let mut expected = bytes(600_000, 2);
        expected[4096..503_808].fill(0);
        expected[4096..300_000].copy_from_slice(&bytes(300_000, 1)[4096..]);
        assert!(contents(&to) == expected);
    }
}

#[test]
fn direct_io_with_an_odd_size_works() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (directory.path().join("a"), directory.path().join("b"));
    std::fs::write(&a, bytes(1_234_567, 3)).unwrap();
    File::create(&b).unwrap();
    let direct = |path| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
            .open(path)
    };
    let (Ok(from), Ok(to)) = (direct(&a), direct(&b)) else {
        eprintln!("skipped: no direct I/O on the file system of temporary files");
        return;
    };
    for copier in copiers(16) {
        to.set_len(0).unwrap();
        copier
            .copy(&from, &to, &[FileRange::new(0, 1_236_992)])
            .unwrap();
        to.set_len(1_234_567).unwrap();
        assert!(std::fs::read(&b).unwrap() == bytes(1_234_567, 3));
    }
}

#[test]
fn the_first_error_comes_back_and_the_copier_stays_usable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let write_only = File::create(&path).unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    for copier in copiers(8) {
        let ranges = [FileRange::new(0, 4 << 20)];
        let from = filled(4 << 20, 1);
        let error = copier.copy(&write_only, &file(), &ranges).unwrap_err();
        assert_eq!(
            error.raw_os_error(),
            Some(rustix::io::Errno::BADF.raw_os_error())
        );
        let error = copier.copy(&from, &full, &ranges).unwrap_err();
        assert_eq!(
            error.raw_os_error(),
            Some(rustix::io::Errno::NOSPC.raw_os_error())
        );
        let to = file();
        copier.copy(&from, &to, &ranges).unwrap();
        assert!(contents(&to) == contents(&from));
    }
}

#[test]
fn several_workers_copy_at_once() {
    for copier in copiers(4) {
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let copier = &copier;
                scope.spawn(move || {
                    let (from, to) = (filled(2_000_000, seed), file());
                    for _ in 0..5 {
                        copier
                            .copy(&from, &to, &[FileRange::new(0, 2_000_000)])
                            .unwrap();
                    }
                    assert!(contents(&to) == contents(&from));
                });
            }
        });
    }
}

proptest! {
    #[test]
    fn pieces_cover_the_ranges_and_nothing_else(
        ranges in prop::collection::vec((0u64..10_000, 0u64..10_000), 0..5),
        piece in 1usize..5000,
    ) {
        let ranges: Vec<_> = ranges.into_iter().map(|(s, l)| FileRange::new(s, l)).collect();
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for CopyPiece { offset, length } in CopyPieces::new(&ranges, piece) {
            prop_assert!(length > 0 && length <= piece);
            match expected.last_mut() {
                Some((start, len)) if *start + *len == offset => *len += length as u64,
                _ => expected.push((offset, length as u64)),
            }
        }
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for range in ranges.iter().filter(|r| !r.is_empty()) {
            match joined.last_mut() {
                Some((start, len)) if *start + *len == range.start.get() => *len += range.len.get(),
                _ => joined.push((range.start.get(), range.len.get())),
            }
        }
        prop_assert_eq!(expected, joined);
    }
}
