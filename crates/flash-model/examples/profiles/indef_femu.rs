//! InDeF's device: its limits, and how they depend on its interleave.

use flash_model::{Command, Move, Profile, ZoneState};

use super::drive::{KIB, MIB, closed_loop, fill, run, zoned, zoned_as};

const ZONE: u64 = 32 * MIB;
const NAME: &str = "indef-femu";

/// 256 KiB reads at depth 16 from the start, MB/s.
pub(crate) fn read() -> f64 {
    read_from(&Profile::builtin(NAME).expect("it is built in"), 0)
}

/// The same, `start` bytes into a row of the chips.
pub(crate) fn read_from(profile: &Profile, start: u64) -> f64 {
    let size = 256 * MIB;
    let mut device = zoned_as(profile, 2 * size);
    let now = fill(&mut device, size + MIB);
    let len = 256 * KIB;
    let reads = (0..size / len).map(|number| Command::Read {
        offset: start + number * len,
        len,
    });
    let end = closed_loop(&mut device, now, 16, reads);
    size as f64 / (end - now) as f64 * 1e3
}

/// MB/s.
pub(crate) fn sequential_write() -> f64 {
    let size = 1024 * MIB;
    let written = fill(&mut zoned(NAME, 2 * size), size);
    size as f64 / written as f64 * 1e3
}

fn whole_zones(size: u64) -> Vec<Move> {
    let one = |zone| Move {
        from: zone * ZONE,
        to: size + zone * ZONE,
        len: ZONE,
    };
    (0..size / ZONE).map(one).collect()
}

/// Zones that are copied back within their dies: nanoseconds for `size` bytes.
pub(crate) fn copyback(size: u64) -> f64 {
    let mut device = zoned(NAME, 2 * size);
    for zone in 0..size / ZONE {
        device.restore_zone(0, zone as usize, ZoneState::Full, 0);
    }
    let moves = whole_zones(size);
    run(&mut device, 0, &Command::Migrate { moves: &moves }) as f64
}

/// One read: its nanoseconds, and the pages that it senses.
pub(crate) fn one_read(profile: &str, len: u64) -> (f64, f64) {
    let mut device = zoned(profile, 64 * MIB);
    let now = fill(&mut device, ZONE);
    let before = device.stats();
    let end = run(&mut device, now, &Command::Read { offset: 0, len });
    let during = device.stats().since(&before);
    let senses: u64 = during.dies.iter().map(|die| die.reads).sum();
    ((end - now) as f64, senses as f64)
}

/// How busy the chips are, in percent, while 4 KiB blocks migrate of which none lies beside the one
/// before it.
pub(crate) fn busy_with_scattered_blocks(profile: &str) -> f64 {
    let size = 256 * MIB;
    let mut device = zoned(profile, 2 * size);
    let now = fill(&mut device, size);
    let one = |block| Move {
        from: block * 7919 % (size / (4 * KIB)) * 4 * KIB,
        to: size + block * 4 * KIB,
        len: 4 * KIB,
    };
    let moves: Vec<Move> = (0..size / (8 * KIB)).map(one).collect();
    let before = device.stats();
    run(&mut device, now, &Command::Migrate { moves: &moves });
    device.stats().since(&before).die_utilisation() * 100.0
}

/// 32 MiB of scattered 4 KiB blocks migrate by commands of `len` bytes each, one after the other:
/// the time in nanoseconds, and how busy the chips are in it, in percent.
pub(crate) fn in_commands_of(len: u64) -> (f64, f64) {
    const SIZE: u64 = 32 * MIB;
    let mut device = zoned(NAME, 16 * SIZE);
    let begin = fill(&mut device, 8 * SIZE);
    let one = |block: u64| Move {
        from: block * 7919 % (8 * SIZE / (4 * KIB)) * 4 * KIB,
        to: 8 * SIZE + block * 4 * KIB,
        len: 4 * KIB,
    };
    let moves: Vec<Move> = (0..SIZE / (4 * KIB)).map(one).collect();
    let before = device.stats();
    let mut now = begin;
    for moves in moves.chunks((len / (4 * KIB)) as usize) {
        now = run(&mut device, now, &Command::Migrate { moves });
    }
    let during = device.stats().since(&before);
    ((now - begin) as f64, during.die_utilisation() * 100.0)
}

/// A profile of the device with a read cache of two rows.
pub(crate) fn with_read_cache(name: &str) -> Profile {
    let text = Profile::builtin_text(name).expect("it is built in");
    let changed = text.replace("read_cache = { value = 0", "read_cache = { value = 512");
    assert_ne!(text, changed, "the profile has a read cache");
    Profile::parse("with read cache", &changed).expect("only a value was changed")
}
