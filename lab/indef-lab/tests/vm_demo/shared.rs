//! Guests that several processes use, one after the other, kept by this crate's program. The processes are
//! this test, started again for each side.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use guest::{Cache, Guest, Release, require, standing::Standing};
use tempfile::TempDir;
use units::Bytes;

const TEST: &str = "shared::vm_a_shared_guest_is_put_back_and_a_dead_one_is_replaced";
/// The script of a side, in its environment.
const SIDE: &str = "INDEF_SHARED_SIDE";

/// Leaves a mount, a process, a module, a file, a disk's content and a message; prints an identifier of this boot.
const LEAVES: &str = r#"
mount -t tmpfs tmpfs /mnt && modprobe ext4 && echo x >/tmp/left && echo left >/dev/kmsg || exit 1
[ "$(cat /share/given)" = given ] || exit 2
echo left >/dev/vda && sync || exit 3
# It holds the output open: the command ends all the same.
setsid sleep 1000 &
cat /proc/sys/kernel/random/boot_id
"#;
/// Finds nothing of that.
const FINDS: &str = r#"
if grep -q ' /mnt ' /proc/mounts || grep -q ^ext4 /proc/modules || dmesg | grep left; then exit 1; fi
if [ -e /tmp/left ] || pidof sleep; then exit 2; fi
if [ "$(head -c 4096 /dev/vda | tr -d '\0' | wc -c)" != 0 ]; then exit 3; fi
cat /proc/sys/kernel/random/boot_id
"#;
const CRASHES: &str = "echo c >/proc/sysrq-trigger";

/// One process: run its script in a shared guest, print its output, and fail where it fails.
fn side(script: &str) {
    let share = tempfile::tempdir().unwrap();
    fs::write(share.path().join("given"), "given\n").unwrap();
    let guest = Guest::with(Release::Linux6_12).unwrap().share(share.path());
    let guest = guest.disk(Bytes::mib(16)).shared();
    let outcome = guest.run(["sh", "-c", script]).unwrap();
    assert_eq!(outcome.status, 0, "{outcome:?}");
    println!("boot {}", String::from_utf8_lossy(&outcome.stdout));
}

/// The folder of this test's guests. Dropping it ends them.
struct Guests(TempDir);

impl Guests {
    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn start(&self, script: &str) -> Output {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(SIDE, script)
            .env("INDEF_GUESTS", self.folder())
            .env("TMPDIR", self.folder())
            .output()
            .unwrap()
    }

    /// The boot that a side has seen.
    fn boot(&self, script: &str) -> String {
        let output = self.start(script);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        let boot = said.lines().find_map(|line| line.strip_prefix("boot "));
        boot.unwrap().to_owned()
    }

    /// The names of those that are up.
    fn standing(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.folder().join("standing")) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()))
            .collect()
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        for name in self.standing() {
            if let Ok(Some(guest)) = Standing::find(&Cache::at(self.folder()), &name) {
                let _ = guest.down();
            }
        }
    }
}

#[test]
fn vm_a_shared_guest_is_put_back_and_a_dead_one_is_replaced() {
    if let Ok(script) = env::var(SIDE) {
        side(&script);
        return;
    }
    if require(Guest::with(Release::Linux6_12)).is_none() {
        return;
    }
    let guests = Guests(tempfile::tempdir().unwrap());
    symlink(
        env!("CARGO_BIN_EXE_indef-lab"),
        guests.folder().join("keeper"),
    )
    .unwrap();
    let first = guests.boot(LEAVES);
    assert_eq!(guests.boot(FINDS), first);
    // One that was left in the middle of something is not used again.
    let [name] = guests.standing().try_into().unwrap();
    fs::remove_file(guests.folder().join(format!("{name}.clean"))).unwrap();
    assert_ne!(guests.boot(FINDS), first);
    let crashed = guests.start(CRASHES);
    assert!(!crashed.status.success(), "{crashed:?}");
    assert!(guests.standing().is_empty());
}
