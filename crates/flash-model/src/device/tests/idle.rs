//! Collecting in time in which nobody waits.

use super::*;

/// After a burst of writes that had to collect, idle time gives the blocks back, so that the next
/// burst takes less; a command that comes in between waits for at most what was begun.
#[test]
fn idle_time_is_used_for_collecting() {
    let text = Profile::builtin_text("indef-femu").unwrap();
    let added = "[ftl]\ncollect_idle = { value = 9, unit = \"count\", kind = \"assumed\", source = \"a test\" }";
    let idle = Profile::parse("idle", &text.replace("[ftl]", added)).unwrap();
    let never = Profile::builtin("indef-femu").unwrap();
    let spec = NamespaceSpec {
        kind: NamespaceKind::Conventional,
        size: Bytes::gib(1),
    };
    let pages = spec.size.0 / (16 * KIB);
    let burst = |device: &mut Device, numbers: &mut Numbers, now: u64| {
        let writes: Vec<u64> = (0..4096).map(|_| numbers.below(pages) * 16 * KIB).collect();
        closed_loop(
            device,
            now,
            32,
            writes.iter().map(|&at| write(at, 16 * KIB)),
        ) - now
    };
    let second = 1_000_000_000;
    let bursts = |profile: &Profile| {
        let mut device = Device::new(profile, &[spec]).unwrap();
        let mut numbers = Numbers::new(5);
        let mut now = closed_loop(
            &mut device,
            0,
            32,
            (0..pages).map(|page| write(page * 16 * KIB, 16 * KIB)),
        );
        for _ in 0..24 {
            now += burst(&mut device, &mut numbers, now);
        }
        let then = device.stats().programmed_bytes;
        // The device does it by itself: nothing more comes for a while.
        let mut reads = Vec::new();
        for _ in 0..100 {
            now += second / 10;
            let read = Command::Read {
                offset: numbers.below(pages) * 16 * KIB,
                len: 4 * KIB,
            };
            reads.push(run(&mut device, now, &read) - now);
        }
        let free: Vec<u32> = device.ftl(0).unwrap().free_blocks().collect();
        let during = device.stats();
        let gc = during.programmed_bytes.gc - then.gc + during.copied_back_bytes.gc;
        let slowest = reads.into_iter().max().unwrap();
        (burst(&mut device, &mut numbers, now), gc, free, slowest)
    };
    let (without, _, free, _) = bursts(&never);
    assert!(free.iter().any(|free| *free < 9), "{free:?}");
    let (with, gc, free, slowest) = bursts(&idle);
    assert!(gc > 0);
    assert!(free.iter().all(|free| *free >= 9), "{free:?}");
    assert!(
        with * 5 < without * 4,
        "{with} ns after idle time, {without} ns without"
    );
    // An erase, or a copyback (780 us), and the read itself.
    let die = idle.timing.die;
    assert!(
        slowest < die.erase + die.read.longest() + 200_000,
        "{slowest}"
    );
}

/// A block with a page of the host that is not complete lags behind the others: levelling closes it, in idle time
/// as well.
#[test]
fn a_block_that_lags_is_closed_in_idle_time() {
    let text = Profile::builtin_text("indef-femu").unwrap();
    let added = "[ftl]\ncollect_idle = { value = 9, unit = \"count\", kind = \"assumed\", source = \"a test\" }";
    let text = text.replace("[ftl]", added);
    let text = text.replace(
        "\nwear_spread = { value = 20,",
        "\nwear_spread = { value = 1,",
    );
    let profile = Profile::parse("idle", &text).unwrap();
    let (kind, size) = (NamespaceKind::Conventional, 64 * MIB);
    let spec = NamespaceSpec {
        kind,
        size: Bytes(size),
    };
    let mut device = Device::new(&profile, &[spec]).unwrap();
    let page = 16 * KIB;
    let lonely = size - page;
    run(&mut device, 0, &write(lonely, 4 * KIB));
    let is_buffered = |device: &Device| {
        let ftl = device.ftl(0).unwrap();
        ftl.is_buffered(ftl.read(lonely / (4 * KIB)).unwrap())
    };
    let mut rounds = 0;
    while is_buffered(&device) {
        let now = device.rest().0;
        let pages = 0..lonely / page;
        closed_loop(&mut device, now, 32, pages.map(|at| write(at * page, page)));
        rounds += 1;
        assert!(rounds < 200, "it stays open for ever");
    }
    let now = device.rest().0;
    run(&mut device, now, &Command::Flush);
}
