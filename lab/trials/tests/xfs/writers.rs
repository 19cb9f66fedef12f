//! Files that are written while they are moved (see [`crate::hammer`]), on all flavours.

use units::Bytes;

use crate::{
    flavour::*,
    hammer::{MakeWriter, Pace, buffered, direct, mapped},
};

/// Move files while `kinds` write to them.
fn hammer(flavour: Flavour, fs: &mut scratch_fs::ScratchFs, kinds: &[MakeWriter]) {
    let folder = fs.path().to_owned();
    crate::hammer::hammer(Move::with(flavour), Pace::default(), &folder, kinds, || {
        fs.remount().unwrap();
    });
    fs.fsck().unwrap();
}

#[test]
fn loop_buffered_writes_are_never_lost() {
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        if flavour.name != SWAP_NO_REFLINK.name {
            hammer(flavour, fs, &[buffered]);
        }
    });
}

#[test]
fn loop_mapped_writes_are_never_lost() {
    each(
        &[SWAP, SWAP_RMAP, COMMIT, DEDUPE, DEDUPE_RMAP],
        Bytes::mib(512),
        |flavour, fs| {
            hammer(flavour, fs, &[mapped, mapped]);
        },
    );
}

#[test]
fn loop_direct_writes_are_never_lost() {
    each(
        &[SWAP, SWAP_RMAP, COMMIT, DEDUPE, DEDUPE_RMAP],
        Bytes::mib(512),
        |flavour, fs| {
            hammer(flavour, fs, &[direct]);
        },
    );
}

#[test]
fn loop_all_kinds_of_writes_at_once_are_never_lost() {
    each(&[SWAP, COMMIT, DEDUPE], Bytes::mib(512), |flavour, fs| {
        hammer(flavour, fs, &[buffered, mapped, direct]);
    });
}
