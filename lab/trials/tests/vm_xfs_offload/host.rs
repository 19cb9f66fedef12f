//! The host's side: a device, and a guest with it.

use std::{
    fs::{self, File},
    net::SocketAddr,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
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

/// The smallest that mkfs.xfs makes is 300 MiB.
const SIZE: Bytes = Bytes::mib(320);

const SCRIPT: &str = include_str!("guest.sh");

/// One guest at a time: they share the same processors.
static TURN: Mutex<()> = Mutex::new(());

/// The place of the file system, on the guest's side of a test.
pub(crate) fn in_guest() -> Option<PathBuf> {
    std::env::var_os("INDEF_ON_XFS").map(PathBuf::from)
}

/// The file system's block device, on the guest's side.
pub(crate) fn disk() -> PathBuf {
    std::env::var_os("INDEF_ON_DISK").unwrap().into()
}

/// Unmount and mount again, on the guest's side.
pub(crate) fn remount(root: &Path) {
    let run = |program: &str, arguments: &[&Path]| {
        let status = Command::new(program).args(arguments).status().unwrap();
        assert!(status.success(), "{program}: {status}");
    };
    run("umount", &[root]);
    run("mount", &[Path::new("-t"), Path::new("xfs"), &disk(), root]);
}

/// Notify the host that it is time for its action at `name`, and wait until it is done: on the
/// guest's side.
pub(crate) fn note(name: &str) {
    let answer = format!("/share/{name}.noted");
    fs::write(format!("/share/{name}"), "").unwrap();
    while !Path::new(&answer).exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// flashd in this process.
pub(crate) struct Flashd {
    pub(crate) device: Arc<Device>,
    target: Mutex<Option<Target>>,
    address: SocketAddr,
    nqn: String,
}

impl Flashd {
    /// A flashd with one namespace without zones.
    pub(crate) fn new(profile: &str, time_scale: f64) -> Self {
        let namespace = NamespaceOptions {
            kind: NamespaceKind::Conventional,
            size: SIZE,
        };
        let options = DeviceOptions {
            time_scale,
            ..DeviceOptions::in_memory(Profile::builtin(profile).unwrap(), &[namespace])
        };
        let device = Device::open(&options).unwrap();
        let target = listen(&device, "127.0.0.1:0".parse().unwrap());
        Self {
            device,
            address: target.address(),
            nqn: target.nqn().to_owned(),
            target: Mutex::new(Some(target)),
        }
    }

    /// Break all connections, and listen again after a second.
    pub(crate) fn be_gone_for_a_while(&self) {
        let mut target = self.target.lock().unwrap();
        *target = None;
        std::thread::sleep(Duration::from_secs(1));
        *target = Some(listen(&self.device, self.address));
    }

    /// Run the guest's side of `test` on it; `noted` is called when the guest notes each of
    /// `names`, in this order. Returns whether there was a guest. `share` is seen by both.
    pub(crate) fn run(
        &self,
        test: &str,
        share: &Path,
        names: &[&str],
        mut noted: impl FnMut(&str) + Send,
    ) -> bool {
        let port = self.address.port().to_string();
        let Some(guest) = guest(share) else {
            return false;
        };
        let guest = guest.with_network().shared().copy("nvme").copy("ip");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = OnDrop(&over);
            scope.spawn(|| {
                for name in names {
                    while !share.join(name).exists() {
                        if over.load(Ordering::SeqCst) {
                            return;
                        }
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    noted(name);
                    fs::write(share.join(format!("{name}.noted")), "").unwrap();
                }
            });
            run(guest, test, &["tcp", &port, &self.nqn]).is_some()
        })
    }

    /// The same, where nothing is noted or shared.
    pub(crate) fn run_alone(&self, test: &str) {
        let share = tempfile::tempdir().unwrap();
        self.run(test, share.path(), &[], |_| ());
    }
}

/// Tells a thread that no more clients will come, also if we panic.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn listen(device: &Arc<Device>, address: SocketAddr) -> Target {
    Target::listen(Arc::clone(device), address, TargetOptions::default()).unwrap()
}

/// Run the guest's side of `test` on a partition of QEMU's own NVMe device.
pub(crate) fn run_on_qemu(test: &str) -> Option<Outcome> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    partitioned(&image);
    let share = folder.path().join("share");
    fs::create_dir(&share).unwrap();
    let drive = format!("if=none,id=flat,format=raw,file={}", image.display());
    let guest = guest(&share)?
        .load("nvme")
        .qemu("-drive")
        .qemu(drive)
        .qemu("-device")
        .qemu("nvme,id=controller,serial=indef")
        .qemu("-device")
        .qemu("nvme-ns,drive=flat,bus=controller");
    run(guest, test, &["pci"])
}

/// An image with one partition that begins at 1 MiB: a master boot record, as PCs have had it since
/// DOS 3.3.
fn partitioned(image: &Path) {
    let (start, sectors) = (2048_u32, (SIZE.get() / 512) as u32);
    let mut record = [0; 512];
    record[446 + 4] = 0x83;
    record[446 + 8..446 + 12].copy_from_slice(&start.to_le_bytes());
    record[446 + 12..446 + 16].copy_from_slice(&sectors.to_le_bytes());
    record[510..].copy_from_slice(&[0x55, 0xAA]);
    let file = File::create(image).unwrap();
    file.set_len((u64::from(start) + u64::from(sectors)) * 512)
        .unwrap();
    file.write_all_at(&record, 0).unwrap();
}

fn guest(share: &Path) -> Option<Guest> {
    scratch_fs::require_xfsprogs()?;
    if !["nvme", "ip", "bash"]
        .iter()
        .all(|program| scratch_fs::require_program(program))
    {
        return None;
    }
    let mut guest = require(Guest::with(Release::Linux6_12))?;
    if !scratch_fs::share_xfsprogs(share).unwrap() {
        guest = guest.copy("mkfs.xfs").copy("xfs_repair");
    }
    fs::write(share.join("guest.sh"), SCRIPT).unwrap();
    Some(guest.share(share).cpus(2).timeout(Duration::from_secs(300)))
}

fn run(guest: Guest, test: &str, way: &[&str]) -> Option<Outcome> {
    let program = std::env::current_exe().unwrap();
    let guest = guest.copy(&program);
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = vec!["bash", "/share/guest.sh", program.to_str().unwrap(), test];
    command.extend(way);
    let outcome = require(guest.run(command))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&outcome.stderr);
    assert_eq!(outcome.status, 0, "{said}\n{}", outcome.console);
    assert!(text(&outcome.stdout).contains("step: done"), "{said}");
    // Exactly that test ran, not none.
    assert!(said.contains("1 passed"), "{said}");
    println!("{said}\n{:?} after {:?}", outcome.elapsed, outcome.boot);
    Some(outcome)
}
