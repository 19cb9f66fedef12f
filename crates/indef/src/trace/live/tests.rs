use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use indef_core::access::Observed;
use indef_pipeline::learn::{AccessCounts, Batch, Live, MAX_FILES};
use indef_trace::{
    FileKey, FsId, Tally, TracedFile,
    collect::{Sampled, Spent},
};
use units::{FileRange, Nanos};

use super::{view::lines, *};
use crate::{
    documented::assert_documented,
    output::{Console, Style, fit},
};

fn key(inode: u64) -> FileKey {
    FileKey {
        dev: 0x801,
        inode,
        generation: 1,
        subvolume: 0,
    }
}

fn named(inode: u64, path: impl AsRef<Path>) -> TracedFile {
    TracedFile {
        key: key(inode),
        fs: FsId::default(),
        path: Some(path.as_ref().to_owned()),
    }
}

/// Reads of 128 KiB, each in four requests, each timed to take a millisecond.
fn tally(inode: u64, n: u64, reads: u64) -> Tally {
    Tally {
        file: key(inode),
        range: FileRange::new(n * 131_072, 131_072),
        reads,
        writes: 0,
        observed: Observed {
            requests: reads * 4,
            timed: reads,
            time: Nanos(reads * 1_000_000),
            ahead: None,
        },
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Two files, the second one hotter at first and the first one lately, watched for a minute.
fn watched() -> Live {
    let mut live = Live::default();
    let names = [named(1, "/srv/db/main.sqlite"), named(2, "/srv/log")];
    for second in 1..=60 {
        let hot = if second <= 30 { 2 } else { 1 };
        let tallies = [tally(hot, second % 8, 100), tally(3 - hot, 0, 1)];
        let batch = Batch {
            tallies: &tallies,
            files: if second == 1 { &names } else { &[] },
            ..Batch::default()
        };
        live.add(&batch, seconds(second));
    }
    live
}

#[test]
fn sums_and_rates_are_those_of_what_was_fed() {
    let live = watched();
    let total = live.total();
    assert_eq!((total.reads, total.writes), (6060, 0));
    assert_eq!(total.read.get(), 6060 * 131_072);
    assert_eq!(total.requests_per_read(), Some(4.0));
    assert_eq!(total.mean_time(), Some(Nanos(1_000_000)));
    let rates = live.rates();
    assert!((rates.reads - 101.0).abs() < 10.0, "{rates:?}");
    assert!(
        (rates.read / rates.reads - 131_072.0).abs() < 1.0,
        "{rates:?}"
    );
    assert_eq!(
        (live.files_seen().count(), live.ranges_seen().count()),
        (2, 16)
    );
    assert_eq!((live.lost(), live.elapsed()), (0, seconds(60)));
}

#[test]
fn the_hottest_file_now_is_not_the_hottest_of_all() {
    let mut live = watched();
    live.add(
        &Batch {
            tallies: &[tally(2, 9, 500)],
            ..Batch::default()
        },
        seconds(60),
    );
    // Half a minute of silence makes file 2 cold, however many reads it had.
    let quiet = [tally(1, 0, 10)];
    live.add(
        &Batch {
            tallies: &quiet,
            ..Batch::default()
        },
        seconds(160),
    );
    assert_eq!(live.hottest_now(1)[0].key, key(1));
    assert_eq!(live.hottest_of_all(1)[0].key, key(2));
    assert!(live.hottest_now(0).is_empty());
    assert_eq!(live.hottest_now(9).len(), 2);
}

#[test]
fn nothing_is_made_up_where_nothing_was_measured() {
    let live = Live::default();
    assert_eq!(live.total().requests_per_read(), None);
    assert_eq!(live.total().mean_time(), None);
    let mut live = Live::default();
    let untimed = Tally {
        observed: Observed::default(),
        ..tally(1, 0, 5)
    };
    live.add(
        &Batch {
            tallies: &[untimed],
            ..Batch::default()
        },
        seconds(1),
    );
    assert_eq!(live.total().requests_per_read(), None);
    let text = lines(&live, 80, 9, Style::plain()).join("\n");
    assert!(text.contains("inode 1 of device 8:1"), "{text}");
    assert!(!text.contains("requests/read"), "{text}");
}

#[test]
fn reads_that_were_not_timed_count_like_those_that_were() {
    let sampled = Tally {
        observed: Observed {
            timed: 2,
            time: Nanos(2_000_000),
            ahead: None,
            requests: 400,
        },
        ..tally(1, 0, 100)
    };
    let mut live = Live::default();
    live.add(
        &Batch {
            tallies: &[sampled],
            ..Batch::default()
        },
        seconds(1),
    );
    assert_eq!(live.total().device_time(), Some(Nanos(100_000_000)));
    let mut text = Vec::new();
    write_summary(&mut text, &Console::plain(), &live, 1, None).unwrap();
    assert!(String::from_utf8(text).unwrap().contains("~100.0 ms"));
    assert_eq!(AccessCounts::default().device_time(), None);
}

#[test]
fn memory_is_bounded_and_the_hot_files_stay() {
    let mut live = Live::default();
    live.add(
        &Batch {
            tallies: &[tally(7, 0, 1_000_000)],
            files: &[named(7, "/hot")],
            ..Batch::default()
        },
        seconds(1),
    );
    let files = MAX_FILES as u64 * 3;
    for first in (0..files).step_by(1024) {
        let tallies: Vec<_> = (first..first + 1024)
            .map(|n| tally(100 + n, 0, 1))
            .collect();
        let batch = Batch {
            tallies: &tallies,
            ..Batch::default()
        };
        live.add(&batch, seconds(2));
    }
    assert_eq!(live.total().reads, 1_000_000 + files);
    assert_eq!(live.files_seen().count(), files + 1);
    assert!(live.hottest_of_all(usize::MAX).len() <= MAX_FILES);
    let hottest = live.hottest_of_all(1);
    assert_eq!(hottest[0].path, Some(Path::new("/hot")));
    assert_eq!(hottest[0].total.reads, 1_000_000);
}

#[test]
fn the_view_tells_all_and_fits_every_terminal() {
    let live = watched();
    let view = lines(&live, 80, 20, Style::plain());
    assert!(view[0].starts_with("0:01:00  "), "{view:#?}");
    assert!(
        view[0].contains("reads/s") && view[0].contains("MiB/s"),
        "{view:#?}"
    );
    assert_eq!(
        view[1],
        "4.00 requests/read  1.0 ms/read  2 files  16 ranges  nothing lost"
    );
    assert!(view[3].contains("/srv/db/main.sqlite"), "{view:#?}");
    for width in 0..120 {
        for height in 0..15 {
            let view = lines(&live, width, height, Style::plain());
            assert!(view.len() <= height, "{width}×{height}: {view:#?}");
            for line in &view {
                assert!(fit::columns(line) <= width, "{width}×{height}: {line}");
            }
        }
    }
    // The end of a path is its most important part.
    let narrow = lines(&live, 20, 20, Style::plain());
    assert!(narrow[3].ends_with("n.sqlite"), "{narrow:#?}");
}

#[test]
fn lost_events_are_never_left_out() {
    let mut live = watched();
    live.add(
        &Batch {
            lost: 12_345,
            ..Batch::default()
        },
        seconds(61),
    );
    for width in [20, 40, 80] {
        let view = lines(&live, width, 3, Style::plain());
        assert_eq!(view[1], "12,345 events lost", "{width}");
    }
    let mut text = Vec::new();
    write_summary(&mut text, &Console::plain(), &live, 5, None).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("12,345 events were lost"), "{text}");
}

#[test]
fn calls_of_which_nothing_is_told_are_in_the_summary() {
    let summary = |counted, untold| {
        let mut live = Live::default();
        let batch = Batch {
            sampled: Sampled {
                counted,
                ..Sampled::default()
            },
            untold,
            ..Batch::default()
        };
        live.add(&batch, seconds(3));
        let mut text = Vec::new();
        write_summary(&mut text, &Console::plain(), &live, 5, None).unwrap();
        String::from_utf8(text).unwrap()
    };
    let more = "12,345 reads and writes more were made";
    for counted in [0, 100_000] {
        let text = summary(counted, 12_345);
        assert!(text.contains(more), "{text}");
    }
    // As good as nothing.
    for (counted, untold) in [(0, 0), (0, 90), (1_000_000, 12_345)] {
        let text = summary(counted, untold);
        assert!(!text.contains("more were made"), "{text}");
    }
}

#[test]
fn odd_names_stay_on_their_line() {
    let mut live = Live::default();
    let odd = PathBuf::from(OsStr::from_bytes(b"/a\n\x1b[2Jb\xff/\xe2\x80\xaec"));
    let long = format!("/{}", "very/".repeat(800));
    live.add(
        &Batch {
            tallies: &[tally(1, 0, 9), tally(2, 0, 5)],
            files: &[named(1, &odd), named(2, &long)],
            ..Batch::default()
        },
        seconds(1),
    );
    let view = lines(&live, 100, 20, Style::plain());
    assert!(
        view[3].ends_with(r"/a\n\u{1b}[2Jb\xff/\u{202e}c"),
        "{view:#?}"
    );
    assert!(view[4].contains("…") && fit::columns(&view[4]) <= 100);
    assert!(view.iter().all(|line| !line.contains(['\n', '\x1b'])));
}

#[test]
fn the_summary_and_the_document_say_the_same() {
    let live = watched();
    let mut text = Vec::new();
    write_summary(&mut text, &Console::plain(), &live, 1, None).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("6,060 reads of 757.5 MiB, 0 writes of 0 B in 0:01:00"),
        "{text}"
    );
    assert!(
        text.contains("16 ranges in 2 files; 4.00 requests for each read; a read took 1.0 ms"),
        "{text}"
    );
    assert_eq!(text.matches("/srv/").count(), 1, "{text}");
    let document = serde_json::to_value(TraceDocument::new(&live, 1, None)).unwrap();
    assert_eq!(document["totals"]["reads"], 6060);
    assert_eq!(document["totals"]["bytes_read"], 6060_u64 * 131_072);
    assert_eq!(document["totals"]["ranges"], 16);
    assert_eq!(document["totals"]["duration_ns"], 60_000_000_000_u64);
    assert_eq!(document["files"].as_array().unwrap().len(), 1);
    assert_eq!(
        document["files"][0]["requests"],
        document["files"][0]["reads"].as_u64().unwrap() * 4
    );
}

#[test]
fn a_bound_that_was_not_kept_is_told() {
    let mut live = watched();
    live.add(
        &Batch {
            spent: Spent {
                programs: Some(Duration::from_millis(900)),
                collector: Duration::from_millis(300),
            },
            ..Batch::default()
        },
        seconds(60),
    );
    // 1.2 s of a minute.
    for (bound, held, told) in [
        (
            2.5,
            true,
            "took 2.00 % of one processor's time (--max-overhead 2.5)",
        ),
        (
            0.5,
            false,
            "took 2.00 % of one processor's time: more than --max-overhead 0.5",
        ),
    ] {
        let bound = Some(bound);
        let mut text = Vec::new();
        write_summary(&mut text, &Console::plain(), &live, 1, bound).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(told), "{text}");
        let document = serde_json::to_value(TraceDocument::new(&live, 1, bound)).unwrap();
        let totals = &document["totals"];
        assert_eq!(totals["overhead_held"], held);
        assert!((totals["overhead_percent"].as_f64().unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(totals["programs_ns"], 900_000_000);
    }
    // Not measured, not told.
    let document = serde_json::to_value(TraceDocument::new(&watched(), 1, None)).unwrap();
    assert!(document["totals"]["overhead_held"].is_null());
}

#[test]
fn every_field_is_documented() {
    let document = serde_json::to_value(TraceDocument::new(&watched(), 1, None)).unwrap();
    let objects = [&document, &document["files"][0], &document["totals"]];
    assert_documented("trace", &objects);
}
