//! Plans from counts and times, on real file systems: measured weights, target gains, and the
//! messages where a profile does not fit.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::Read as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::common::{Ran, fragments, make, run, scratch};
use scratch_fs::{ScratchFs, Segment, Shape, cached_pages, settled_cache_change};
use units::Bytes;

const RANGE: Bytes = Bytes::kib(128);
const PIECES: [u64; 6] = [4, 8, 16, 32, 64, 128];

/// A file of 16 MiB whose ranges of 128 KiB are in pieces of 4 KiB to 128 KiB in turn.
fn mixed(scratch: &ScratchFs) -> PathBuf {
    let path = scratch.path().join("mixed");
    let mut shape = Shape::new(7);
    for i in 0..128 {
        shape = shape.with(Segment::Data {
            len: RANGE,
            piece: Bytes::kib(PIECES[i % PIECES.len()]),
        });
    }
    shape.make(&path).unwrap();
    path
}

/// The fragments of range number `i`.
fn dolf(i: u64) -> u64 {
    128 / PIECES[i as usize % PIECES.len()]
}

/// A profile of `path` with one line for each range, with the text of `line` after the counts.
fn profile(path: &Path, reads: impl Fn(u64) -> u64, line: impl Fn(u64) -> String) -> PathBuf {
    let mut text = format!("indef-profile 1\nfile 0 - - {}\n", path.display());
    for i in 0..128 {
        let offset = i * RANGE.get();
        writeln!(
            text,
            "range 0 {offset} {} reads={} writes=0 {}",
            RANGE.get(),
            reads(i),
            line(i)
        )
        .unwrap();
    }
    let profile = path.with_extension("profile");
    fs::write(&profile, text).unwrap();
    profile
}

fn plan(path: &Path, profile: &Path, options: &[&str]) -> Ran {
    let fixed = ["plan", "--json", "--profile"];
    let arguments = fixed.iter().copied().chain([profile.to_str().unwrap()]);
    run(arguments
        .chain(options.iter().copied())
        .chain([path.to_str().unwrap()]))
}

/// 100 µs, and 20 µs for each further fragment, give or take.
fn time_ns(i: u64) -> u64 {
    100_000 + 20_000 * (dolf(i) - 1) + (i * 7919 % 13) * 500
}

#[test]
fn loop_weights_come_from_the_times_of_the_profile() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = mixed(&scratch);
    let reads = |i: u64| 20 + i % 5;
    let timed = |i| format!("timed={} time={}", reads(i), reads(i) * time_ns(i));
    let profile = profile(&file, reads, timed);
    let plan_file = scratch.path().join("plan");
    let planned = plan(
        &file,
        &profile,
        &["--weight", "measured", "-o", plan_file.to_str().unwrap()],
    );
    assert_eq!(planned.status, 0, "{planned:?}");
    let json = planned.json();
    assert_eq!(json["weight"], "measured");
    let weights = &json["weights"];
    let fragment = weights["per_fragment_ns"].as_f64().unwrap();
    assert!((fragment / 20_000.0 - 1.0).abs() < 0.02, "{weights}");
    assert!(weights["r_squared"].as_f64().unwrap() > 0.99, "{weights}");
    assert_eq!(weights["ranges"], 128);
    assert!(weights["ranking"]["spearman"].as_f64().unwrap() > 0.9);
    // Time lost per read × reads.
    let chunk = &json["chunks"][0];
    let lost = chunk["gain"].as_f64().unwrap() / 20.0;
    assert!((lost / (31.0 * 20_000.0) - 1.0).abs() < 0.05, "{chunk}");

    let text = run([
        "plan",
        "--weight",
        "measured",
        "--profile",
        profile.to_str().unwrap(),
        file.to_str().unwrap(),
    ]);
    assert!(text.out.contains("Measured weights"), "{text:?}");
    assert!(text.out.contains("Spearman"), "{text:?}");
    assert!(text.out.contains("less time in reads"), "{text:?}");
    let report = run(["report", plan_file.to_str().unwrap()]);
    assert!(report.out.contains("less time in reads"), "{report:?}");
    let ran = run(["run", "--json", "--plan", plan_file.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.json()["files"][0]["status"], "moved");
}

/// A file of ranges in 32 pieces and in one, in turn, and a profile of it with times.
fn halves(scratch: &ScratchFs) -> (PathBuf, PathBuf) {
    let path = scratch.path().join("halves");
    let shape = (0..128).fold(Shape::new(7), |shape, i| {
        shape.with(Segment::Data {
            len: RANGE,
            piece: if i % 2 == 0 { Bytes::kib(4) } else { RANGE },
        })
    });
    shape.make(&path).unwrap();
    let time = |i: u64| 100_000 + 640_000 * ((i + 1) % 2) + (i * 7919 % 13) * 500;
    let timed = |i| format!("timed=20 time={}", 20 * time(i));
    let profile = profile(&path, |_| 20, timed);
    (path, profile)
}

/// Files that `--calibrate` reads keep their access time, and what was in the page cache of them, directly or through it.
#[test]
fn loop_asking_the_device_leaves_files_as_they_are() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let (path, profile) = halves(&scratch);
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    // A part of it is somebody's who reads it all the time.
    let mut first = vec![0; 8 * RANGE.get() as usize];
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    file.read_exact_at(&mut first, 0).unwrap();
    // Looking at the cache is an access.
    let cached = cached_pages(&file).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(7 * 24 * 3600);
    let accessed = || fs::metadata(&path).unwrap().accessed().unwrap();
    for calibrate in ["--calibrate", "--calibrate=buffered"] {
        file.set_times(fs::FileTimes::new().set_accessed(long_ago))
            .unwrap();
        let before = accessed();
        let planned = plan(&path, &profile, &["--weight", "measured", calibrate]);
        assert_eq!(planned.status, 0, "{planned:?}");
        let json = planned.json();
        // It was asked, whatever it said.
        let unknown = json["read_time"]["unknown"].as_str().unwrap_or_default();
        for not_asked in ["needs at least", "given up", "stopped"] {
            assert!(!unknown.contains(not_asked), "{calibrate}: {unknown}");
        }
        assert!(json["read_time"].is_object(), "{json}");
        assert_eq!(accessed(), before, "{calibrate}");
        let change = settled_cache_change(&file, &cached).unwrap();
        assert_eq!(change.added, Vec::<usize>::new(), "{calibrate}");
        assert_eq!(change.dropped, Vec::<usize>::new(), "{calibrate}");
    }
}

/// What is in the page cache would not wait for the device: of a file that is there, calls are not told.
#[test]
fn loop_what_is_cached_tells_nothing_of_reads_that_wait() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let (path, profile) = halves(&scratch);
    let mut file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    file.read_to_end(&mut Vec::new()).unwrap();
    let options = ["--weight", "measured", "--calibrate=buffered"];
    let planned = plan(&path, &profile, &options);
    assert_eq!(planned.status, 0, "{planned:?}");
    let json = planned.json();
    let unknown = json["read_time"]["unknown"].as_str().unwrap_or_default();
    assert!(unknown.contains("is in the page cache"), "{json}");
}

#[test]
fn loop_without_times_the_papers_weights_serve_and_the_reason_is_said() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = mixed(&scratch);
    let profile = profile(&file, |_| 3, |_| String::new());
    let measured = plan(&file, &profile, &["--weight", "measured"]);
    assert_eq!(measured.status, 0, "{measured:?}");
    assert!(measured.err.contains("holds no times"), "{measured:?}");
    let (measured, paper) = (measured.json(), plan(&file, &profile, &[]).json());
    assert_eq!(measured["weight"], "paper");
    assert!(measured["weights_refused"].is_string());
    assert_eq!(measured["totals"], paper["totals"]);
    let without = run(["plan", "--weight", "measured", file.to_str().unwrap()]);
    assert_eq!(without.status, 2, "{without:?}");
    assert!(without.err.contains("--profile"), "{without:?}");
}

#[test]
fn loop_where_the_times_show_no_cost_of_fragments_nothing_is_planned() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = mixed(&scratch);
    // As long for every range, however fragmented.
    let flat = |i: u64| format!("timed=20 time={}", 20 * (100_000 + (i * 7919 % 13) * 500));
    let untimed = profile(&file, |_| 20, |_| String::new());
    let usual = plan(&file, &untimed, &[]).json();
    assert!(usual["totals"]["cost_bytes"].as_u64() > Some(0), "{usual}");
    assert!(usual["nothing_to_gain"].is_null());
    let profile = profile(&file, |_| 20, flat);
    for options in [&[][..], &["--weight", "measured"]] {
        let planned = plan(&file, &profile, options);
        assert_eq!(planned.status, 0, "{planned:?}");
        assert!(planned.err.contains("--ignore-times"), "{planned:?}");
        let json = planned.json();
        assert_eq!(json["totals"]["cost_bytes"], 0, "{}", json["totals"]);
        assert_eq!(json["totals"]["skipped"]["no-time-lost"], 1);
        assert!(json["nothing_to_gain"].is_string());
        let anyway = plan(&file, &profile, &[options, &["--ignore-times"]].concat());
        assert_eq!(anyway.json()["totals"], usual["totals"], "{anyway:?}");
    }
    let before = fragments(&file);
    let profile = profile.to_str().unwrap();
    let ran = run([
        "run",
        "--json",
        "--profile",
        profile,
        file.to_str().unwrap(),
    ]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.json()["totals"]["bytes_relocated"], 0);
    assert_eq!(fragments(&file), before);
}

#[test]
fn loop_a_target_gain_is_predicted_and_kept_to() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = mixed(&scratch);
    let profile = profile(&file, |i| 1 + 10_000 / (1 + i * i), |_| String::new());
    let json = plan(&file, &profile, &["--target-gain", "90"]).json();
    let prediction = &json["prediction"];
    let (gain, cost) = (&prediction["gain_pct"], &prediction["cost_pct"]);
    assert!(
        (90.0..99.0).contains(&gain.as_f64().unwrap()),
        "{prediction}"
    );
    assert!(cost.as_f64().unwrap() < 20.0, "{prediction}");
    assert_eq!(prediction["cost_bytes"], json["totals"]["cost_bytes"]);
    // Truncation, which is on by default, would make that gain unreachable.
    let all = plan(&file, &profile, &["--target-gain", "100"]).json();
    assert_eq!(all["prediction"]["gain_pct"], 100.0);
    assert_eq!(all["totals"]["gain"], all["totals"]["total_gain"]);
    let both = plan(
        &file,
        &profile,
        &["--target-gain", "100", "--truncate", "50"],
    )
    .json();
    assert!(both["totals"]["cost_bytes"].as_u64() < all["totals"]["cost_bytes"].as_u64());

    let ran = run([
        "run",
        "--json",
        "--target-gain",
        "90",
        "--profile",
        profile.to_str().unwrap(),
        file.to_str().unwrap(),
    ]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(
        ran.json()["totals"]["bytes_relocated"],
        prediction["cost_bytes"]
    );
}

#[test]
fn loop_files_that_are_gone_are_told_in_one_line() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = mixed(&scratch);
    let mut text = format!(
        "indef-profile 1\nfile 0 - - {}\nread 0 0 128KiB\n",
        file.display()
    );
    for i in 1..1000 {
        writeln!(text, "file {i} - - /no/such/file{i}\nread {i} 0 4096").unwrap();
    }
    let profile = file.with_extension("profile");
    fs::write(&profile, text).unwrap();
    let planned = plan(&file, &profile, &[]);
    assert_eq!(planned.status, 0, "{planned:?}");
    assert!(planned.error_line("999 files").contains("no longer there"));
}

#[test]
fn loop_a_scan_shows_heat_beside_fragmentation() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = mixed(&scratch);
    // As fragmented, but never read.
    let cold = scratch.path().join("cold");
    make(&cold, Bytes::mib(16), Bytes::kib(4));
    let reads = |i: u64| if i == 60 { 500 } else { 10 };
    let timed = |i| format!("timed={} time={}", reads(i), reads(i) * time_ns(i));
    let with_times = profile(&file, reads, timed);
    let scan = |options: &[&str]| {
        let fixed = [
            "scan",
            "--top",
            "2",
            "--profile",
            with_times.to_str().unwrap(),
        ];
        let path = scratch.path().to_str().unwrap();
        run(fixed.iter().chain(options).chain([&path]))
    };
    let json = scan(&["--json"]).json();
    let files = json["files"].as_array().unwrap();
    let of = |name: &str| {
        let ends = |f: &&serde_json::Value| f["path"].as_str().unwrap().ends_with(name);
        files.iter().find(ends).unwrap()
    };
    assert_eq!(of("mixed")["reads"], 127 * 10 + 500);
    assert_eq!(of("mixed")["reads_pct"], 100.0);
    assert_eq!(of("cold")["reads"], 0);
    assert_eq!(of("cold")["lost_requests"], 0);
    // Range 60 is one of those in pieces of 4 KiB: 31 requests too many.
    let hottest = &json["heat"]["hottest"][0];
    assert_eq!(hottest["start_bytes"], 60 * RANGE.get(), "{hottest}");
    assert_eq!(hottest["lost_requests"], 31 * 500);
    let lost = hottest["lost_ns"].as_f64().unwrap() / 500.0;
    assert!((lost / (31.0 * 20_000.0) - 1.0).abs() < 0.05, "{hottest}");
    assert_eq!(json["heat"]["hottest"].as_array().unwrap().len(), 2);
    let text = scan(&[]).out;
    assert!(text.contains("Hottest fragmented ranges"), "{text}");
    let mixed_at = text.find("/mixed").unwrap();
    assert!(mixed_at < text.find("/cold").unwrap(), "{text}");

    let without = profile(&file, reads, |_| String::new());
    let json = run([
        "scan",
        "--json",
        "--profile",
        without.to_str().unwrap(),
        file.to_str().unwrap(),
    ])
    .json();
    assert!(json["heat"]["no_times"].is_string(), "{}", json["heat"]);
    assert_eq!(json["heat"]["lost_ns"], serde_json::Value::Null);
    assert_eq!(json["heat"]["hottest"][0]["lost_requests"], 31 * 500);
}

#[test]
fn loop_a_scan_begins_with_a_verdict() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = mixed(&scratch);
    let name = file.to_str().unwrap();
    let verdict = |options: &[&str]| {
        let words = [&["scan", name][..], options].concat();
        let verdict = run([&words[..], &["--json"]].concat()).json()["verdict"].clone();
        let text = run(words).out;
        assert_eq!(text.lines().next(), verdict["text"].as_str(), "{text}");
        verdict
    };
    let sum = |value: &dyn Fn(u64) -> u64| (0..128).map(value).sum::<u64>() as f64;
    let near = |value: &serde_json::Value, expected: f64| {
        let value = value.as_f64().unwrap();
        assert!((value / expected - 1.0).abs() < 0.05, "{value} {expected}");
    };
    // A range in one piece of 128 KiB may touch its neighbour, but is one request in any case.
    let fewer = sum(&|i| dolf(i) - 1) * 100.0 / sum(&dolf);

    let layout = verdict(&[]);
    assert_eq!(layout["kind"], "worth-moving", "{layout}");
    near(&layout["fewer_requests_pct"], fewer);
    assert!(layout["faster_pct"].is_null());

    let given = |line: &dyn Fn(u64) -> String| {
        let profile = profile(&file, |_| 20, line);
        verdict(&["--profile", profile.to_str().unwrap()])
    };
    let timed = given(&|i| format!("timed=20 time={}", 20 * time_ns(i)));
    assert_eq!(timed["kind"], "worth-moving", "{timed}");
    let now = sum(&time_ns);
    let afterwards = now - sum(&|i| 20_000 * (dolf(i) - 1));
    near(&timed["faster_pct"], (now / afterwards - 1.0) * 100.0);
    assert!(timed["text"].as_str().unwrap().contains("faster reads"));
    let untimed = given(&|_| String::new());
    assert_eq!(untimed["kind"], "worth-moving", "{untimed}");
    near(&untimed["fewer_requests_pct"], fewer);

    let flat = given(&|i| format!("timed=20 time={}", 20 * (100_000 + i * 7919 % 13 * 500)));
    assert_eq!(flat["kind"], "nothing-to-gain", "{flat}");
    assert_eq!(flat["move_bytes"], 0);
    // A cost that the times show, but that nobody would notice.
    let little = given(&|i| format!("timed=20 time={}", 20 * (10_000_000 + 1000 * dolf(i))));
    assert_eq!(little["kind"], "nothing-to-gain", "{little}");
    assert!(little["faster_pct"].as_f64().unwrap() < 1.0, "{little}");

    assert_eq!(run(["run", name]).status, 0);
    assert_eq!(verdict(&[])["kind"], "fine");
}

/// A store with these reads of ranges of a file.
fn store(path: &Path, reads: impl Fn(u64) -> u64) -> PathBuf {
    use std::{
        os::unix::fs::MetadataExt,
        time::{Duration, SystemTime},
    };

    use indef_core::access::Observed;
    use indef_trace::{
        FileKey, FsId, Tally, TracedFile,
        store::{SessionInfo, Store, StoreOptions},
    };
    use units::{FileRange, Nanos};

    let status = fs::metadata(path).unwrap();
    let key = FileKey {
        dev: status.dev(),
        inode: status.ino(),
        generation: generation(path),
        subvolume: 0,
    };
    let files = [TracedFile {
        key,
        fs: FsId {
            uuid: [0; 16],
            magic: 0xEF53,
        },
        path: Some(path.to_owned()),
    }];
    let tallies: Vec<Tally> = (0..128)
        .map(|i| Tally {
            file: key,
            range: FileRange::new(i * RANGE.get(), RANGE.get()),
            reads: reads(i),
            writes: 0,
            observed: Observed {
                requests: reads(i) * dolf(i),
                timed: reads(i),
                time: Nanos(reads(i) * time_ns(i)),
                ahead: None,
            },
        })
        .collect();
    let place = path.with_extension("store");
    let now = SystemTime::now();
    let steady = StoreOptions {
        half_life: Some(Duration::ZERO),
        ..StoreOptions::default()
    };
    let mut store = Store::create(&place, &steady).unwrap();
    let session = store.begin(&SessionInfo::default(), now).unwrap();
    store.add(session, &files, &tallies, now).unwrap();
    store.finish(session, 0, now).unwrap();
    place
}

/// The generation of a file; `lsattr -v` prints it, too.
fn generation(path: &Path) -> u32 {
    let output = std::process::Command::new("lsattr")
        .arg("-v")
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn loop_a_store_serves_like_a_profile_under_every_policy() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = mixed(&scratch);
    let reads = |i: u64| 10 + i % 7;
    let store = store(&file, reads);
    let timed = |i| {
        let (reads, time) = (reads(i), reads(i) * time_ns(i));
        format!("requests={} timed={reads} time={time}", reads * dolf(i))
    };
    let text = profile(&file, reads, timed);
    for policy in ["indef", "fragpicker", "whole", "sequential"] {
        for weight in ["paper", "measured"] {
            let options = ["--policy", policy, "--weight", weight];
            let (a, b) = (plan(&file, &store, &options), plan(&file, &text, &options));
            assert_eq!((a.status, &*a.err), (0, ""), "{a:?}");
            assert_eq!(a.json()["totals"], b.json()["totals"], "{options:?}");
            assert_eq!(a.json()["weight"], weight);
        }
    }
    // Found by its identity, not by its name.
    let before = plan(&file, &store, &[]).json();
    let renamed = scratch.path().join("renamed");
    fs::rename(&file, &renamed).unwrap();
    let after = plan(&renamed, &store, &[]).json();
    assert_eq!(before["totals"], after["totals"]);
    // Another file under that name is another file.
    fs::copy(&renamed, &file).unwrap();
    let replaced = plan(&file, &store, &[]).json();
    assert_eq!(replaced["totals"]["chunks"], 0);
    fs::remove_file(&renamed).unwrap();
    let gone = plan(&file, &store, &[]);
    assert_eq!(gone.status, 0, "{gone:?}");
    assert!(gone.err.contains("accesses are left out"), "{gone:?}");
}
