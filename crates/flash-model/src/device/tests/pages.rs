//! Pages of different speed, and planes that read on their own.

use super::*;

const PAGE: u64 = 32 * KIB;
const ROW: u64 = 8 * PAGE;
/// A command's time in the controller, and 4 KiB over channel and link.
const AROUND: u64 = 6_000 + 13_109 + 1_163;

fn read(offset: u64, len: u64) -> Command<'static> {
    Command::Read { offset, len }
}

/// Reads one after the other, each on an idle device; returns how long each took.
fn one_by_one(device: &mut Device, mut now: u64, reads: &[Command<'_>]) -> Vec<u64> {
    let mut times = Vec::new();
    for read in reads {
        now += 100_000_000;
        times.push(run(device, now, read) - now);
    }
    times
}

#[test]
fn each_page_of_a_word_line_is_sensed_in_its_own_time() {
    for kind in [NamespaceKind::Zoned, NamespaceKind::Conventional] {
        let mut device = device("tlc", kind, 64 * MIB);
        let now = fill(&mut device, 8 * MIB);
        let reads: Vec<_> = (0..6).map(|row| read(row * ROW, 4 * KIB)).collect();
        let times = one_by_one(&mut device, now, &reads);
        let line = [56_500, 77_500, 106_000].map(|sense| sense + AROUND);
        assert_eq!(times, [line, line].concat(), "{kind:?}");
    }
}

#[test]
fn each_page_of_a_word_line_is_programmed_in_its_own_time() {
    for kind in [NamespaceKind::Zoned, NamespaceKind::Conventional] {
        let mut device = device("tlc", kind, 64 * MIB);
        let (mut now, mut busy) = (0, 0);
        for (row, program) in (0..).zip([820_500, 2_225_000, 5_734_000, 820_500]) {
            let written = run(&mut device, now, &write(row * ROW, ROW));
            now = run(&mut device, written, &Command::Flush) + 1_000_000;
            device.advance(Nanos(now), &mut Vec::new());
            for die in device.stats().dies {
                assert_eq!(die.busy_ns, busy + program, "{kind:?} {row}");
            }
            busy += program;
        }
    }
}

#[test]
fn a_copyback_senses_one_type_and_programs_another() {
    let mut device = device("tlc", NamespaceKind::Zoned, 128 * MIB);
    let now = fill(&mut device, MIB) + 100_000_000;
    // The second page of die 0 becomes the first of the next zone's, which begins on die 0, too.
    let moves = [Move {
        from: ROW,
        to: 32 * MIB,
        len: PAGE,
    }];
    let moved = run(&mut device, now, &Command::Migrate { moves: &moves });
    let list = 8 * PAGE / 4096;
    let link = (list * 1_000_000_000).div_ceil(3360 * MIB);
    assert_eq!(moved, now + 6_000 + link + 77_500 + 820_500);
}

/// The device with planes that read on their own or not, and without suspension.
fn with_planes(on_their_own: bool) -> Device {
    let on = "independent_planes = { value = true";
    let text = suspend::never().replace(
        on,
        &format!("independent_planes = {{ value = {on_their_own}"),
    );
    let spec = NamespaceSpec {
        kind: NamespaceKind::Zoned,
        size: Bytes::mib(64),
    };
    Device::new(&Profile::parse("planes", &text).unwrap(), &[spec]).unwrap()
}

#[test]
fn a_plane_reads_beside_the_others_where_the_profile_says_so() {
    // Two pages of one die: each plane holds 16 KiB of its page.
    let plane = 16 * KIB;
    let other = |at: u64| read(at + plane, 4 * KIB);
    let same = |at: u64| read(at, 4 * KIB);
    let sense = 56_500;
    let alone = sense + AROUND;
    for (on_their_own, second, waits) in [
        (true, other(0), 0),
        (true, same(3 * ROW), sense),
        (false, other(0), sense),
        // Both planes are taken by a read that touches both.
        (true, read(plane - 4 * KIB, 8 * KIB), sense),
    ] {
        let mut device = with_planes(on_their_own);
        let now = fill(&mut device, 8 * MIB) + 100_000_000;
        let first = device.submit(Nanos(now), 0, &same(0)).unwrap().done;
        assert_eq!(first, Done::At(Nanos(now + alone)));
        let then = device.stats();
        let end = run(&mut device, now, &second);
        device.advance(Nanos(now + 10_000_000), &mut Vec::new());
        let counts = device.stats().since(&then);
        // The second one comes 1 us later, out of the controller, and after the first one's data
        // on the channel.
        let in_a_row = end - (now + alone);
        if waits == 0 {
            assert!(in_a_row < 20_000, "{in_a_row}");
            assert_eq!(counts.collisions(), 0);
        } else {
            assert!(
                (waits - 20_000..waits + 20_000).contains(&in_a_row),
                "{in_a_row}"
            );
            assert_eq!(counts.collisions(), 1);
        }
        // A die is busy as much as its planes are, on average.
        let busy = device.stats().dies[0].busy_ns - then.dies[0].busy_ns;
        let planes_touched = match second {
            Command::Read { len, .. } if len > 4 * KIB => 3,
            _ => 2,
        };
        let expected = if on_their_own {
            planes_touched * sense / 2
        } else {
            2 * sense
        };
        assert_eq!(counts.dies[0].reads, 1);
        assert!(
            busy <= expected && busy + sense >= expected,
            "{busy} {expected}"
        );
    }
}

#[test]
fn a_program_takes_all_planes() {
    let mut device = with_planes(true);
    // Five rows are programmed; the sixth one is of the slowest type.
    let now = fill(&mut device, MIB) + 100_000_000;
    let written = run(&mut device, now, &write(MIB, ROW));
    let now = run(&mut device, written, &Command::Flush);
    let written = run(&mut device, now, &write(MIB + ROW, ROW));
    for plane in 0..2 {
        let during = written + 1_000_000;
        let end = run(&mut device, during, &read(plane * 16 * KIB, 4 * KIB));
        assert!(end > now + 5_734_000 + 56_500, "{end} {now}");
    }
}
