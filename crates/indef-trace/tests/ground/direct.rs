//! Direct I/O: around the page cache, so both layers see the same.

use indef_trace::collect::Layer;

use crate::{
    actor::Actor,
    harness::{
        BLOCK, KIB, KINDS, MIB, Watch, bytes_read, device_read, forget, forget_all, holey_file,
        joined, options, pieces_file, reads_at, scattered, scratch, scratch_file, undisturbed,
        writes_at,
    },
};

#[test]
fn loop_direct_reads_and_writes_are_exact() {
    for kind in KINDS {
        for layer in [Layer::Fs, Layer::Syscall] {
            let Some((fs, file, name)) = scratch_file(kind, 4 * MIB) else {
                return;
            };
            let mut actor = Actor::new();
            actor.act(&format!("open d rwd {name}"));
            let mut watch = Watch::start(&options(layer, fs.path()));
            let random = scattered(4 * MIB, 16 * KIB, 100);
            for at in &random {
                actor.act(&format!("pread d {at} 16384"));
                // In the middle of it, as in a long trace.
                if at % (1024 * KIB) == 0 {
                    watch.drain();
                }
            }
            for _ in 0..32 {
                actor.act("read d 131072");
            }
            let rewritten = scattered(4 * MIB, 8 * KIB, 40);
            for at in &rewritten {
                actor.act(&format!("pwrite d {at} 8192"));
            }
            // To the end, and beyond it.
            actor.act("pread d 4190208 65536");
            actor.act("pread d 4194304 65536");
            let words: Vec<String> = random.iter().take(50).map(ToString::to_string).collect();
            let words = words.join(" ");
            for how in ["read", "readv", "fixed", "buffers", "async"] {
                assert_eq!(
                    actor.act(&format!("uring d {how} 4096 {words}")),
                    50 * BLOCK
                );
            }
            actor.act(&format!("uring d write 4096 {words}"));
            let seen = watch.finish();
            let fifty = || random.iter().copied().take(50);
            let expected = joined([
                reads_at(random.iter().copied(), 16 * KIB),
                reads_at((0..32).map(|n| n * 128 * KIB), 128 * KIB),
                writes_at(rewritten.iter().copied(), 8 * KIB),
                reads_at([4_190_208], 4096),
                joined((0..5).map(|_| reads_at(fifty(), BLOCK))),
                writes_at(fifty(), BLOCK),
            ]);
            assert_eq!(seen.of(&file), expected, "{kind}, {layer:?}");
            assert_eq!((seen.touched(), seen.lost), (1, 0), "{kind}, {layer:?}");
        }
    }
}

#[test]
fn loop_direct_requests_are_the_pieces() {
    for kind in KINDS {
        let Some(mut fs) = scratch(kind) else { return };
        let file = fs.path().join("file");
        let name = pieces_file(&file, 8 * MIB, 4 * KIB);
        // The map of the file has to be read, too: that is not what the file's reads are.
        forget_all(&mut fs);
        let mut actor = Actor::new();
        actor.act(&format!("open d rd {name}"));
        let watch = Watch::start(&options(Layer::Fs, fs.path()));
        let offsets = scattered(8 * MIB, 128 * KIB, 64);
        for at in &offsets {
            actor.act(&format!("pread d {at} 131072"));
        }
        let seen = watch.finish();
        assert_eq!(seen.of(&file), reads_at(offsets, 128 * KIB), "{kind}");
        for ((start, _), requests) in seen.requests_of(&file) {
            assert_eq!(requests, 32, "{kind}: {start}");
        }
    }
}

#[test]
fn loop_direct_holes_are_not_read() {
    for kind in KINDS {
        let Some(mut fs) = scratch(kind) else { return };
        let file = fs.path().join("file");
        let name = holey_file(&file, MIB);
        forget_all(&mut fs);
        let mut actor = Actor::new();
        actor.act(&format!("open d rd {name}"));
        let watch = Watch::start(&options(Layer::Fs, fs.path()));
        for at in (0..3 * MIB).step_by(64 * KIB as usize) {
            assert_eq!(actor.act(&format!("pread d {at} 65536")), 64 * KIB);
        }
        let seen = watch.finish();
        let data = (0..16).chain(32..48).map(|n| n * 64 * KIB);
        assert_eq!(seen.of(&file), reads_at(data, 64 * KIB), "{kind}");
    }
}

/// Btrfs stops in front of a page of the buffer that was never touched, faults the rest in and goes on:
/// that is one read still. Where not even the first page was, it reads through the cache.
#[test]
fn loop_direct_reads_into_untouched_memory() {
    undisturbed(|| {
        for kind in KINDS {
            let Some((fs, file, name)) = scratch_file(kind, 32 * MIB) else {
                return;
            };
            let mut actor = Actor::new();
            actor.act(&format!("open d rd {name}"));
            for touched in [0, 4 * KIB, 40 * KIB, MIB] {
                forget(&file);
                let offsets = scattered(32 * MIB, MIB, 12);
                let watch = Watch::start(&options(Layer::Fs, fs.path()));
                let before = device_read(&fs);
                for at in &offsets {
                    let step = format!("fresh d {at} 1048576 {touched}");
                    assert_eq!(actor.act(&step), MIB, "{kind}");
                }
                let read = device_read(&fs) - before;
                let seen = watch.finish().of(&file);
                assert_eq!(bytes_read(&seen), read, "{kind}, {touched}: {seen:?}");
                if touched > 0 || kind != "btrfs" {
                    assert_eq!(seen, reads_at(offsets, MIB), "{kind}, {touched}");
                }
            }
        }
    });
}
