//! Runs that are stopped: by a signal, by the clock, by kill -9 at any moment.
//!
//! `INDEF_KILLS=200 cargo test -p indef --test cli loop_stop::` is the full round; without it each file
//! system gets a dozen.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::common::small::Small;
use crate::common::{
    Ran, Run, btrfs_progs, ended, fragments, has_begun, hashes, indef, indef_with_state, left_in,
    make, make_several, scratch, signal, spawn,
};
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::Signal,
};
use scratch_fs::{ScratchFs, most_left_by_btrfs, reflink};
use units::Bytes;
use workloads::Numbers;

fn total(ran: &Ran, name: &str) -> u64 {
    ran.json()["totals"][name].as_u64().unwrap()
}

/// Go on with what a slow run has left, fast.
fn resume(mut indef: Command) -> Ran {
    let how = ["run", "--json", "--resume", "--rate", "1GiB"];
    indef.args(how).ran()
}

#[test]
fn loop_a_signal_stops_in_order_and_resume_continues() {
    for (kind, with) in [
        ("ext4", Signal::INT),
        ("xfs", Signal::TERM),
        ("btrfs", Signal::INT),
    ] {
        let Some(mut scratch) = scratch(kind) else {
            return;
        };
        make_several(scratch.path(), 8, Bytes::mib(4), Bytes::kib(16));
        let files: Vec<_> = (0..8)
            .map(|n| scratch.path().join(format!("file {n}")))
            .collect();
        let contents = hashes(scratch.path());
        let state = tempfile::tempdir().unwrap();
        let indef = || indef_with_state(state.path());
        let child = spawn(
            indef()
                .args(["run", "--json", "--jobs", "1", "--rate", "1MiB"])
                .arg(scratch.path()),
        );
        has_begun(&files, 256);
        signal(&child, with);
        let begun = Instant::now();
        let ran = ended(child);
        // All of it would take half a minute.
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{kind}: it took {:?}",
            begun.elapsed()
        );
        assert_eq!(ran.status, 3, "{kind}: {ran:?}");
        assert_eq!(ran.json()["stopped"], "signal", "{kind}");
        let first = total(&ran, "bytes_relocated");
        assert!(first < 32 << 20, "{kind}: {first}");
        let resumed = resume(indef());
        assert_eq!(resumed.status, 0, "{kind}: {resumed:?}");
        let second = total(&resumed, "bytes_relocated");
        assert!(
            second > 0 && first + second <= 40 << 20,
            "{kind}: {first} and {second}"
        );
        for (n, file) in files.iter().enumerate() {
            let left = fragments(file);
            let most = match kind {
                "btrfs" => most_left_by_btrfs(Bytes::mib(4), 7),
                _ => 7,
            };
            assert!(
                left <= most,
                "{kind}, file {n}: {left} fragments: {resumed:?}"
            );
        }
        let nothing = indef().args(["run", "--resume"]).ran();
        assert_eq!(nothing.status, 1, "{kind}: all is done: {nothing:?}");
        scratch.fsck().unwrap();
        assert_eq!(hashes(scratch.path()), contents, "{kind}");
    }
}

/// As `indef watch` does it: one plan, carried out in portions, each of which is stopped within a range.
#[test]
fn loop_work_in_portions_writes_nothing_twice() {
    for (kind, limit) in [("ext4", "1s"), ("xfs", "2s")] {
        let Some(mut scratch) = scratch(kind) else {
            return;
        };
        let file = scratch.path().join("file");
        make(&file, Bytes::mib(24), Bytes::kib(32));
        let contents = hashes(scratch.path());
        let state = tempfile::tempdir().unwrap();
        let plan = state.path().join("plan");
        let indef = || indef_with_state(state.path());
        let planned = indef()
            .args(["plan", "--quiet", "-o"])
            .arg(&plan)
            .arg(&file)
            .ran();
        assert_eq!(planned.status, 0, "{kind}: {planned:?}");
        let (mut moved, mut left) = (0, fragments(&file));
        let (mut portions, mut in_vain) = (0, 0);
        loop {
            let ran = indef()
                .args([
                    "run",
                    "--json",
                    "--rate",
                    "8MiB",
                    "--time-limit",
                    limit,
                    "--plan",
                ])
                .arg(&plan)
                .ran();
            assert!([0, 3].contains(&ran.status), "{kind}: {ran:?}");
            moved += total(&ran, "bytes_relocated");
            let now = fragments(&file);
            assert!(now <= left, "{kind}: {now} fragments, {left} before");
            left = now;
            portions += 1;
            println!(
                "{kind}: {moved} bytes so far, {left} left, {}",
                ran.json()["files"][0]
            );
            if ran.status == 0 {
                break;
            }
            // On a busy machine there are more, each of which does something.
            in_vain = if total(&ran, "bytes_relocated") > 0 {
                0
            } else {
                in_vain + 1
            };
            assert!(in_vain < 20, "{kind}: no end in sight: {ran:?}");
        }
        println!("{kind}: {moved} bytes in {portions} portions, {left} fragments left");
        assert!(moved <= 26 << 20, "{kind}: {moved} in {portions} portions");
        // Each stop may leave a cut.
        assert!(left <= 20 + portions, "{kind}: {left} fragments");
        scratch.fsck().unwrap();
        assert_eq!(hashes(scratch.path()), contents, "{kind}");
    }
}

#[test]
fn loop_a_killed_run_is_resumed() {
    let Some(mut scratch) = scratch("ext4") else {
        return;
    };
    make_several(scratch.path(), 4, Bytes::mib(4), Bytes::kib(16));
    let contents = hashes(scratch.path());
    let state = tempfile::tempdir().unwrap();
    let mut child = spawn(
        indef_with_state(state.path())
            .args(["run", "--jobs", "1", "--rate", "1MiB"])
            .arg(scratch.path()),
    );
    let files: Vec<_> = (0..4)
        .map(|n| scratch.path().join(format!("file {n}")))
        .collect();
    // One of them is done. What was not noted of another one may be moved again.
    has_begun(&files, 8);
    child.kill().unwrap();
    child.wait().unwrap();
    let resumed = resume(indef_with_state(state.path()));
    assert_eq!(resumed.status, 0, "{resumed:?}");
    let second = total(&resumed, "bytes_relocated");
    assert!((1..16 << 20).contains(&second), "{second}");
    scratch.fsck().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
}

#[test]
fn loop_the_time_limit_stops_with_status_3() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    make(&scratch.path().join("file"), Bytes::mib(16), Bytes::kib(16));
    let ran = indef()
        .args(["run", "--json", "--rate", "4MiB", "--time-limit", "500ms"])
        .arg(scratch.path())
        .ran();
    assert_eq!(ran.status, 3, "{ran:?}");
    assert_eq!(ran.json()["stopped"], "time-limit");
    assert!(total(&ran, "bytes_relocated") < 16 << 20);
    // What fails beside it counts more.
    let ran = indef()
        .args(["run", "--json", "--rate", "4MiB", "--time-limit", "500ms"])
        .arg("/no/such")
        .arg(scratch.path())
        .ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_eq!(ran.json()["stopped"], "time-limit");
}

/// What cannot be noted for `--resume` is not done. A line of which only half could be written is no damage.
#[test]
fn loop_a_journal_on_a_full_disk_stops_the_run() {
    const FILES: usize = 200;
    let (Some(state), Some(mut scratch)) = (Small::new(), scratch("ext4")) else {
        return;
    };
    make_several(scratch.path(), FILES, Bytes::kib(64), Bytes::kib(4));
    let files: Vec<_> = (0..FILES)
        .map(|n| scratch.path().join(format!("file {n}")))
        .collect();
    let contents = hashes(scratch.path());
    let indef = || indef_with_state(state.path());
    let child = spawn(
        indef()
            .args(["run", "--json", "--jobs", "1", "--rate", "1MiB"])
            .arg(scratch.path()),
    );
    has_begun(&files, 16);
    state.fill("ballast");
    let ran = ended(child);
    assert_eq!(ran.status, 1, "{ran:?}");
    let told = ran.json();
    assert_eq!(told["stopped"], "journal", "{told}");
    let error = ran.err.lines().find(|line| line.contains(".journal: "));
    let error = error.unwrap_or_else(|| panic!("{ran:?}"));
    assert!(error.contains("no space left on device"), "{error}");
    assert!(
        error.contains("make room first, then indef run --resume continues"),
        "{error}"
    );
    let left = |files: &[PathBuf]| files.iter().filter(|file| fragments(file) > 1).count();
    let moved = FILES - left(&files);
    // A page of the journal takes some thirty files.
    assert!((1..100).contains(&moved), "{moved}");
    fs::remove_file(state.path().join("ballast")).unwrap();
    let resumed = resume(indef());
    assert_eq!(resumed.status, 0, "{resumed:?}");
    assert_eq!(left(&files), 0);
    scratch.fsck().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
}

/// Until its plan is there, time passes, too.
#[test]
fn loop_planning_counts_in_the_time_limit() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = scratch.path().join("file");
    make(&file, Bytes::mib(4), Bytes::kib(16));
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let indef = || indef_with_state(state.path());
    let (plan, fifo) = (dir.path().join("plan"), dir.path().join("fifo"));
    let planned = indef().args(["plan", "-o"]).args([&plan, &file]).ran();
    assert_eq!(planned.status, 0, "{planned:?}");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let limited = ["run", "--json", "--time-limit", "1s", "--plan"];
    let child = spawn(indef().args(limited).arg(&fifo));
    let mut writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    thread::sleep(Duration::from_millis(1200));
    writer.write_all(&fs::read(&plan).unwrap()).unwrap();
    drop(writer);
    let ran = ended(child);
    assert_eq!(ran.status, 3, "{ran:?}");
    assert_eq!(ran.json()["stopped"], "time-limit", "{ran:?}");
    assert_eq!(total(&ran, "bytes_relocated"), 0);
    let resumed = resume(indef());
    assert_eq!(resumed.status, 0, "{resumed:?}");
    assert!(fragments(&file) < 16);
}

#[test]
fn loop_two_signals_end_at_once() {
    let Some(mut scratch) = scratch("ext4") else {
        return;
    };
    make(&scratch.path().join("file"), Bytes::mib(16), Bytes::kib(16));
    let contents = hashes(scratch.path());
    let child = spawn(indef().args(["run", "--rate", "1MiB"]).arg(scratch.path()));
    thread::sleep(Duration::from_millis(700));
    signal(&child, Signal::INT);
    thread::sleep(Duration::from_millis(20));
    signal(&child, Signal::INT);
    let ran = ended(child);
    assert!(ran.status == 3 || ran.status == 130, "{ran:?}");
    assert_eq!(hashes(scratch.path()), contents);
    scratch.fsck().unwrap();
}

/// kill -9 at random moments: contents equal, no leftovers, clean, a new run completes. Each file may have `clones`,
/// and on Btrfs all of them a snapshot, which the run is not told of.
fn kills(kind: &str, clones: usize) {
    let Some(mut scratch) = scratch(kind) else {
        return;
    };
    let count = env::var("INDEF_KILLS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(12u64);
    let files = ["a", "b", "c"].map(|name| scratch.path().join(name));
    let has_snapshot = clones > 0 && kind == "btrfs";
    let mut numbers = Numbers::new(count);
    // The duration of a whole run here, measured again whenever one completes.
    let mut whole = Duration::from_millis(400);
    let (mut early, mut late) = (0, 0);
    for n in 0..count * 3 {
        if early == count {
            break;
        }
        let mut is_new = false;
        for (i, file) in files.iter().enumerate() {
            if !file.exists() || fragments(file) < 256 {
                is_new = true;
                make(file, Bytes::mib(4 + 2 * i as u64), Bytes::kib(8));
                for clone in 0..clones {
                    reflink(file, &file.with_extension(clone.to_string())).unwrap();
                }
            }
        }
        scratch.sync().unwrap();
        if has_snapshot && is_new {
            snapshot_again(scratch.path());
        }
        let used = settled_used(&scratch);
        let contents = hashes(scratch.path());
        let delay = whole.mul_f64(numbers.fraction());
        let begun = Instant::now();
        let mut child = spawn(indef().args(["run", "--quiet"]).args(&files));
        thread::sleep(delay);
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        match ended {
            Some(status) => {
                assert!(status.success(), "{kind}, run {n}: {status}");
                whole = begun.elapsed();
                late += 1;
            }
            None => early += 1,
        }
        assert_eq!(
            hashes(scratch.path()),
            contents,
            "{kind}, kill {n} after {delay:?}"
        );
        let names = fs::read_dir(scratch.path()).unwrap().count();
        let lost = usize::from(scratch.path().join("lost+found").exists());
        assert_eq!(
            names,
            files.len() * (1 + clones) + usize::from(has_snapshot) + lost,
            "{kind}: something is left behind"
        );
        scratch.sync().unwrap();
        // Of each file, one unit may be shared by some of its holders only.
        let units = if clones > 0 { files.len() as u64 } else { 0 };
        let allowed = (4 << 20) + units * (2 << 20);
        let mut now = settled_used(&scratch);
        // An inode whose writes are under way is freed by the file system's cleaner.
        for _ in 0..40 {
            if now < used + allowed {
                break;
            }
            thread::sleep(Duration::from_millis(250));
            now = settled_used(&scratch);
        }
        assert!(
            now < used + allowed,
            "{kind}, kill {n}: {} bytes are lost",
            now - used
        );
        if n % 10 == 9 {
            scratch
                .fsck()
                .unwrap_or_else(|error| panic!("{kind}, kill {n}: {error}"));
            assert_eq!(hashes(scratch.path()), contents, "{kind}: after a remount");
        }
    }
    eprintln!("{kind}: {early} runs killed, {late} were faster");
    assert_eq!(early, count, "too few runs were hit");
    let mut ran = indef().arg("run").args(&files).ran();
    // Where a kill has left parts shared by some holders only, moving them may take more than was planned: the next run
    // goes on with what that left.
    for _ in 0..3 {
        if !ran.out.contains("beyond-plan") {
            break;
        }
        ran = indef().arg("run").args(&files).ran();
    }
    assert_eq!(ran.status, 0, "{kind}: {ran:?}");
    // What a kill left shared by some holders only is cut off from its neighbours.
    let usual = if clones > 0 { 63 } else { 15 };
    for file in &files {
        let (left, len) = (fragments(file), file.metadata().unwrap().len());
        let most = match kind {
            "btrfs" => most_left_by_btrfs(Bytes(len), usual),
            _ => usual,
        };
        assert!(left <= most, "{kind}: {left}, after {ran:?}");
    }
    scratch.fsck().unwrap();
}

/// Make the snapshot of everything anew.
fn snapshot_again(root: &Path) {
    let snapshot = root.join("snapshot");
    if snapshot.exists() {
        btrfs_progs(&["-q", "subvolume", "delete", "-c"], &[&snapshot]);
        btrfs_progs(&["-q", "subvolume", "sync"], &[root]);
    }
    btrfs_progs(&["-q", "subvolume", "snapshot", "-r"], &[root, &snapshot]);
}

/// Used bytes once the file system has freed deleted files (some do so in the background).
fn settled_used(scratch: &ScratchFs) -> u64 {
    let mut used = 0;
    for _ in 0..40 {
        scratch.sync().unwrap();
        let now = scratch.used().unwrap().get();
        if now == used {
            break;
        }
        used = now;
        thread::sleep(Duration::from_millis(25));
    }
    used
}

#[test]
fn loop_kills_on_ext4() {
    kills("ext4", 0);
}

#[test]
fn loop_kills_on_xfs() {
    kills("xfs", 0);
}

#[test]
fn loop_kills_on_btrfs() {
    kills("btrfs", 0);
}

#[test]
fn loop_kills_on_xfs_with_reflinks() {
    kills("xfs", 2);
}

#[test]
fn loop_kills_on_btrfs_with_reflinks() {
    kills("btrfs", 2);
}

#[test]
fn loop_what_is_left_stands_in_the_state_directory_until_it_is_done() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    make(&scratch.path().join("file"), Bytes::mib(8), Bytes::kib(16));
    let state = tempfile::tempdir().unwrap();
    let ran = indef_with_state(state.path())
        .args(["run", "--rate", "2MiB", "--time-limit", "300ms"])
        .arg(scratch.path())
        .ran();
    assert_eq!(ran.status, 3, "{ran:?}");
    assert!(left_in(state.path()) > 0);
    let resumed = indef_with_state(state.path())
        .args(["run", "--resume"])
        .ran();
    assert_eq!(resumed.status, 0, "{resumed:?}");
    assert_eq!(left_in(state.path()), 0, "a run that ended leaves nothing");
}

#[test]
fn loop_a_run_by_the_configuration_goes_on_with_what_the_last_one_left() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    make(&scratch.path().join("file"), Bytes::mib(8), Bytes::kib(16));
    let state = tempfile::tempdir().unwrap();
    let config = state.path().join("indef.toml");
    let configure = |limits: &str| {
        let paths = scratch.path().display();
        fs::write(
            &config,
            format!("paths = [\"{paths}\"]\n[limits]\n{limits}\n"),
        )
        .unwrap();
    };
    let run = || {
        let mut command = indef_with_state(state.path());
        let option = format!("--config={}", config.display());
        command.args(["run", "--json", &option]).ran()
    };
    configure("rate = \"1MiB\"\ntime-limit = \"200ms\"");
    let first = run();
    assert_eq!(
        (first.status, first.err.contains("goes on")),
        (3, false),
        "{first:?}"
    );
    // To look at it changes nothing of it.
    let option = format!("--config={}", config.display());
    let looked = indef_with_state(state.path())
        .args(["run", "--dry-run", "--json", &option])
        .ran();
    assert!(looked.err.contains("goes on with the rest"), "{looked:?}");
    assert_eq!(looked.json()["files"][0]["reason"], "dry-run", "{looked:?}");
    let second = run();
    assert!(second.err.contains("goes on with the rest"), "{second:?}");
    assert_eq!(
        second.json()["files"].as_array().unwrap().len(),
        1,
        "{second:?}"
    );
    // Other options: another plan.
    configure("");
    let other = run();
    assert_eq!(
        (other.status, other.err.contains("goes on")),
        (0, false),
        "{other:?}"
    );
    let fragments = fragments(&scratch.path().join("file"));
    assert!(fragments < 100, "{fragments}");
}
