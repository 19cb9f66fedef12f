//! The capabilities of the nightly unit are enough: all that root moves can be moved with just
//! these.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::Command,
};

use crate::common::{Ran, fragments, hashes, is_root, make, scratch};
use scratch_fs::{ScratchFs, Shape, require};
use units::Bytes;

/// The id of an ordinary user.
const OWNER: u32 = 1000;

/// The text of a unit.
fn unit(name: &str) -> String {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    fs::read_to_string(units.join(name)).unwrap()
}

/// The words of a setting of the nightly unit.
fn setting(name: &str) -> Vec<String> {
    setting_of("indef.service", name)
}

/// The words of a setting of a unit.
fn setting_of(file: &str, name: &str) -> Vec<String> {
    let unit = unit(file);
    let begin = format!("{name}=");
    let mut lines = unit.lines().filter_map(|line| line.strip_prefix(&*begin));
    let words = lines.next().unwrap_or_else(|| panic!("no {name}"));
    assert!(lines.next().is_none(), "{name} twice");
    words.split_whitespace().map(str::to_owned).collect()
}

/// `indef run` with the capabilities of the unit and no others, as systemd would start it.
fn run_as_the_unit(state: &Path, path: &Path) -> Ran {
    let mut bounding = "-all".to_owned();
    for capability in setting("CapabilityBoundingSet") {
        bounding += ",+";
        bounding += &capability.strip_prefix("CAP_").unwrap().to_lowercase();
    }
    assert_eq!(setting("NoNewPrivileges"), ["true"]);
    Command::new("setpriv")
        .args(["--bounding-set", &bounding, "--inh-caps", "-all"])
        .args(["--no-new-privs", env!("CARGO_BIN_EXE_indef")])
        .args(["run", "--json", "--progress", "never"])
        .arg(path)
        .env("STATE_DIRECTORY", state)
        .output()
        .expect("setpriv is there (util-linux)")
        .into()
}

fn of_others(path: &Path, mode: u32) {
    chown(path, Some(OWNER), Some(OWNER)).unwrap();
    // Set afterwards: a change of owner clears set-user-id.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn everything_moves(mut scratch: ScratchFs) {
    let kind = scratch.kind().to_owned();
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    let (setuid, half, private) = (dir.join("setuid"), dir.join("half"), dir.join("private"));
    make(&setuid, Bytes::mib(4), Bytes::kib(16));
    of_others(&setuid, 0o6755);
    Shape::half_contiguous(3, Bytes::mib(8))
        .make(&half)
        .unwrap();
    of_others(&half, 0o644);
    make(&private, Bytes::mib(2), Bytes::kib(16));
    of_others(&private, 0o600);
    chown(&dir, Some(OWNER), Some(OWNER)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    scratch.remount().unwrap();
    let contents = hashes(&dir);
    let files = [setuid, half, private];
    let owners = || {
        files.each_ref().map(|path| {
            let status = fs::metadata(path).unwrap();
            (
                status.mode(),
                status.uid(),
                status.gid(),
                status.mtime_nsec(),
                status.ctime_nsec(),
            )
        })
    };
    let before = owners();
    let had = files.each_ref().map(|path| fragments(path));
    let state = tempfile::tempdir().unwrap();
    let ran = run_as_the_unit(state.path(), &dir);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{kind}: {ran:?}");
    let document = ran.json();
    assert_eq!(document["totals"]["files_moved"], 3, "{kind}: {document}");
    for (path, had) in files.iter().zip(had) {
        let fragments = fragments(path);
        assert!(
            fragments < had,
            "{kind}: {}: {fragments} of {had}: {document}",
            path.display()
        );
    }
    assert_eq!(owners(), before, "{kind}");
    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents, "{kind}");
}

#[test]
fn loop_the_units_capabilities_are_enough_for_ext4() {
    if is_root()
        && let Some(scratch) = scratch("ext4")
    {
        everything_moves(scratch);
    }
}

#[test]
fn loop_the_units_capabilities_are_enough_for_xfs() {
    let builder = || ScratchFs::builder("xfs", Bytes::gib(1));
    if !is_root() {
        return;
    }
    if let Some(scratch) = require(builder().build()) {
        everything_moves(scratch);
    }
    // Ranges can be exchanged: another engine.
    let Some(tools) = scratch_fs::require_xfsprogs() else {
        return;
    };
    let exchange = builder().mkfs_args(["-i", "exchange=1"]).tools(&tools);
    if let Some(scratch) = require(exchange.build()) {
        everything_moves(scratch);
    }
}

#[test]
fn loop_the_units_capabilities_are_enough_for_btrfs() {
    if is_root()
        && let Some(scratch) = scratch("btrfs")
    {
        everything_moves(scratch);
    }
}

/// The service moves as the nightly run does, and has reads traced by another one, which moves nothing.
#[test]
fn the_service_has_what_the_nightly_run_has_and_another_one_what_tracing_takes() {
    let of_watch = setting_of("indef-watch.service", "CapabilityBoundingSet");
    assert_eq!(of_watch, setting("CapabilityBoundingSet"));
    let of_trace = setting_of("indef-trace@.service", "CapabilityBoundingSet");
    for capability in ["CAP_BPF", "CAP_PERFMON", "CAP_DAC_READ_SEARCH"].map(str::to_owned) {
        assert!(of_trace.contains(&capability), "{capability}");
    }
    let allows = |file: &str, call: &str| {
        let unit = unit(file);
        let allowed = { unit.lines() }
            .filter_map(|line| line.strip_prefix("SystemCallFilter="))
            .filter(|calls| !calls.starts_with('~'));
        { allowed }.any(|calls| calls.split(' ').any(|one| one == call))
    };
    // Threads that trace let all others go first.
    for call in ["bpf", "perf_event_open", "sched_setscheduler"] {
        assert!(allows("indef-trace@.service", call), "{call}");
        assert!(!allows("indef-watch.service", call), "{call}");
    }
    assert!(!allows("indef-trace@.service", "fchown"));
    // Both find each other, and the profile.
    let socket = setting_of("indef-trace.socket", "ListenStream");
    let asked = format!("INDEF_TRACE_SOCKET={}", socket[0]);
    assert_eq!(setting_of("indef-watch.service", "Environment"), [asked]);
    for setting in ["StateDirectory", "RuntimeDirectory"] {
        let of_both = ["indef-watch.service", "indef-trace@.service"];
        let [watch, trace] = of_both.map(|file| setting_of(file, setting));
        assert_eq!(watch, trace);
    }
}

/// systemd understands the units, and rates the services' exposure as docs/ops.md says.
#[test]
fn systemd_understands_the_units() {
    let analyze = |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).output();
    if analyze(&["--version"]).is_err() {
        return scratch_fs::skip("systemd-analyze is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let units = [
        "indef.service",
        "indef.timer",
        "indef-trace.socket",
        "indef-trace@.service",
        "indef-watch.service",
    ];
    for name in units {
        // Where it is installed nothing is missing.
        let text = unit(name).replace("/usr/local/bin/indef", env!("CARGO_BIN_EXE_indef"));
        fs::write(folder.path().join(name), text).unwrap();
    }
    for name in units {
        let path = folder.path().join(name);
        let ran = Ran::from(analyze(&["--man=no", "verify", path.to_str().unwrap()]).unwrap());
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{name}: {ran:?}");
    }
    for (name, exposure) in [
        ("indef.service", 20),
        ("indef-watch.service", 20),
        ("indef-trace@.service", 16),
    ] {
        let path = folder.path().join(name);
        let threshold = format!("--threshold={exposure}");
        let arguments = [
            "security",
            "--offline=true",
            &threshold,
            path.to_str().unwrap(),
        ];
        let ran = Ran::from(analyze(&arguments).unwrap());
        assert_eq!(ran.status, 0, "{name}: {ran:?}");
    }
}
