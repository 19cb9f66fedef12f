//! Recorded traces, and that nothing makes an importer panic.
//!
//! The samples of strace and perf were recorded of one small program with strace 6.1 and perf 6.1,
//! the one of fio version 3 with fio 3.33; calls that no importer follows were cut out of them. Those
//! of fio version 2 and of blkparse were written after their manuals.

use std::path::Path;

use indef_core::{
    access::{AccessRange, Op},
    profile::{Profile, ProfileFile},
};
use proptest::prelude::*;
use units::{FileRange, PhysOffset};

use super::*;

fn options() -> ImportOptions {
    ImportOptions {
        folder: "/srv/sample".into(),
        blocks: BlockMap::default(),
    }
}

fn read(format: Format, text: impl AsRef<[u8]>) -> (Profile, Imported) {
    let mut profile = Profile::default();
    let imported = import(format, text.as_ref(), &options(), &mut profile).unwrap();
    (profile, imported)
}

/// (r or w, d for direct, first byte, bytes) of a file.
fn of(profile: &Profile, path: &str) -> Vec<(char, bool, u64, u64)> {
    let file = profile.files.iter().position(|f| f.path == Path::new(path));
    let file = file.unwrap_or_else(|| panic!("{path} is not in {:?}", profile.files)) as u32;
    let records = profile.records.iter().filter(|r| r.file == file);
    let op = |op| if op == Op::Read { 'r' } else { 'w' };
    records
        .map(|r| (op(r.op), r.direct, r.offset.0, r.len.0))
        .collect()
}

/// The accesses of the traced program to its data file.
fn data() -> Vec<(char, bool, u64, u64)> {
    let buffered = [
        (0, 4096),
        (16_384, 100),
        (8192, 4096),
        (16_484, 150),
        (65_536, 150),
        (16_634, 10),
        (16_644, 10),
        (131_072, 1000),
        (0, 500),
        (0, 20),
        (0, 30),
    ];
    let direct = (0..4).flat_map(|i| [(i * 65_536, 65_536); 2]);
    let buffered = buffered.map(|(at, len)| ('r', false, at, len));
    let direct = direct.map(|(at, len)| ('r', true, at, len));
    buffered.into_iter().chain(direct).collect()
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all
}

#[test]
fn strace_is_followed_with_and_without_paths() {
    for text in [
        &include_bytes!("samples/strace.txt")[..],
        include_bytes!("samples/strace-y.txt"),
    ] {
        assert_eq!(Format::detect(text), Some(Format::Strace));
        let (profile, imported) = read(Format::Strace, text);
        assert_eq!(imported.unknown, 0, "{imported:?}");
        let found = of(&profile, "/srv/sample/data.bin");
        assert_eq!(found[..11], data()[..11]);
        assert_eq!(sorted(found), sorted(data()));
        // The position is shared with the child, which moved it.
        let out = [
            ('w', false, 0, 5000),
            ('w', false, 4096, 10),
            ('r', false, 0, 3),
            ('w', false, 3, 1),
        ];
        assert_eq!(of(&profile, "/srv/sample/out file\n1"), out);
        // Appended to the log, wherever its end was; the pipe is no file.
        assert!(!profile.files.iter().any(|f| f.path.ends_with("log")));
        assert!(matches!(imported.unplaced, 1..=3), "{imported:?}");
        let times: Vec<_> = profile.records.iter().map(|r| r.time.0).collect();
        assert!(times.is_sorted());
    }
}

#[test]
fn perf_is_followed_by_the_paths_it_shows() {
    let text = include_bytes!("samples/perf.txt");
    assert_eq!(Format::detect(text), Some(Format::Perf));
    let (profile, imported) = read(Format::Perf, text);
    assert_eq!(imported.unknown, 0, "{imported:?}");
    let found = of(&profile, "/srv/sample/data.bin");
    // Where sendfile read is a mere address.
    let mut expected = data();
    expected.retain(|access| *access != ('r', false, 131_072, 1000));
    assert_eq!(sorted(found), sorted(expected));
    let out = of(&profile, "/srv/sample/out file");
    assert_eq!(
        out,
        [
            ('w', false, 0, 5000),
            ('w', false, 4096, 10),
            ('r', false, 0, 3),
            ('w', false, 3, 1)
        ]
    );
}

#[test]
fn fio_logs_of_both_versions_are_read() {
    let text = include_bytes!("samples/fio-3.log");
    assert_eq!(Format::detect(text), Some(Format::Fio));
    let (profile, imported) = read(Format::Fio, text);
    assert_eq!((imported.unknown, imported.accesses), (0, 8));
    let data = of(&profile, "/srv/sample/data.bin");
    assert_eq!(data[0], ('w', false, 28_672, 4096));
    assert_eq!(data.iter().filter(|access| access.0 == 'r').count(), 3);

    let (profile, imported) = read(Format::Fio, include_bytes!("samples/fio-2.log"));
    assert_eq!((imported.unknown, imported.accesses), (0, 3));
    let expected = [
        ('r', false, 0, 65_536),
        ('w', false, 65_536, 4096),
        ('r', false, 65_536, 65_536),
    ];
    assert_eq!(of(&profile, "/srv/sample/my data.bin"), expected);

    let version = |text: &str| {
        let mut profile = Profile::default();
        import(Format::Fio, text.as_bytes(), &options(), &mut profile)
            .unwrap_err()
            .to_string()
    };
    assert!(version("fio version 4 iolog\n").contains("version 4"));
    assert!(version("something\n").contains("no fio trace"));
    assert!(version("").contains("no fio trace"));
}

#[test]
fn blkparse_finds_files_by_their_place() {
    let text = include_bytes!("samples/blkparse.txt");
    assert_eq!(Format::detect(text), Some(Format::Blkparse));
    let mut options = options();
    let blocks = &mut options.blocks;
    let (one, two) = (blocks.file("/a".into()), blocks.file("/b".into()));
    // Sectors 16384 to 16639 and the half of what follows, in reverse; a shared block is the first's.
    blocks.extent(
        one,
        (7, 0),
        PhysOffset(16_384 * 512),
        FileRange::new(1 << 20, 128 << 10),
    );
    blocks.extent(
        two,
        (7, 0),
        PhysOffset(16_640 * 512),
        FileRange::new(64 << 10, 64 << 10),
    );
    blocks.extent(
        two,
        (7, 0),
        PhysOffset(16_384 * 512),
        FileRange::new(0, 4096),
    );
    blocks.extent(
        two,
        (7, 0),
        PhysOffset(20_480 * 512 - 4096),
        FileRange::new(0, 8192),
    );
    blocks.extent(one, (7, 1), PhysOffset(0), FileRange::new(0, 1 << 40));
    let mut profile = Profile::default();
    let imported = import(Format::Blkparse, &text[..], &options, &mut profile).unwrap();
    assert_eq!(of(&profile, "/a"), [('r', true, 1 << 20, 128 << 10)]);
    assert_eq!(
        of(&profile, "/b"),
        [('r', true, 64 << 10, 64 << 10), ('w', true, 4096, 4096)]
    );
    // The journal's write, and another device's read.
    assert_eq!((imported.unplaced, imported.unknown), (2, 0));
}

#[test]
fn tables_come_back_as_they_were() {
    let ranges = [(0, 4096, 7), (8192, 131_072, 1)].map(|(start, len, reads)| AccessRange {
        range: FileRange::new(start, len),
        reads,
        writes: 3,
        ..AccessRange::default()
    });
    let files = ["/plain", "/with, comma \"and\" \n%"].map(|path| ProfileFile {
        path: path.into(),
        dev: Some(5),
        inode: (path.len() > 6).then_some(9),
    });
    let mut writer = CsvWriter::new(Vec::new()).unwrap();
    for file in &files {
        writer.file(file);
        for range in &ranges {
            writer.range(range).unwrap();
        }
    }
    let text = writer.finish().unwrap();
    assert_eq!(Format::detect(&text), Some(Format::Csv));
    let (profile, imported) = read(Format::Csv, &text);
    assert_eq!((imported.unknown, imported.accesses), (0, 4));
    assert_eq!(profile.files, files);
    let expected: Vec<_> = [0, 1]
        .into_iter()
        .flat_map(|f| ranges.map(|r| (f, r)))
        .collect();
    assert_eq!(profile.ranges, expected);
    let bad =
        "/a,1,2,0,0,1,1,0,0,0\n/a,1,2,0,4096,1,1,0,0\n/a,x,2,0,4096,1,1,0,0,0\n,,,0,1,1,1,0,0,0\n";
    let (_, imported) = read(Format::Csv, [&text[..], bad.as_bytes()].concat());
    assert_eq!(imported.unknown, 4);
    assert_eq!(
        imported.first_unknown.unwrap(),
        (6, "/a,1,2,0,0,1,1,0,0,0".into())
    );
}

#[test]
fn lines_pass_through() {
    let text = "indef-profile 1\nfile 9 - - /a\nread 9 0 4096\nrange 9 0 4096 reads=2\n";
    assert_eq!(Format::detect(text.as_bytes()), Some(Format::Lines));
    let (profile, imported) = read(Format::Lines, text);
    assert_eq!(imported.accesses, 2);
    assert_eq!((profile.records.len(), profile.ranges.len()), (1, 1));
    let mut profile = Profile::default();
    let damaged = &b"indef-profile 1\nread 1 0 1\n"[..];
    let error = import(Format::Lines, damaged, &options(), &mut profile).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
}

#[test]
fn unknown_lines_are_counted_and_the_first_is_shown() {
    let text = "openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\nread(3, \"\"\x1b, 10) = 10\n\
                hello world\nread(3, \"x\", 10) = ten\npread64(3, \"x\", 10, 4096) = 10\nread(3, \"cut";
    let (profile, imported) = read(Format::Strace, text);
    assert_eq!(imported.unknown, 3, "{imported:?}");
    assert_eq!(imported.first_unknown, Some((3, "hello world".into())));
    assert_eq!(
        of(&profile, "/a"),
        [('r', false, 0, 10), ('r', false, 4096, 10)]
    );
    // Never opened, in the trace.
    let (profile, imported) = read(
        Format::Strace,
        "read(3, \"x\", 10) = 10\nread(3</a>, \"x\", 10) = 10\n",
    );
    assert!(profile.files.is_empty());
    assert_eq!(imported.unplaced, 2);
    let long = [
        b"x".repeat(3 << 20),
        b"\nlseek(3</a>, 0, SEEK_SET) = 0\nread(3</a>, \"x\", 10) = 10\n".to_vec(),
    ]
    .concat();
    let (profile, imported) = read(Format::Strace, long);
    assert_eq!((imported.unknown, imported.lines), (1, 3));
    assert_eq!(of(&profile, "/a"), [('r', false, 0, 10)]);
}

#[test]
fn exec_closes_and_append_has_no_place() {
    let text = "1 openat(AT_FDCWD, \"a\", O_RDONLY|O_CLOEXEC) = 3\n\
                1 openat(AT_FDCWD, \"b\", O_RDONLY) = 4\n\
                1 dup2(3, 5) = 5\n\
                1 fcntl(3, F_DUPFD_CLOEXEC, 0) = 6\n\
                1 execve(\"/bin/x\", [\"x\"], 0x7f /* 3 vars */) = 0\n\
                1 read(3, \"\", 1) = 1\n1 read(4, \"\", 1) = 1\n1 read(5, \"\", 2) = 2\n1 read(6, \"\", 1) = 1\n\
                1 openat(AT_FDCWD, \"log\", O_WRONLY|O_APPEND) = 3\n1 write(3, \"x\", 1) = 1\n";
    let (profile, imported) = read(Format::Strace, text);
    assert_eq!(of(&profile, "/srv/sample/a"), [('r', false, 0, 2)]);
    assert_eq!(of(&profile, "/srv/sample/b"), [('r', false, 0, 1)]);
    assert_eq!((imported.unplaced, imported.unknown), (3, 0));
}

#[test]
fn nothing_known_is_detected_as_nothing() {
    for text in ["", "\n\n", "hello\n", "{\"a\": 1}\n", "\0\0\0\u{ff}"] {
        assert_eq!(Format::detect(text.as_bytes()), None, "{text:?}");
    }
}

/// Samples, changed.
fn any_trace() -> impl Strategy<Value = (Format, Vec<u8>)> {
    let samples: [(Format, &'static [u8]); 6] = [
        (Format::Strace, include_bytes!("samples/strace.txt")),
        (Format::Strace, include_bytes!("samples/strace-y.txt")),
        (Format::Perf, include_bytes!("samples/perf.txt")),
        (Format::Fio, include_bytes!("samples/fio-3.log")),
        (Format::Blkparse, include_bytes!("samples/blkparse.txt")),
        (Format::Csv, b"path,device,inode,start_bytes,len_bytes,reads,writes,requests,timed_reads,time_ns\n/a,1,2,0,4096,1,1,0,0,0\n"),
    ];
    let change = (
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<u8>(), 0..6),
        0usize..8,
    );
    let changes = prop::collection::vec(change, 0..12);
    (prop::sample::select(samples.to_vec()), changes).prop_map(|((format, text), changes)| {
        let mut text = text.to_vec();
        for (place, put, taken) in changes {
            let at = place.index(text.len() + 1);
            let end = (at + taken).min(text.len());
            text.splice(at..end, put);
        }
        (format, text)
    })
}

proptest! {
    #[test]
    fn no_change_of_a_trace_makes_an_importer_panic((format, text) in any_trace()) {
        let _ = Format::detect(&text);
        let mut profile = Profile::default();
        let mut options = options();
        let file = options.blocks.file("/a".into());
        options.blocks.extent(file, (7, 0), PhysOffset(0), FileRange::new(0, 1 << 40));
        if let Ok(imported) = import(format, &text[..], &options, &mut profile) {
            prop_assert_eq!(imported.accesses as usize, profile.records.len() + profile.ranges.len());
            if let Some((line, text)) = imported.first_unknown {
                prop_assert!(line <= imported.lines && !text.chars().any(char::is_control));
            }
        }
        let files = profile.files.len() as u32;
        prop_assert!(profile.records.iter().all(|r| r.file < files && !r.len.is_zero()));
    }

    #[test]
    fn no_bytes_make_an_importer_panic(bytes: Vec<u8>, which in 0usize..6) {
        let _ = Format::detect(&bytes);
        let _ = import(Format::ALL[which], &bytes[..], &options(), &mut Profile::default());
    }
}
