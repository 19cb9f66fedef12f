//! The program itself, on flashd as a mounted disk, at a tenth of its speed.
//!
//! The machine may be busy, and then the probe may say that it cannot tell; it may never be wrong. `make proof`
//! tries every profile with three seeds, and wants most of them to be found out.

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
    fn new(flashd: &Path, profile: &str) -> Self {
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
                &SCALE.to_string(),
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
    let mounted = Mounted::new(flashd, &varied.text);
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
    if std::env::var_os("INDEF_PROBE_MOUNTED").is_none() {
        is_found(&indef, &flashd, &varied("fast24", 1), "32MiB", "15s");
        return;
    }
    let (mut found, mut all) = (0, 0);
    for name in BUILTIN.into_iter().filter(|name| *name != "zero") {
        for seed in 1..=3 {
            println!("{name} {seed}");
            all += 1;
            let varied = varied(name, seed);
            found += usize::from(is_found(&indef, &flashd, &varied, "128MiB", "90s"));
        }
    }
    println!("{found} of {all}");
    assert!(found * 10 >= all * 8, "{found} of {all}");
}
