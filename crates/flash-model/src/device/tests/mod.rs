//! Single requests to the nanosecond, and the closed-form limits of PAPERS.md.

mod behaviour;
mod handles;
mod idle;
mod interleave;
mod pages;
mod slc;
mod suspend;
mod usage;

use units::Bytes;
use workloads::Numbers;

use super::*;
use crate::{Command, Done, Move, Placement, Refused, Span, ZoneAction};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn device(profile: &str, kind: NamespaceKind, size: u64) -> Device {
    let profile = Profile::builtin(profile).unwrap();
    Device::new(
        &profile,
        &[NamespaceSpec {
            kind,
            size: Bytes(size),
        }],
    )
    .unwrap()
}

/// Runs until the command is done; returns when.
fn finish(device: &mut Device, done: Done) -> u64 {
    device.finish(done).expect("the command ends").0
}

fn run(device: &mut Device, now: u64, command: &Command<'_>) -> u64 {
    let accepted = device.submit(Nanos(now), 0, command).unwrap();
    finish(device, accepted.done)
}

fn write(offset: u64, len: u64) -> Command<'static> {
    Command::Write {
        offset,
        len,
        fua: false,
        placement: Placement::RoundRobin,
    }
}

/// Closed loop: `depth` commands in flight; returns when the last one is done.
fn closed_loop<'a>(
    device: &mut Device,
    now: u64,
    depth: usize,
    commands: impl Iterator<Item = Command<'a>>,
) -> u64 {
    let (mut time, mut last) = (now, now);
    let (mut ends, mut tickets, mut finished) = (std::collections::BinaryHeap::new(), 0, vec![]);
    let mut commands = commands.peekable();
    while commands.peek().is_some() || tickets > 0 {
        if commands.peek().is_some() && ends.len() + tickets < depth {
            let accepted = device
                .submit(Nanos(time), 0, &commands.next().unwrap())
                .unwrap();
            match accepted.done {
                Done::At(end) => ends.push(std::cmp::Reverse(end.0)),
                Done::Later(_) => tickets += 1,
            }
            last = last.max(if let Done::At(end) = accepted.done {
                end.0
            } else {
                0
            });
            continue;
        }
        let known = ends.peek().map_or(u64::MAX, |end| end.0);
        match device
            .next_event()
            .filter(|next| tickets > 0 && next.0 < known)
        {
            Some(next) => {
                device.advance(next, &mut finished);
                for (_, end) in finished.drain(..) {
                    tickets -= 1;
                    last = last.max(end.0);
                    ends.push(std::cmp::Reverse(end.0));
                }
            }
            None => {
                ends.pop();
                time = time.max(known);
            }
        }
    }
    last
}

/// Writes from the start on, and waits until everything is on flash.
fn fill(device: &mut Device, bytes: u64) -> u64 {
    let writes = (0..bytes / MIB).map(|at| write(at * MIB, MIB));
    let written = closed_loop(device, 0, 4, writes);
    run(device, written, &Command::Flush)
}

fn within(percent: f64, actual: f64, expected: f64) {
    let off = (actual / expected - 1.0) * 100.0;
    println!("{actual:.2}, published {expected}: {off:+.2} %");
    assert!(
        off.abs() <= percent,
        "{actual} instead of {expected}: {off:.2} %"
    );
}

#[test]
fn single_reads_of_the_indef_device_are_exact() {
    let mut device = device("indef-femu", NamespaceKind::Zoned, 64 * MIB);
    let now = fill(&mut device, 32 * MIB) + 1_000_000;
    // 80 µs sensing, 6 µs for a quarter page.
    assert_eq!(
        run(
            &mut device,
            now,
            &Command::Read {
                offset: 0,
                len: 4 * KIB
            }
        ),
        now + 86_000
    );
    let now = now + 1_000_000;
    // 16 chips at once; two whole pages over each of 8 channels.
    let read = Command::Read {
        offset: 0,
        len: 256 * KIB,
    };
    assert_eq!(run(&mut device, now, &read), now + 80_000 + 2 * 24_000);
    let now = now + 1_000_000;
    // Blocks 0, 16, 32 and 48 are the same page: it is sensed once.
    let stats = device.stats();
    run(
        &mut device,
        now,
        &Command::Read {
            offset: 0,
            len: 68 * KIB,
        },
    );
    let reads: u64 = device
        .stats()
        .since(&stats)
        .dies
        .iter()
        .map(|die| die.reads)
        .sum();
    assert_eq!(reads, 16);
    // Reading data that was never written costs nothing.
    let now = now + 1_000_000;
    assert_eq!(
        run(
            &mut device,
            now,
            &Command::Read {
                offset: 40 * MIB,
                len: 4 * KIB
            }
        ),
        now
    );
}

#[test]
fn single_writes_and_zone_commands_of_the_indef_device_are_exact() {
    let mut device = device("indef-femu", NamespaceKind::Zoned, 64 * MIB);
    assert_eq!(run(&mut device, 5, &write(0, 4 * KIB)), 5);
    // One page is programmed for the data that is there: a quarter page over the channel.
    assert_eq!(run(&mut device, 10, &Command::Flush), 10 + 6_000 + 700_000);
    let now = 10_000_000;
    // The whole row is complete; the two pages of a channel go over it one after the other.
    run(&mut device, now, &write(4 * KIB, 252 * KIB));
    let flushed = run(&mut device, now, &Command::Flush);
    assert_eq!(flushed, now + 2 * 24_000 + 700_000);
    let now = 20_000_000;
    let reset = Command::Zone {
        start: 0,
        all: false,
        action: ZoneAction::Reset,
    };
    assert_eq!(run(&mut device, now, &reset), now + 3_000_000);
    assert_eq!(device.stats().wear[0].most, 1);
    let close = Command::Zone {
        start: 0,
        all: false,
        action: ZoneAction::Close,
    };
    assert_eq!(
        device.submit(Nanos(now), 0, &close),
        Err(Refused::InvalidTransition)
    );
}

#[test]
fn the_indef_device_reaches_its_limits() {
    let size = 1024 * MIB;
    let mut device = device("indef-femu", NamespaceKind::Zoned, 2 * size);
    let written = fill(&mut device, size);
    within(2.0, size as f64 / written as f64 * 1e3, 374.5);

    let reads = (0..size / (256 * KIB)).map(|at| Command::Read {
        offset: at * 256 * KIB,
        len: 256 * KIB,
    });
    let read = closed_loop(&mut device, written, 16, reads) - written;
    within(2.0, size as f64 / read as f64, 3.2768);

    let now = written + read;
    let moves: Vec<_> = (0..size / (32 * MIB))
        .map(|zone| Move {
            from: zone * 32 * MIB,
            to: size + zone * 32 * MIB,
            len: 32 * MIB,
        })
        .collect();
    let copied = run(&mut device, now, &Command::Migrate { moves: &moves }) - now;
    within(2.0, size as f64 / copied as f64 * 1e3, 336.1);
    assert_eq!(device.stats().copied_back_bytes.migration, size);
}

#[test]
fn migration_across_dies_goes_through_memory() {
    let mut device = device("indef-femu", NamespaceKind::Zoned, 256 * MIB);
    let now = fill(&mut device, 96 * MIB);
    // One block further: every destination is on the next chip.
    run(&mut device, now, &write(128 * MIB, 4 * KIB));
    let before = device.stats();
    let moves = [Move {
        from: 0,
        to: 128 * MIB + 4 * KIB,
        len: 16 * MIB,
    }];
    let done = run(&mut device, now + MIB, &Command::Migrate { moves: &moves });
    let stats = device.stats().since(&before);
    assert_eq!(stats.copied_back_bytes.total(), 0);
    // All but the rest of the last row.
    assert_eq!(stats.programmed_bytes.migration, 16 * MIB);
    assert!(stats.sensed_bytes.migration >= 16 * MIB);
    let rate = 16.0 * MIB as f64 / (done - now) as f64 * 1e3;
    assert!((250.0..374.0).contains(&rate), "{rate} MB/s");
}

#[test]
fn host_reads_pass_a_migration() {
    let size = 512 * MIB;
    let mut device = device("indef-femu", NamespaceKind::Zoned, 2 * size);
    let start = fill(&mut device, size);
    let many: Vec<_> = (0..15)
        .map(|zone| Move {
            from: zone * 32 * MIB,
            to: size + zone * 32 * MIB,
            len: 32 * MIB,
        })
        .collect();
    let accepted = device
        .submit(Nanos(start), 0, &Command::Migrate { moves: &many })
        .unwrap();
    let Done::Later(_) = accepted.done else {
        panic!("a migration takes time")
    };
    let (mut now, mut worst) = (start, 0);
    for at in 0..2000_u64 {
        now += 313_000;
        let offset = at * 7919 * 4 * KIB % size;
        let done = device
            .submit(
                Nanos(now),
                0,
                &Command::Read {
                    offset,
                    len: 4 * KIB,
                },
            )
            .unwrap();
        let Done::At(done) = done.done else {
            panic!("reads are told at once")
        };
        worst = worst.max(done.0 - now);
    }
    // One copyback (780 µs), not the queue behind it; the sensing; and the transfer.
    assert!(worst <= 780_000 + 80_000 + 3 * 24_000, "{worst}");
    let end = finish(&mut device, accepted.done);
    within(8.0, 480.0 * MIB as f64 / (end - start) as f64 * 1e3, 336.1);
    assert!(device.stats().die_utilisation() > 0.5);
}

#[test]
fn a_migration_of_scattered_blocks_keeps_the_chips_busy() {
    for profile in ["indef-femu", "indef-femu-16k"] {
        scattered_blocks_keep_the_chips_busy(profile);
    }
}

fn scattered_blocks_keep_the_chips_busy(profile: &str) {
    let size = 256 * MIB;
    let mut device = device(profile, NamespaceKind::Zoned, 2 * size);
    let now = fill(&mut device, size);
    // As a file system scatters them: no block lies beside the one before it.
    let moves: Vec<_> = (0..size / (8 * KIB))
        .map(|block| Move {
            from: block * 7919 % (size / (4 * KIB)) * 4 * KIB,
            to: size + block * 4 * KIB,
            len: 4 * KIB,
        })
        .collect();
    let before = device.stats();
    run(&mut device, now, &Command::Migrate { moves: &moves });
    let during = device.stats().since(&before);
    println!(
        "{profile}: chips busy: {:.1} %",
        during.die_utilisation() * 100.0
    );
    assert!(
        during.die_utilisation() > 0.85,
        "{}",
        during.die_utilisation()
    );
}

#[test]
fn four_gib_are_copied_back_in_12_8_seconds() {
    let size = 4096 * MIB;
    let mut device = device("indef-femu", NamespaceKind::Zoned, 2 * size);
    for zone in 0..size / (32 * MIB) {
        device.restore_zone(0, zone as usize, ZoneState::Full, 0);
    }
    let moves: Vec<_> = (0..size / (32 * MIB))
        .map(|zone| Move {
            from: zone * 32 * MIB,
            to: size + zone * 32 * MIB,
            len: 32 * MIB,
        })
        .collect();
    let end = run(&mut device, 0, &Command::Migrate { moves: &moves });
    // 4 GiB at 336.1 MB/s.
    within(1.0, end as f64 / 1e9, 12.78);
}

#[test]
fn copy_and_migration_on_a_conventional_namespace() {
    let mut device = device("fast24", NamespaceKind::Conventional, 256 * MIB);
    let now = fill(&mut device, 64 * MIB);
    let sources = [
        Span {
            offset: 0,
            len: 8 * MIB,
        },
        Span {
            offset: 32 * MIB,
            len: 4 * MIB + 4096,
        },
    ];
    let before = device.stats();
    let copy = Command::Copy {
        sources: &sources,
        destination: 128 * MIB,
    };
    let done = run(&mut device, now, &copy);
    assert!(done > now);
    let stats = device.stats().since(&before);
    assert_eq!(stats.migrated_bytes, 12 * MIB + 4096);
    assert_eq!(stats.migrations, 1);
    assert_eq!(stats.programmed_bytes.migration, 12 * MIB);
    let overlap = Command::Copy {
        sources: &sources,
        destination: 4 * MIB,
    };
    assert_eq!(
        device.submit(Nanos(done), 0, &overlap),
        Err(Refused::Overlap)
    );
}

#[test]
fn finishing_a_zone_pads_it_in_the_background() {
    let mut device = device("indef-femu", NamespaceKind::Zoned, 64 * MIB);
    run(&mut device, 0, &write(0, 16 * MIB));
    let now = run(&mut device, 0, &Command::Flush);
    let done = run(
        &mut device,
        now,
        &Command::Zone {
            start: 0,
            all: false,
            action: ZoneAction::Finish,
        },
    );
    assert_eq!(device.stats().programmed_bytes.padding, 16 * MIB);
    within(2.0, 16.0 * MIB as f64 / (done - now) as f64 * 1e3, 374.5);
    assert_eq!(device.zones(0)[0].state, ZoneState::Full);
}

#[test]
fn image_and_restore_come_to_the_same() {
    let specs = [
        NamespaceSpec {
            kind: NamespaceKind::Zoned,
            size: Bytes::mib(128),
        },
        NamespaceSpec {
            kind: NamespaceKind::Conventional,
            size: Bytes::mib(64),
        },
    ];
    let profile = Profile::builtin("indef-femu").unwrap();
    let mut device = Device::new(&profile, &specs).unwrap();
    device.submit(Nanos(0), 0, &write(0, 5 * MIB)).unwrap();
    let finish = Command::Zone {
        start: 32 * MIB,
        all: false,
        action: ZoneAction::Finish,
    };
    device.submit(Nanos(0), 0, &finish).unwrap();
    for at in 0..2000_u64 {
        device
            .submit(Nanos(at), 1, &write(at * 7919 % 16384 * 4096, 4096))
            .unwrap();
    }
    let image = device.image();
    let mut other = Device::new(&profile, &specs).unwrap();
    other.restore(&image).unwrap();
    assert_eq!(other.image(), image);
    assert_eq!(other.zones(0), device.zones(0));
    assert_eq!(other.stats().wear, device.stats().wear);
    let mut small = Device::new(&profile, &specs[..1]).unwrap();
    assert!(small.restore(&image).is_err());
    for cut in 0..image.len().min(300) {
        assert!(other.restore(&image[..cut]).is_err());
    }
    assert_eq!(other.image(), image);
}

#[test]
fn the_zero_profile_takes_no_time() {
    let specs = [
        NamespaceSpec {
            kind: NamespaceKind::Zoned,
            size: Bytes::mib(64),
        },
        NamespaceSpec {
            kind: NamespaceKind::Conventional,
            size: Bytes::mib(64),
        },
    ];
    let mut device = Device::new(&Profile::builtin("zero").unwrap(), &specs).unwrap();
    let moves = [Move {
        from: 0,
        to: 32 * MIB,
        len: 8 * KIB,
    }];
    for ns in 0..2 {
        for command in [
            Command::Write {
                offset: 0,
                len: MIB,
                fua: true,
                placement: Placement::RoundRobin,
            },
            Command::Read {
                offset: 0,
                len: MIB,
            },
            Command::Flush,
            Command::Migrate { moves: &moves },
            Command::Deallocate {
                offset: 0,
                len: MIB,
            },
        ] {
            let accepted = device.submit(Nanos(7), ns, &command).unwrap();
            assert_eq!(accepted.done, Done::At(Nanos(7)), "{command:?}");
        }
    }
    assert_eq!(device.next_event(), None);
}
