//! Cases of this program that run in a guest.

use std::sync::{Mutex, PoisonError};

use guest::{Guest, require};
use units::Bytes;

/// One guest at a time: they share the same processors.
static TURN: Mutex<()> = Mutex::new(());

/// The guest of the tests of this program, which have it one after the other: it has what any of them needs.
pub(crate) fn of_suite(mut guest: Guest) -> Guest {
    for module in ["f2fs", "loop", "quota_v2", "xfs"] {
        guest = guest.keep(module);
    }
    let guest = guest.with_tools().disk(Bytes::gib(4)).memory_mib(1536);
    guest.shared()
}

/// So many tests pass there, and none is skipped: what is here must run there. `command` prints `skipped: ` before each one.
pub(crate) fn pass(guest: Guest, command: &[&str], tests: usize) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(outcome) = require(guest.run(command)) else {
        return;
    };
    let said = String::from_utf8_lossy(&outcome.stdout);
    let cases = String::from_utf8_lossy(&outcome.stderr);
    println!(
        "{said}\n{cases}\n{:?} after {:?}",
        outcome.elapsed, outcome.boot
    );
    assert_eq!(outcome.status, 0, "{}", outcome.console);
    let passed = format!("{tests} passed");
    assert!(said.contains(&passed), "these were not the tests that ran");
    assert!(!said.contains("skipped: "), "what is here must run there");
}
