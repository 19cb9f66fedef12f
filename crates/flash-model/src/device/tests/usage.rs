//! The space that is used, the hints that were refused, and the policy of a profile.

use super::*;

#[test]
fn mapped_pages_count_as_used_until_they_are_deallocated() {
    let mut device = device("indef-femu", NamespaceKind::Conventional, 64 * MIB);
    assert_eq!((device.used_bytes(0), device.used_bytes(1)), (0, 0));
    run(&mut device, 0, &write(0, MIB));
    // Again, and a part of a logical page.
    run(&mut device, 0, &write(0, MIB));
    run(&mut device, 0, &write(2 * MIB, 512));
    assert_eq!(device.used_bytes(0), MIB + 4 * KIB);
    let (offset, len) = (512 * KIB, 64 * KIB);
    run(&mut device, 0, &Command::Deallocate { offset, len });
    assert_eq!(device.used_bytes(0), MIB - 60 * KIB);
}

#[test]
fn zones_are_used_as_far_as_they_are_written_and_wholly_when_full() {
    let mut device = device("indef-femu", NamespaceKind::Zoned, 96 * MIB);
    run(&mut device, 0, &write(0, 5 * MIB));
    run(&mut device, 0, &write(32 * MIB, 4 * KIB));
    assert_eq!(device.used_bytes(0), 5 * MIB + 4 * KIB);
    let zone = |start, action| Command::Zone {
        start,
        all: false,
        action,
    };
    run(&mut device, 0, &zone(0, ZoneAction::Finish));
    assert_eq!(device.used_bytes(0), 32 * MIB + 4 * KIB);
    run(&mut device, 0, &zone(0, ZoneAction::Reset));
    device.restore_zone(0, 1, ZoneState::Offline, 32 * MIB);
    assert_eq!(device.used_bytes(0), 0);
}

#[test]
fn refused_hints_are_counted_by_reason() {
    let mut device = device("fast24", NamespaceKind::Conventional, 64 * MIB);
    let hinted = |offset, placement| Command::Write {
        offset,
        len: 32 * KIB,
        fua: false,
        placement,
    };
    run(&mut device, 0, &hinted(0, Placement::Overwrite));
    let then = device.stats();
    run(&mut device, 0, &hinted(0, Placement::Overwrite));
    let predecessor = 16 * MIB;
    run(
        &mut device,
        0,
        &hinted(MIB, Placement::After { predecessor }),
    );
    let stats = device.stats();
    assert_eq!((stats.hints.given, stats.hints.refused()), (3, 2));
    let since = stats.since(&then).hints;
    assert_eq!((since.given, since.refused_unmapped), (2, 1));
}

#[test]
fn the_profiles_policy_is_the_ftls_also_after_a_restart() {
    let text = Profile::builtin_text("zero").unwrap();
    let changed = text.replace(
        "cost_benefit = { value = false",
        "cost_benefit = { value = true",
    );
    let profile = Profile::parse("changed", &changed).unwrap();
    assert_ne!(profile.ftl, Profile::builtin("zero").unwrap().ftl);
    let spec = NamespaceSpec {
        kind: NamespaceKind::Conventional,
        size: Bytes(8 * MIB),
    };
    let mut device = Device::new(&profile, &[spec]).unwrap();
    assert_eq!(*device.ftl(0).unwrap().options(), profile.ftl.options);
    device.restore(&device.image()).unwrap();
    assert_eq!(*device.ftl(0).unwrap().options(), profile.ftl.options);
}

/// Reads that overlap count once; the time between reads does not count.
#[test]
fn the_time_with_reads_under_way_is_told() {
    let mut device = device("fast24", NamespaceKind::Conventional, 64 * MIB);
    let unit = device.geometry().unit.0;
    let written = run(&mut device, 0, &write(0, 8 * unit));
    let flushed = run(&mut device, written, &Command::Flush);
    let mut read = |now, number| {
        let (offset, len) = (number * unit, 4 * KIB);
        run(&mut device, now, &Command::Read { offset, len })
    };
    let begin = flushed + 1_000_000_000;
    let both = read(begin, 0).max(read(begin + 5_000, 1)) - begin;
    let again = 2 * begin;
    let alone = read(again, 2) - again;
    let within = 3 * begin;
    let len = 8 * unit;
    let long = run(&mut device, within, &Command::Read { offset: 0, len }) - within;
    assert_eq!(device.stats().host_reading_ns, both + alone + long);
    assert!(both < 2 * alone);
}
