//! The program itself, on flashd as a mounted disk, at a tenth of its speed.
//!
//! The machine may be busy, and then the probe may say that it cannot tell; it may never be wrong. `make proof`
//! tries every profile with three seeds, and wants most of them to be found out (`INDEF_PROBE_MOUNTED=1`, or the
//! name of one profile).

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use flash_model::{BUILTIN, Kind, Profile};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use source_tree::binary_for_test;
use tempfile::TempDir;

use super::varied::{Varied, shown, varied};

/// How much slower the device is than the profile says.
const SCALE: f64 = 10.0;

/// A file system on a loop device on flashd; all of it goes when it is dropped.
struct Mounted {
    folder: TempDir,
    daemon: Child,
    device: Option<String>,
}

fn ran(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl Mounted {
    fn new(flashd: &Path, profile: &str, scale: f64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        for name in ["mnt", "fs"] {
            fs::create_dir(folder.path().join(name)).expect("it is empty");
        }
        let file = folder.path().join("profile.toml");
        fs::write(&file, profile).expect("there is room");
        let daemon = Command::new(flashd)
            .arg("mount")
            .arg(folder.path().join("mnt"))
            .args([
                "--size",
                "1GiB",
                "--time-scale",
                &scale.to_string(),
                "--profile",
            ])
            .arg(&file)
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("flashd runs");
        let mut mounted = Self {
            folder,
            daemon,
            device: None,
        };
        let disk = mounted.folder.path().join("mnt/disk");
        let patience = Instant::now() + Duration::from_secs(60);
        while !disk.exists() {
            assert!(Instant::now() < patience, "flashd has no disk");
            sleep(Duration::from_millis(20));
        }
        let disk = disk.to_string_lossy().into_owned();
        let device = ran(
            "losetup",
            &["--direct-io=on", "-b", "4096", "-f", "--show", &disk],
        );
        mounted.device = Some(device.clone());
        ran(
            "mkfs.ext4",
            &[
                "-q",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0",
                &device,
            ],
        );
        ran("mount", &[&device, &mounted.path().to_string_lossy()]);
        mounted
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("fs")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
        if let Some(device) = &self.device {
            let _ = Command::new("losetup").args(["-d", device]).status();
        }
        let _ = kill_process(Pid::from_child(&self.daemon), Signal::TERM);
        let _ = self.daemon.wait();
    }
}

/// Whether the program finds the device out; if it does, it is right, and so is the profile that it prints.
fn is_found(indef: &Path, flashd: &Path, varied: &Varied, size: &str, limit: &str) -> bool {
    let mounted = Mounted::new(flashd, &varied.text, SCALE);
    let output = Command::new(indef)
        .arg("probe")
        .arg(mounted.path())
        .args(["--toml", "--forget", "--size", size, "--time-limit", limit])
        .output()
        .expect("indef runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("TOML is UTF-8");
    let profile = Profile::parse("probed", &text).expect("a profile that flashd takes");
    let number = |key: &str| {
        let mut all = profile.parameters().iter();
        all.find(|it| it.key == key).expect("it is there").kind
    };
    if number("geometry.unit") != Kind::Measured {
        println!("{}: cannot tell", shown(&varied.truth));
        return false;
    }
    let (granule, units) = (profile.geometry().unit, profile.geometry().dies());
    assert_eq!((granule, units), (varied.truth.granule, varied.truth.units));
    if number("flash.read") == Kind::Measured
        && let Some(truth) = varied.service
    {
        let found =
            super::varied::ns(&profile, "flash.read") + super::varied::transfer_ns(&profile);
        let off = found / (truth.0 as f64 * SCALE) - 1.0;
        println!(
            "{}: found, service time off by {off:.3}",
            shown(&varied.truth)
        );
        // Busy machines are late.
        assert!(off.abs() < 0.3, "{found} for {truth}");
    }
    true
}

fn programs() -> Option<(PathBuf, PathBuf)> {
    if !geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        scratch_fs::skip("needs root and FUSE");
        return None;
    }
    let build = |name| binary_for_test(name).expect("it builds");
    Some((build("indef"), build("flashd")))
}

#[test]
fn loop_a_mounted_flashd_is_found_out_or_not_told() {
    let Some((indef, flashd)) = programs() else {
        return;
    };
    let Ok(wanted) = std::env::var("INDEF_PROBE_MOUNTED") else {
        is_found(&indef, &flashd, &varied("fast24", 1), "32MiB", "15s");
        return;
    };
    let is_wanted = |name: &&str| *name != "zero" && ["1", name].contains(&&*wanted);
    let (mut found, mut all) = (0, 0);
    for name in BUILTIN.into_iter().filter(is_wanted) {
        for seed in 1..=3 {
            println!("{name} {seed}");
            all += 1;
            let varied = varied(name, seed);
            found += usize::from(is_found(&indef, &flashd, &varied, "128MiB", "90s"));
        }
    }
    println!("{found} of {all}");
    assert!(all > 0, "no profile is called {wanted}");
    assert!(found * 10 >= all * 8, "{found} of {all}");
}

/// Where the device fails while the probe writes or reads, an error tells it, and nothing is left.
#[test]
fn loop_a_device_that_fails_meanwhile_ends_the_probe() {
    let Some((indef, flashd)) = programs() else {
        return;
    };
    let mounted = Mounted::new(&flashd, &varied("fast24", 1).text, 1.0);
    let state = tempfile::tempdir().expect("a temporary directory");
    let probe = || {
        Command::new(&indef)
            .arg("probe")
            .arg(mounted.path())
            .args(["--size", "16MiB", "--time-limit", "60s"])
            .env("STATE_DIRECTORY", state.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("indef runs")
    };
    let inject = |arguments: &[&str]| {
        let status = Command::new(&flashd)
            .arg("inject")
            .args(arguments)
            .env("XDG_RUNTIME_DIR", mounted.folder.path())
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("flashd runs").success());
    };
    let fail = |on| inject(&["error", "--offset", "0", "--length", "1GiB", "--on", on]);
    for (on, operation) in [("read", "read"), ("write", "write the probe's file")] {
        let reads = || {
            let (_, name) = mounted.device.as_deref()?.rsplit_once('/')?;
            let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).ok()?;
            stat.split_whitespace().next()?.parse::<u64>().ok()
        };
        let child = match on {
            "read" => {
                let before = reads().expect("it is counted");
                let child = probe();
                let patience = Instant::now() + Duration::from_secs(60);
                // It is at its reads.
                while reads().expect("it is counted") < before + 300 {
                    assert!(Instant::now() < patience, "it does not read");
                    sleep(Duration::from_millis(5));
                }
                fail(on);
                child
            }
            _ => {
                fail(on);
                probe()
            }
        };
        let output = child.wait_with_output().expect("it ends");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            told.contains(operation) && told.contains("input/output error"),
            "{told}"
        );
        inject(&["clear"]);
        let left = fs::read_dir(mounted.path()).expect("it is mounted").count();
        assert_eq!(left, 1, "lost+found alone");
        assert_eq!(fs::read_dir(state.path()).expect("it is there").count(), 0);
    }
}

/// A file system whose data is not on a block device of this machine, as those of a network.
#[test]
fn loop_a_file_system_without_a_device_is_refused() {
    let Some((indef, flashd)) = programs() else {
        return;
    };
    let mounted = Mounted::new(&flashd, &varied("fast24", 1).text, 1.0);
    for path in ["mnt", "mnt/disk"] {
        let output = Command::new(&indef)
            .arg("probe")
            .arg(mounted.folder.path().join(path))
            .output()
            .expect("indef runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(told.contains("is on no block device"), "{told}");
    }
}
