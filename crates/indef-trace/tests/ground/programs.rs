//! Programs that others wrote.

use std::{collections::BTreeMap, fs, path::Path};

use indef_trace::collect::Layer;
use scratch_fs::ScratchFs;

use crate::{
    actor::Actor,
    harness::{
        BLOCK, KINDS, MIB, Ranges, Watch, forget, name, options, plain_file, reads_at, run,
        scratch, undisturbed, writes_at,
    },
};

fn add(into: &mut Ranges, more: Ranges) {
    for (place, counts) in more {
        let sum = into.entry(place).or_insert((0, 0));
        sum.0 += counts.0;
        sum.1 += counts.1;
    }
}

/// The accesses that fio reports: `TIME FILE read OFFSET LENGTH`.
fn iolog(path: &Path) -> Ranges {
    let mut all = Ranges::new();
    for line in fs::read_to_string(path).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(verb) = words
            .iter()
            .position(|word| ["read", "write"].contains(word))
        else {
            continue;
        };
        let number = |at: usize| words[verb + at].parse::<u64>().unwrap();
        let (at, len) = (number(1), number(2));
        let one = match words[verb] {
            "read" => reads_at([at], len),
            _ => writes_at([at], len),
        };
        add(&mut all, one);
    }
    assert!(!all.is_empty());
    all
}

/// Run fio on a new file of 8 MiB; returns its accesses, and those that were seen.
fn fio(fs: &ScratchFs, layer: Layer, more: &[&str]) -> (Ranges, Ranges) {
    let file = fs.path().join("file");
    let filename = format!("--filename={}", plain_file(&file, 8 * MIB));
    // The log is on another file system than the watched one.
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let write_log = format!("--write_iolog={}", log.display());
    let mut arguments = vec![
        "--name=job",
        "--size=8m",
        "--allow_file_create=0",
        "--invalidate=0",
        "--output-format=terse",
        &filename,
        &write_log,
    ];
    arguments.extend(more);
    let watch = Watch::start(&options(layer, fs.path()));
    run("fio", &arguments);
    let seen = watch.finish();
    assert_eq!(seen.lost, 0);
    (iolog(&log), seen.of(&file))
}

#[test]
fn loop_fio_direct() {
    undisturbed(|| {
        if !scratch_fs::require_program("fio") {
            return;
        }
        for kind in KINDS {
            let Some(fs) = scratch(kind) else { return };
            // At the system call, file systems are all the same.
            let (engines, layers): (&[_], &[_]) = if kind == "ext4" {
                (
                    &["psync", "libaio", "io_uring", "pvsync2"],
                    &[Layer::Fs, Layer::Syscall],
                )
            } else {
                (&["libaio", "io_uring"], &[Layer::Fs])
            };
            for engine in engines {
                for layer in layers {
                    let engine = format!("--ioengine={engine}");
                    let how = [
                        "--rw=randrw",
                        "--bs=16k",
                        "--iodepth=16",
                        "--direct=1",
                        &engine,
                    ];
                    let (done, seen) = fio(&fs, *layer, &how);
                    assert_eq!(seen, done, "{kind}, {engine}, {layer:?}");
                }
            }
        }
    });
}

#[test]
fn loop_fio_through_the_cache() {
    undisturbed(|| {
        if !scratch_fs::require_program("fio") {
            return;
        }
        for kind in KINDS {
            let Some(fs) = scratch(kind) else { return };
            for engine in ["psync", "libaio", "io_uring"] {
                let engine = format!("--ioengine={engine}");
                let how = [
                    "--rw=randread",
                    "--bs=4k",
                    "--iodepth=8",
                    "--number_ios=500",
                    &engine,
                ];
                if kind == "ext4" {
                    let (done, seen) = fio(&fs, Layer::Syscall, &how);
                    assert_eq!(seen, done, "{kind}, {engine}");
                }
                let (done, seen) = fio(&fs, Layer::Fs, &how);
                // fio tells the kernel that it reads at random; each block is read once.
                assert_eq!(blocks(&seen), blocks(&done), "{kind}, {engine}");
            }
            let how = [
                "--rw=randread",
                "--bs=4k",
                "--number_ios=200",
                "--ioengine=mmap",
            ];
            // fio announces random access, so that nothing is read ahead: each fault is a missing page.
            for layer in [Layer::Fs, Layer::Syscall] {
                let (done, seen) = fio(&fs, layer, &how);
                assert_eq!(blocks(&seen), blocks(&done), "{kind}, mmap, {layer:?}");
            }
        }
    });
}

/// Each block that was read, with how often by what was seen.
fn blocks(ranges: &Ranges) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    for ((start, len), counts) in ranges {
        for block in 0..len / BLOCK {
            *all.entry(start + block * BLOCK).or_insert(0) += counts.0;
        }
    }
    all
}

#[test]
fn loop_sqlite_cold() {
    undisturbed(|| {
        if !scratch_fs::require_program("sqlite3") {
            return;
        }
        for kind in KINDS {
            let Some(fs) = scratch(kind) else { return };
            let database = fs.path().join("db");
            let path = name(&database);
            run(
                "sqlite3",
                &[
                    &path,
                    "create table t(a integer primary key, b text); \
                 with recursive n(i) as (select 1 union all select i+1 from n where i < 20000) \
                 insert into t select i, hex(randomblob(40)) from n;",
                ],
            );
            let query = [path.as_str(), "select sum(length(b)) from t"];
            let size = fs::metadata(&database).unwrap().len();
            // Its requests …
            let watch = Watch::start(&options(Layer::Syscall, &database));
            run("sqlite3", &query);
            let asked = blocks(&watch.finish().of(&database));
            assert_eq!(asked.len() as u64, size / BLOCK, "{kind}: the whole table");
            // … are read from the device once, and not again from the cache.
            forget(&database);
            let watch = Watch::start(&options(Layer::Fs, &database));
            run("sqlite3", &query);
            run("sqlite3", &query);
            let read = blocks(&watch.finish().of(&database));
            let once: BTreeMap<u64, u64> = asked.keys().map(|block| (*block, 1)).collect();
            assert_eq!(read, once, "{kind}");
        }
    });
}

#[test]
fn loop_rocksdb() {
    undisturbed(|| {
        for program in ["db_bench", "sst_dump", "strace"] {
            if !scratch_fs::require_program(program) {
                return;
            }
        }
        for kind in KINDS {
            let Some(fs) = scratch(kind) else { return };
            let folder = fs.path().join("db");
            let db = format!("--db={}", folder.display());
            run(
                "db_bench",
                &[
                    "--benchmarks=fillrandom,compact",
                    "--num=60000",
                    "--compression_type=none",
                    &db,
                ],
            );
            fs.sync().unwrap();
            let tables: Vec<_> = fs::read_dir(&folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "sst"))
                .collect();
            assert!(!tables.is_empty());
            let calls = tempfile::NamedTempFile::new().unwrap();
            let log = name(calls.path());
            let file = format!("--file={}", folder.display());
            let arguments = [
                "-f",
                "-y",
                "-e",
                "trace=pread64",
                "-o",
                &log,
                "sst_dump",
                "--command=verify",
                &file,
            ];
            let watch = Watch::start(&options(Layer::Syscall, &folder));
            run("strace", &arguments);
            let seen = watch.finish();
            let text = fs::read_to_string(calls.path()).unwrap();
            for table in &tables {
                let mut expected = Ranges::new();
                let mine = format!("/{}>", table.file_name().unwrap().to_str().unwrap());
                for line in text.lines().filter(|line| line.contains(&mine)) {
                    let (call, done) = line.rsplit_once(" = ").unwrap();
                    let at = call
                        .trim_end()
                        .trim_end_matches(')')
                        .rsplit(", ")
                        .next()
                        .unwrap();
                    let done: u64 = done.trim().parse().unwrap();
                    if done > 0 {
                        add(&mut expected, reads_at([at.parse().unwrap()], done));
                    }
                }
                assert!(!expected.is_empty(), "{text}");
                assert_eq!(seen.of(table), expected, "{kind}");
                forget(table);
            }
            // Cold, below the cache: nothing twice, nothing past the end.
            let mut actor = Actor::new();
            let watch = Watch::start(&options(Layer::Fs, &folder));
            actor.act(&format!("run sst_dump --command=verify {file}"));
            let seen = watch.finish();
            for table in &tables {
                let size = fs::metadata(table).unwrap().len().next_multiple_of(BLOCK);
                let read = blocks(&seen.of(table));
                assert!(read.values().all(|times| *times == 1), "{kind}: {read:?}");
                assert!(read.keys().all(|block| *block < size), "{kind}: {read:?}");
                assert_eq!(
                    read.len() as u64 * BLOCK,
                    size,
                    "{kind}: all of it is verified"
                );
            }
        }
    });
}
