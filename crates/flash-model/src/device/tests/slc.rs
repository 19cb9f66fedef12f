//! The SLC cache's speed: the write cliff, and what idle time gives back.

use super::*;

const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;

/// Writes `bytes` from `offset` on, at depth 16; returns the end.
fn burst(device: &mut Device, now: u64, offset: u64, bytes: u64) -> u64 {
    let chunks = bytes / (128 * KIB);
    let writes = (0..chunks).map(|at| write(offset + at * 128 * KIB, 128 * KIB));
    closed_loop(device, now, 16, writes)
}

fn rate(bytes: u64, nanos: u64) -> f64 {
    bytes as f64 / nanos as f64 * 1000.0
}

#[test]
fn writes_fall_off_a_cliff_when_the_cache_is_full_and_idle_time_takes_them_back() {
    let mut device = device("qlc", NamespaceKind::Conventional, GIB);
    // 6 % of 1 GiB, in whole blocks on 8 dies.
    let geometry = *device.ftl(0).unwrap().geometry();
    let cache = u64::from(geometry.slc_blocks * geometry.slc_pages) * 8 * 32 * KIB;
    assert!((GIB / 17..GIB / 14).contains(&cache), "{cache}");
    let (mut now, step, mut rates) = (0, 4 * MIB, Vec::new());
    for at in 0..50 {
        let end = burst(&mut device, now, at * step, step);
        rates.push(rate(step, end - now));
        now = end;
    }
    let first_burst = 8.0 / rates[..8].iter().map(|rate| 1.0 / rate).sum::<f64>();
    let cliff = rates
        .iter()
        .position(|rate| *rate < rates[0] / 4.0)
        .unwrap() as u64
        * step;
    println!(
        "{:.0} MB/s, {:.0} MB/s after {} of {} MiB of cache",
        rates[1],
        rates[40],
        cliff / MIB,
        cache / MIB
    );
    // All but two blocks of each die are full before folding keeps pace; the buffer hides 8 MiB.
    assert!(
        (cache * 3 / 4..cache + 12 * MIB).contains(&cliff),
        "{cliff} {cache}"
    );
    // Afterwards each page costs a program of both kinds, and senses of one.
    let closed_form = rate(8 * 32 * KIB, 1_860_000 + 40_000 + 200_000 + 2 * 20_480);
    let mean = rates[25..].iter().sum::<f64>() / rates[25..].len() as f64;
    within(12.0, mean, closed_form);
    let stats = device.stats();
    let folded = stats.copied_back_bytes.fold;
    assert!(folded > 50 * step - cache - 16 * MIB, "{folded}");
    assert_eq!(stats.programmed_bytes.gc + stats.copied_back_bytes.gc, 0);
    let amplification = stats.write_amplification();
    assert!((1.5..2.0).contains(&amplification), "{amplification}");
    // Idle time empties the cache: the next burst is as fast as the first one.
    now = finish_all(&mut device, now + 10 * SECOND);
    let end = burst(&mut device, now, 0, 8 * step);
    let (again, first) = (rate(8 * step, end - now), first_burst);
    println!("{first:.0} MB/s at first, {again:.0} MB/s after idle time");
    assert!(again > first * 0.8, "{again} {first}");
    assert!(device.stats().write_amplification() > amplification);
}

/// Lets time pass with nothing to do, in steps as a daemon would take them.
fn finish_all(device: &mut Device, until: u64) -> u64 {
    let mut finished = Vec::new();
    while let Some(next) = device.next_event().filter(|next| next.0 < until) {
        device.advance(next, &mut finished);
    }
    device.advance(Nanos(until), &mut finished);
    until
}

#[test]
fn a_page_in_the_cache_has_its_own_times() {
    let mut device = device("qlc", NamespaceKind::Conventional, GIB);
    let written = run(&mut device, 0, &write(0, 32 * KIB));
    let flushed = run(&mut device, written, &Command::Flush);
    assert_eq!(flushed, written + 2 * 20_480 + 200_000);
    let read = Command::Read {
        offset: 0,
        len: 4 * KIB,
    };
    let around = 6_000 + 5_120 + 1_163;
    let now = flushed + 1_000;
    assert_eq!(run(&mut device, now, &read), now + around + 40_000);
    // The rest of the die's block, so that it is closed, and time for it to be folded.
    let rows = device.ftl(0).unwrap().geometry().slc_pages;
    let end = burst(&mut device, now, 0, u64::from(rows) * 8 * 32 * KIB);
    let now = finish_all(&mut device, end + 10 * SECOND);
    assert_eq!(run(&mut device, now, &read), now + around + 47_900);
}

/// A flush is done when the data is on flash, in the cache or not, and a saved state has it there.
#[test]
fn data_in_the_cache_is_as_durable_as_elsewhere() {
    let mut device = device("qlc", NamespaceKind::Conventional, GIB);
    let end = burst(&mut device, 0, 0, 16 * MIB);
    let flushed = run(&mut device, end, &Command::Flush);
    assert!(flushed > end);
    let image = device.image();
    let profile = Profile::builtin("qlc").unwrap();
    let spec = NamespaceSpec {
        kind: NamespaceKind::Conventional,
        size: Bytes(GIB),
    };
    let mut restored = Device::new(&profile, &[spec]).unwrap();
    restored.restore(&image).unwrap();
    for lpn in 0..16 * MIB / 4096 {
        let place = restored.ftl(0).unwrap().read(lpn);
        assert!(place.is_some());
        assert_eq!(place, device.ftl(0).unwrap().read(lpn));
    }
}
