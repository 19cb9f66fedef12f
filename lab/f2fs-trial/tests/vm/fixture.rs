//! Trials in a guest with the patched F2FS on a zoned SSD.

use std::{
    fs,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use guest::{
    Guest, KERNEL_FAULTS, LabError, Outcome, Patched, Release, Zns, ZnsDevice, ZnsOptions,
    ZnsSetup, require,
};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_f2fs-trial");

/// One guest at a time: they share the same processors.
static TURN: Mutex<()> = Mutex::new(());

/// The script of every guest around the trial: afterwards the file system is checked, and
/// everything is found again when it is mounted anew.
const AROUND: &str = r#"
faults='KERNEL_FAULTS|F2FS-fs .*[Ii]nconsistent'
(set -e
TRIAL)
[ $? = 0 ] || { dmesg | tail -20 >&2; exit 1; }
cd /
sync
(cd $ZNS_MOUNT && find . -type f | sort | xargs md5sum) >/tmp/sums || exit 2
umount $ZNS_MOUNT || exit 3
fsck.f2fs $ZNS_CONVENTIONAL >/tmp/fsck 2>&1 || { cat /tmp/fsck; exit 4; }
if grep -q 'Fail\|ASSERT' /tmp/fsck; then cat /tmp/fsck; exit 5; fi
mount -t f2fs $ZNS_CONVENTIONAL $ZNS_MOUNT || exit 6
(cd $ZNS_MOUNT && md5sum -c /tmp/sums) >/tmp/found 2>&1 || { grep -v OK /tmp/found; exit 7; }
umount $ZNS_MOUNT || exit 8
if dmesg | grep -qE "$faults"; then dmesg; exit 9; fi
"#;

/// Run a trial (shell commands) in a guest; `None` where there is no guest. Its output is printed.
pub(crate) fn trial(release: Release, zns: &Zns, script: &str) -> Option<Outcome> {
    trial_with(release, zns, script, None)
}

/// The same, with a folder of this machine as /share.
pub(crate) fn trial_with(
    release: Release,
    zns: &Zns,
    script: &str,
    share: Option<&Path>,
) -> Option<Outcome> {
    run(
        release,
        zns,
        ZnsSetup::Mounted,
        &AROUND
            .replace("KERNEL_FAULTS", KERNEL_FAULTS)
            .replace("TRIAL", script),
        600 + setting("INDEF_CHURN_SECONDS", 0),
        share,
    )
}

/// Run a script in a guest that has everything that trials need.
pub(crate) fn run(
    release: Release,
    zns: &Zns,
    setup: ZnsSetup,
    script: &str,
    seconds: u64,
    share: Option<&Path>,
) -> Option<Outcome> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let guest = require(boot(release)?)?;
    let guest = require(guest.with_patched(Patched::F2fs))?;
    let mut guest = require(guest.zns(zns, setup))?
        .copy(PROGRAM)
        .cpus(2)
        .memory_mib(768)
        .timeout(Duration::from_secs(seconds))
        .shared();
    if let Some(share) = share {
        guest = guest.share(share);
    }
    // For encryption.
    for module in ["xts", "ecb", "cts", "cbc", "hmac", "sha512_generic"] {
        guest = guest.keep(module);
    }
    for program in ["f2fs_io", "chattr", "blkzone", "xfs_io", "fsverity"] {
        if scratch_fs::require_program(program) {
            guest = guest.copy(program);
        }
    }
    let outcome = require(guest.run(["sh", "-c", script]))?;
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    println!("{release}: {stdout}{:?}", outcome.elapsed);
    assert_eq!(
        outcome.status,
        0,
        "{stdout}\n{}\n{}",
        String::from_utf8_lossy(&outcome.stderr),
        outcome.console
    );
    Some(outcome)
}

/// Run a trial, and meanwhile do what its guest asks for: a request is the name of a file in the folder
/// `asked`, which is removed when `answer` has returned.
pub(crate) fn answering<T>(
    asked: &Path,
    answer: impl Fn(&str) + Sync,
    trial: impl FnOnce() -> T,
) -> T {
    let over = AtomicBool::new(false);
    let serve = || {
        while !over.load(Ordering::Relaxed) {
            for request in fs::read_dir(asked).unwrap() {
                let request = request.unwrap();
                answer(request.file_name().to_str().unwrap());
                fs::remove_file(request.path()).unwrap();
            }
            thread::sleep(Duration::from_millis(1));
        }
    };
    thread::scope(|scope| {
        scope.spawn(serve);
        let _over = Over(&over);
        trial()
    })
}

/// Signals the end when dropped, also where a trial fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Boot a guest of this release. With `INDEF_DEBUG_KERNEL`, the trials of that kernel's release run
/// in the kernel that looks for its own faults, and the others not at all.
fn boot(release: Release) -> Option<Result<Guest, LabError>> {
    match (setting("INDEF_DEBUG_KERNEL", 0), release) {
        (0, _) => Some(Guest::with(release)),
        (_, Release::Linux6_12) => Some(Guest::with_debug_kernel()),
        (_, Release::Linux6_1 | Release::Newest) => None,
    }
}

/// A new SSD; `mkfs` are options for F2FS.
pub(crate) fn zns(device: ZnsDevice, mkfs: &str) -> Zns {
    Zns::new(ZnsOptions {
        device,
        mkfs: mkfs.into(),
        ..ZnsOptions::default()
    })
    .unwrap()
}

/// A number from the environment.
pub(crate) fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}: {value} is no number"))
    })
}
