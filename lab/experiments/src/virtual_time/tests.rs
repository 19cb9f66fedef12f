use flash_model::{Command, Move, Placement, ZoneAction};
use flashd::device::LoggedCommand;
use workloads::Numbers;

use super::*;
use crate::layout::{Extent, FileLayout, Layout};

const MIB: u64 = 1 << 20;
const ZONE: u64 = 32 * MIB;

fn profile() -> Profile {
    Profile::builtin("indef-femu").unwrap()
}

/// Zones of which the first are full.
fn zones(full: u64) -> Vec<Zone> {
    let zone = |index| Zone {
        start: index * ZONE,
        size: ZONE,
        capacity: ZONE,
        write_pointer: index * ZONE,
        state: if index < full {
            ZoneState::Full
        } else {
            ZoneState::Empty
        },
    };
    (0..8).map(zone).collect()
}

fn machine() -> Machine {
    Machine::new(&profile(), &zones(4), Bytes::mib(64)).unwrap()
}

/// A file of pieces at these places.
fn layout(bytes: u64, places: impl IntoIterator<Item = u64>) -> Layout {
    let extents: Vec<Extent> = (0..)
        .zip(places)
        .map(|(index, place)| Extent {
            at: index * bytes,
            place,
            bytes,
        })
        .collect();
    Layout {
        files: vec![FileLayout {
            name: "file".into(),
            bytes: extents.len() as u64 * bytes,
            extents,
        }],
    }
}

fn logged(command: Command<'_>, submitted: u64, done: u64) -> LoggedCommand {
    LoggedCommand {
        namespace: ZONED,
        command: command.into(),
        submitted: Nanos(submitted),
        done: Some(Nanos(done)),
    }
}

fn read_ns(layout: &Layout) -> u64 {
    machine()
        .run(&mut [&mut Reader::of(layout, 256 << 10)])
        .unwrap()
        .ns
}

#[test]
fn a_contiguous_request_takes_a_sensing_and_its_transfers() {
    // 256 KiB are a page of each of 16 chips; two chips share a channel.
    let whole = layout(256 << 10, (0..100).map(|index| index * (256 << 10)));
    assert_eq!(read_ns(&whole), 100 * (80_000 + 2 * 24_000));
    assert_eq!(read_ns(&whole), read_ns(&whole));
}

#[test]
fn pieces_on_one_chip_wait_for_each_other() {
    // Blocks of 4 KiB that all begin at a multiple of 64 KiB lie on the first chip.
    let collide = layout(4096, (0..640).map(|index| index * (64 << 10)));
    let spread = layout(4096, (0..640).map(|index| index * ((64 << 10) + 4096)));
    assert!(read_ns(&collide) > 5 * read_ns(&spread));
}

#[test]
fn progress_is_one_of_bytes() {
    let read = |len| Command::Read { offset: 0, len };
    let moved = Command::Migrate {
        moves: &[Move {
            from: 0,
            to: 4 * ZONE,
            len: 2 * MIB,
        }],
    };
    let commands = [read(MIB), Command::Flush, moved, read(MIB)];
    let log: Vec<_> = (0..)
        .zip(commands)
        .map(|(at, command)| logged(command, 10 * at, 10 * at + 5))
        .collect();
    let mut host = Recorded::one_by_one(&log);
    let mut progress = vec![host.progress()];
    while let Some(submission) = host.next() {
        // What is under way is not done.
        assert_eq!(Some(&host.progress()), progress.last());
        host.done(submission.number);
        progress.push(host.progress());
    }
    assert_eq!(progress, [0.0, 0.25, 0.25, 0.75, 1.0]);
}

#[test]
fn recorded_commands_keep_their_concurrency() {
    let read = |place: u64| Command::Read {
        offset: place * 4096,
        len: 4096,
    };
    let elapsed = |mut host: Recorded<'_>| machine().run(&mut [&mut host]).unwrap().ns;
    let run = |log: &[LoggedCommand]| elapsed(Recorded::new(log));
    // Of 16 blocks on 16 chips: at once, and one after the other.
    let together: Vec<_> = (0..16)
        .map(|index| logged(read(index), index, 1000))
        .collect();
    let alone: Vec<_> = (0..16)
        .map(|index| logged(read(index), 1000 * index, 1000 * index + 1))
        .collect();
    assert_eq!(run(&alone), 16 * 86_000);
    assert_eq!(run(&together), 86_000 + 6_000);
    assert_eq!(elapsed(Recorded::one_by_one(&together)), run(&alone));
    assert_eq!(elapsed(Recorded::overlapping(&alone, 16)), run(&together));
}

/// The commands of a call that moves blocks of aged files, 2 MiB at a time, to a zone: before each move it
/// reads nodes, one after the other.
fn call_for(zone: u64, moves: u64, numbers: &mut Numbers) -> Vec<LoggedCommand> {
    const NODES: u64 = 6;
    const BLOCKS: u64 = 512;
    let mut log = Vec::new();
    let mut now = 0;
    let mut add = |namespace, command: Command<'_>| {
        log.push(LoggedCommand {
            namespace,
            ..logged(command, now, now + 1)
        });
        now += 2;
    };
    for number in 0..moves {
        for _ in 0..NODES {
            let offset = numbers.below(16_000_u64) * 4096;
            add(CONVENTIONAL, Command::Read { offset, len: 4096 });
        }
        // Pieces of 32 KiB.
        let pieces: Vec<Move> = (0..BLOCKS / 8)
            .map(|piece| Move {
                from: numbers.below(4 * ZONE / 32_768) * 32_768,
                to: zone * ZONE + (number * BLOCKS + piece * 8) * 4096,
                len: 32_768,
            })
            .collect();
        add(ZONED, Command::Migrate { moves: &pieces });
    }
    log
}

/// While one call looks for its blocks, and at the end of its command, when some chips have nothing left to
/// do, the device works for the other.
#[test]
fn two_calls_keep_the_chips_busy() {
    const MOVES: u64 = 16;
    let mut numbers = Numbers::new(1);
    let alone = call_for(4, MOVES, &mut numbers);
    let both = [4, 5].map(|zone| call_for(zone, MOVES / 2, &mut numbers));
    let one = machine().run(&mut [&mut Recorded::new(&alone)]).unwrap();
    let [mut first, mut second] = both.each_ref().map(|log| Recorded::new(log));
    let two = machine().run(&mut [&mut first, &mut second]).unwrap();
    println!(
        "{:.1} % of {} ns, {:.1} % of {} ns",
        one.busy_percent(),
        one.ns,
        two.busy_percent(),
        two.ns
    );
    assert!(one.busy_percent() < 95.0);
    assert!(two.busy_percent() > 95.0);
}

/// A migration that goes on in the background ends with its last page, and fills the chips.
#[test]
fn a_migration_is_bound_by_its_programs() {
    let moves: Vec<Move> = (0..2048)
        .map(|block| Move {
            from: (block * 7 % 8192) * 4096,
            to: 4 * ZONE + block * 4096,
            len: 4096,
        })
        .collect();
    let log = [logged(Command::Migrate { moves: &moves }, 0, 1)];
    let elapsed = machine().run(&mut [&mut Recorded::new(&log)]).unwrap();
    let bound = 700_000 * (2048 / 4) / 16;
    assert!(
        (bound..bound * 3 / 2).contains(&elapsed.ns),
        "{} of {bound}",
        elapsed.ns
    );
    assert!(elapsed.busy_percent() > 75.0 && elapsed.busy_percent() <= 100.0);
    assert_eq!(elapsed.stats.migrated_bytes, 8 * MIB);
}

#[test]
fn a_load_is_slower_beside_a_migration() {
    let files = layout(256 << 10, (0..256).map(|index| index * (256 << 10)));
    let mut device = machine();
    let mut load = Load::new(&files, 256 << 10, device.zones_of_load());
    device.run_until(&mut [&mut load], 200_000_000).unwrap();
    let alone = load.bytes_done;
    // More than the zones of the load take: they are reset.
    assert!(alone > 64 * MIB, "{alone}");

    let write = |index: u64| Command::Write {
        offset: 4 * ZONE + index * MIB,
        len: MIB,
        fua: false,
        placement: Placement::RoundRobin,
    };
    let reset = Command::Zone {
        start: 0,
        all: false,
        action: ZoneAction::Reset,
    };
    let mut log: Vec<_> = (0..120)
        .map(|index| logged(write(index), index, index))
        .collect();
    log.push(logged(reset, 200, 200));
    let mut device = machine();
    let mut load = Load::new(&files, 256 << 10, device.zones_of_load());
    let mut migration = Recorded::new(&log);
    let elapsed = device
        .run_until(&mut [&mut migration, &mut load], 200_000_000)
        .unwrap();
    let beside = load.bytes_done * 200_000_000 / elapsed.ns;
    assert!(beside < alone, "{beside} {alone}");
}

#[test]
fn a_command_that_the_device_refuses_is_told() {
    let write = Command::Write {
        offset: 4 * ZONE + 4096,
        len: 4096,
        fua: false,
        placement: Placement::RoundRobin,
    };
    let log = [logged(write, 0, 1)];
    let error = machine().run(&mut [&mut Recorded::new(&log)]).unwrap_err();
    assert!(format!("{error:#}").contains("write pointer"), "{error:#}");
}
