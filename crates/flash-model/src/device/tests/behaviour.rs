//! Determinism, suspension, limits, and hosts that ask for nonsense.

use proptest::prelude::*;

use super::*;

/// Returns all answers of a device during a random workload on both kinds of namespaces.
fn told(profile: &str, seed: u64, steps: u64) -> (Vec<String>, Stats) {
    let specs = [
        NamespaceSpec {
            kind: NamespaceKind::Zoned,
            size: Bytes::mib(512),
        },
        NamespaceSpec {
            kind: NamespaceKind::Conventional,
            size: Bytes::mib(64),
        },
    ];
    let mut device = Device::new(&Profile::builtin(profile).unwrap(), &specs).unwrap();
    let zone_size = device.zones(0)[0].size;
    let zones = device.zones(0).len() as u64;
    let mut numbers = Numbers::new(seed);
    let (mut now, mut told, mut finished) = (0, Vec::new(), Vec::new());
    for _ in 0..steps {
        now += numbers.below(60_000_u64);
        let zone = numbers.below(zones) * zone_size;
        let len = (1 + numbers.below(64_u64)) * 4 * KIB;
        let offset = numbers.below(32 * MIB / 4096) * 4096;
        let at = device.zones(0)[(zone / zone_size) as usize].write_pointer;
        let moves = [Move {
            from: offset % zone_size,
            to: at,
            len,
        }];
        let ns = numbers.below(2_u64) as usize;
        let fua = numbers.below(9_u64) == 0;
        let command = match (numbers.below(12_u64), ns) {
            (0, _) => Command::Flush,
            (1, 0) => Command::Zone {
                start: zone,
                all: false,
                action: ZoneAction::Reset,
            },
            (2, 0) => Command::Zone {
                start: zone,
                all: false,
                action: ZoneAction::Finish,
            },
            (3, 0) => Command::Migrate { moves: &moves },
            (1..4, _) => Command::Deallocate { offset, len },
            (4..8, 0) => Command::Append { zone, len, fua },
            (4..8, _) => Command::Write {
                offset,
                len,
                fua,
                placement: Placement::Overwrite,
            },
            _ => Command::Read { offset, len },
        };
        told.push(format!("{:?}", device.submit(Nanos(now), ns, &command)));
        device.advance(Nanos(now), &mut finished);
    }
    while let Some(next) = device.next_event() {
        device.advance(next, &mut finished);
    }
    told.extend(finished.iter().map(|entry| format!("{entry:?}")));
    (told, device.stats())
}

#[test]
fn the_same_seed_gives_the_same_answers_to_the_nanosecond() {
    for profile in ["indef-femu", "fast24"] {
        let (first, stats) = told(profile, 42, 4000);
        assert_eq!((first.clone(), stats), told(profile, 42, 4000), "{profile}");
        assert_ne!(first, told(profile, 43, 4000).0, "{profile}");
    }
}

#[test]
fn every_ticket_ends_once_and_the_device_comes_to_rest() {
    for seed in 0..20 {
        let (told, stats) = told("indef-femu", seed, 600);
        let issued = told.iter().filter(|line| line.contains("Later")).count();
        let ended = told
            .iter()
            .filter(|line| line.starts_with("(Ticket"))
            .count();
        assert_eq!(issued, ended, "seed {seed}");
        // Nothing is lost and nothing is counted twice: a die was busy with its operations.
        for die in &stats.dies {
            let work = die.reads * 80_000 + die.programs * 700_000 + die.erases * 3_000_000;
            assert_eq!(die.busy_ns, work, "seed {seed}");
        }
    }
}

/// The InDeF device, whose programs and erases can be suspended.
fn suspending() -> Device {
    let text = include_str!("../../../profiles/indef-femu.toml").replace(
        "suspend = { value = false, unit = \"flag\"",
        "suspend = { value = 5, unit = \"us\"",
    );
    let profile = Profile::parse("suspending", &text).unwrap();
    let spec = NamespaceSpec {
        kind: NamespaceKind::Zoned,
        size: Bytes::mib(96),
    };
    Device::new(&profile, &[spec]).unwrap()
}

#[test]
fn a_read_interrupts_a_program_where_the_profile_allows_it() {
    let read = Command::Read {
        offset: 0,
        len: 4 * KIB,
    };
    for (mut device, expected) in [
        (suspending(), 5_000 + 80_000 + 6_000),
        // The program began 24 µs after the write.
        (
            device("indef-femu", NamespaceKind::Zoned, 96 * MIB),
            624_000 + 80_000 + 6_000,
        ),
    ] {
        let start = fill(&mut device, 32 * MIB) + MIB;
        run(&mut device, start, &write(32 * MIB, 256 * KIB));
        device.advance(Nanos(start + 100_000), &mut Vec::new());
        let now = start + 100_000;
        assert_eq!(run(&mut device, now, &read), now + expected);
    }
    // Two reads suspend it once, and the program ends later by as much as they took.
    let mut device = suspending();
    let start = fill(&mut device, 32 * MIB) + MIB;
    run(&mut device, start, &write(32 * MIB, 256 * KIB));
    let now = start + 100_000;
    assert_eq!(run(&mut device, now, &read), now + 91_000);
    assert_eq!(run(&mut device, now, &read), now + 91_000 + 80_000);
    let later = start + 724_000;
    let free = start + 724_000 + 165_000;
    // Suspended once more, for the rest of it.
    assert_eq!(run(&mut device, later, &read), later + 91_000);
    assert_eq!(
        run(&mut device, free + 85_000, &read),
        free + 85_000 + 86_000
    );
}

#[test]
fn reads_do_not_starve_programs() {
    let mut device = device("indef-femu", NamespaceKind::Zoned, 96 * MIB);
    let start = fill(&mut device, 32 * MIB) + MIB;
    run(&mut device, start, &write(32 * MIB, 4 * MIB));
    let flush = device
        .submit(Nanos(start), 0, &Command::Flush)
        .unwrap()
        .done;
    let Done::Later(ticket) = flush else {
        panic!("there is something to flush")
    };
    let (mut now, mut finished) = (start, Vec::new());
    // All dies are kept busy by reads alone.
    while finished.is_empty() {
        for at in 0..2 {
            let read = Command::Read {
                offset: at * 256 * KIB,
                len: 256 * KIB,
            };
            device.submit(Nanos(now), 0, &read).unwrap();
        }
        now += 160_000;
        device.advance(Nanos(now), &mut finished);
        assert!(
            now < start + 400_000_000,
            "the flush starves: {:?} {:?}",
            device.next_event(),
            device
                .stats()
                .dies
                .iter()
                .map(|die| die.programs)
                .collect::<Vec<_>>()
        );
    }
    assert_eq!(finished[0].0, ticket);
}

#[test]
fn a_full_buffer_slows_writes_down_to_the_dies() {
    let mut device = device("indef-femu", NamespaceKind::Zoned, 512 * MIB);
    let end = closed_loop(
        &mut device,
        0,
        1,
        (0..1024).map(|at| write(at * 256 * KIB, 256 * KIB)),
    );
    // The first 8 MiB fit in.
    within(2.0, 248.0 * MIB as f64 / end as f64 * 1e3, 374.5);
    let stats = device.stats();
    assert!(stats.buffered_bytes <= 8 * MIB && stats.buffered_bytes > 7 * MIB);
    // One after the other: they cannot wait for longer than there was time.
    let waited = stats.buffer_wait_ns;
    assert!((end / 2..=end).contains(&waited), "{waited} of {end} ns");
}

#[test]
fn reads_pass_writes_that_wait_for_room() {
    let mut device = device("indef-femu", NamespaceKind::Zoned, 512 * MIB);
    let start = fill(&mut device, 64 * MIB) + MIB;
    // 8 MiB fit, 120 wait: 320 ms of programs.
    let mut waiting = 0;
    for at in 64..192 {
        let accepted = device
            .submit(Nanos(start), 0, &write(at * MIB, MIB))
            .unwrap();
        waiting += usize::from(matches!(accepted.done, Done::Later(_)));
    }
    assert_eq!(waiting, 120);
    let (mut numbers, mut now, mut worst) = (Numbers::new(5), start, 0);
    for _ in 0..500 {
        now += 313_000;
        let offset = numbers.below(64 * MIB / 4096) * 4096;
        let done = run(
            &mut device,
            now,
            &Command::Read {
                offset,
                len: 4 * KIB,
            },
        );
        worst = worst.max(done - now);
    }
    // The program that runs, another read or two, and the channel.
    assert!(worst <= 700_000 + 3 * 80_000 + 100_000, "{worst}");
    let mut finished = Vec::new();
    while let Some(next) = device.next_event() {
        device.advance(next, &mut finished);
    }
    assert_eq!(finished.len(), waiting);
    assert!(
        finished.is_sorted_by_key(|entry| entry.0),
        "first come, first served"
    );
}

#[test]
fn a_reset_frees_what_was_buffered() {
    let mut device = device("indef-femu", NamespaceKind::Zoned, 96 * MIB);
    run(&mut device, 0, &write(0, 5 * MIB + 4 * KIB));
    let reset = Command::Zone {
        start: 0,
        all: false,
        action: ZoneAction::Reset,
    };
    let now = run(&mut device, 1, &reset);
    device.advance(Nanos(now + MIB), &mut Vec::new());
    assert_eq!(device.stats().buffered_bytes, 0);
    assert_eq!(run(&mut device, now + MIB, &Command::Flush), now + MIB);
}

#[test]
fn data_that_waits_for_room_takes_that_of_a_finished_zone_at_once() {
    let mut device = device("indef-femu", NamespaceKind::Zoned, 96 * MIB);
    let finish_zone = |start| Command::Zone {
        start,
        all: false,
        action: ZoneAction::Finish,
    };
    // The padding of zone 2 takes the whole window: that of zone 0 puts nothing in motion.
    device.submit(Nanos(0), 0, &finish_zone(64 * MIB)).unwrap();
    run(&mut device, 0, &write(0, 96 * KIB));
    let accepted = device.submit(Nanos(0), 0, &write(32 * MIB, 8 * MIB));
    let Done::Later(ticket) = accepted.unwrap().done else {
        panic!("there is room for all but 96 KiB")
    };
    device.advance(Nanos(900), &mut Vec::new());
    device.submit(Nanos(1000), 0, &finish_zone(0)).unwrap();
    let mut finished = Vec::new();
    device.advance(Nanos(1000), &mut finished);
    assert_eq!(finished, [(ticket, Nanos(1000))]);
    assert!(
        device.next_event() > Some(Nanos(1000)),
        "time does not go on"
    );
}

#[test]
fn partial_pages_of_a_conventional_namespace_are_flushed_and_programmed_later() {
    let mut device = device("fast24", NamespaceKind::Conventional, 256 * MIB);
    run(&mut device, 0, &write(0, 4 * KIB));
    let now = run(&mut device, MIB, &Command::Flush);
    assert_eq!(device.stats().programmed_bytes.flush, 32 * KIB);
    let again = run(&mut device, now + MIB, &Command::Flush);
    assert!(again - now - MIB < 10_000, "there is nothing left to flush");
    // Part of a logical page: the part that stays must be read, here from the buffer.
    run(&mut device, now + 2 * MIB, &write(512, 512));
    run(&mut device, now + 3 * MIB, &write(4 * KIB, 28 * KIB));
    device.advance(Nanos(now + 9 * MIB), &mut Vec::new());
    assert!(device.stats().programmed_bytes.host >= 32 * KIB);
}

#[test]
fn garbage_collection_costs_time_and_is_accounted_for() {
    let mut device = device("fast24", NamespaceKind::Conventional, 256 * MIB);
    let first = fill(&mut device, 256 * MIB);
    let mut numbers = Numbers::new(1);
    let writes = 200_000;
    let random = (0..writes).map(|_| write(numbers.below(65_536_u64) * 4096, 4096));
    let end = closed_loop(&mut device, first, 8, random);
    let stats = device.stats();
    assert!(stats.programmed_bytes.gc + stats.copied_back_bytes.gc > 0);
    assert!(
        stats.write_amplification() > 1.05,
        "{}",
        stats.write_amplification()
    );
    assert!(stats.wear[0].most > 0);
    // It is as fast as the first time only if collecting cost nothing.
    let (before, after) = (
        first as f64 / 65_536.0,
        (end - first) as f64 / writes as f64,
    );
    assert!(after > before, "{after} ns a page, {before} before");
}

#[test]
fn namespaces_that_cannot_be_are_refused() {
    let profile = Profile::builtin("indef-femu").unwrap();
    let spec = |kind, size| NamespaceSpec {
        kind,
        size: Bytes(size),
    };
    assert_eq!(
        Device::new(&profile, &[]).unwrap_err(),
        ConfigError::NoNamespace
    );
    for (kind, size) in [
        (NamespaceKind::Zoned, 33 * MIB),
        (NamespaceKind::Zoned, 0),
        (NamespaceKind::Conventional, 100),
        (NamespaceKind::Conventional, 1 << 60),
    ] {
        let error = Device::new(&profile, &[spec(kind, size)])
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("namespace 0: "), "{error}");
    }
}

#[test]
fn host_reads_pass_a_migration_through_memory() {
    let size = 128 * MIB;
    let mut device = device("indef-femu", NamespaceKind::Zoned, 2 * size);
    let start = fill(&mut device, size);
    let moves: Vec<_> = (0..size / (8 * KIB))
        .map(|block| Move {
            from: block * 7919 % (size / (4 * KIB)) * 4 * KIB,
            to: size + block * 4 * KIB,
            len: 4 * KIB,
        })
        .collect();
    let migration = device
        .submit(Nanos(start), 0, &Command::Migrate { moves: &moves })
        .unwrap();
    let (mut numbers, mut now, mut worst) = (Numbers::new(3), start, 0);
    for _ in 0..500 {
        now += 313_000;
        let offset = numbers.below(size / 4096) * 4096;
        let done = run(
            &mut device,
            now,
            &Command::Read {
                offset,
                len: 4 * KIB,
            },
        );
        worst = worst.max(done - now);
    }
    // The program that runs, the pages sensed before it, and the channel.
    assert!(worst <= 700_000 + 3 * 80_000 + 100_000, "{worst}");
    assert!(finish(&mut device, migration.done) > now);
}

fn any_command() -> impl Strategy<Value = (usize, u8, [u64; 3], bool)> {
    let number = prop_oneof![
        4 => (0u64..1024).prop_map(|n| n * 4096),
        2 => (0u64..4).prop_map(|n| n * 32 * MIB),
        1 => (0u64..200_000).prop_map(|n| n * 512),
        1 => any::<u64>(),
    ];
    (
        0usize..3,
        0u8..14,
        [number.clone(), number.clone(), number],
        any::<bool>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a host sends: no panic, and a refused command changes nothing.
    #[test]
    fn nonsense_is_refused_and_changes_nothing(
        commands in prop::collection::vec(any_command(), 1..60),
        instant: bool,
    ) {
        let profile = Profile::builtin(if instant { "zero" } else { "indef-femu" }).unwrap();
        let specs = [
            NamespaceSpec { kind: NamespaceKind::Zoned, size: Bytes::mib(96) },
            NamespaceSpec { kind: NamespaceKind::Conventional, size: Bytes::mib(40) },
        ];
        let mut device = Device::new(&profile, &specs).unwrap();
        let mut now = 0;
        for (ns, code, [a, b, c], flag) in commands {
            // Small lengths find more.
            let len = if c > 100 * MIB { c } else { c % MIB };
            let spans = [Span { offset: a, len }, Span { offset: b, len: 4096 }];
            let moves = [Move { from: a, to: b, len }, Move { from: b, to: a, len: 4096 }];
            let action = [ZoneAction::Open, ZoneAction::Close, ZoneAction::Finish,
                ZoneAction::Reset, ZoneAction::Offline][(a / 512 % 5) as usize];
            let command = match code {
                0..3 => Command::Write { offset: a, len, fua: flag, placement: Placement::After { predecessor: b } },
                3 => Command::Append { zone: a, len, fua: flag },
                4 => Command::Flush,
                5 => Command::Deallocate { offset: a, len },
                6 => Command::WriteZeroes { offset: a, len },
                7 => Command::Zone { start: b, all: flag, action },
                8 => Command::Copy { sources: &spans, destination: b },
                9 => Command::Migrate { moves: &moves },
                _ => Command::Read { offset: a, len },
            };
            now += a % 100_000;
            let before = device.image();
            if device.submit(Nanos(now), ns, &command).is_err() {
                prop_assert_eq!(device.image(), before, "{:?}", command);
            }
        }
        let mut finished = Vec::new();
        while let Some(next) = device.next_event() {
            device.advance(next, &mut finished);
        }
    }

    /// A damaged state is refused, or restored to something that works.
    #[test]
    fn damaged_images_do_not_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let profile = Profile::builtin("indef-femu").unwrap();
        let specs = [
            NamespaceSpec { kind: NamespaceKind::Zoned, size: Bytes::mib(96) },
            NamespaceSpec { kind: NamespaceKind::Conventional, size: Bytes::mib(4) },
        ];
        let mut device = Device::new(&profile, &specs).unwrap();
        device.submit(Nanos(0), 0, &write(0, MIB)).unwrap();
        device.submit(Nanos(0), 1, &write(0, MIB)).unwrap();
        let mut image = device.image();
        for (at, value) in damage {
            let at = at.index(image.len());
            image[at] = value;
        }
        if let Some(cut) = cut {
            image.truncate(cut.index(image.len()));
        }
        let mut other = Device::new(&profile, &specs).unwrap();
        if other.restore(&image).is_ok() {
            let at = other.zones(0)[0].write_pointer;
            for ns in 0..2 {
                let _ = other.submit(Nanos(1), ns, &write(at % (2 * MIB), 64 * KIB));
                let _ = other.submit(Nanos(2), ns, &Command::Read { offset: 0, len: 2 * MIB });
            }
        }
    }
}

/// A slow die takes longer to sense, to program and to erase; the others, and transfers, do not.
#[test]
fn a_slow_die_alone_takes_longer() {
    let geometry = *Profile::builtin("fast24").unwrap().geometry();
    let (unit, dies) = (geometry.zone.interleave.0, geometry.zone.dies);
    let times = |slow: Option<(u32, f64)>| {
        let mut device = device("fast24", NamespaceKind::Zoned, 2 * geometry.zone.size.0);
        for die in 0..dies {
            run(&mut device, 0, &write(die as u64 * unit, unit));
        }
        if let Some((die, factor)) = slow {
            device.slow_die(die, factor);
            assert_eq!(device.slow_dies(), [(die, factor)]);
        }
        let quiet = 1_000_000_000;
        let reads: Vec<u64> = (0..4_u64)
            .map(|die| {
                let (offset, len) = (die * unit, 4 * KIB);
                let begin = (die + 1) * quiet;
                run(&mut device, begin, &Command::Read { offset, len }) - begin
            })
            .collect();
        let begin = 10 * quiet;
        let flushed = {
            run(
                &mut device,
                begin,
                &write(dies as u64 * unit, dies as u64 * unit),
            );
            run(&mut device, begin, &Command::Flush) - begin
        };
        let begin = 20 * quiet;
        let reset = Command::Zone {
            start: 0,
            all: false,
            action: ZoneAction::Reset,
        };
        (reads, flushed, run(&mut device, begin, &reset) - begin)
    };
    let (reads, flushed, reset) = times(None);
    let (slow_reads, slow_flushed, slow_reset) = times(Some((2, 10.0)));
    let sense = Profile::builtin("fast24")
        .unwrap()
        .timing
        .die
        .read
        .longest();
    assert_eq!(slow_reads[2], reads[2] + 9 * sense);
    assert_eq!(
        [slow_reads[0], slow_reads[1], slow_reads[3]],
        [reads[0], reads[1], reads[3]]
    );
    assert!(slow_flushed > 5 * flushed, "{slow_flushed} {flushed}");
    assert!(slow_reset > 5 * reset, "{slow_reset} {reset}");
    assert_eq!(times(Some((2, 1.5))).0[2], reads[2] + sense / 2);

    let mut device = device("fast24", NamespaceKind::Zoned, geometry.zone.size.0);
    device.slow_die(1, 3.0);
    device.slow_die(1, 1.0);
    assert_eq!(device.slow_dies(), []);
}

/// A write with FUA ends with its own programs, and not with one that began before it and is slower.
#[test]
fn a_fua_write_waits_for_no_other_die() {
    let page = 16 * KIB;
    let fua = |offset| Command::Write {
        offset,
        len: page,
        fua: true,
        placement: Placement::RoundRobin,
    };
    let taken = |slow: bool| {
        let mut device = device("indef-femu-16k", NamespaceKind::Zoned, 32 * MIB);
        if slow {
            device.slow_die(0, 20.0);
        }
        run(&mut device, 0, &write(0, page));
        let begin = 100_000;
        let one = run(&mut device, begin, &fua(page)) - begin;
        // A flush waits for both.
        (one, run(&mut device, begin, &Command::Flush) - begin)
    };
    let ((alone, _), (beside, all)) = (taken(false), taken(true));
    assert_eq!(beside, alone);
    assert!(all > 10_000_000, "{all}");
}
