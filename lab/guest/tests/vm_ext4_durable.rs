//! ext4: data that `fdatasync` acknowledged while `EXT4_IOC_MOVE_EXT` was running is lost at a
//! power cut with Debian's kernels, and is not with the patch of `kernel/ext4`.
//!
//! The guest's side is a test of this program, too: it is copied into the guest, and finds its file
//! system in the environment.

#[path = "vm_ext4_durable/bounds.rs"]
mod bounds;
#[path = "vm_ext4_durable/trial.rs"]
mod trial;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use guest::{Guest, KERNEL_FAULTS, Patched, Release, require};
use units::Bytes;

/// One guest at a time: they share the same processors.
static TURN: Mutex<()> = Mutex::new(());

const SCRIPT: &str = r#"
set -e
mkfs.ext4 -q -b 4096 /dev/vda
INDEF_ON_EXT4=/mnt INDEF_ON_DISK=/dev/vda INDEF_POWER_CUTS=$3 "$1" --exact "$2" --nocapture >&2
e2fsck -f -n /dev/vda >&2
if dmesg | grep -qE 'KERNEL_FAULTS'; then dmesg >&2; exit 9; fi
"#;

/// Number of cuts, on each kernel with and without the patch.
fn cuts() -> u64 {
    std::env::var("INDEF_POWER_CUTS").map_or(12, |text| text.parse().unwrap())
}

/// The number of losses that the trial reports when `test` is run in a guest; `None` where there is
/// no guest.
fn lost(release: Release, patched: bool, test: &str) -> Option<u64> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for program in ["mkfs.ext4", "e2fsck"] {
        if !scratch_fs::require_program(program) {
            return None;
        }
    }
    let mut guest = require(Guest::with(release))?;
    if patched {
        guest = require(guest.with_patched(Patched::Ext4))?;
    }
    let program = std::env::current_exe().unwrap();
    let cuts = cuts();
    let script = SCRIPT.replace("KERNEL_FAULTS", KERNEL_FAULTS);
    let arguments = [program.to_str().unwrap(), test, &cuts.to_string()];
    let outcome = require(
        guest
            .with_tools()
            .copy("e2fsck")
            .copy(&program)
            .disk(Bytes::mib(256))
            .timeout(Duration::from_secs(120 + 10 * cuts))
            .run(["sh", "-c", &script, "sh"].into_iter().chain(arguments)),
    )?;
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.status, 0, "{said}\n{}", outcome.console);
    // Exactly that test ran, not none.
    assert!(said.contains("1 passed"), "{said}");
    let results: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with(trial::RESULT))
        .collect();
    let module = if patched { "patched" } else { "stock" };
    println!("{release}, {module}, {:?}:", outcome.elapsed);
    let mut lost = 0;
    let mut seen = 0;
    for line in results {
        println!("  {line}");
        let number = |name: &str| -> u64 {
            let field = line.split(' ').find_map(|word| word.strip_prefix(name));
            field.unwrap().parse().unwrap()
        };
        lost += number("lost=");
        seen += number("cuts=");
        assert!(number("acknowledged=") > number("cuts="), "{line}");
    }
    assert_eq!(seen, cuts);
    Some(lost)
}

/// Without the patch the trial has to find something, or it proves nothing about the patch.
fn compare(release: Release, test: &str) {
    if let Some(place) = trial::in_guest() {
        return trial::run(&place, cuts());
    }
    let Some(stock) = lost(release, false, test) else {
        return;
    };
    assert!(stock > 0, "nothing is lost with Debian's own module");
    let Some(patched) = lost(release, true, test) else {
        return;
    };
    assert_eq!(patched, 0, "{stock} with Debian's own module");
}

#[test]
fn vm_6_12_the_patch_closes_the_window() {
    compare(Release::Linux6_12, "vm_6_12_the_patch_closes_the_window");
}

#[test]
fn vm_6_1_the_patch_closes_the_window() {
    compare(Release::Linux6_1, "vm_6_1_the_patch_closes_the_window");
}
