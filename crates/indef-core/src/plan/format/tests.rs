//! Round trips, and one line for each way in which a plan file can be wrong.

use std::{
    ffi::OsString,
    io::{self, BufReader, Read},
    os::unix::ffi::OsStringExt,
};

use proptest::prelude::*;
use units::{Bytes, FileRange};

use super::{super::*, *};
use crate::{SkipReason, layout::DeviceTimes, probe::ReadModel};

fn chunk(start: u64, len: u64) -> Chunk {
    Chunk {
        range: FileRange::new(start, len),
        reads: 3,
        writes: 1,
        dolf: 9,
        dopf: 2.5,
        iodp: 115.5,
        decision: Decision::Migrate,
        cost: Bytes(len),
        gain: 103.5,
        edges: Edges {
            excess: 8,
            cuts_start: false,
            cuts_end: true,
        },
        lets_go: None,
        shared: None,
    }
}

fn file(path: &[u8], chunks: Vec<Chunk>) -> FilePlan {
    FilePlan {
        path: OsString::from_vec(path.to_vec()).into(),
        root_len: Some(1),
        dev: 2049,
        inode: u64::MAX,
        born: Some(BirthTime {
            seconds: -1,
            nanos: 999_999_999,
        }),
        size: Bytes::gib(1),
        block_size: Bytes::kib(4),
        fs: "ext4".into(),
        engine: Some("ext4-move-extent".into()),
        extents_before: 65_536,
        named: None,
        skip: None,
        chunks,
    }
}

fn written(options: &PlanOptions, files: &[FilePlan]) -> Vec<u8> {
    let mut writer = PlanWriter::new(Vec::new(), options).unwrap();
    for file in files {
        writer.write(file).unwrap();
    }
    let (text, totals) = writer.finish().unwrap();
    assert_eq!(totals, PlanTotals::of(files));
    text
}

fn read(text: &[u8]) -> Result<(PlanOptions, Vec<FilePlan>), PlanError> {
    let reader = PlanReader::new(text)?;
    let options = reader.options().clone();
    Ok((options, reader.collect::<Result<_, _>>()?))
}

fn example() -> Vec<u8> {
    let files = [
        file(b"/a", vec![chunk(0, 4096), chunk(8192, 4096)]),
        file(b"/b", vec![chunk(0, 4096)]),
    ];
    written(&PlanOptions::default(), &files)
}

/// The message for a plan with `from` replaced by `to`.
fn message(from: &str, to: &str) -> String {
    let text = String::from_utf8(example()).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    let error = read(text.replacen(from, to, 1).as_bytes()).unwrap_err();
    let message = error.to_string();
    assert!(
        !message.contains('\n') && message.starts_with("plan line "),
        "{message}"
    );
    message
}

#[test]
fn plans_come_back_as_they_were() {
    let mut skipped = file(b"/skipped\n\xff\"", Vec::new());
    skipped.skip = Some(SkipReason::Immutable);
    skipped.engine = None;
    let mut truncated = chunk(0, 4096);
    truncated.decision = Decision::Skip(SkipReason::Truncated);
    let mut named = file(b"/named", vec![chunk(0, 4096)]);
    named.named = Some([131, u64::MAX].into());
    let many = (0..5000).map(|i| chunk(i * 8192, 4096)).collect();
    let files = [
        skipped,
        file(b"/one", vec![truncated]),
        named,
        file(b"/many", many),
    ];
    let options = PlanOptions {
        policy: Policy::Indef,
        geometry: "striped:granule=32KiB,dies=8".parse().unwrap(),
        budget: Some(Bytes(7)),
        target_gain_pct: Some(0.1 + 0.2),
        allow_unshare: true,
        ..PlanOptions::default()
    };
    let text = written(&options, &files);
    let (read_options, read_files) = read(&text).unwrap();
    assert_eq!(read_options, options);
    assert_eq!(read_files, files);
    let device = PlanOptions {
        weight: Weight::Device(DeviceTimes::default()),
        ..options
    };
    assert_eq!(read(&written(&device, &files)).unwrap().0, device);
    let probed = PlanOptions {
        weight: Weight::Probed(ReadModel::example()),
        ..device
    };
    assert_eq!(read(&written(&probed, &files)).unwrap().0, probed);
    let absurd = String::from_utf8(written(&probed, &files)).unwrap();
    let absurd = absurd.replacen("\"units\":8", "\"units\":0", 1);
    assert!(read(absurd.as_bytes()).is_err());
    assert!(text.starts_with(b"{\"indef-plan\":2,"), "as it always was");
    // 5000 chunks take five lines.
    assert_eq!(text.iter().filter(|&&b| b == b'\n').count(), 1 + 3 + 5 + 1);
    let told = |text: &[u8]| {
        String::from_utf8_lossy(text)
            .matches("named_inodes")
            .count()
    };
    assert_eq!(told(&text), 1, "other files are as they always were");
    let mut crowded = files[2].clone();
    crowded.named = Some((0..=MOST_NAMED as u64).collect());
    let error = read(&written(&options, &[crowded])).unwrap_err();
    assert!(error.to_string().contains("257 named inodes"), "{error}");
    assert!(
        text.split(|&b| b == b'\n')
            .all(|line| line.len() <= MAX_LINE)
    );
}

#[test]
fn a_plan_that_gives_space_back_is_of_a_newer_version() {
    let options = PlanOptions {
        reclaim_ratio: Some(0.25),
        ..PlanOptions::default()
    };
    let mut part = chunk(0, 4096);
    part.lets_go = Some(units::PhysOffset(1 << 40));
    let files = [file(b"/a", vec![part, chunk(8192, 4096)])];
    let text = written(&options, &files);
    assert!(text.starts_with(b"{\"indef-plan\":3,"));
    let (read_options, read_files) = read(&text).unwrap();
    assert_eq!(read_options, options);
    assert_eq!(read_files, files);
}

/// `xfs-swap-extents` writes all of a file, whatever is to move; `xfs-offload` writes twice.
#[test]
fn the_price_of_a_whole_file_is_kept() {
    let options = PlanOptions::default();
    let plan = |costs: [u64; 2]| {
        let [mut first, mut second] = [chunk(0, 4096), chunk(8192, 4096)];
        (first.cost, second.cost) = (Bytes(costs[0]), Bytes(costs[1]));
        let files = [file(b"/a", vec![first, second])];
        (written(&options, &files), files)
    };
    let size = plan([0, 0]).1[0].size.get();
    assert!(size > 4 * 4096);
    for costs in [[size, 0], [2 * 4096, 2 * 4096]] {
        let (text, files) = plan(costs);
        assert_eq!(read(&text).unwrap().1, files);
    }
    let wrong = plan([4096, 2 * 4096 + 1]).0;
    assert!(read(&wrong).is_err(), "a second one pays for itself");
}

#[test]
fn the_price_of_what_moves_with_others_is_kept() {
    let options = PlanOptions::default();
    let mut part = chunk(0, 4096);
    part.cost = Bytes(4096 + 65_536);
    part.shared = Some(SharedMove {
        holders: 50,
        metadata: Bytes(65_536),
    });
    let files = [file(b"/a", vec![part, chunk(8192, 4096)])];
    let text = String::from_utf8(written(&options, &files)).unwrap();
    assert_eq!(text.matches("metadata_bytes").count(), 1, "{text}");
    assert_eq!(read(text.as_bytes()).unwrap().1, files);
    // More than the cost that it is a part of.
    let absurd = text.replace("\"metadata_bytes\":65536", "\"metadata_bytes\":999999999");
    let (_, files) = read(absurd.as_bytes()).unwrap();
    assert_eq!(files[0].metadata(), files[0].chunks[0].cost);
}

#[test]
fn the_documented_example_is_a_plan() {
    let page = include_str!("../../../../../docs/plan.md");
    let (_, block) = page.split_once("```json\n").unwrap();
    let (example, _) = block.split_once("```").unwrap();
    let (_, files) = read(example.as_bytes()).unwrap();
    assert!(!files.is_empty());
    assert!(files.iter().any(|file| !file.runs().is_empty()));
}

#[test]
fn plans_of_version_1_are_read() {
    let text = String::from_utf8(example()).unwrap();
    let old = text
        .replacen("\"indef-plan\":2", "\"indef-plan\":1", 1)
        .replace("\"root_len_bytes\":1,", "")
        .replace("\"born\":[-1,999999999],", "");
    assert!(!old.contains("born") && !old.contains("root"), "{old}");
    let (_, files) = read(old.as_bytes()).unwrap();
    assert_eq!((files[0].root_len, files[0].born), (None, None));
    assert_eq!(
        files[0].place(),
        Some((std::path::Path::new("/"), std::path::Path::new("a")))
    );
}

#[test]
fn names_are_shared_in_memory() {
    let (_, files) = read(&example()).unwrap();
    assert!(std::sync::Arc::ptr_eq(&files[0].fs, &files[1].fs));
}

#[test]
fn foreign_and_outdated_files_are_told_from_damaged_ones() {
    let foreign: [&[u8]; 6] = [
        b"",
        b"\n\n",
        b"\x7fELF\x01\x02",
        b"{\"schema\":1}\n",
        b"indef-profile 1\n",
        &vec![b'x'; 3 << 20],
    ];
    for text in foreign {
        let message = read(text).unwrap_err().to_string();
        assert!(message.contains("not an indef plan"), "{message}");
    }
    for other in ["0", "4"] {
        let version = format!("{{\"indef-plan\":{other}");
        let message = message("{\"indef-plan\":2", &version);
        assert!(
            message.contains(&format!("plan format {other}")),
            "{message}"
        );
    }
}

#[test]
fn damage_names_its_line_and_what_to_do() {
    for (from, to, line, what) in [
        (
            "\"root_len_bytes\":1",
            "\"root_len_bytes\":2",
            2,
            "a root of 2 bytes",
        ),
        (
            "\"policy\":\"sequential\"",
            "\"policy\":\"best\"",
            1,
            "unknown variant",
        ),
        (
            "\"truncate_pct\":20.0",
            "\"truncate_pct\":2000.0",
            1,
            "0 to 100",
        ),
        (
            "\"geometry\":\"unknown\"",
            "\"geometry\":\"flat\"",
            1,
            "not a geometry",
        ),
        ("\"inode\"", "\"in\\node\"", 2, "unknown field"),
        ("\"reads\":3", "\"reads\":-3", 2, "invalid value"),
        ("\"dopf\":2.5", "\"dopf\":NaN", 2, "expected value"),
        ("\"dopf\":2.5", "\"dopf\":1e999", 2, "number out of range"),
        (
            "\"gain\":103.5",
            "\"gain\":-1",
            2,
            "gain of the chunk at byte 0 is -1",
        ),
        ("\"start_bytes\":8192", "\"start_bytes\":0", 2, "overlaps"),
        (
            "\"start_bytes\":8192",
            "\"start_bytes\":100",
            2,
            "block boundaries",
        ),
        (
            "\"start_bytes\":8192",
            "\"start_bytes\":18446744073709547520",
            2,
            "longer than any",
        ),
        (
            "\"start_bytes\":8192",
            "\"start_bytes\":1073741824",
            2,
            "past the end",
        ),
        ("\"len_bytes\":4096", "\"len_bytes\":0", 2, "is empty"),
        (
            "\"cost_bytes\":4096",
            "\"cost_bytes\":999999999999",
            2,
            "costs more",
        ),
        (
            "\"decision\":\"migrate\"",
            "\"decision\":\"skip\"",
            2,
            "without a reason",
        ),
        ("\"reason\":null", "\"reason\":\"cold\"", 2, "has a reason"),
        (
            "\"reason\":null",
            "\"reason\":\"moody\"",
            2,
            "unknown variant",
        ),
        (
            "\"block_size_bytes\":4096",
            "\"block_size_bytes\":0",
            2,
            "power of two",
        ),
        (
            "\"size_bytes\":1073741824",
            "\"size_bytes\":9223372036854775808",
            2,
            "no file has",
        ),
        ("\"path\":\"/a\"", "\"path\":\"\"", 2, "path is empty"),
        ("\"path\":\"/a\"", "\"path\":\"a\\u0000\"", 2, "zero byte"),
        ("\"more\":false", "\"more\":true", 3, "unknown field"),
        ("\"path\":\"/b\"", "\"path\":7", 3, "invalid type"),
        ("{\"path\":\"/b\"", "[[[[[[{\"path\":\"/b\"", 3, "damaged"),
        (
            "\"fs\":\"ext4\"",
            "\"fs\":\"\\u001b[2J\"",
            2,
            "a name of the file system that is none",
        ),
        ("{\"totals\"", "{\"total\"", 4, "unknown field"),
        (
            "\"chunks_to_move\":3",
            "\"chunks_to_move\":2",
            4,
            "do not match",
        ),
        ("\"files\":2", "\"files\":3", 4, "do not match"),
    ] {
        let message = message(from, to);
        assert!(
            message.starts_with(&format!("plan line {line}: ")),
            "{message}"
        );
        assert!(message.contains(what), "{message}");
        assert!(
            ["new plan", "new one", "correct the line", "indef plan"]
                .iter()
                .any(|advice| message.contains(advice)),
            "{message}"
        );
    }
}

#[test]
fn a_plan_that_is_cut_off_anywhere_is_refused() {
    let text = example();
    // Without the last line end it is whole.
    assert!(read(&text[..text.len() - 1]).is_ok());
    for end in 0..text.len() - 1 {
        assert!(read(&text[..end]).is_err(), "cut at {end}");
    }
    let lines: Vec<&[u8]> = text.split_inclusive(|&b| b == b'\n').collect();
    let missing = [lines[0], lines[2], lines[3]].concat();
    assert!(matches!(
        read(&missing).unwrap_err().problem,
        PlanProblem::Totals
    ));
    let early = [lines[0], lines[1]].concat();
    assert!(matches!(
        read(&early).unwrap_err().problem,
        PlanProblem::Truncated
    ));
    let behind = [&text[..], lines[1]].concat();
    assert!(matches!(
        read(&behind).unwrap_err().problem,
        PlanProblem::Trailing
    ));
}

#[test]
fn an_endless_line_takes_no_memory() {
    let header = &example()[..example().iter().position(|&b| b == b'\n').unwrap() + 1];
    let endless = BufReader::new(header.chain(io::repeat(b' ')));
    let error = PlanReader::new(endless)
        .unwrap()
        .next()
        .unwrap()
        .unwrap_err();
    assert!(matches!(error.problem, PlanProblem::TooLong));
    assert_eq!(error.line, 2);
}

#[test]
fn text_from_the_file_cannot_disturb_the_terminal() {
    let long = format!("\"\\u001b[2J\\n{}\"", "x".repeat(1000));
    let message = message("\"inode\"", &long);
    assert!(message.chars().count() < 400);
    assert!(!message.chars().any(char::is_control));
}

#[test]
fn a_person_may_turn_migrations_into_skips() {
    let text = String::from_utf8(example()).unwrap();
    let less = text.replacen(
        "\"decision\":\"migrate\",\"reason\":null",
        "\"decision\":\"skip\",\"reason\":\"cold\"",
        1,
    );
    let (_, files) = read(less.as_bytes()).unwrap();
    assert_eq!(PlanTotals::of(&files).chunks_to_move, 2);
}

#[test]
fn reading_stops_at_the_first_error() {
    let text = String::from_utf8(example()).unwrap().replacen("/a", "", 1);
    let mut reader = PlanReader::new(text.as_bytes()).unwrap();
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}

fn any_chunks() -> impl Strategy<Value = Vec<Chunk>> {
    let one = (
        0u64..5,
        1u64..9,
        any::<[u64; 3]>(),
        0f64..1e18,
        0..=SkipReason::ALL.len(),
    );
    prop::collection::vec(one, 0..20).prop_map(|parts| {
        let mut at = 0;
        let mut build = |(gap, len, counts, number, decision): (u64, u64, [u64; 3], f64, usize)| {
            let start = at + gap;
            at = start + len;
            Chunk {
                reads: counts[0],
                writes: counts[1],
                dolf: counts[2],
                dopf: number,
                iodp: number / 3.0,
                gain: number / 7.0,
                decision: match SkipReason::ALL.get(decision) {
                    Some(reason) => Decision::Skip(*reason),
                    None => Decision::Migrate,
                },
                cost: Bytes(len * 100),
                ..chunk(start * 4096, len * 4096)
            }
        };
        parts.into_iter().map(&mut build).collect()
    })
}

proptest! {
    #[test]
    fn every_plan_comes_back(paths in prop::collection::vec(prop::collection::vec(1u8.., 1..30), 0..4), chunks in any_chunks()) {
        let files: Vec<_> = paths.iter().map(|path| FilePlan {
            root_len: None,
            ..file(path, chunks.clone())
        }).collect();
        let text = written(&PlanOptions::default(), &files);
        prop_assert_eq!(read(&text).unwrap().1, files);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
        let _ = read(&bytes);
        let _ = read(&[&example()[..], &bytes].concat());
    }

    #[test]
    fn no_change_of_a_plan_makes_the_reader_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut text = example();
        for (place, byte) in changes {
            let place = place.index(text.len());
            text[place] = byte;
        }
        if let Err(error) = read(&text) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}
