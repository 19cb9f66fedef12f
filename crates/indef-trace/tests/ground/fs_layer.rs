//! Layer fs, through the page cache: the accesses that reach the device, no more and no less.

use std::fs;

use indef_trace::collect::{Filter, Layer, TraceOptions};
use scratch_fs::{ScratchFs, require};

use crate::{
    actor::Actor,
    harness::{
        BLOCK, KIB, KINDS, MIB, Ranges, Seen, Watch, assert_once, bytes_read, device_read,
        forget_all, holey_file, name, options, pieces_file, plain_file, reads_at, scattered,
        scratch, scratch_file, undisturbed, writes_at,
    },
};

/// Watch the mount while `actor` takes these steps.
fn watched(fs: &scratch_fs::ScratchFs, actor: &mut Actor, steps: &str) -> Seen {
    let watch = Watch::start(&options(Layer::Fs, fs.path()));
    actor.acts(steps);
    let seen = watch.finish();
    assert_eq!(seen.lost, 0);
    seen
}

#[test]
fn loop_sequential_cold_then_cached() {
    undisturbed(|| {
        for kind in KINDS {
            let Some(fs) = scratch(kind) else { return };
            let file = fs.path().join("file");
            // Not a whole number of blocks.
            let size = 5 * MIB + 1234;
            let name = plain_file(&file, size);
            let mut actor = Actor::new();
            let cat = format!("run cat {name}");
            let cold = watched(&fs, &mut actor, &cat);
            assert_once(&cold.of(&file), 0, size.next_multiple_of(BLOCK));
            assert_eq!(cold.touched(), 1, "{kind}: {:?}", cold.paths());
            assert_eq!(cold.paths(), std::slice::from_ref(&file), "{kind}");
            // Somebody else on this machine may just have dropped all caches: the device tells.
            loop {
                let before = fs.device_bytes().unwrap();
                let cached = watched(&fs, &mut actor, &cat);
                if (fs.device_bytes().unwrap() - before).read == units::Bytes(0) {
                    assert_eq!(cached.touched(), 0, "{kind}: {:?}", cached.of(&file));
                    break;
                }
            }
        }
    });
}

#[test]
fn loop_random_without_read_ahead() {
    undisturbed(|| {
        for kind in KINDS {
            let Some((fs, file, name)) = scratch_file(kind, 4 * MIB) else {
                return;
            };
            let mut actor = Actor::new();
            actor.act(&format!("open f r {name}"));
            actor.act("random f");
            let mut offsets = scattered(4 * MIB, 16 * KIB, 60);
            let steps: Vec<String> = offsets
                .iter()
                .map(|at| format!("pread f {} 100", at + 4000))
                .collect();
            let seen = watched(&fs, &mut actor, &steps.join("\n"));
            // 100 bytes from byte 4000 of a block lie in two blocks.
            let expected: Ranges = reads_at(offsets.iter().map(|at| at + 4000), 100);
            assert_once_each_block(&seen.of(&file), &expected, kind);
            // Once more, with another one among them: only that is fetched. The kernel may have forgotten
            // some of the rest meanwhile: the device tells.
            let as_cached = (1..=5).any(|attempt| {
                let other = 4 * MIB - attempt * 8 * KIB;
                offsets.push(other);
                let steps: Vec<String> = offsets
                    .iter()
                    .map(|at| format!("pread f {} 100", at + 4000))
                    .collect();
                let before = fs.device_bytes().unwrap();
                let seen = watched(&fs, &mut actor, &steps.join("\n"));
                let read = (fs.device_bytes().unwrap() - before).read;
                let expected = reads_at([other + 4000], 100);
                let as_cached = read == units::Bytes(2 * BLOCK);
                if as_cached {
                    assert_once_each_block(&seen.of(&file), &expected, kind);
                }
                as_cached
            });
            assert!(as_cached, "{kind}: it is never cached");
        }
    });
}

/// The same blocks, each once, however they are cut into reads.
#[track_caller]
fn assert_once_each_block(seen: &Ranges, expected: &Ranges, what: &str) {
    let blocks = |ranges: &Ranges| -> Vec<u64> {
        let mut all: Vec<u64> = ranges
            .iter()
            .flat_map(|((start, len), counts)| {
                let one = (0..len / BLOCK).map(move |n| start + n * BLOCK);
                (0..counts.0).flat_map(move |_| one.clone())
            })
            .collect();
        all.sort_unstable();
        all
    };
    assert_eq!(blocks(seen), blocks(expected), "{what}: {seen:?}");
}

#[test]
fn loop_random_reads_tell_the_bytes_of_the_device() {
    undisturbed(|| {
        for kind in KINDS {
            let Some((fs, file, name)) = scratch_file(kind, 32 * MIB) else {
                return;
            };
            let mut actor = Actor::new();
            actor.act(&format!("open f r {name}"));
            // With read-ahead: windows meet pages that earlier ones left in the cache.
            let steps: Vec<String> = scattered(32 * MIB, 4 * KIB, 1500)
                .iter()
                .map(|at| format!("pread f {at} {}", 100 + at % (40 * KIB)))
                .collect();
            let before = device_read(&fs);
            let seen = watched(&fs, &mut actor, &steps.join("\n"));
            let read = device_read(&fs) - before;
            assert_eq!(bytes_read(&seen.of(&file)), read, "{kind}");
        }
    });
}

#[test]
fn loop_strided() {
    undisturbed(|| {
        for kind in KINDS {
            let Some((fs, file, name)) = scratch_file(kind, 8 * MIB) else {
                return;
            };
            let mut actor = Actor::new();
            actor.act(&format!("open f r {name}"));
            let offsets: Vec<u64> = (0..32).map(|n| n * 256 * KIB).collect();
            let steps: Vec<String> = offsets
                .iter()
                .map(|at| format!("pread f {at} 4096"))
                .collect();
            let seen = watched(&fs, &mut actor, &steps.join("\n"));
            let ranges = seen.of(&file);
            // Read-ahead may fetch more than was asked for, but each read is there, and no byte twice.
            let mut end = 0;
            for ((start, len), counts) in &ranges {
                assert!(*start >= end && *counts == (1, 0), "{kind}: {ranges:?}");
                end = start + len;
            }
            for at in offsets {
                let holds = |((start, len), _): (&(u64, u64), _)| *start <= at && at < start + len;
                assert!(ranges.iter().any(holds), "{kind}: {at} in {ranges:?}");
            }
        }
    });
}

#[test]
fn loop_holes_are_not_read() {
    undisturbed(|| {
        for kind in KINDS {
            let Some(fs) = scratch(kind) else { return };
            let file = fs.path().join("file");
            let name = holey_file(&file, MIB);
            let mut actor = Actor::new();
            let seen = watched(&fs, &mut actor, &format!("run cat {name}"));
            let ranges = seen.of(&file);
            let (before, behind): (Ranges, Ranges) =
                ranges.into_iter().partition(|((start, _), _)| *start < MIB);
            assert_once(&before, 0, MIB);
            assert_once(&behind, 2 * MIB, 3 * MIB);
        }
    });
}

/// Linux tells the start of requests since 6.5.
fn requests_are_told() -> bool {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = kernel.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 5)
}

#[test]
fn loop_requests_in_flight_are_counted() {
    undisturbed(|| {
        let Some(ext4) = scratch("ext4") else { return };
        let file = ext4.path().join("file");
        let name = plain_file(&file, 32 * MIB);
        let mut actor = Actor::new();
        let one = format!("dd if={name} of=/dev/null bs=128k iflag=direct status=none");
        let seen = watched(&ext4, &mut actor, &format!("run {one}"));
        assert!(seen.timed() > 0);
        let Some(alone) = seen.mean_ahead() else {
            assert!(!requests_are_told());
            return;
        };
        assert!(alone < 0.5, "{alone}");
        let script = ext4.path().join("several");
        fs::write(&script, format!("{one} &\n").repeat(8) + "wait\n").unwrap();
        let seen = watched(&ext4, &mut actor, &format!("run sh {}", script.display()));
        let together = seen.mean_ahead().expect("it is known of all");
        assert!(together > alone + 0.2, "{together} {alone}");
    });
}

/// Devices are told apart, however many there are.
#[test]
fn loop_requests_in_flight_of_many_devices() {
    const DEVICES: usize = 40;
    let small = || ScratchFs::builder("ext4", units::Bytes::mib(8)).build();
    let mut all = Vec::new();
    for _ in 0..DEVICES {
        let Some(fs) = require(small()) else { return };
        let file = fs.path().join("file");
        plain_file(&file, MIB);
        all.push((fs, file));
    }
    let watch = Watch::start(&TraceOptions {
        filter: Filter {
            paths: all.iter().map(|(fs, _)| fs.path().to_owned()).collect(),
            ..Filter::default()
        },
        ..options(Layer::Fs, all[0].0.path())
    });
    let mut actor = Actor::new();
    for (_, file) in &all {
        actor.act(&format!("open f rd {}", file.display()));
        actor.acts("pread f 0 4096\npread f 4096 4096");
    }
    let seen = watch.finish();
    assert_eq!(seen.touched(), DEVICES);
    // Times are taken within an allowance, which comes late on a busy machine.
    let (timed, devices) = (seen.timed(), DEVICES as u64);
    assert!((devices..=2 * devices).contains(&timed), "{timed}");
    // It is known of all of them, if the kernel tells at all.
    if requests_are_told() {
        let ahead = seen.mean_ahead().expect("it is known of all");
        assert!(ahead < 0.5, "{ahead}");
    }
}

/// --raw tells the last read of each task, too, with its process.
#[test]
fn loop_single_accesses_are_complete() {
    for kind in KINDS {
        let Some((fs, _, name)) = scratch_file(kind, 4 * MIB) else {
            return;
        };
        let mut actors: Vec<Actor> = (0..3).map(|_| Actor::new()).collect();
        for actor in &mut actors {
            actor.act(&format!("open f rd {name}"));
        }
        let watch = Watch::start(&TraceOptions {
            raw: true,
            ..options(Layer::Fs, fs.path())
        });
        let mut expected = Vec::new();
        for (nth, actor) in (0..).zip(&mut actors) {
            for at in 0..=nth {
                let at = (nth * 16 + at) * 16 * KIB;
                actor.act(&format!("pread f {at} 16384"));
                expected.push((actor.pid(), at));
            }
        }
        let seen = watch.finish();
        let mut told: Vec<_> = seen
            .accesses
            .iter()
            .map(|access| (access.pid, access.range.start.0))
            .collect();
        told.sort_unstable();
        expected.sort_unstable();
        assert_eq!(told, expected, "{kind}");
    }
}

#[test]
fn loop_requests_are_the_pieces() {
    undisturbed(|| {
        for kind in KINDS {
            let Some(mut fs) = scratch(kind) else { return };
            let file = fs.path().join("file");
            let name = pieces_file(&file, 4 * MIB, 4 * KIB);
            // So that the map of the file has to be read, too.
            forget_all(&mut fs);
            let mut actor = Actor::new();
            let seen = watched(&fs, &mut actor, &format!("run cat {name}"));
            assert_once(&seen.of(&file), 0, 4 * MIB);
            let requests = seen.requests_of(&file);
            for ((start, len), requests) in &requests {
                assert_eq!(*requests, len / (4 * KIB), "{kind}: {start}+{len}");
            }
            assert!(seen.timed() > 0, "{kind}");
            let whole = fs.path().join("whole");
            let name = plain_file(&whole, MIB);
            let seen = watched(&fs, &mut actor, &format!("run cat {name}"));
            for ((start, len), requests) in seen.requests_of(&whole) {
                assert!(requests <= 2, "{kind}: {start}+{len}: {requests}");
            }
        }
    });
}

#[test]
fn loop_mapped_files_are_read_once() {
    undisturbed(|| {
        for kind in KINDS {
            let Some((fs, file, name)) = scratch_file(kind, 2 * MIB) else {
                return;
            };
            let mut actor = Actor::new();
            actor.act(&format!("open f rw {name}"));
            actor.act("map f 2097152");
            let touches: Vec<String> = (0..512).map(|n| format!("touch f {}", n * BLOCK)).collect();
            let seen = watched(&fs, &mut actor, &touches.join("\n"));
            assert_once(&seen.of(&file), 0, 2 * MIB);
            actor.act("close f");

            let other = fs.path().join("other");
            actor.act(&format!("open g rw {}", plain_file(&other, 2 * MIB)));
            actor.acts("map g 2097152\nscattered g");
            let offsets = scattered(2 * MIB, 64 * KIB, 20);
            let touches: Vec<String> = offsets.iter().map(|at| format!("touch g {at}")).collect();
            let seen = watched(&fs, &mut actor, &touches.join("\n"));
            assert_eq!(seen.of(&other), reads_at(offsets, BLOCK), "{kind}");
        }
    });
}

#[test]
fn loop_what_the_kernel_copies() {
    undisturbed(|| {
        for kind in KINDS {
            let Some((fs, file, name)) = scratch_file(kind, 2 * MIB) else {
                return;
            };
            let mut actor = Actor::new();
            actor.act(&format!("open f r {name}"));
            actor.act("open null w /dev/null");
            let seen = watched(
                &fs,
                &mut actor,
                "sendfile f 0 null 1048576\nsplice f 1048576 65536",
            );
            let ranges = seen.of(&file);
            let end = ranges.keys().map(|(start, len)| start + len).max().unwrap();
            assert!(
                (MIB + 64 * KIB..=2 * MIB).contains(&end),
                "{kind}: {ranges:?}"
            );
            assert_once(&ranges, 0, end);
        }
    });
}

#[test]
fn loop_rings_through_the_cache() {
    undisturbed(|| {
        for kind in KINDS {
            let Some((fs, file, name)) = scratch_file(kind, 2 * MIB) else {
                return;
            };
            let mut actor = Actor::new();
            actor.act(&format!("open f r {name}"));
            actor.act("random f");
            let offsets = scattered(2 * MIB, 16 * KIB, 32);
            let words: Vec<String> = offsets.iter().map(ToString::to_string).collect();
            let step = format!("uring f read 4096 {}", words.join(" "));
            let seen = watched(&fs, &mut actor, &step);
            assert_eq!(seen.of(&file), reads_at(offsets, BLOCK), "{kind}");
        }
    });
}

#[test]
fn loop_writes_are_written_back_once() {
    undisturbed(|| {
        for kind in KINDS {
            let Some(fs) = scratch(kind) else { return };
            let file = fs.path().join("file");
            let mut actor = Actor::new();
            actor.act(&format!("open f cw {}", name(&file)));
            let seen = watched(
                &fs,
                &mut actor,
                "pwrite f 0 1048576\npwrite f 100 100\nfsync f\npwrite f 65536 4096\npwrite f 65600 5\nfsync f",
            );
            let mut blocks = [0u64; 256];
            for ((start, len), (reads, writes)) in seen.of(&file) {
                assert_eq!(reads, 0, "{kind}");
                for block in start / BLOCK..(start + len) / BLOCK {
                    blocks[block as usize] += writes;
                }
            }
            let expected: Vec<u64> = (0..256).map(|n| if n == 16 { 2 } else { 1 }).collect();
            assert_eq!(blocks[..], expected, "{kind}: {:?}", seen.of(&file));
        }
    });
}

#[test]
fn loop_appended_and_mapped_writes() {
    undisturbed(|| {
        for kind in KINDS {
            let Some(fs) = scratch(kind) else { return };
            let file = fs.path().join("file");
            let log = fs.path().join("log");
            let mut actor = Actor::new();
            actor.act(&format!("open m rw {}", plain_file(&file, MIB)));
            actor.act(&format!("open a cra {}", name(&log)));
            actor.acts("map m 1048576\nscattered m");
            let seen = watched(
                &fs,
                &mut actor,
                "write a 65536\nfsync a\nwrite a 65536\nfsync a\ndirty m 409600\nfsync m",
            );
            assert_eq!(seen.of(&log), writes_at([0, 65_536], 65_536), "{kind}");
            assert_eq!(
                seen.of(&file),
                [((409_600, BLOCK), (1, 1))].into(),
                "{kind}"
            );
        }
    });
}

#[test]
fn loop_a_tree_is_searched() {
    undisturbed(|| {
        for kind in KINDS {
            let Some(mut fs) = scratch(kind) else { return };
            let mut sizes = Vec::new();
            for folder in 0..5 {
                let folder = fs.path().join(format!("folder {folder}"));
                std::fs::create_dir(&folder).unwrap();
                for file in 0..20u64 {
                    // Too long to lie in the inode.
                    let size = 5000 + file * file * 1000;
                    let path = folder.join(format!("file {file}"));
                    let mut content = vec![0; size as usize];
                    scratch_fs::content(&mut content, size, units::FileOffset(0));
                    std::fs::write(&path, content).unwrap();
                    sizes.push((path, size));
                }
            }
            fs.sync().unwrap();
            forget_all(&mut fs);
            let mut actor = Actor::new();
            let root = name(fs.path());
            let seen = watched(
                &fs,
                &mut actor,
                &format!("run grep -ra such-a-thing {root}"),
            );
            for (path, size) in &sizes {
                assert_once(&seen.of(path), 0, size.next_multiple_of(BLOCK));
            }
            assert_eq!(seen.touched(), sizes.len(), "{kind}");
            assert_eq!(seen.paths().len(), sizes.len(), "{kind}");
        }
    });
}

#[test]
fn loop_the_end_of_a_file() {
    undisturbed(|| {
        for kind in KINDS {
            let Some((fs, file, name)) = scratch_file(kind, 3 * BLOCK + 100) else {
                return;
            };
            let mut actor = Actor::new();
            actor.act(&format!("open f r {name}"));
            actor.act("random f");
            let seen = watched(
                &fs,
                &mut actor,
                "pread f 12290 4096\npread f 16384 10\npread f 99999999 10",
            );
            assert_eq!(seen.of(&file), reads_at([3 * BLOCK], 100), "{kind}");
        }
    });
}
