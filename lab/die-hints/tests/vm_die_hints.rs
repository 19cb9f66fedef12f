//! ext4 of the kernel with die hints, in a guest on flashd: files that were written bit by bit are read
//! as fast as contiguous ones, and nobody sends hints who was not asked to.
//!
//! The kernel takes long to build (`cargo lab kernels --die-hints`); where it was not, these tests
//! are reported as skipped.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use die_hints::{Case, Journal, Lab, read::Reading};
use guest::{Guest, require};
use units::Bytes;

/// One guest at a time: they share the same processors.
static TURN: Mutex<()> = Mutex::new(());

fn with_lab(trial: impl FnOnce(&Lab)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = ["mkfs.ext4", "e2fsck"];
    if !programs.into_iter().all(scratch_fs::require_program) {
        return;
    }
    let Some(guest) = require(Guest::with_die_hints()) else {
        return;
    };
    let program = Path::new(env!("CARGO_BIN_EXE_die-hints"));
    let lab = Lab::start(guest, program, Bytes::gib(2)).unwrap();
    trial(&lab);
    lab.end().unwrap();
}

/// With hints, at least this share of the contiguous files' speed is left; without, `worst` cases are
/// slow, or they would show nothing.
fn check(lab: &Lab, journal: Journal, case: &Case, least: f64) {
    let found = lab.compare(journal, case).unwrap();
    let [without, with] = &found.written;
    let shares = [without, with].map(|of| found.share(of));
    println!(
        "{journal}, {case}: {:.3} without, {:.3} with; {:.0} MiB/s contiguous; {} hints, {} refused",
        shares[0],
        shares[1],
        found.contiguous.speed(),
        with.hints.given,
        with.hints.refused(),
    );
    for of in [&found.contiguous, without] {
        assert_eq!(of.hints.given, 0, "{case}: nobody asked for hints");
    }
    assert!(with.hints.given >= 255, "{case}: {:?}", with.hints);
    assert!(shares[1] > least, "{case}: {shares:?}");
    assert!(shares[0] < shares[1], "{case}: {shares:?}");
    if journal == Journal::Apart && case.to_string().contains("worst") {
        assert!(shares[0] < 0.5, "{case}: {shares:?}");
    }
}

#[test]
fn vm_pieces_are_read_as_fast_as_a_contiguous_file() {
    with_lab(|lab| {
        for way in ["fdatasync", "direct"] {
            for case in Case::pieces(way) {
                check(lab, Journal::Apart, &case, 0.98);
            }
        }
    });
}

/// Appends only: overwrites with hints keep a place that was uneven from the first write, which a
/// journal beside it makes so (kernel/die-hints/README.md).
#[test]
fn vm_appends_beside_a_journal_are_read_as_fast() {
    with_lab(|lab| {
        let pieces = Case::pieces("fdatasync").into_iter();
        for case in pieces.filter(|case| case.to_string().contains("append")) {
            check(lab, Journal::Within, &case, 0.98);
        }
    });
}

#[test]
fn vm_what_was_written_with_hints_is_read_again() {
    with_lab(|lab| {
        lab.mount(Journal::Within, "die_hints").unwrap();
        let words = ["random", "1000"].map(str::to_owned);
        lab.write(&words, Reading::FIGURE_12).unwrap();
        lab.unmount(Journal::Within).unwrap();
        let hints = lab.device().stats().model.hints;
        println!("{hints:?}");
        assert!(hints.given > 2000, "{hints:?}");
    });
}
