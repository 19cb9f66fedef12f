//! Round trips, profiles typed by hand, and one line for each way in which one can be wrong.

use std::{
    ffi::OsString,
    io::{self, BufReader, Read},
    os::unix::ffi::OsStringExt,
    path::Path,
};

use proptest::prelude::*;
use units::{Bytes, FileOffset, FileRange, Nanos};

use super::*;
use crate::access::{Observed, Op};

fn read(text: impl AsRef<[u8]>) -> Result<Profile, ProfileError> {
    Profile::read(text.as_ref())
}

fn message(text: impl AsRef<[u8]>) -> String {
    let message = read(text).unwrap_err().to_string();
    assert!(!message.chars().any(char::is_control), "{message}");
    message
}

#[test]
fn the_documented_examples_are_profiles() {
    let page = include_str!("../../../../docs/profile.md");
    let mut examples = 0;
    for block in page.split("```text\n").skip(1) {
        let (example, _) = block.split_once("```").unwrap();
        let profile = read(example).unwrap();
        assert!(!profile.files.is_empty());
        assert!(!profile.records.is_empty() || !profile.ranges.is_empty());
        examples += 1;
    }
    assert_eq!(examples, 3);
}

#[test]
fn a_profile_can_be_typed_by_hand() {
    let profile = read(
        "# what the reports read\n\n  indef-profile 1\n\
         file 5 - - /srv/my data/a%0Ab  \n\
         read 5 0 128KiB\n\
         write 5 1MiB 4k direct\n\
         read 5 7 1 time=1000 direct\n\
         read 5 7 1",
    )
    .unwrap();
    let file = ProfileFile {
        path: "/srv/my data/a\nb".into(),
        dev: None,
        inode: None,
    };
    assert_eq!(profile.files, [file]);
    let record = |offset, len, op, direct, time| AccessRecord {
        file: 0,
        offset: FileOffset(offset),
        len: Bytes(len),
        op,
        direct,
        time: Nanos(time),
    };
    assert_eq!(
        profile.records,
        [
            record(0, 131_072, Op::Read, false, 0),
            record(1 << 20, 4096, Op::Write, true, 1),
            record(7, 1, Op::Read, true, 1000),
            record(7, 1, Op::Read, false, 1001),
        ]
    );
}

#[test]
fn counted_ranges_stand_beside_accesses() {
    let profile = read(
        "indef-profile 1 with-end\nfile 0 - - /a\n\
         range 0 64KiB 128KiB time=900 timed=3 ahead=21 requests=40 writes=2 reads=7\n\
         read 0 0 1\n\
         range 0 0 4096 writes=1\n\
         end 3",
    )
    .unwrap();
    let long = AccessRange {
        range: FileRange::new(64 << 10, 128 << 10),
        reads: 7,
        writes: 2,
        observed: Observed {
            requests: 40,
            timed: 3,
            time: Nanos(900),
            ahead: Some(21),
        },
    };
    let short = AccessRange {
        range: FileRange::new(0, 4096),
        writes: 1,
        ..AccessRange::default()
    };
    assert_eq!(profile.ranges, [(0, long), (0, short)]);
    let text = String::from_utf8(written(&profile)).unwrap();
    assert!(
        text.contains(
            "range 0 65536 131072 reads=7 writes=2 requests=40 timed=3 time=900 ahead=21\n"
        )
    );
    assert!(text.contains("range 0 0 4096 reads=0 writes=1\n"));
    assert_eq!(read(text).unwrap(), profile);
}

#[test]
fn foreign_and_outdated_files_are_told_from_damaged_ones() {
    for text in [
        "",
        "\n",
        "# only a comment",
        "{\"indef-plan\":1}",
        "indef-profile",
        "indef-profile x",
        "indef-profile 1 2",
    ] {
        assert!(message(text).contains("not an indef profile"), "{text}");
    }
    assert!(message(vec![b'x'; 1 << 20]).contains("not an indef profile"));
    assert!(message(b"\xff\xfe").contains("not an indef profile"));
    assert!(message("indef-profile 7").contains("profile format 7"));
}

#[test]
fn damage_names_its_line_and_what_to_do() {
    for (line, what) in [
        (
            "erase 1 0 1",
            "'erase' is not file, read, write, range or end",
        ),
        ("file", "the file number is missing"),
        ("file x - - /a", "'x' is not a valid file number"),
        ("file 4294967296 - - /a", "is not a valid file number"),
        ("file 2 - -", "the path is missing"),
        ("file 2 -1 - /a", "'-1' is not a valid device number"),
        ("file 2 - - /a%0", "two hexadecimal digits"),
        ("file 2 - - /a%zz", "two hexadecimal digits"),
        ("file 2 - - /a%00", "zero byte"),
        ("file 1 - - /b", "file 1 is there twice"),
        ("read 9 0 1", "file 9 is not named before"),
        ("read 1 0", "the length is missing"),
        ("read 1 0 0", "the length is zero"),
        ("read 1 0 -1", "'-1' is not a valid length"),
        ("read 1 x 1", "'x' is not a valid offset"),
        ("read 1 18446744073709551615 1", "past the end of any file"),
        ("read 1 9223372036854775807 1", "past the end of any file"),
        ("read 1 0 1 direct direct", "'direct' is not expected here"),
        ("read 1 0 1 time=", "the time is missing"),
        ("read 1 0 1 time=soon", "'soon' is not a valid time"),
        ("read 1 0 1 \u{1b}[2J", "is not expected here"),
        ("range 1 0", "the length is missing"),
        ("range 9 0 1 reads=1", "file 9 is not named before"),
        ("range 1 0 1", "needs reads=N or writes=N"),
        ("range 1 0 1 reads=0 writes=0", "needs reads=N or writes=N"),
        ("range 1 0 1 reads", "the value of reads is missing"),
        ("range 1 0 1 reads=-1", "'-1' is not a valid value of reads"),
        (
            "range 1 0 1 reads=1 reads=1",
            "'reads=1' is not expected here",
        ),
        (
            "range 1 0 1 reads=1 direct",
            "'direct' is not expected here",
        ),
        ("range 1 0 1 reads=1 timed=1", "belong together"),
        ("range 1 0 1 reads=1 time=9", "belong together"),
        ("end x", "'x' is not a valid number of records"),
        ("end 5", "the profile has 1 records, but its end says 5"),
        ("end 1\nread 1 0 1", "something past the end"),
    ] {
        let text = format!("indef-profile 1\nfile 1 - - /a\nread 1 0 1\n{line}\n");
        let message = message(&text);
        assert!(message.contains(what), "{message}");
        assert!(
            message.starts_with("profile line 4: ") || line.contains('\n'),
            "{message}"
        );
        let advice = ["remove", "correct", "anew"];
        assert!(advice.iter().any(|a| message.contains(a)), "{message}");
    }
}

#[test]
fn a_recorded_profile_that_is_cut_off_is_refused() {
    let whole = written(&Profile {
        files: vec![ProfileFile {
            path: "/a".into(),
            dev: Some(1),
            inode: Some(2),
        }],
        records: read("indef-profile 1\nfile 1 - - /a\nread 1 0 1\nread 1 1 1")
            .unwrap()
            .records,
        ranges: Vec::new(),
    });
    assert!(read(&whole).is_ok());
    let first = whole.iter().position(|&b| b == b'\n').unwrap();
    for end in first..whole.len() - 2 {
        assert!(read(&whole[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn an_endless_line_takes_no_memory() {
    let endless = BufReader::new(b"indef-profile 1\n".chain(io::repeat(b' ')));
    let error = Profile::read(endless).unwrap_err();
    assert!(matches!(error.problem, ProfileProblem::TooLong));
    assert_eq!(error.line, 2);
}

fn written(profile: &Profile) -> Vec<u8> {
    profile.write(Vec::new()).unwrap()
}

#[test]
fn the_longest_path_fits_a_line() {
    let profile = Profile {
        files: vec![ProfileFile {
            path: OsString::from_vec(vec![0xff; 4096]).into(),
            dev: Some(u64::MAX),
            inode: Some(u64::MAX),
        }],
        records: Vec::new(),
        ranges: Vec::new(),
    };
    assert_eq!(read(written(&profile)).unwrap(), profile);
    assert_eq!(
        escape::encode(Path::new("/a b%\u{e9}~")),
        "/a%20b%25%C3%A9~"
    );
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let path = prop::collection::vec(1u8.., 1..30);
    let file = (path, any::<Option<u64>>(), any::<Option<u64>>()).prop_map(|(path, dev, inode)| {
        ProfileFile {
            path: OsString::from_vec(path).into(),
            dev,
            inode,
        }
    });
    let record = (
        any::<u32>(),
        0u64..1 << 62,
        1u64..1 << 62,
        any::<bool>(),
        any::<bool>(),
        any::<u64>(),
    );
    let records = prop::collection::vec(record, 0..30);
    let counts = prop::array::uniform5(0u64..);
    let range = (any::<u32>(), 0u64..1 << 62, 1u64..1 << 62, counts);
    let ranges = prop::collection::vec(range, 0..20);
    (prop::collection::vec(file, 1..4), records, ranges).prop_map(|(files, records, ranges)| {
        let build = |(file, offset, len, write, direct, time)| AccessRecord {
            file: file % files.len() as u32,
            offset: FileOffset(offset),
            len: Bytes(len),
            op: if write { Op::Write } else { Op::Read },
            direct,
            time: Nanos(time),
        };
        let count = |(file, start, len, counts): (u32, u64, u64, [u64; 5])| {
            let [reads, writes, requests, timed, time] = counts;
            let counted = AccessRange {
                range: FileRange::new(start, len),
                reads: reads.max(1),
                writes,
                observed: Observed {
                    requests,
                    timed,
                    time: Nanos(time),
                    ahead: (timed > 0).then_some(time),
                },
            };
            (file % files.len() as u32, counted)
        };
        Profile {
            records: records.into_iter().map(build).collect(),
            ranges: ranges.into_iter().map(count).collect(),
            files,
        }
    })
}

proptest! {
    #[test]
    fn every_profile_comes_back(profile in any_profile()) {
        prop_assert_eq!(read(written(&profile)).unwrap(), profile);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
        let _ = read(&bytes);
        let _ = read([b"indef-profile 1\nfile 1 - - /a\nread ", &bytes[..]].concat());
    }

    #[test]
    fn no_change_of_a_profile_makes_the_reader_panic(profile in any_profile(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut text = written(&profile);
        for (place, byte) in changes {
            let place = place.index(text.len());
            text[place] = byte;
        }
        if let Err(error) = read(&text) {
            prop_assert!(!error.to_string().chars().any(char::is_control));
        }
    }
}
