//! Accesses that find no room are counted: those seen and those lost are all that were made.

use std::{
    fs,
    time::{Duration, Instant},
};

use indef_trace::collect::{Layer, TraceOptions};

use scratch_fs::{ScratchFs, require};
use units::Bytes;

use crate::{
    actor::Actor,
    harness::{BLOCK, KINDS, MIB, Watch, name, options, plain_file, reads_at, scratch_file},
};

#[test]
fn loop_single_accesses_beyond_what_is_held() {
    for kind in KINDS {
        let Some((fs, _, name)) = scratch_file(kind, MIB) else {
            return;
        };
        let mut actor = Actor::new();
        actor.act(&format!("open f r {name}"));
        let raw = TraceOptions {
            raw: true,
            held: 20_000,
            ..options(Layer::Syscall, fs.path())
        };
        let watch = Watch::start(&raw);
        // Nobody drains it meanwhile.
        assert_eq!(actor.act("sweep f 50000"), 50_000);
        let seen = watch.finish();
        assert!(seen.lost > 10_000, "{kind}: {}", seen.lost);
        assert_eq!(seen.accesses.len() as u64 + seen.lost, 50_000, "{kind}");
        for (at, access) in seen.accesses.iter().enumerate() {
            assert_eq!(access.range.start.0, at as u64);
            assert_eq!(
                (access.pid, access.write, access.direct),
                (actor.pid(), false, false)
            );
        }
    }
}

#[test]
fn loop_ranges_beyond_what_is_held() {
    for kind in KINDS {
        let Some((fs, file, name)) = scratch_file(kind, MIB) else {
            return;
        };
        let mut actor = Actor::new();
        actor.act(&format!("open f r {name}"));
        let few = TraceOptions {
            held: 200_000,
            ..options(Layer::Syscall, fs.path())
        };
        let watch = Watch::start(&few);
        assert_eq!(actor.act("sweep f 700000"), 700_000);
        let seen = watch.finish();
        assert!(seen.lost > 400_000, "{kind}: {}", seen.lost);
        assert_eq!(seen.reads_of(&file) + seen.lost, 700_000, "{kind}");
    }
}

#[test]
fn loop_nothing_is_lost_while_it_is_emptied() {
    for kind in KINDS {
        let Some((fs, file, name)) = scratch_file(kind, MIB) else {
            return;
        };
        let mut actors: Vec<Actor> = (0..2).map(|_| Actor::new()).collect();
        for actor in &mut actors {
            actor.act(&format!("open f r {name}"));
        }
        let mut watch = Watch::start(&options(Layer::Syscall, fs.path()));
        let began = Instant::now();
        let mut rounds = 0;
        // For some time, so that slots are emptied now and then while they are counted in.
        while began.elapsed() < Duration::from_secs(2) {
            rounds += 1;
            std::thread::scope(|scope| {
                for actor in &mut actors {
                    // The ring holds the accesses of both in a round, even if nobody empties it.
                    scope.spawn(|| assert_eq!(actor.act("sweep f 20480"), 20_480));
                }
                watch.drain();
            });
            watch.drain();
        }
        let seen = watch.finish();
        assert_eq!(seen.lost, 0, "{kind}");
        let expected: Vec<_> = reads_at((0..5).map(|n| n * BLOCK), BLOCK)
            .into_keys()
            .map(|place| (place, (2 * rounds * BLOCK, 0)))
            .collect();
        let told: Vec<_> = seen.of(&file).into_iter().collect();
        assert_eq!(told, expected, "{kind}");
    }
}

#[test]
fn loop_what_is_lost_at_full_speed_is_counted() {
    for kind in KINDS {
        let Some((fs, file, name)) = scratch_file(kind, MIB) else {
            return;
        };
        let mut actors: Vec<Actor> = (0..2).map(|_| Actor::new()).collect();
        let watch = Watch::start(&options(Layer::Syscall, fs.path()));
        std::thread::scope(|scope| {
            for actor in &mut actors {
                let open = format!("open f r {name}");
                scope.spawn(move || {
                    actor.act(&open);
                    for _ in 0..10 {
                        assert_eq!(actor.act("sweep f 40960"), 40_960);
                    }
                });
            }
        });
        let seen = watch.finish();
        assert_eq!(seen.reads_of(&file) + seen.lost, 2 * 10 * 40_960, "{kind}");
    }
}

/// A file system, and a folder `tree` of it with so many files of one byte.
fn many_files(kind: &str, size: Bytes, files: usize) -> Option<(ScratchFs, String)> {
    // The others make inodes as they need them.
    let inodes = (kind == "ext4").then(|| ["-N".to_owned(), (2 * files).to_string()]);
    let builder = ScratchFs::builder(kind, size).mkfs_args(inodes.into_iter().flatten());
    let fs = require(builder.build())?;
    let tree = fs.path().join("tree");
    for number in 0..files {
        let folder = tree.join((number / 1000).to_string());
        if number % 1000 == 0 {
            fs::create_dir_all(&folder).unwrap();
        }
        // A hole: it is read, but takes no space.
        let file = fs::File::create(folder.join(number.to_string())).unwrap();
        file.set_len(1).unwrap();
    }
    let tree = name(&tree);
    Some((fs, tree))
}

/// The step that reads all of these files.
fn reads_all(tree: &str) -> String {
    format!("run find {tree} -type f -exec cat {{}} +")
}

/// More files than the kernel remembers at the same time, while one task reads on in another.
#[test]
fn loop_more_files_than_the_kernel_remembers() {
    const FILES: usize = 150_000;
    let Some((fs, tree)) = many_files("ext4", Bytes::gib(1), FILES) else {
        return;
    };
    let single = fs.path().join("single");
    let mut reader = Actor::new();
    reader.act(&format!("open f r {}", plain_file(&single, MIB)));
    let mut actor = Actor::new();
    let mut watch = Watch::start(&options(Layer::Syscall, fs.path()));
    for round in 1..=2 {
        reader.act("pread f 0 4096");
        assert_eq!(actor.act(&reads_all(&tree)), 0);
        // The first time nobody drains it meanwhile.
        if round == 1 {
            watch.drain();
        }
    }
    reader.act("pread f 0 4096");
    let seen = watch.finish();
    assert_eq!(seen.lost, 0);
    assert_eq!(seen.of(&single), [((0, BLOCK), (3, 0))].into());
    assert_eq!(seen.touched(), FILES + 1);
    let twice = seen
        .all()
        .filter(|(_, ranges)| **ranges == [((0, BLOCK), (2, 0))].into());
    assert_eq!(twice.count(), FILES);
}

/// Single accesses that arrive while the files before them are looked up belong to files that are not
/// known yet; each is told, or counted as lost.
#[test]
fn loop_no_access_is_lost_while_files_are_learned() {
    const FILES: usize = 20_000;
    for kind in KINDS {
        let Some((fs, tree)) = many_files(kind, Bytes::mib(512), FILES) else {
            return;
        };
        let raw = TraceOptions {
            raw: true,
            ..options(Layer::Syscall, fs.path())
        };
        let mut watch = Watch::start(&raw);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| Actor::new().act(&reads_all(&tree)));
            while !reading.is_finished() {
                watch.drain();
            }
            assert_eq!(reading.join().unwrap(), 0);
        });
        let seen = watch.finish();
        let (told, lost) = (seen.accesses.len(), seen.lost as usize);
        // On a busy machine the ring can be full; that is counted.
        assert!(
            told <= FILES && told + lost >= FILES,
            "{kind}: {told} told, {lost} lost"
        );
    }
}
