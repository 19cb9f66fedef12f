//! A real initiator: Debian's kernels, in a guest, connect to a target of this process. nvme-cli,
//! blkzone, fio and file systems have to find the expected device.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{
        Arc, Mutex, Once, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use flash_model::{NamespaceKind, Profile};
use flashd::{
    device::{Device, DeviceOptions, NamespaceOptions},
    serve::{Target, TargetOptions},
};
use guest::{Guest, Outcome, Release, require};
use units::Bytes;

/// One guest at a time: they share the same processors.
static TURN: Mutex<()> = Mutex::new(());

const COMMANDS: &str = include_str!("scripts/commands.sh");
const RECONNECT: &str = include_str!("scripts/reconnect.sh");
const PRIVATE: &str = include_str!("scripts/private.sh");
const FILESYSTEMS: &str = include_str!("scripts/filesystems.sh");

static HOOK: Once = Once::new();
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A target on loopback, and its device.
struct Fixture {
    device: Arc<Device>,
    target: Target,
}

impl Fixture {
    /// A fixture at this address. From now on no panic of a thread of a target may go unnoticed.
    fn at(device: Arc<Device>, address: SocketAddr) -> Self {
        Self::with(device, address, TargetOptions::default())
    }

    fn with(device: Arc<Device>, address: SocketAddr, options: TargetOptions) -> Self {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                let thread = std::thread::current();
                if thread.name().is_some_and(|name| name.starts_with("nvme")) {
                    PANICS.fetch_add(1, Ordering::AcqRel);
                }
                before(info);
            }));
        });
        let target = Target::listen(Arc::clone(&device), address, options).unwrap();
        Self { device, target }
    }

    /// Wait until no connection is left. None of them may have ended by a panic.
    fn wait_until_idle(&self) {
        for _ in 0..500 {
            if self.target.connections() == 0 {
                assert_eq!(self.target.controllers(), 0);
                assert_eq!(PANICS.load(Ordering::Acquire), 0, "threads have panicked");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} connections are left", self.target.connections());
    }
}

/// A target with a namespace of zones and one without.
fn target(block_bytes: u64, zoned: Bytes, conventional: Bytes) -> Fixture {
    let namespaces = [
        (NamespaceKind::Zoned, zoned),
        (NamespaceKind::Conventional, conventional),
    ]
    .map(|(kind, size)| NamespaceOptions { kind, size });
    let profile = Profile::builtin("zero").unwrap();
    let options = DeviceOptions {
        block_bytes,
        ..DeviceOptions::in_memory(profile, &namespaces)
    };
    let anywhere = "127.0.0.1:0".parse().unwrap();
    Fixture::at(Device::open(&options).unwrap(), anywhere)
}

fn run(
    release: Release,
    (port, nqn): (u16, &str),
    share: &Path,
    environment: &str,
    script: &str,
) -> Option<Outcome> {
    let tools = [
        "head", "nvme", "blkzone", "fio", "ip", "cmp", "md5sum", "find", "xargs", "truncate",
        "stat",
    ];
    if !tools
        .iter()
        .all(|program| scratch_fs::require_program(program))
    {
        return None;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    fs::write(share.join("connect.sh"), zbd::CONNECT).unwrap();
    fs::write(share.join("run.sh"), script).unwrap();
    let mut guest = require(Guest::with(release))?
        .with_tools()
        .with_network()
        .share(share)
        .shared()
        .timeout(Duration::from_secs(300));
    for program in tools {
        guest = guest.copy(program);
    }
    for program in ["mkfs.f2fs", "fsck.f2fs"] {
        if environment.contains("f2fs=") {
            guest = guest.copy(program);
        }
    }
    let command = format!("{environment} exec bash /share/run.sh {port} {nqn}");
    let outcome = require(guest.run(["bash", "-c", &command]))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        outcome.status,
        0,
        "{}\n{}\n{}",
        text(&outcome.stdout),
        text(&outcome.stderr),
        outcome.console
    );
    assert!(text(&outcome.stdout).contains("step: done"));
    println!(
        "{release:?}: {:?} after {:?}",
        outcome.elapsed, outcome.boot
    );
    Some(outcome)
}

/// Port and name of the target, for a guest.
fn whom(fixture: &Fixture) -> (u16, &str) {
    (fixture.target.address().port(), fixture.target.nqn())
}

fn commands(release: Release) {
    let fixture = target(4096, Bytes::mib(512), Bytes::mib(128));
    let folder = tempfile::tempdir().unwrap();
    if run(release, whom(&fixture), folder.path(), "", COMMANDS).is_none() {
        return;
    }
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let says = |name: &str, what: &str| {
        let page = page(name);
        let squeezed: Vec<&str> = page.split_whitespace().collect();
        assert!(
            squeezed.join(" ").contains(what),
            "{name}: no '{what}' in\n{page}"
        );
    };
    says("discovery", fixture.target.nqn());
    says("discovery", "subtype: nvme subsystem");
    says("id-ctrl", "mn : flashd");
    says("id-ctrl", "oncs : 0x1cd");
    says("id-ns-2", "nsze : 0x8000");
    says("id-ns-1", "nsze : 0x20000");
    says("zns-id-ns", "zsze:0x2000");
    says("ns-descs", "csi : 0x2");
    says("list-ns", "[ 0]:0x1 [ 1]:0x2");
    assert!(!page("list-ns-zoned").contains("0x2"));
    says("smart-log", "critical_warning : 0");
    says("fw-log", "afi : 0x1");
    says("supported-log-pages", "LID 0xbf");
    says("changed-zone-list", "nrzid: 0");
    says("feature-0x0f", "Current value");
    // nvme-cli 2.13 leaves out the "0x".
    says("hints", "Current value:");
    says("hints", "00000001");
    says("zones-empty", "zcond: 1(em)");
    says("zones-written", "wptr 0x000200");
    says("zones-finished", "zcond:14(fu)");
    says("zones-reset", "zcond: 1(em)");
    says("appended", "LBA 2000");
    says("appended", "LBA 2010");
    says("fio-zones", "err= 0");
    says("defragment", "result: 0x00000040");
    let geometry = fs::read(folder.path().join("geometry")).unwrap();
    assert!(geometry.starts_with(b"FLASHGEO"));
    fixture.wait_until_idle();
}

/// The first block of zonefs (fs/zonefs/zonefs.h, v6.12): magic, checksum, and nothing chosen.
fn zonefs() -> Vec<u8> {
    let mut block = vec![0; 4096];
    block[..4].copy_from_slice(b"SFOZ");
    // The identifier, after the label.
    block[72..88].copy_from_slice(b"flashd test zone");
    // CRC-32 without the last complement.
    let mut crc = u32::MAX;
    for byte in &block {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
        }
    }
    block[4..8].copy_from_slice(&crc.to_le_bytes());
    block
}

fn filesystems(release: Release) {
    let has = |program| scratch_fs::require_program(program);
    if !(has("mkfs.ext4") && has("mkfs.btrfs")) {
        return;
    }
    let f2fs = if has("mkfs.f2fs") { "f2fs=1" } else { "" };
    // F2FS wants blocks of 512 bytes, and 64 MiB for its metadata.
    let fixture = target(512, Bytes::gib(2), Bytes::mib(64));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("zonefs"), zonefs()).unwrap();
    if run(release, whom(&fixture), folder.path(), f2fs, FILESYSTEMS).is_none() {
        return;
    }
    let said = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    // Not with 6.1: see the script.
    if release != Release::Linux6_1 {
        let check = said("btrfs-check");
        assert!(check.contains("no error found"), "{check}");
    }
    if !f2fs.is_empty() {
        let fsck = said("fsck.f2fs");
        assert!(
            fsck.contains("[Ok..]") && !fsck.contains("[Fail]"),
            "{fsck}"
        );
    }
    fixture.wait_until_idle();
}

#[test]
fn vm_linux_6_1_commands() {
    commands(Release::Linux6_1);
}

#[test]
fn vm_linux_6_12_commands() {
    commands(Release::Linux6_12);
}

#[test]
fn vm_linux_6_1_filesystems() {
    filesystems(Release::Linux6_1);
}

#[test]
fn vm_linux_6_12_filesystems() {
    filesystems(Release::Linux6_12);
}

/// So that a write of 1 MiB takes seconds.
const SLOWER: f64 = 2000.0;

/// A device with limits, which is slow: Linux sees the limits of private namespaces, and stays connected
/// while a write takes longer than its keep alive time.
#[test]
fn vm_linux_6_12_private_namespaces_and_slow_writes() {
    let namespaces = [
        (NamespaceKind::Zoned, Bytes::mib(640)),
        (NamespaceKind::Conventional, Bytes::mib(64)),
    ]
    .map(|(kind, size)| NamespaceOptions { kind, size });
    // Where there are fewer zones than may be open, Linux shows no limit: zones of 32 MiB.
    let zn540 = Profile::builtin_text("zn540").unwrap();
    let smaller = zn540
        .replace("{ value = 1077,", "{ value = 32,")
        .replace("{ value = 2048,", "{ value = 32,");
    let profile = Profile::parse("zn540.toml", &smaller).unwrap();
    let options = DeviceOptions {
        block_bytes: 4096,
        time_scale: SLOWER,
        ..DeviceOptions::in_memory(profile, &namespaces)
    };
    let fixture = Fixture::with(
        Device::open(&options).unwrap(),
        "127.0.0.1:0".parse().unwrap(),
        TargetOptions {
            private: true,
            ..TargetOptions::default()
        },
    );
    let folder = tempfile::tempdir().unwrap();
    let release = Release::Linux6_12;
    if run(release, whom(&fixture), folder.path(), "", PRIVATE).is_none() {
        return;
    }
    let said = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(said("zoned").trim(), "host-managed");
    assert_eq!(said("max_open_zones").trim(), "14");
    assert_eq!(said("max_active_zones").trim(), "14");
    let fio: serde_json::Value = serde_json::from_str(&said("fio")).unwrap();
    let job = &fio["jobs"][0];
    assert_eq!(job["error"], 0, "{fio}");
    let longest = job["write"]["lat_ns"]["max"].as_u64().unwrap();
    assert!(longest > 2_000_000_000, "{longest} ns: not slow");
    let messages = said("dmesg");
    for word in ["keep alive", "reconnect", "reset", "timeout", "I/O error"] {
        assert!(!messages.contains(word), "{messages}");
    }
    fixture.wait_until_idle();
}

/// Wait until the host, whose target is gone, has noticed and knocks again; false if the test is over
/// before.
fn host_knocks(address: SocketAddr, is_over: impl Fn(Duration) -> bool) -> bool {
    let door = TcpListener::bind(address).unwrap();
    door.set_nonblocking(true).unwrap();
    while !is_over(Duration::from_millis(20)) {
        if door.accept().is_ok() {
            return true;
        }
    }
    false
}

/// Stop and start the target again, with the same device, twice after the guest has begun to write;
/// keep it until it is no longer needed, also when the guest has failed.
fn restart(mut fixture: Fixture, begun: &Path, over: &mpsc::Receiver<Never>) {
    let is_over = |wait| over.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Disconnected);
    while !begun.exists() {
        if is_over(Duration::from_millis(100)) {
            return;
        }
    }
    for _ in 0..2 {
        if is_over(Duration::from_secs(5)) {
            return;
        }
        let Fixture { device, target } = fixture;
        let address = target.address();
        drop(target);
        if !host_knocks(address, is_over) {
            return;
        }
        fixture = Fixture::at(device, address);
    }
    while !is_over(Duration::from_secs(1)) {}
}

#[derive(Debug, PartialEq)]
enum Never {}

#[test]
fn vm_linux_6_12_reconnects() {
    let fixture = target(4096, Bytes::mib(256), Bytes::mib(64));
    let (port, nqn) = (
        fixture.target.address().port(),
        fixture.target.nqn().to_owned(),
    );
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("writing");
    let ran = std::thread::scope(|scope| {
        let begun = &begun;
        // Dropped by whatever ends this closure, also by a panic.
        let (_until_here, over) = mpsc::channel();
        scope.spawn(move || restart(fixture, begun, &over));
        run(
            Release::Linux6_12,
            (port, &nqn),
            folder.path(),
            "",
            RECONNECT,
        )
    });
    if ran.is_some() {
        let fio = fs::read_to_string(folder.path().join("fio")).unwrap();
        assert!(fio.contains("err= 0"), "{fio}");
    }
}
