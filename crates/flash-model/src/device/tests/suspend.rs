//! Reads that suspend programs and erases, on the profile that is built in for it.

use super::*;

const ROW: u64 = 256 * KIB;
/// A command's time in the controller, sense of an LSB page, and 4 KiB over channel and link.
const ALONE: u64 = 6_000 + 56_500 + 13_109 + 1_163;

/// Returns the text of the profile without suspension.
pub(super) fn never() -> String {
    let lines = Profile::builtin_text("tlc").unwrap().lines();
    let lines = lines.filter(|line| !line.starts_with("suspend_erase"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let of = "suspend = { value = 100, unit = \"us\"";
    assert!(text.contains(of));
    text.replace(of, "suspend = { value = false, unit = \"flag\"")
}

fn devices() -> [(bool, Device); 2] {
    let text = Profile::builtin_text("tlc").unwrap();
    let spec = NamespaceSpec {
        kind: NamespaceKind::Zoned,
        size: Bytes::mib(128),
    };
    [(true, text.to_owned()), (false, never())].map(|(suspends, text)| {
        let profile = Profile::parse("tlc", &text).unwrap();
        (suspends, Device::new(&profile, &[spec]).unwrap())
    })
}

/// The beginning of the first zone: on the first plane of an LSB page of die 0.
fn first() -> Command<'static> {
    Command::Read {
        offset: 0,
        len: 4 * KIB,
    }
}

#[test]
fn a_read_waits_for_the_suspension_of_a_program_and_not_for_its_end() {
    for (suspends, mut device) in devices() {
        // Five rows; the sixth one is of the slowest type, and takes 5734 us from 0.2 ms on.
        let now = fill(&mut device, MIB) + 1_000_000;
        run(&mut device, now, &write(MIB, ROW));
        let now = run(&mut device, now, &Command::Flush);
        run(&mut device, now, &write(MIB + ROW, ROW));
        device.advance(Nanos(now + 1_000_000), &mut Vec::new());
        let latency = run(&mut device, now + 1_000_000, &first()) - (now + 1_000_000);
        if !suspends {
            assert!(latency > 4_700_000, "{latency}");
            continue;
        }
        assert_eq!(latency, 100_000 + ALONE);
        // The read is over: the next one suspends the program once more.
        let again = run(&mut device, now + 2_000_000, &first()) - (now + 2_000_000);
        assert_eq!(again, 100_000 + ALONE);
        // The program ends later by what both took on the array.
        let later = now + 6_000_000;
        let late = run(&mut device, later, &first()) - later;
        assert_eq!(late, 100_000 + ALONE);
        let idle = later + 1_000_000;
        assert_eq!(run(&mut device, idle, &first()) - idle, ALONE);
    }
}

#[test]
fn an_erase_takes_longer_to_suspend_than_a_program() {
    for (suspends, mut device) in devices() {
        // The first zone and some of the second one, both on all dies.
        let mut now = fill(&mut device, 24 * MIB);
        now = run(&mut device, now, &write(32 * MIB, MIB));
        now = run(&mut device, now, &Command::Flush) + 1_000_000;
        let reset = Command::Zone {
            start: 32 * MIB,
            all: false,
            action: ZoneAction::Reset,
        };
        device.submit(Nanos(now), 0, &reset).unwrap();
        let during = now + 500_000;
        let latency = run(&mut device, during, &first()) - during;
        if suspends {
            assert_eq!(latency, 700_000 + ALONE);
        } else {
            // The erase begins with the command, 6 us after it came.
            assert_eq!(latency, 3_000_000 - 500_000 + ALONE);
        }
    }
}
