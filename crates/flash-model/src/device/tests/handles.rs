//! Reclaim unit handles, from the command to the cells.

use super::*;

const GIB: u64 = 1 << 30;

fn write_with(handle: u32, offset: u64, len: u64) -> Command<'static> {
    Command::Write {
        offset,
        len,
        fua: false,
        placement: Placement::Handle(handle),
    }
}

#[test]
fn units_are_counted_and_renewed() {
    let mut device = device("fdp", NamespaceKind::Conventional, GIB);
    let unit = 48 * 8 * 32 * KIB;
    let units = device.reclaim_units(0).unwrap();
    assert_eq!((units.size_bytes, units.left_bytes), (unit, vec![unit; 8]));
    let now = run(&mut device, 0, &write_with(3, 0, 12 * KIB));
    run(&mut device, now, &write(MIB, 4 * KIB));
    let left = device.reclaim_units(0).unwrap().left_bytes;
    assert_eq!((left[3], left[0]), (unit - 12 * KIB, unit - 4 * KIB));
    // What was not complete is programmed, and a flush after it has only the other handle's.
    let renewed = run(&mut device, now, &Command::RenewHandle { handle: 3 });
    assert!(renewed < now + 100_000);
    assert_eq!(device.reclaim_units(0).unwrap().left_bytes[3], unit);
    device.advance(Nanos(now + 100_000_000), &mut Vec::new());
    assert_eq!(device.stats().programmed_bytes.host, 32 * KIB);
    let refused = device.submit(Nanos(now), 0, &Command::RenewHandle { handle: 8 });
    assert_eq!(refused.unwrap_err(), Refused::NoSuchHandle);
}

#[test]
fn a_profile_without_handles_and_zones_have_none() {
    for (profile, kind) in [
        ("tlc", NamespaceKind::Conventional),
        ("fdp", NamespaceKind::Zoned),
    ] {
        let mut device = device(profile, kind, GIB);
        assert_eq!(device.reclaim_units(0), None);
        let renew = Command::RenewHandle { handle: 0 };
        let refused = device.submit(Nanos(0), 0, &renew).unwrap_err();
        assert_eq!(refused, Refused::NoSuchHandle);
    }
}

/// The same writes with one handle and with two: a hot tenth at random, and a log in order.
#[test]
fn separate_handles_write_less() {
    let amplification = |log_handle| {
        let mut device = device("fdp", NamespaceKind::Conventional, 512 * MIB);
        let (pages, hot) = (512 * MIB / (32 * KIB), 1600);
        let (mut numbers, mut log, mut now) = (Numbers::new(1), hot, 0);
        let mut then = device.stats();
        for round in 0..5 * pages {
            if round == 2 * pages {
                then = device.stats();
            }
            for (handle, page) in [(0, numbers.below(hot)), (log_handle, log)] {
                let command = write_with(handle, page * 32 * KIB, 32 * KIB);
                now = run(&mut device, now, &command);
            }
            log = if log + 1 == pages { hot } else { log + 1 };
        }
        device.stats().since(&then).write_amplification()
    };
    let (together, apart) = (amplification(0), amplification(1));
    println!("one handle {together:.2}, two handles {apart:.2}");
    assert!(together > 1.1 && apart - 1.0 < (together - 1.0) / 2.0);
}
