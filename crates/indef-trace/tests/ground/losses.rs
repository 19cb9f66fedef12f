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
    harness::{BLOCK, MIB, Watch, name, options, plain_file, reads_at, scratch},
};

#[test]
fn loop_single_accesses_beyond_what_is_held() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    let name = plain_file(&file, MIB);
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
    assert!(seen.lost > 10_000, "{}", seen.lost);
    assert_eq!(seen.accesses.len() as u64 + seen.lost, 50_000);
    for (at, access) in seen.accesses.iter().enumerate() {
        assert_eq!(access.range.start.0, at as u64);
        assert_eq!(
            (access.pid, access.write, access.direct),
            (actor.pid(), false, false)
        );
    }
}

#[test]
fn loop_ranges_beyond_what_is_held() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    let name = plain_file(&file, MIB);
    let mut actor = Actor::new();
    actor.act(&format!("open f r {name}"));
    let few = TraceOptions {
        held: 200_000,
        ..options(Layer::Syscall, fs.path())
    };
    let watch = Watch::start(&few);
    assert_eq!(actor.act("sweep f 700000"), 700_000);
    let seen = watch.finish();
    assert!(seen.lost > 400_000, "{}", seen.lost);
    assert_eq!(seen.reads_of(&file) + seen.lost, 700_000);
}

#[test]
fn loop_nothing_is_lost_while_it_is_emptied() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    let name = plain_file(&file, MIB);
    let mut actors: Vec<Actor> = (0..2).map(|_| Actor::new()).collect();
    for actor in &mut actors {
        actor.act(&format!("open f r {name}"));
    }
    let mut watch = Watch::start(&options(Layer::Syscall, fs.path()));
    let began = Instant::now();
    let mut rounds = 0;
    // For some seconds, so that slots are emptied now and then while they are counted in.
    while began.elapsed() < Duration::from_secs(4) {
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
    assert_eq!(seen.lost, 0);
    let expected: Vec<_> = reads_at((0..5).map(|n| n * BLOCK), BLOCK)
        .into_keys()
        .map(|place| (place, (2 * rounds * BLOCK, 0)))
        .collect();
    assert_eq!(seen.of(&file).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn loop_what_is_lost_at_full_speed_is_counted() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    let name = plain_file(&file, MIB);
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
    assert_eq!(seen.reads_of(&file) + seen.lost, 2 * 10 * 40_960);
}

/// More files than the kernel remembers at the same time, while one task reads on in another.
#[test]
fn loop_more_files_than_the_kernel_remembers() {
    const FILES: u32 = 150_000;
    let builder = ScratchFs::builder("ext4", Bytes::gib(1));
    let Some(fs) = require(builder.mkfs_args(["-N", "200000"]).build()) else {
        return;
    };
    let tree = fs.path().join("tree");
    for folder in 0..150 {
        let folder = tree.join(folder.to_string());
        fs::create_dir_all(&folder).unwrap();
        for file in 0..FILES / 150 {
            // A hole: it is read, but takes no space.
            let file = fs::File::create(folder.join(file.to_string())).unwrap();
            file.set_len(1).unwrap();
        }
    }
    let single = fs.path().join("single");
    let mut reader = Actor::new();
    reader.act(&format!("open f r {}", plain_file(&single, MIB)));
    let mut actor = Actor::new();
    let mut watch = Watch::start(&options(Layer::Syscall, fs.path()));
    let tree = name(&tree);
    let all = format!("run find {tree} -type f -exec cat {{}} +");
    for round in 1..=2 {
        reader.act("pread f 0 4096");
        assert_eq!(actor.act(&all), 0);
        // The first time nobody drains it meanwhile.
        if round == 1 {
            watch.drain();
        }
    }
    reader.act("pread f 0 4096");
    let seen = watch.finish();
    assert_eq!(seen.lost, 0);
    assert_eq!(seen.of(&single), [((0, BLOCK), (3, 0))].into());
    assert_eq!(seen.touched(), FILES as usize + 1);
    let twice = seen
        .all()
        .filter(|(_, ranges)| **ranges == [((0, BLOCK), (2, 0))].into());
    assert_eq!(twice.count(), FILES as usize);
}

/// Single accesses that arrive while the files before them are looked up belong to files that are not
/// known yet; each is told, or counted as lost.
#[test]
fn loop_no_access_is_lost_while_files_are_learned() {
    const FILES: usize = 20_000;
    let builder = ScratchFs::builder("ext4", Bytes::mib(512));
    let Some(fs) = require(builder.mkfs_args(["-N", "40000"]).build()) else {
        return;
    };
    let tree = fs.path().join("tree");
    for folder in 0..100 {
        let folder = tree.join(folder.to_string());
        fs::create_dir_all(&folder).unwrap();
        for file in 0..FILES / 100 {
            let file = fs::File::create(folder.join(file.to_string())).unwrap();
            file.set_len(1).unwrap();
        }
    }
    let raw = TraceOptions {
        raw: true,
        ..options(Layer::Syscall, fs.path())
    };
    let mut watch = Watch::start(&raw);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let all = format!("run find {} -type f -exec cat {{}} +", name(&tree));
            Actor::new().act(&all)
        });
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
        "{told} told, {lost} lost"
    );
}
