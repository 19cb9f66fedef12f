//! `indef probe`: its answers, where it cannot work, and that nothing is left of it.

use std::{fs, path::Path, process::Command, thread::sleep, time::Duration};

use rustix::process::Signal;
use scratch_fs::ScratchFs;
use units::Bytes;

use crate::common::{
    Run, ended, indef_with_state, make, run, scratch, second::Second, signal, spawn,
};

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
    for field in ["granularity_bytes", "stripe_bytes", "units"] {
        let why = &json["unknown"][field];
        assert!(json[field].is_null() && why.is_string(), "{json}");
    }
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
    let free = &scan["free_space"];
    assert!(free["largest_bytes"].as_u64() > Some(1 << 20), "{free}");
    assert!(free["total_bytes"].as_u64() >= free["largest_bytes"].as_u64());
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

/// The answers of a drive on which blocks of 4 KiB take 100 µs and share 8 units.
fn findings() -> serde_json::Value {
    let told = |value: u64| serde_json::json!({"Ok": {"value": value, "confidence": 0.9}});
    let sweep = serde_json::json!({"points": [], "apart": 0.0, "knee": told(8)});
    let longer = |len: u64, latency: u64| serde_json::json!({"len": len, "latency": latency, "scattered": 300_000});
    serde_json::json!({
        "latency": told(100_000),
        "placement": {"Ok": {"value": {"granule": 32768, "units": 8}, "confidence": 0.9}},
        "service": told(80_000),
        "per_kib": told(1000),
        "per_request": told(2000),
        "longer": {"Ok": {"value": [longer(16384, 110_000), longer(32768, 125_000), longer(65536, 150_000)], "confidence": 0.9}},
        "bandwidth": told(1 << 30),
        "contiguous": told(200_000),
        "scattered": told(900_000),
        "depths": sweep,
        "sizes": sweep,
        "spread": sweep,
    })
}

/// Probe in no time, so that the drive is known, and tell other answers of it.
fn tell_findings(state: &Path, fs: &ScratchFs, findings: serde_json::Value) {
    let ran = probe(state, fs, &["--json", "--time-limit", "1s"]).ran();
    let json = ran.json();
    let kept = json["kept"].as_str().or(json["kept_earlier"].as_str());
    let kept = kept.expect("a loop device has a name").to_owned();
    let mut stored: serde_json::Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    stored["findings"] = findings;
    fs::write(&kept, stored.to_string()).unwrap();
}

/// `--weight device` reckons with what a probe found, and says so; what is given counts more. Without times
/// in the profile, `--weight measured` does, too.
#[test]
fn loop_the_times_of_a_probe_weigh_unless_others_are_given() {
    let Some(fs) = scratch("ext4") else { return };
    let state = tempfile::tempdir().unwrap();
    let file = fs.path().join("file");
    make(&file, Bytes::mib(1), Bytes::kib(4));
    let plan = |more: &[&str]| {
        let mut plan = indef_with_state(state.path());
        plan.arg("plan").arg(&file).args(more).ran()
    };
    let device = ["--json", "--weight", "device"];
    assert!(plan(&device).json()["read_time"].is_null());
    tell_findings(state.path(), &fs, findings());
    let ran = plan(&device);
    ran.error_line("indef probe found");
    let json = ran.json();
    assert_eq!(json["weight"], "device");
    // Eight windows of 32 blocks, which take 200 µs in one piece each.
    let time = |name: &str| json["read_time"][name].as_f64().expect(name);
    assert_eq!(time("reads"), 8.0);
    let least = time("now_ns") - time("saved_ns");
    assert!((least - 8.0 * 200_000.0).abs() < 1.0, "{json}");
    assert!(time("now_ns") > 8.0 * 300_000.0, "{json}");
    let text = plan(&["--weight", "device"]).out;
    assert!(text.contains("of what moves, on an idle drive"), "{text}");
    // A plan that was stored holds them, and is run as any other.
    let stored = state.path().join("plan");
    let into = stored.to_string_lossy();
    assert_eq!(plan(&["--weight", "device", "-o", &into]).status, 0);
    let mut run = indef_with_state(state.path());
    let ran = run
        .arg("run")
        .arg("--dry-run")
        .arg("--plan")
        .arg(&stored)
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    for given in [
        ["--device-times", "sense=50us"],
        ["--geometry", "striped:granule=64KiB,dies=4"],
    ] {
        let ran = plan(&[&device[..], &given].concat());
        assert!(!ran.err.contains("indef probe"), "{ran:?}");
        assert!(ran.json()["read_time"].is_null(), "{ran:?}");
    }
    // A profile of lines has no times.
    let profile = state.path().join("profile");
    let lines = format!(
        "indef-profile 1\nfile 0 - - {}\nread 0 0 1MiB\n",
        file.display()
    );
    fs::write(&profile, lines).unwrap();
    let profile = profile.to_string_lossy();
    let measured = [
        "--json",
        "--weight",
        "measured",
        "--profile",
        &profile,
        "--truncate",
        "0",
    ];
    let ran = plan(&measured);
    assert!(
        ran.err
            .contains("times that a probe of the drive found are used"),
        "{ran:?}"
    );
    assert_eq!(ran.json()["weight"], "device", "{ran:?}");
    // Times that no drive has are none.
    let mut absurd = findings();
    absurd["latency"]["Ok"]["value"] = u64::MAX.into();
    tell_findings(state.path(), &fs, absurd);
    assert!(plan(&device).json()["read_time"].is_null());
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

#[test]
fn loop_a_file_on_two_drives_tells_of_none() {
    if !rustix::process::geteuid().is_root() {
        return scratch_fs::skip("it needs root");
    }
    // Dropped last: the file system uses it.
    let second = Second::of(Bytes::gib(1));
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
        let options = ["--time-limit", "60s", "--json"];
        let mut child = spawn(&mut probe(state.path(), &fs, &options));
        // Once it has its file, it listens to signals. It may be quicker.
        let has_file = || fs.free().unwrap() + Bytes::mib(1) <= free;
        let mut is_over = false;
        while !is_over && !has_file() {
            sleep(Duration::from_millis(5));
            is_over = child.try_wait().unwrap().is_some();
        }
        if !is_over {
            signal(&child, sent);
        }
        let ran = ended(child);
        assert!([0, status].contains(&ran.status), "{ran:?}");
        if ran.status == 3 {
            assert_eq!(ran.json()["error"], "stopped", "{ran:?}");
        }
        assert_eq!(entries(&fs), 0);
        // The kernel ends requests that a killed process had under way after it.
        for _ in 0..1000 {
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
fn loop_other_file_systems_are_probed_as_ext4_is() {
    for kind in ["xfs", "btrfs"] {
        let Some(fs) = scratch(kind) else { continue };
        let state = tempfile::tempdir().unwrap();
        fs.sync().unwrap();
        let used = fs.used().unwrap();
        let ran = probe(state.path(), &fs, &["--json", "--time-limit", "3s"]).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        let json = ran.json();
        assert_eq!(json["fs"], kind);
        assert!(json["geometry"].is_null(), "{json}");
        assert_ne!(json["verdict_kind"], "gains", "{json}");
        assert!(
            json["file"]["usable_bytes"].as_u64() > Some(8 << 20),
            "{json}"
        );
        assert_eq!(entries(&fs), 0);
        // Room comes back with the next commit. Trees may have grown a bit; the file had more.
        let is_back = || fs.used().unwrap() <= used + Bytes::mib(4);
        for _ in 0..1000 {
            fs.sync().unwrap();
            if is_back() {
                break;
            }
            sleep(Duration::from_millis(50));
        }
        assert!(is_back(), "{kind}: {used} before, {}", fs.used().unwrap());
    }
}

/// A device is only read, also where a file system on it is in use.
#[test]
fn loop_a_device_by_name_is_only_read() {
    if !rustix::process::geteuid().is_root() {
        return scratch_fs::skip("it needs root");
    }
    let device = Second::of(Bytes::gib(1));
    let state = tempfile::tempdir().unwrap();
    let written = || {
        let stat = fs::read_to_string(format!(
            "/sys/block/{}/stat",
            device.device.trim_start_matches("/dev/")
        ));
        let stat = stat.unwrap();
        stat.split_whitespace().nth(6).unwrap().to_owned()
    };
    let before = written();
    let mut command = indef_with_state(state.path());
    let ran = command
        .args(["probe", &device.device, "--json", "--time-limit", "3s"])
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let json = ran.json();
    assert!(json["file"].is_null() && json["fs"].is_null(), "{json}");
    assert_eq!(json["device"], device.device);
    assert!(json["geometry"].is_null(), "{json}");
    assert_eq!(written(), before);
}

/// A disk in memory (zram), with a file system and by name.
struct Ramdisk(String);

impl Ramdisk {
    /// `None` where the kernel has none.
    fn new() -> Option<Self> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").ok()?;
        let ramdisk = Self(number.trim().to_owned());
        let size = format!("/sys/block/zram{}/disksize", ramdisk.0);
        fs::write(size, "512M").unwrap();
        Some(ramdisk)
    }

    fn device(&self) -> String {
        format!("/dev/zram{}", self.0)
    }
}

impl Drop for Ramdisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.device()).output();
        let _ = fs::write("/sys/class/zram-control/hot_remove", &self.0);
    }
}

#[test]
fn loop_a_ramdisk_has_no_units() {
    if !rustix::process::geteuid().is_root() {
        return scratch_fs::skip("it needs root");
    }
    let Some(ramdisk) = Ramdisk::new() else {
        return scratch_fs::skip("this kernel has no zram");
    };
    let device = ramdisk.device();
    let folder = tempfile::tempdir().unwrap();
    let ran = Command::new("mkfs.ext4").args(["-q", &device]).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let ran = Command::new("mount").arg(&device).arg(folder.path()).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let state = tempfile::tempdir().unwrap();
    for path in [folder.path(), Path::new(&device)] {
        let mut command = indef_with_state(state.path());
        command.arg("probe").arg(path);
        command.args(["--json", "--size", "64MiB", "--time-limit", "5s"]);
        let ran = command.ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        let json = ran.json();
        assert!(json["geometry"].is_null(), "{json}");
        assert_ne!(json["verdict_kind"], "gains", "{json}");
        // It has neither a serial number nor another name that lasts.
        assert!(
            json["kept"].is_null() && ran.err.contains("not kept"),
            "{ran:?}"
        );
    }
    let ran = Command::new("umount").arg(&device).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn what_is_no_drive_is_refused() {
    for (path, why) in [
        ("/proc", "no block device"),
        ("/dev/shm", "tmpfs is on no block device"),
        ("/dev/null", "neither a file"),
        ("/nowhere", "no such file or directory: check the path"),
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
