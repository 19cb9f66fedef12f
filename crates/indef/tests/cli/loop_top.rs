//! `indef top` in a real terminal, on a real file system: the list is right, `r` repairs a range,
//! contents stay equal, and the terminal is restored whatever ends it.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use crate::common::{
    ForAnybody, Run, fragments, hashes, indef, is_root, make, reader::Reader, scratch, tmux::Tmux,
};
use indef_core::access::Observed;
use indef_trace::{
    FileKey, FsId, Tally, TracedFile,
    store::{SessionInfo, Store, StoreOptions},
};
use rustix::process::{Pid, Signal, kill_process};
use scratch_fs::ScratchFs;
use units::{Bytes, FileRange, Nanos};

const BINARY: &str = env!("CARGO_BIN_EXE_indef");

/// Two fragmented files, one of them with two hot ranges, a contiguous file that is read, and a
/// profile of all of them.
fn aged() -> Option<ScratchFs> {
    if !is_root() {
        return None;
    }
    let scratch = scratch("ext4")?;
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    make(&dir.join("main.sqlite"), Bytes::mib(8), Bytes::kib(4));
    make(&dir.join("events.log"), Bytes::mib(4), Bytes::kib(64));
    fs::write(dir.join("fine"), vec![3; 1 << 20]).unwrap();
    scratch.sync().unwrap();
    learned(&dir, &scratch.path().join("db.store"));
    Some(scratch)
}

/// A store in which 128 KiB in 32 fragments took 32 requests and 800 µs each.
fn learned(dir: &Path, store: &Path) {
    let file = |name: &str| {
        let path = dir.join(name);
        let status = fs::metadata(&path).unwrap();
        TracedFile {
            key: FileKey {
                dev: status.dev(),
                inode: status.ino(),
                generation: 1,
                subvolume: 0,
            },
            fs: FsId::default(),
            path: Some(path),
        }
    };
    let files = ["main.sqlite", "events.log", "fine"].map(file);
    let tally = |n: usize, start, reads, requests, nanos| Tally {
        file: files[n].key,
        range: FileRange::new(start, 128 << 10),
        reads,
        writes: 0,
        observed: Observed {
            requests: reads * requests,
            timed: if nanos > 0 { reads } else { 0 },
            time: Nanos(reads * nanos),
            ahead: None,
        },
    };
    let tallies = [
        tally(0, 1 << 20, 500, 32, 800_000),
        tally(0, 4 << 20, 50, 32, 800_000),
        tally(1, 0, 90, 2, 0),
        tally(2, 0, 9000, 1, 100_000),
    ];
    // No decay: the figures are shown as they are.
    let options = StoreOptions {
        half_life: Some(Duration::ZERO),
        ..StoreOptions::default()
    };
    let now = SystemTime::now();
    let mut store = Store::create(store, &options).unwrap();
    let session = store.begin(&SessionInfo::default(), now).unwrap();
    store.add(session, &files, &tallies, now).unwrap();
    store.finish(session, 0, now).unwrap();
}

/// The same as lines, for the first of the files.
fn lines_profile(scratch: &ScratchFs) -> PathBuf {
    let file = scratch.path().join("data/main.sqlite");
    let profile = scratch.path().join("db.profile");
    let text = format!(
        "indef-profile 1\nfile 0 - - {}\nrange 0 1MiB 128KiB reads=500 requests=16000 timed=500 \
         time=400000000\n",
        file.display()
    );
    fs::write(&profile, text).unwrap();
    profile
}

fn top_command(scratch: &ScratchFs) -> String {
    let profile = scratch.path().join("db.store");
    format!("{BINARY} top --profile {}", profile.display())
}

/// The line of the screen that contains both texts.
fn line<'a>(screen: &'a str, a: &str, b: &str) -> &'a str {
    screen
        .lines()
        .find(|line| line.contains(a) && line.contains(b))
        .unwrap_or_else(|| panic!("{a}, {b}:\n{screen}"))
}

#[test]
fn loop_a_range_is_repaired_from_the_screen() {
    let (Some(scratch), Some(tmux)) = (aged(), Tmux::start(100, 30)) else {
        return;
    };
    let dir = scratch.path().join("data");
    let file = dir.join("main.sqlite");
    let contents = hashes(&dir);
    let before = fragments(&file);
    assert!(before >= 2000, "{before}");
    tmux.command(&format!("clear; {}; echo status=$?", top_command(&scratch)));
    let screen = tmux.wait_for("3 fragmented ranges of 4 hot ones");
    keep("list", &screen);
    // 500 reads of 800 µs, of which 31 of 32 fragments are excess.
    let hottest = line(&screen, "387.5 ms", "main.sqlite");
    assert!(
        hottest.contains(" 500 ") && hottest.contains(" 32 "),
        "{hottest}"
    );
    assert!(
        hottest.contains("32.0") && hottest.contains("800.0 µs"),
        "{hottest}"
    );
    line(&screen, "38.8 ms", "main.sqlite");
    assert!(line(&screen, "~", "events.log").contains(" 2 "), "{screen}");
    assert!(!screen.contains("data/fine"), "{screen}");
    let details = tmux.wait_for("4 KiB @0x");
    assert!(
        details.contains("1 MiB (byte 1048576): 32 fragments, 31 too many"),
        "{details}"
    );

    tmux.press(&["Down"]);
    tmux.wait_for("4 MiB (byte 4194304)");
    tmux.press(&["Up"]);
    tmux.wait_for("1 MiB (byte 1048576)");
    tmux.press(&["r"]);
    let question = tmux.wait_for("[y/n]");
    keep("question", &question);
    assert!(
        question.contains("Repair 128 KiB at 1 MiB, writing up to 128 KiB?"),
        "{question}"
    );
    tmux.press(&["n"]);
    tmux.wait_for("not repaired");
    assert_eq!(fragments(&file), before);

    tmux.press(&["r"]);
    tmux.wait_for("[y/n]");
    tmux.press(&["y"]);
    let repaired = tmux.wait_for("32 → 1 fragments");
    keep("repaired", &repaired);
    let gone = tmux.wait_for("2 fragmented ranges of 4 hot ones");
    assert!(!gone.contains("387.5 ms"), "{gone}");
    let after = fragments(&file);
    assert!(
        (before - 32..=before - 29).contains(&after),
        "{before} → {after}"
    );

    // A file as a whole, chosen by the filter.
    tmux.type_text("/EVENTS");
    tmux.wait_for("filter: EVENTS_");
    tmux.press(&["Enter", "R"]);
    let question = tmux.wait_for("[y/n]");
    assert!(
        question.contains("events.log") && !question.contains("main.sqlite "),
        "{question}"
    );
    tmux.press(&["Enter"]);
    tmux.wait_for("2 → 1 fragments");
    tmux.press(&["Escape"]);
    tmux.wait_for("1 fragmented range of 4 hot ones");

    tmux.press(&["q"]);
    let end = tmux.wait_for("status=0");
    // The terminal cuts a long path's line anywhere.
    let together = |text: &str| text.split_whitespace().collect::<String>();
    assert!(
        together(&end).contains(&together("main.sqlite: 1 range, 128 KiB: 32 → 1 fragments")),
        "{end}"
    );
    tmux.assert_as_before();
    let mut scratch = scratch;
    assert_eq!(hashes(&dir), contents);
    scratch.remount().unwrap();
    assert_eq!(hashes(&scratch.path().join("data")), contents);
    scratch.fsck().unwrap();
}

#[test]
fn loop_the_terminal_is_given_back_whatever_ends_the_screen() {
    let (Some(scratch), Some(tmux)) = (aged(), Tmux::start(80, 24)) else {
        return;
    };
    let show = |after: &str| {
        tmux.command(&format!("clear; {}{after}", top_command(&scratch)));
        tmux.wait_for("3 fragmented ranges");
        assert_eq!(tmux.property("alternate_on"), "1");
    };
    show("; echo status=$?");
    tmux.press(&["C-c"]);
    tmux.wait_for("status=0");
    tmux.assert_as_before();
    // Sent from elsewhere.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        show("; echo status=$?");
        let shell = tmux.property("pane_pid");
        let found = Command::new("pgrep")
            .args(["-P", &shell, "-x", "indef"])
            .ran();
        let pid = found.out.trim().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        tmux.wait_for("status=0");
        tmux.assert_as_before();
    }
    // A time limit.
    show(" --time-limit 10s; echo status=$?");
    tmux.wait_for("status=0");
    tmux.assert_as_before();
}

#[test]
fn loop_every_size_of_terminal_shows_something() {
    let (Some(scratch), Some(tmux)) = (aged(), Tmux::start(100, 30)) else {
        return;
    };
    tmux.command(&format!("clear; {}; echo status=$?", top_command(&scratch)));
    tmux.wait_for("3 fragmented ranges");
    for (columns, rows) in [(20, 10), (20, 3), (5, 2), (1, 1), (250, 80)] {
        tmux.resize(columns, rows);
        if columns >= 20 {
            tmux.wait_until("the list, drawn for this size", |screen| {
                screen.lines().count() <= rows.into()
                    && screen
                        .lines()
                        .any(|line| line.contains("387.5 ms") && line.ends_with(".sqlite"))
            });
        }
    }
    tmux.press(&["?"]);
    keep("help", &tmux.wait_for("repair the selected range"));
    tmux.press(&["q", "q"]);
    tmux.wait_for("status=0");
    tmux.assert_as_before();
}

#[test]
fn loop_the_list_is_printed_once_as_text_and_as_json() {
    let Some(scratch) = aged() else { return };
    let profile = scratch.path().join("db.store");
    let ran = indef().args(["top", "--profile"]).arg(&profile).ran();
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines[0], "Hottest fragmented ranges");
    assert!(
        lines[2].contains("387.5 ms") && lines[2].ends_with("/data/main.sqlite"),
        "{ran:?}"
    );
    assert!(
        ran.out.contains("3 ranges are fragmented, of 4 hot ones"),
        "{ran:?}"
    );
    let only = |path: &Path| {
        let ran = indef()
            .args(["top", "--json", "--profile"])
            .arg(&profile)
            .arg(path)
            .ran();
        ran.json()
    };
    let document = only(&scratch.path().join("data/events.log"));
    assert_eq!(document["schema"], 1);
    assert_eq!(document["totals"]["ranges_fragmented"], 1);
    assert_eq!(document["totals"]["ranges_out_of_reach"], 3);
    let range = &document["ranges"][0];
    assert_eq!(
        (
            &range["dolf"],
            &range["extra_fragments"],
            &range["start_bytes"]
        ),
        (&2.into(), &1.into(), &0.into())
    );
    let document = only(scratch.path());
    assert_eq!(document["ranges"][0]["mean_ns"], 800_000.0);
    assert_eq!(document["ranges"][0]["lost_estimated"], false);
    let ran = indef()
        .args(["top", "--profile"])
        .arg(lines_profile(&scratch))
        .ran();
    assert!(ran.out.contains("387.5 ms"), "{ran:?}");
    assert!(
        ran.out.contains("1 range is fragmented, of 1 hot one"),
        "{ran:?}"
    );
}

/// Store the screens for inspection, as the documentation shows them.
fn keep(name: &str, screen: &str) {
    if let Some(folder) = std::env::var_os("INDEF_SCREENS") {
        fs::write(Path::new(&folder).join(name).with_extension("txt"), screen).unwrap();
    }
}

/// Whether reads can be watched; else the test reports itself as skipped.
fn can_watch(scratch: &ScratchFs) -> bool {
    let ran = indef()
        .args(["top", "--once", "--watch", "100ms"])
        .arg(scratch.path())
        .ran();
    if ran.status != 0 {
        scratch_fs::skip(&ran.err);
    }
    ran.status == 0
}

#[test]
fn loop_what_is_read_now_is_listed_and_repaired_while_it_is_read() {
    let (Some(mut scratch), Some(tmux)) = (aged(), Tmux::start(100, 30)) else {
        return;
    };
    if !can_watch(&scratch) {
        return;
    }
    let dir = scratch.path().join("data");
    let file = dir.join("main.sqlite");
    let contents = hashes(&dir);
    let before = fragments(&file);
    let reader = Reader::of(&file);

    let watch = || {
        let mut top = indef();
        top.args(["top", "--json", "--watch", "4s"]);
        top.arg(scratch.path()).ran().json()
    };
    // Of a busy machine's few reads, those that are sampled may be too few to have been timed.
    let mut document = watch();
    for _ in 0..5 {
        let range = &document["ranges"][0];
        if range["lost_ns"].is_f64() && range["reads"].as_f64() > Some(5.0) {
            break;
        }
        document = watch();
    }
    assert_eq!(document["live"], true);
    let range = &document["ranges"][0];
    assert_eq!(
        (&range["dolf"], &range["start_bytes"]),
        (&32.into(), &0.into()),
        "{document}"
    );
    assert_eq!(range["path"], file.to_str().unwrap());
    assert!(range["reads"].as_f64().unwrap() > 5.0, "{document}");
    // Both are estimates from those that are sampled.
    assert!(
        (range["requests_per_read"].as_f64().unwrap() - 32.0).abs() < 8.0,
        "{document}"
    );
    assert!(range["lost_ns"].as_f64().unwrap() > 0.0, "{document}");

    tmux.command(&format!(
        "clear; {BINARY} top {}; echo status=$?",
        scratch.path().display()
    ));
    let screen = tmux.wait_for("1 fragmented range of 1 hot one");
    line(&screen, "128 KiB", "main.sqlite");
    tmux.press(&["r"]);
    tmux.wait_for("[y/n]");
    tmux.press(&["y"]);
    tmux.wait_for("32 → 1 fragments");
    tmux.wait_for("nothing that is read is fragmented");
    assert_eq!(fragments(&file), before - 31);
    drop(reader);
    assert_eq!(hashes(&dir), contents);
    // Watching keeps no file system mounted, except for moments.
    let unmounted = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        scratch.unmount().is_ok()
    });
    assert!(unmounted, "{}", tmux.screen());
    tmux.press(&["q"]);
    tmux.wait_for("status=0");
    tmux.assert_as_before();
}

#[test]
fn loop_a_terminal_that_is_gone_ends_it() {
    let (Some(scratch), Some(tmux)) = (aged(), Tmux::start(80, 24)) else {
        return;
    };
    tmux.command(&format!("clear; exec {}", top_command(&scratch)));
    tmux.wait_for("3 fragmented ranges");
    let pid = tmux.property("pane_pid");
    drop(tmux);
    let process = Path::new("/proc").join(pid);
    let end = std::time::Instant::now() + Duration::from_secs(60);
    // A zombie has ended; its adoptive parent may take its time.
    let runs = || {
        fs::read_to_string(process.join("stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
    };
    while runs() {
        assert!(std::time::Instant::now() < end, "it still runs");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn without_privilege_what_is_missing_is_named_and_profiles_are_shown() {
    if !is_root() {
        return;
    }
    let anybody = ForAnybody::new();
    let ran = anybody.indef().arg("top").ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    let line = ran.error_line("CAP_BPF");
    assert!(line.contains("--profile"), "{ran:?}");
    let profile = anybody.dir.path().join("profile");
    fs::write(&profile, "indef-profile 1\n").unwrap();
    let ran = anybody
        .indef()
        .args(["top", "--profile"])
        .arg(&profile)
        .ran();
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    assert_eq!(ran.out, "0 ranges are fragmented, of 0 hot ones\n");
    for missing in ["/no/such/profile", "/etc"] {
        let ran = indef().args(["top", "--profile", missing]).ran();
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.error_line(missing);
    }
    let ran = indef().args(["top", "/no/such/path"]).ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("/no/such/path");
}
