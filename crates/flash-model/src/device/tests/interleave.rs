//! How the InDeF device's figures depend on its interleave: 4 KiB and 16 KiB, each a reading of the
//! paper.

use super::*;

/// Bandwidth of 256 KiB reads at depth 16 that begin `start` bytes into a row, in GB/s.
fn read_bandwidth(profile: &str, start: u64) -> f64 {
    let size = 256 * MIB;
    let mut device = device(profile, NamespaceKind::Zoned, 2 * size);
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
fn a_file_of_16_kib_blocks_lies_on_four_chips_at_4_kib_and_on_one_at_16() {
    let (spread, pages) = one_read("indef-femu", 0, 16 * KIB);
    assert_eq!((spread, pages), (86_000, 4));
    let (whole, pages) = one_read("indef-femu-16k", 0, 16 * KIB);
    assert_eq!((whole, pages), (104_000, 1));
}
