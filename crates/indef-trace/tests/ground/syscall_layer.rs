//! Layer syscall: the requests of the application, call by call.

use std::fs;

use indef_core::access::{AccessOptions, AccessRecord, Op, ranges};
use indef_trace::collect::{Layer, TraceOptions};
use units::{Bytes, FileOffset, Nanos};

use crate::{
    actor::Actor,
    harness::{
        BLOCK, KIB, KINDS, MIB, Ranges, Watch, joined, name, options, plain_file, reads_at, run,
        scattered, scratch, scratch_file, writes_at,
    },
};

/// Do `steps` with FILE and OTHER open as `f` and `g`; returns the accesses seen of the two.
fn seen_of(kind: &str, steps: &[String]) -> Option<(Ranges, Ranges)> {
    let fs = scratch(kind)?;
    let (file, other) = (fs.path().join("file"), fs.path().join("other"));
    let name = plain_file(&file, MIB);
    let other_name = plain_file(&other, MIB);
    let mut actor = Actor::new();
    actor.act(&format!("open f rw {name}"));
    actor.act(&format!("open d rwd {name}"));
    actor.act(&format!("open g rw {other_name}"));
    let watch = Watch::start(&options(Layer::Syscall, fs.path()));
    for step in steps {
        actor.act(step);
    }
    let seen = watch.finish();
    assert_eq!(seen.lost, 0);
    let known = [&file, &other].map(|path| !seen.of(path).is_empty());
    assert_eq!(
        seen.touched(),
        known.iter().filter(|known| **known).count(),
        "{kind}: {:?}",
        seen.paths()
    );
    Some((seen.of(&file), seen.of(&other)))
}

fn steps(lines: &[&str]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

fn check(lines: &[&str], file: &Ranges, other: &Ranges) {
    for kind in KINDS {
        let Some(seen) = seen_of(kind, &steps(lines)) else {
            return;
        };
        assert_eq!((&seen.0, &seen.1), (file, other), "{kind}: {lines:?}");
    }
}

#[test]
fn loop_every_call_that_reads() {
    check(
        &[
            "read f 1000",  // 0
            "read f 10000", // 1000..11000
            "seek f 200000",
            "readv f 16384", // 200000..
            "pread f 300000 5",
            "pread f 1048570 100", // six bytes to the end
            "pread f 1048576 100", // nothing
            "pread f 9000000 100", // nothing
            "preadv f 400000 8192",
            "preadv2 f 409600 8192",
            "pread d 65536 65536",
            "pread d 65536 65536",
            "uring f read 4096 500000 600000 700000",
            "uring f readv 8192 0",
            "uring f fixed 4096 819200",
            "uring f buffers 4096 823296 827392",
            "uring d read 4096 831488",
            "uring f async 4096 835584",
            "seek f 900000",
            "uring f here 4096 0",
        ],
        &joined([
            reads_at([0], 1000),
            reads_at([1000], 10_000),
            reads_at([200_000], 16_384),
            reads_at([300_000], 5),
            reads_at([1_048_570], 6),
            reads_at([400_000], 8192),
            reads_at([409_600], 8192),
            reads_at([65_536, 65_536], 65_536),
            reads_at([500_000, 600_000, 700_000], 4096),
            reads_at([0], 8192),
            reads_at([819_200, 823_296, 827_392, 831_488, 835_584], 4096),
            reads_at([900_000], 4096),
        ]),
        &Ranges::new(),
    );
}

#[test]
fn loop_every_call_that_writes() {
    check(
        &[
            "write f 1000",
            "write f 5000",
            "writev f 8192",
            "pwrite f 100000 1",
            "pwritev f 200000 8192",
            "pwritev2 f 300000 8192",
            "pwrite d 65536 4096",
            "uring f write 4096 400000 500000",
            "uring f writev 4096 600000",
            "uring d write 8192 700416",
        ],
        &joined([
            writes_at([0], 1000),
            writes_at([1000], 5000),
            writes_at([6000], 8192),
            writes_at([100_000], 1),
            writes_at([200_000, 300_000], 8192),
            writes_at([65_536, 400_000, 500_000, 600_000], 4096),
            writes_at([700_416], 8192),
        ]),
        &Ranges::new(),
    );
}

#[test]
fn loop_calls_with_two_files() {
    check(
        &[
            "sendfile f 20000 g 30000", // to where g is: 0
            "seek f 100000",
            "sendfile f - g 4096", // to 30000
            "splice f 200000 8192",
            "copy f 300000 g 500000 10000",
        ],
        &joined([
            reads_at([20_000], 30_000),
            reads_at([100_000], 4096),
            reads_at([200_000], 8192),
            reads_at([300_000], 10_000),
        ]),
        &joined([
            writes_at([0], 30_000),
            writes_at([30_000], 4096),
            writes_at([500_000], 10_000),
        ]),
    );
}

#[test]
fn loop_appending() {
    for kind in KINDS {
        let Some(fs) = scratch(kind) else { return };
        let log = fs.path().join("log");
        let mut actor = Actor::new();
        let watch = Watch::start(&options(Layer::Syscall, fs.path()));
        actor.act(&format!("open a cra {}", name(&log)));
        actor.acts("write a 5000\nwrite a 5000\npwrite a 0 100\nuring a write 4096 0");
        let expected = joined([
            writes_at([0, 5000], 5000),
            writes_at([10_000], 100),
            writes_at([10_100], 4096),
        ]);
        assert_eq!(watch.finish().of(&log), expected, "{kind}");
    }
}

#[test]
fn loop_two_threads_at_one_place() {
    let Some((fs, file, name)) = scratch_file("ext4", 4 * MIB) else {
        return;
    };
    let mut actor = Actor::new();
    actor.act(&format!("open f r {name}"));
    let watch = Watch::start(&options(Layer::Syscall, fs.path()));
    assert_eq!(actor.act("threads f 4096"), 4 * MIB);
    let seen = watch.finish();
    assert_eq!(seen.reads_of(&file), 1024, "none is missing, none made up");
    // A read's offset follows from the position of its open file when it returns: if the other thread
    // has read on by then, the read is counted at the other one's offset.
    let every_block = reads_at((0..1024).map(|n| n * BLOCK), BLOCK);
    let right = (seen.of(&file).iter())
        .filter(|(range, counts)| every_block.get(*range) == Some(*counts))
        .count();
    assert!(right >= 960, "{right} of 1024 are told at their place");
}

#[test]
fn loop_buffered_patterns_with_and_without_read_ahead() {
    // First byte and length of each read.
    let sequential: Vec<(u64, u64)> = (0..256).map(|n| (n * BLOCK, BLOCK)).collect();
    let small: Vec<(u64, u64)> = (0..3000).map(|n| (n * 300, 300)).collect();
    let strided: Vec<(u64, u64)> = (0..64).map(|n| (n * 16 * KIB, BLOCK)).collect();
    // No two touch: the model, which knows no open files, takes a read that begins where one of the
    // last few ended for a continuation.
    let random: Vec<(u64, u64)> = scattered(MIB, 2 * BLOCK, 100)
        .iter()
        .map(|o| (*o, BLOCK))
        .collect();
    let touches_a_sequence = |at: u64| at == 40 * BLOCK || at + BLOCK == 100 * BLOCK;
    let apart = random.iter().filter(|(at, _)| !touches_a_sequence(*at));
    let mixed: Vec<(u64, u64)> = (sequential.iter().copied().take(40))
        .chain(apart.copied().take(20))
        .chain(sequential.iter().copied().skip(100).take(77))
        .collect();
    let Some(fs) = scratch("ext4") else { return };
    for (index, reads) in [sequential, small, strided, random, mixed]
        .iter()
        .enumerate()
    {
        for readahead in [Bytes(0), Bytes::kib(128)] {
            let file = fs.path().join(format!("{index}-{}", readahead.0));
            let name = plain_file(&file, MIB);
            let mut actor = Actor::new();
            actor.act(&format!("open f r {name}"));
            let mut options = options(Layer::Syscall, &file);
            options.readahead = Some(readahead);
            let watch = Watch::start(&options);
            for (at, len) in reads {
                assert_eq!(actor.act(&format!("pread f {at} {len}")), *len);
            }
            actor.act("close f");
            let seen = watch.finish();
            let record = |(index, (at, len)): (usize, &(u64, u64))| AccessRecord {
                file: 0,
                offset: FileOffset(*at),
                len: Bytes(*len),
                op: Op::Read,
                direct: false,
                time: Nanos(index as u64),
            };
            if readahead == Bytes(0) {
                let all = reads.iter().map(|(at, len)| reads_at([*at], *len));
                assert_eq!(seen.of(&file), joined(all), "pattern {index}");
                continue;
            }
            let model = AccessOptions {
                readahead,
                ..AccessOptions::default()
            };
            let counted = seen
                .of(&file)
                .into_iter()
                .map(
                    |((start, len), (reads, writes))| indef_core::access::AccessRange {
                        range: units::FileRange::new(start, len),
                        reads,
                        writes,
                        ..Default::default()
                    },
                );
            let records = reads.iter().enumerate().map(record).collect();
            let collected =
                indef_core::access::join(Vec::new(), counted.map(|r| (0, r)).collect(), &model);
            assert_eq!(
                collected.of(0),
                ranges(records, &model).of(0),
                "pattern {index}"
            );
        }
    }
}

#[test]
fn loop_what_a_tracer_of_calls_says() {
    if !scratch_fs::require_program("strace") || !scratch_fs::require_program("sqlite3") {
        return;
    }
    let Some(fs) = scratch("ext4") else { return };
    let database = fs.path().join("db");
    let name = name(&database);
    run(
        "sqlite3",
        &[
            &name,
            "create table t(a integer primary key, b text); \
             with recursive n(i) as (select 1 union all select i+1 from n where i < 20000) \
             insert into t select i, hex(randomblob(40)) from n;",
        ],
    );
    let query = "select sum(length(b)) from t where a % 7 = 3";
    let traced = fs.path().join("strace");
    let watch = Watch::start(&options(Layer::Syscall, &database));
    let arguments = [
        "-f",
        "-y",
        "-e",
        "trace=openat,lseek,read,pread64",
        "-o",
        traced.to_str().unwrap(),
        "sqlite3",
        &name,
        query,
    ];
    run("strace", &arguments);
    let seen = watch.finish();
    let text = std::fs::read_to_string(&traced).unwrap();
    let expected = joined(calls_in(&text).map(|(at, done)| reads_at([at], done)));
    assert!(expected.len() > 100, "{text}");
    assert_eq!(seen.of(&database), expected);
}

/// Offset and length of each read of the file named db, as strace prints them:
/// `PID pread64(3</…/db>, "…"..., 4096, 8192) = 4096`.
fn calls_in(text: &str) -> impl Iterator<Item = (u64, u64)> {
    let mut position = 0;
    let lines = text.lines().filter(|line| line.contains("/db>"));
    lines
        .filter_map(move |line| {
            let (call, result) = line.rsplit_once(" = ").unwrap();
            if call.contains("openat(") {
                position = 0;
                return None;
            }
            let done: u64 = result.trim().parse().unwrap();
            if call.contains("lseek(") {
                position = done;
                return None;
            }
            if call.contains("pread64(") {
                let offset = call.trim_end_matches(')').rsplit(", ").next().unwrap();
                return Some((offset.parse().unwrap(), done));
            }
            assert!(call.contains(" read("), "{line}");
            position += done;
            Some((position - done, done))
        })
        .filter(|(_, done)| *done > 0)
}

/// Without another word, windows are as long as the device says: of a loop device that was told so,
/// and Btrfs' own.
#[test]
fn loop_read_ahead_is_that_of_the_device() {
    for kind in KINDS {
        let Some(fs) = scratch(kind) else { return };
        let status = fs::metadata(fs.device()).unwrap();
        let number = std::os::unix::fs::MetadataExt::rdev(&status);
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let window = match kind {
            "btrfs" => 4 * MIB,
            _ => 512 * KIB,
        };
        if kind != "btrfs" {
            let place = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
            fs::write(place, "512").unwrap();
        }
        let file = fs.path().join("file");
        let name = plain_file(&file, 8 * MIB);
        let mut actor = Actor::new();
        actor.act(&format!("open f r {name}"));
        let options = TraceOptions {
            readahead: None,
            ..options(Layer::Syscall, fs.path())
        };
        let watch = Watch::start(&options);
        for at in (0..8 * MIB).step_by(64 * KIB as usize) {
            actor.act(&format!("pread f {at} {}", 64 * KIB));
        }
        actor.act("close f");
        let seen = watch.finish();
        let windows = (0..8 * MIB).step_by(window as usize);
        assert_eq!(seen.of(&file), reads_at(windows, window), "{kind}");
    }
}
