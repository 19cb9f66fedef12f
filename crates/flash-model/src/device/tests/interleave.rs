//! How the InDeF device's figures depend on its interleave: 4 KiB and 16 KiB, each a reading of the
//! paper.

use super::*;

/// Bandwidth of 256 KiB reads at depth 16 that begin `start` bytes into a row, in GB/s.
fn read_bandwidth(profile: &str, start: u64) -> f64 {
    bandwidth_of(&Profile::builtin(profile).unwrap(), start)
}

fn bandwidth_of(profile: &Profile, start: u64) -> f64 {
    let size = 256 * MIB;
    let spec = NamespaceSpec {
        kind: NamespaceKind::Zoned,
        size: Bytes(2 * size),
    };
    let mut device = Device::new(profile, &[spec]).unwrap();
    let now = fill(&mut device, size + MIB);
    let (len, count) = (256 * KIB, size / (256 * KIB));
    let reads = (0..count).map(|number| Command::Read {
        offset: start + number * len,
        len,
    });
    let end = closed_loop(&mut device, now, 16, reads);
    size as f64 / (end - now) as f64
}

/// Time of one read, and the pages that it senses.
fn one_read(profile: &str, offset: u64, len: u64) -> (u64, u64) {
    let mut device = device(profile, NamespaceKind::Zoned, 64 * MIB);
    let now = fill(&mut device, 32 * MIB);
    let senses = |device: &Device| device.stats().dies.iter().map(|die| die.reads).sum::<u64>();
    let before = senses(&device);
    let end = run(&mut device, now, &Command::Read { offset, len });
    (end - now, senses(&device) - before)
}

#[test]
fn reads_are_fast_from_the_start_of_a_row_at_4_kib_and_of_a_page_at_16() {
    for (profile, [aligned, half_a_row, one_block]) in [
        ("indef-femu", [3.277, 1.638, 1.638]),
        ("indef-femu-16k", [3.277, 3.277, 1.638]),
    ] {
        within(1.0, read_bandwidth(profile, 0), aligned);
        within(1.0, read_bandwidth(profile, 128 * KIB), half_a_row);
        within(1.0, read_bandwidth(profile, 4 * KIB), one_block);
    }
}

#[test]
fn a_row_that_is_read_from_its_beginning_is_one_sense_of_each_chip() {
    for profile in ["indef-femu", "indef-femu-16k"] {
        let row = 256 * KIB;
        let (aligned, pages) = one_read(profile, 4 * row, row);
        assert_eq!(pages, 16, "{profile}");
        // One sense, and two transfers on each channel, which two chips share. A chip that is asked for
        // two pages senses them one after the other.
        assert_eq!(aligned, 80_000 + 2 * 24_000, "{profile}");
        let (off, pages) = one_read(profile, 4 * row + 4 * KIB, row);
        // The last block lies on a page of the next row, on a chip that senses one of this row, too.
        assert_eq!(pages, 17, "{profile}");
        assert!(off > 2 * 80_000, "{profile}: {off}");
    }
}

#[test]
fn a_file_of_16_kib_blocks_lies_on_four_chips_at_4_kib_and_on_one_at_16() {
    let (spread, pages) = one_read("indef-femu", 0, 16 * KIB);
    assert_eq!((spread, pages), (86_000, 4));
    let (whole, pages) = one_read("indef-femu-16k", 0, 16 * KIB);
    assert_eq!((whole, pages), (104_000, 1));
}

/// A profile of the InDeF device with a read cache of two rows.
fn with_read_cache(name: &str) -> Profile {
    let text = Profile::builtin_text(name).unwrap();
    let changed = text.replace("read_cache = { value = 0", "read_cache = { value = 512");
    assert_ne!(text, changed);
    Profile::parse("with read cache", &changed).unwrap()
}

#[test]
fn a_read_cache_makes_neighbours_share_their_pages() {
    for name in ["indef-femu", "indef-femu-16k"] {
        let profile = with_read_cache(name);
        for start in [0, 4 * KIB, 128 * KIB] {
            within(1.0, bandwidth_of(&profile, start), 3.277);
        }
    }
}

#[test]
fn a_cached_page_is_read_anew_after_a_reset_and_a_loss_of_power() {
    for kind in [NamespaceKind::Zoned, NamespaceKind::Conventional] {
        let size = Bytes(64 * MIB);
        let mut device = Device::new(
            &with_read_cache("indef-femu"),
            &[NamespaceSpec { kind, size }],
        )
        .unwrap();
        let mut now = fill(&mut device, 32 * MIB);
        let mut senses = |device: &mut Device| {
            let count = |device: &Device| device.stats().dies.iter().map(|die| die.reads).sum();
            let before: u64 = count(device);
            let (offset, len) = (0, 4 * KIB);
            now = run(device, now, &Command::Read { offset, len }) + MIB;
            count(device) - before
        };
        assert_eq!((senses(&mut device), senses(&mut device)), (1, 0));
        if kind == NamespaceKind::Conventional {
            continue;
        }
        device.restore_zone(0, 0, ZoneState::Full, 0);
        assert_eq!((senses(&mut device), senses(&mut device)), (1, 0));
        let (start, all, action) = (0, false, ZoneAction::Reset);
        let later = 1 << 40;
        run(&mut device, later, &Command::Zone { start, all, action });
        let written = fill_from(&mut device, 2 * later);
        let (offset, len) = (0, 4 * KIB);
        let before: u64 = device.stats().dies.iter().map(|die| die.reads).sum();
        run(&mut device, written + later, &Command::Read { offset, len });
        let after: u64 = device.stats().dies.iter().map(|die| die.reads).sum();
        assert_eq!(after - before, 1);
    }
}

/// Writes the first row of the first zone anew; returns when it is in the buffer.
fn fill_from(device: &mut Device, now: u64) -> u64 {
    run(device, now, &write(0, 256 * KIB))
}
