//! `indef probe`: its answers, where it cannot work, and that nothing is left of it.

use std::{fs, path::Path, process::Command, thread::sleep, time::Duration};

use rustix::process::Signal;
use scratch_fs::ScratchFs;
use units::Bytes;

use crate::common::{Run, ended, indef_with_state, make, run, scratch, signal, spawn};

/// Files of a folder, `lost+found` apart.
fn entries(fs: &ScratchFs) -> usize {
    let names = fs::read_dir(fs.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name());
    names.filter(|name| name != "lost+found").count()
}

fn probe(state: &Path, fs: &ScratchFs, more: &[&str]) -> Command {
    let mut command = indef_with_state(state);
    command
        .arg("probe")
        .arg(fs.path())
        .args(["--size", "16MiB"])
        .args(more);
    command
}

#[test]
fn loop_a_file_behind_the_page_cache_has_no_dies_and_nothing_is_left() {
    let Some(fs) = scratch("ext4") else { return };
    let state = tempfile::tempdir().unwrap();
    let free = fs.free().unwrap();
    let ran = ended(spawn(&mut probe(
        state.path(),
        &fs,
        &["--json", "--time-limit", "5s"],
    )));
    assert_eq!(ran.status, 0, "{ran:?}");
    let json = ran.json();
    assert_eq!(json["schema"], 1);
    // Nothing that is not there is found.
    assert!(
        json["geometry"].is_null() && json["granularity_bytes"].is_null(),
        "{json}"
    );
    assert!(json["unknown"]["granularity_bytes"].is_string(), "{json}");
    assert_ne!(json["verdict_kind"], "gains", "{json}");
    assert_eq!(json["file"]["written_bytes"], 16 << 20);
    assert_eq!((entries(&fs), fs.free().unwrap()), (0, free));
    // It is kept for the drive, and used; without a geometry there is nothing to use.
    let kept = json["kept"].as_str().expect("a loop device has a name");
    assert!(kept.starts_with(state.path().to_str().unwrap()), "{kept}");
    let scan = indef_with_state(state.path())
        .arg("scan")
        .arg(fs.path())
        .args(["--json", "--geometry", "auto"])
        .output();
    let scan: serde_json::Value = serde_json::from_slice(&scan.unwrap().stdout).unwrap();
    assert!(scan["geometries"][0]["probed_at"].is_u64(), "{scan}");
    assert_eq!(scan["geometries"][0]["geometry"], "unknown");
    // A probe that is not to be kept.
    let other = tempfile::tempdir().unwrap();
    let ran = ended(spawn(&mut probe(
        other.path(),
        &fs,
        &["--forget", "--toml", "--time-limit", "1s"],
    )));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.starts_with("[device]"), "{ran:?}");
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
}

#[test]
fn loop_a_stored_result_is_the_geometry_of_its_drive() {
    let Some(fs) = scratch("ext4") else { return };
    let state = tempfile::tempdir().unwrap();
    let ran = ended(spawn(&mut probe(
        state.path(),
        &fs,
        &["--json", "--time-limit", "1s"],
    )));
    let kept = ran.json()["kept"].as_str().unwrap().to_owned();
    let mut stored: serde_json::Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    stored["findings"]["placement"] = serde_json::json!({
        "Ok": {"value": {"granule": 32768, "units": 8}, "confidence": 0.9}
    });
    fs::write(&kept, stored.to_string()).unwrap();
    let scan = |more: &[&str]| {
        let output = indef_with_state(state.path())
            .arg("scan")
            .arg(fs.path())
            .arg("--json")
            .args(more)
            .output();
        let json: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        json["geometries"][0]["geometry"].clone()
    };
    assert_eq!(scan(&[]), "striped:granule=32KiB,dies=8");
    assert_eq!(
        scan(&["--geometry", "zoned:chips=4"]),
        "zoned:chips=4,block=4KiB,segment=2MiB"
    );
    // A probe that cannot tell leaves it.
    let args = ["--json", "--time-limit", "1ms"];
    let json = probe(state.path(), &fs, &args).ran().json();
    assert!(
        json["geometry"].is_null() && json["kept"].is_null(),
        "{json}"
    );
    assert_eq!(json["kept_earlier"], kept);
    let text = probe(state.path(), &fs, &["--time-limit", "1ms"]).ran().out;
    assert!(text.contains("not kept: an earlier probe"), "{text}");
    assert_eq!(scan(&[]), "striped:granule=32KiB,dies=8");
    // One that is damaged is none.
    fs::write(&kept, "{").unwrap();
    assert!(scan(&[]).is_null());
}

/// Beside another file system, the drive that was probed is named.
#[test]
fn loop_a_scan_of_two_drives_names_the_one_that_was_probed() {
    let Some(fs) = scratch("ext4") else { return };
    let Some(other) = scratch("ext4") else { return };
    let state = tempfile::tempdir().unwrap();
    let ran = probe(state.path(), &fs, &["--json", "--time-limit", "1s"]).ran();
    let kept = ran.json()["kept"].as_str().unwrap().to_owned();
    let mut stored: serde_json::Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    let time = serde_json::json!({"Ok": {"value": 100_000, "confidence": 0.9}});
    stored["findings"]["contiguous"] = time.clone();
    stored["findings"]["scattered"] = time;
    stored["findings"]["placement"] =
        serde_json::json!({"Err": {"why": "no-contrast", "up_to": 33_554_432}});
    fs::write(&kept, stored.to_string()).unwrap();
    for fs in [&fs, &other] {
        make(&fs.path().join("file"), Bytes::mib(2), Bytes::kib(4));
    }
    let scan = |paths: &[&Path]| {
        let mut scan = indef_with_state(state.path());
        scan.arg("scan").args(paths).ran().out
    };
    let alone = scan(&[fs.path()]);
    assert!(alone.contains("A probe of this drive found"), "{alone}");
    let both = scan(&[other.path(), fs.path()]);
    let named = format!("A probe of the drive of {} found", fs.path().display());
    assert!(both.contains(&named), "{both}");
}

#[test]
fn loop_a_link_is_probed_where_it_leads_to() {
    let Some(fs) = scratch("ext4") else { return };
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    fs::write(fs.path().join("file"), "data").unwrap();
    std::os::unix::fs::symlink(fs.path().join("file"), &link).unwrap();
    let mut command = indef_with_state(folder.path());
    let ran = command
        .arg("probe")
        .arg(&link)
        .args([
            "--json",
            "--forget",
            "--size",
            "16MiB",
            "--time-limit",
            "1s",
        ])
        .ran();
    let json = ran.json();
    assert_eq!(json["fs"], "ext4", "{json}");
    let device = json["device"].as_str().unwrap();
    assert!(device.starts_with("/dev/loop"), "{json}");
}

#[test]
fn loop_reads_from_the_page_cache_are_refused() {
    let Some(mut fs) = scratch("ext4") else {
        return;
    };
    fs.unmount().unwrap();
    fs.set_mount_options("data=journal");
    fs.mount().unwrap();
    let state = tempfile::tempdir().unwrap();
    let ran = probe(state.path(), &fs, &["--json", "--time-limit", "5s"]).ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("page cache");
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
}

/// A loop device on a file of its own.
struct Second {
    device: String,
    _folder: tempfile::TempDir,
}

impl Second {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let file = fs::File::create(&image).unwrap();
        file.set_len(1 << 30).unwrap();
        let ran = Command::new("losetup")
            .args(["--show", "-f"])
            .arg(&image)
            .ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        Self {
            device: ran.out.trim().to_owned(),
            _folder: folder,
        }
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

#[test]
fn loop_a_file_on_two_drives_tells_of_none() {
    if !rustix::process::geteuid().is_root() {
        return scratch_fs::skip("it needs root");
    }
    // Dropped last: the file system uses it.
    let second = Second::new();
    let Some(mut fs) = scratch("btrfs") else {
        return;
    };
    let mount = fs.path().to_string_lossy().into_owned();
    for arguments in [
        &["device", "add", "-f", &second.device, &mount][..],
        &[
            "balance",
            "start",
            "-dconvert=raid0",
            "-mconvert=raid1",
            &mount,
        ],
    ] {
        let ran = Command::new("btrfs").args(arguments).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
    }
    let state = tempfile::tempdir().unwrap();
    let ran = probe(state.path(), &fs, &["--json", "--time-limit", "5s"]).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let json = ran.json();
    assert!(
        json["geometry"].is_null() && json["kept"].is_null(),
        "{json}"
    );
    assert_eq!(json["verdict_kind"], "cannot-tell", "{json}");
    let why = json["unknown"]["granularity_bytes"].as_str().unwrap();
    assert!(why.contains("another drive"), "{why}");
    fs.unmount().unwrap();
}

#[test]
fn loop_a_probe_that_is_stopped_or_killed_leaves_nothing() {
    let Some(fs) = scratch("ext4") else { return };
    let state = tempfile::tempdir().unwrap();
    let free = fs.free().unwrap();
    for (sent, status) in [(Signal::INT, 3), (Signal::KILL, 128 + 9)] {
        let child = spawn(&mut probe(state.path(), &fs, &["--time-limit", "60s"]));
        sleep(Duration::from_millis(400));
        signal(&child, sent);
        let ran = ended(child);
        // It may have been quicker.
        assert!([0, status].contains(&ran.status), "{ran:?}");
        assert_eq!(entries(&fs), 0);
        // The kernel ends requests that a killed process had under way after it.
        for _ in 0..100 {
            fs.sync().unwrap();
            if fs.free().unwrap() == free {
                break;
            }
            sleep(Duration::from_millis(50));
        }
        assert_eq!(fs.free().unwrap(), free);
    }
}

#[test]
fn loop_a_full_or_read_only_file_system_is_refused() {
    let Some(mut fs) = scratch("ext4") else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let free = fs.free().unwrap().0;
    let full = fs::File::create(fs.path().join("full")).unwrap();
    rustix::fs::fallocate(
        &full,
        rustix::fs::FallocateFlags::empty(),
        0,
        free - (8 << 20),
    )
    .unwrap();
    let ran = ended(spawn(&mut probe(state.path(), &fs, &[])));
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("are free");
    drop(full);
    fs.unmount().unwrap();
    fs.set_mount_options("ro");
    fs.mount().unwrap();
    let ran = ended(spawn(&mut probe(state.path(), &fs, &[])));
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("read-only");
}

#[test]
fn what_is_no_drive_is_refused() {
    for (path, why) in [
        ("/proc", "no block device"),
        ("/dev/null", "neither a file"),
        ("/nowhere", "No such file"),
    ] {
        let ran = run(["probe", path]);
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.error_line(why);
    }
    for wrong in [
        &["probe"][..],
        &["probe", "/", "--size", "1MiB"],
        &["probe", "/", "--toml", "--json"],
    ] {
        assert_eq!(run(wrong).status, 2, "{wrong:?}");
    }
}
