//! Layer syscall: mapped files. Each page fault is one read, of the page that was missing or of the
//! cached pages that the kernel mapped around it.

use indef_trace::collect::{Layer, TraceOptions};
use scratch_fs::ScratchFs;

use crate::{
    actor::Actor,
    harness::{
        BLOCK, KIB, KINDS, MIB, Seen, Watch, options, plain_file, reads_at, scattered, scratch,
        scratch_file,
    },
};

/// The most that one fault maps (`fault_around_bytes`).
const AROUND: u64 = 64 * KIB;

#[test]
fn loop_mapped_files() {
    for kind in KINDS {
        let Some((fs, file, name)) = scratch_file(kind, MIB) else {
            return;
        };
        let mut actor = Actor::new();
        actor.act(&format!("open f rw {name}"));
        actor.acts("map f 1048576\nscattered f");
        let watch = Watch::start(&options(Layer::Syscall, fs.path()));
        let touched = scattered(MIB, 64 * KIB, 10);
        for at in &touched {
            actor.act(&format!("touch f {}", at + 5000));
        }
        let seen = watch.finish();
        // Each fault names its page; the kernel may map the cached pages around it, too.
        for at in &touched {
            let page = (at + 5000) / BLOCK * BLOCK;
            let ranges = seen.of(&file);
            let holds = |((start, len), _): (&(u64, u64), _)| *start <= page && page < start + len;
            assert!(ranges.iter().any(holds), "{kind}: {page} in {ranges:?}");
        }
        assert_eq!(seen.reads_of(&file), 10, "{kind}: {:?}", seen.of(&file));
    }
}

/// An actor that has a cold file of 1 MiB mapped, with this advice (a verb of the actor).
fn with_mapping(fs: &ScratchFs, advice: Option<&str>) -> Actor {
    let [name, other] = ["file", "other"].map(|name| plain_file(&fs.path().join(name), MIB));
    let mut actor = Actor::new();
    actor.act(&format!("open f rw {name}"));
    actor.act(&format!("open g rw {other}"));
    actor.acts("map f 1048576\nmap g 1048576");
    // The actor's own code is a mapped file, too, whose faults are not to be counted later.
    actor.acts("fault g read 0\nfault g write 0");
    if let Some(advice) = advice {
        actor.act(&format!("{advice} f"));
    }
    actor
}

/// Touch these pages of a cold file; the accesses that were seen, and the pages whose touch was a
/// fault.
fn touch(fs: &ScratchFs, advice: Option<&str>, how: &str, pages: &[u64]) -> (Seen, Vec<u64>) {
    let mut actor = with_mapping(fs, advice);
    let watch = Watch::start(&TraceOptions {
        raw: true,
        ..options(Layer::Syscall, fs.path())
    });
    let mut faulted = pages.to_vec();
    faulted.retain(|page| actor.act(&format!("fault f {how} {page}")) == 1);
    (watch.finish(), faulted)
}

#[test]
fn loop_mapped_with_random_advice() {
    // Close together, so that the kernel finds cached neighbours of each missing page.
    let pages = scattered(16 * BLOCK, BLOCK, 16);
    for kind in KINDS {
        for how in ["read", "write"] {
            let Some(fs) = scratch(kind) else { return };
            let (seen, faulted) = touch(&fs, Some("scattered"), how, &pages);
            assert_eq!(faulted, pages, "{kind}, {how}");
            let expected = reads_at(pages.iter().copied(), BLOCK);
            assert_eq!(seen.of(fs.path().join("file")), expected, "{kind}, {how}");
            let raw: Vec<u64> = seen.accesses.iter().map(|a| a.range.start.0).collect();
            assert_eq!(raw, pages, "{kind}, {how}");
            assert_eq!(seen.lost, 0, "{kind}, {how}");
        }
    }
}

#[test]
fn loop_mapped_with_read_ahead() {
    let apart = scattered(MIB, AROUND, 16);
    let in_order: Vec<u64> = (0..256).map(|n| n * BLOCK).collect();
    let mixed = scattered(MIB, BLOCK, 200);
    for kind in KINDS {
        for advice in [None, Some("sequential")] {
            for pages in [&apart, &in_order, &mixed] {
                let Some(fs) = scratch(kind) else { return };
                let (seen, faulted) = touch(&fs, advice, "read", pages);
                let told: Vec<_> = seen.accesses.iter().map(|access| access.range).collect();
                let case = format!("{kind}, {advice:?}: {told:?}, faults at {faulted:?}");
                assert_eq!(told.len(), faulted.len(), "{case}");
                for (range, page) in told.iter().zip(&faulted) {
                    assert!((range.start.0..range.end().0).contains(page), "{case}");
                    assert!(range.len.0 <= AROUND && range.end().0 <= MIB, "{case}");
                }
                assert_eq!(seen.reads_of(fs.path().join("file")), told.len() as u64);
                assert_eq!(seen.lost, 0, "{case}");
            }
        }
    }
}

#[test]
fn loop_mapped_pages_that_are_cached() {
    for kind in KINDS {
        let Some(fs) = scratch(kind) else { return };
        let mut actor = with_mapping(&fs, None);
        actor.act("pread f 0 1048576");
        let watch = Watch::start(&options(Layer::Syscall, fs.path()));
        // A fault for writing names its page; the next one, for reading, maps the pages around.
        assert_eq!(actor.act("fault f write 524288"), 1);
        assert_eq!(actor.act("fault f read 532480"), 1);
        // The last fault of a process counts also if the process has ended.
        drop(actor);
        let seen = watch.finish();
        let ranges = seen.of(fs.path().join("file"));
        let around = |(start, len): &(u64, u64)| *start <= 532_480 && 532_480 < start + len;
        assert_eq!(
            ranges.get(&(524_288, BLOCK)),
            Some(&(1, 0)),
            "{kind}: {ranges:?}"
        );
        assert!(ranges.keys().any(around), "{kind}: {ranges:?}");
        let reads: u64 = ranges.values().map(|counts| counts.0).sum();
        assert_eq!(reads, 2, "{kind}: {ranges:?}");
    }
}
