//! Types of pages, planes and suspension, on the profile that is built in for them.

use flash_model::{Command, Device, Profile, ZoneAction};
use units::Nanos;
use workloads::Numbers;

use super::drive::{KIB, MIB, closed_loop, fill, run, write, zoned, zoned_as};

const NAME: &str = "tlc";
/// A page of both planes of each die.
const ROW: u64 = 256 * KIB;
const MS: u64 = 1_000_000;

fn read(offset: u64) -> Command<'static> {
    let len = 4 * KIB;
    Command::Read { offset, len }
}

/// How long the command takes from then on.
fn time(device: &mut Device, now: u64, command: &Command<'_>) -> u64 {
    run(device, now, command) - now
}

/// A read of 4 KiB of each page of a word line, on an idle device: nanoseconds.
pub(crate) fn read_of_each_page() -> [f64; 3] {
    let mut device = zoned(NAME, 64 * MIB);
    let written = fill(&mut device, 8 * MIB);
    [0, 1, 2].map(|page| {
        let now = written + (page + 1) * 100 * MS;
        time(&mut device, now, &read(page * ROW)) as f64
    })
}

/// The program of each page of a word line: nanoseconds that a die is busy.
pub(crate) fn program_of_each_page() -> [f64; 3] {
    let mut device = zoned(NAME, 64 * MIB);
    let mut now = 0;
    [0, 1, 2].map(|page| {
        let before = device.stats().dies[0].busy_ns;
        let written = run(&mut device, now, &write(page * ROW, ROW));
        now = run(&mut device, written, &Command::Flush) + MS;
        device.advance(Nanos(now), &mut Vec::new());
        (device.stats().dies[0].busy_ns - before) as f64
    })
}

/// MB/s.
pub(crate) fn sequential_write() -> f64 {
    let size = 24 * MIB;
    size as f64 / fill(&mut zoned(NAME, 64 * MIB), size) as f64 * 1e3
}

/// How much longer than alone a read takes that comes during a program, and during an erase: nanoseconds.
pub(crate) fn longer_during_a_program_and_an_erase() -> [f64; 2] {
    let alone = read_of_each_page()[0];
    let mut device = zoned(NAME, 128 * MIB);
    // Five rows and a sixth one, which is of the slowest type.
    let mut now = fill(&mut device, MIB);
    now = run(&mut device, now, &write(MIB, ROW));
    now = run(&mut device, now, &Command::Flush);
    run(&mut device, now, &write(MIB + ROW, ROW));
    device.advance(Nanos(now + MS), &mut Vec::new());
    let program = time(&mut device, now + MS, &read(0)) as f64 - alone;

    now = run(&mut device, now + 100 * MS, &write(32 * MIB, MIB));
    now = run(&mut device, now, &Command::Flush) + MS;
    let reset = Command::Zone {
        start: 32 * MIB,
        all: false,
        action: ZoneAction::Reset,
    };
    let accepted = device.submit(Nanos(now), 0, &reset);
    accepted.expect("the zone can be reset");
    let erase = time(&mut device, now + MS / 2, &read(0)) as f64 - alone;
    [program, erase]
}

/// The slowest of 192 reads beside writes that keep all dies busy: nanoseconds.
pub(crate) fn slowest_read_beside_writes(suspends: bool) -> f64 {
    let mut device = if suspends {
        zoned(NAME, 128 * MIB)
    } else {
        zoned_as(&without_suspension("true"), 128 * MIB)
    };
    let mut now = fill(&mut device, 24 * MIB) + MS;
    let (mut numbers, mut slowest) = (Numbers::new(3), 0);
    for row in 0..64 {
        let accepted = device.submit(Nanos(now), 0, &write(32 * MIB + row * ROW, ROW));
        accepted.expect("the row can be written");
        for _ in 0..3 {
            now += MS;
            device.advance(Nanos(now), &mut Vec::new());
            let at = numbers.below(24 * MIB / (4 * KIB)) * 4 * KIB;
            slowest = slowest.max(time(&mut device, now, &read(at)));
        }
    }
    slowest as f64
}

/// How many times the random reads of 4 KiB, of 256 at a time, planes give that read on their own.
pub(crate) fn gain_by_planes() -> f64 {
    let took = |on_their_own: &str| {
        let mut device = zoned_as(&without_suspension(on_their_own), 64 * MIB);
        let now = fill(&mut device, 24 * MIB) + 100 * MS;
        let mut numbers = Numbers::new(7);
        let reads = (0..4000).map(|_| read(numbers.below(24 * MIB / (4 * KIB)) * 4 * KIB));
        (closed_loop(&mut device, now, 256, reads) - now) as f64
    };
    took("false") / took("true")
}

/// The profile without suspension, and with planes that read on their own or not.
fn without_suspension(on_their_own: &str) -> Profile {
    let text = Profile::builtin_text(NAME).expect("it is built in");
    let lines = text.lines().map(|line| match line.split(' ').next() {
        Some("suspend_erase") => String::new(),
        Some("suspend") => line
            .replace("value = 100", "value = false")
            .replace("unit = \"us\"", "unit = \"flag\""),
        Some("independent_planes") => line.replace("= true", &format!("= {on_their_own}")),
        _ => line.to_owned(),
    });
    let changed = lines.collect::<Vec<_>>().join("\n");
    Profile::parse("without suspension", &changed).expect("only values were changed")
}
