//! The model against a slow one that is written differently.
//!
//! The reference goes through time nanosecond by nanosecond, keeps one flag for each nanosecond
//! that says whether a part is taken, and looks at data sector by sector. It knows nothing of
//! calendars, intervals, heaps or layouts. Both must agree to the nanosecond on every answer.

mod model;
mod variant;

use std::collections::BTreeMap;

use flash_model::{
    Command, Device, Done, NamespaceKind, NamespaceSpec, Placement, Ticket, ZoneAction,
};
use proptest::prelude::*;
use units::{Bytes, Nanos};

use crate::{
    model::Reference,
    variant::{HORIZON, PAGE, SECTOR, Variant, ZONE, ZONES},
};

#[derive(Clone, Copy, Debug)]
enum Op {
    Write { zone: u64, sectors: u64 },
    Read { sector: u64, sectors: u64 },
    Flush,
    Reset { zone: u64 },
}

fn op() -> impl Strategy<Value = (u64, Op)> {
    let op = prop_oneof![
        6 => (0..ZONES, 1u64..48).prop_map(|(zone, sectors)| Op::Write { zone, sectors }),
        8 => (0..ZONES * ZONE / SECTOR - 64, 1u64..64)
            .prop_map(|(sector, sectors)| Op::Read { sector, sectors }),
        1 => Just(Op::Flush),
        1 => (0..ZONES).prop_map(|zone| Op::Reset { zone }),
    ];
    (
        prop_oneof![4 => 0u64..40, 2 => 0u64..400, 1 => 0u64..3000],
        op,
    )
}

fn variant() -> impl Strategy<Value = Variant> {
    (
        any::<bool>(),
        prop::sample::select(vec![512, 1024, 4096]),
        prop::sample::select(vec![1, 2, 4]),
        1u64..120,
        0u64..60,
        prop::sample::select(vec![0, 40, 150]),
        1u64..5,
    )
        .prop_map(
            |(cache_register, interleave, zone_dies, transfer, link, drain, types)| Variant {
                cache_register,
                interleave,
                zone_dies,
                transfer,
                link,
                drain,
                buffer: 1 << 20,
                types,
            },
        )
}

/// An answer that a command gets later.
#[derive(Clone, Copy, Debug)]
enum Later {
    /// Not before this time, and not before this many programs have ended.
    Flush(u64, usize),
    Write(usize),
}

/// Runs the same commands on both, and compares the answers.
fn compare(variant: Variant, ops: &[(u64, Op)]) {
    let spec = NamespaceSpec {
        kind: NamespaceKind::Zoned,
        size: Bytes(ZONES * ZONE),
    };
    let mut device = Device::new(&variant.profile(), &[spec]).unwrap();
    let mut reference = Reference::new(variant);
    let mut now = 0;
    let mut expected: BTreeMap<Ticket, Later> = BTreeMap::new();
    for &(delay, op) in ops {
        now += delay;
        let mut submit =
            |command: &Command<'_>| device.submit(Nanos(now), 0, command).unwrap().done;
        match op {
            Op::Write { zone, sectors } => {
                let at = reference.filled[zone as usize];
                let len = (sectors * SECTOR).min(ZONE - at);
                if len == 0 {
                    continue;
                }
                let (offset, placement) = (zone * ZONE + at, Placement::RoundRobin);
                let write = reference.write(now, zone, len);
                match submit(&Command::Write {
                    offset,
                    len,
                    fua: false,
                    placement,
                }) {
                    Done::At(at) => {
                        assert_eq!(Some(at.0), reference.writes[write], "{op:?} at {now}")
                    }
                    Done::Later(ticket) => {
                        assert_eq!(reference.writes[write], None, "{op:?} at {now}");
                        expected.insert(ticket, Later::Write(write));
                    }
                }
            }
            Op::Read { sector, sectors } => {
                let (offset, len) = (sector * SECTOR, sectors * SECTOR);
                let answer = reference.read(now, offset, len);
                let done = submit(&Command::Read { offset, len });
                assert_eq!(done, Done::At(Nanos(answer)), "{op:?} at {now}");
            }
            Op::Flush => {
                let (ready, programs) = reference.flush(now);
                match submit(&Command::Flush) {
                    Done::Later(ticket) => {
                        expected.insert(ticket, Later::Flush(ready, programs));
                    }
                    Done::At(at) => assert_eq!(at.0, last_end(&reference, ready, programs)),
                }
            }
            Op::Reset { zone } => {
                if reference.filled[zone as usize] == 0 {
                    continue;
                }
                let answer = reference.reset(now, zone);
                let (start, action) = (zone * ZONE, ZoneAction::Reset);
                let done = submit(&Command::Zone {
                    start,
                    all: false,
                    action,
                });
                assert_eq!(done, Done::At(Nanos(answer)), "{op:?} at {now}");
            }
        }
    }
    let mut finished = Vec::new();
    device.advance(Nanos(HORIZON as u64 / 2), &mut finished);
    reference.run_until(HORIZON as u64 / 2);
    for (ticket, at) in finished {
        let answer = match expected.remove(&ticket).unwrap() {
            Later::Flush(ready, programs) => last_end(&reference, ready, programs),
            Later::Write(write) => reference.writes[write].unwrap(),
        };
        assert_eq!(at.0, answer);
    }
    assert!(expected.is_empty());
    for (die, of) in device.stats().dies.iter().zip(&reference.dies) {
        assert_eq!(die.reads, of.outs.len() as u64);
    }
}

/// Returns when the first `programs` programs have ended.
fn last_end(reference: &Reference, ready: u64, programs: usize) -> u64 {
    let ends = reference.ends[..programs].iter().map(|end| end.unwrap());
    ready.max(ends.max().unwrap_or(0))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_that_of_the_reference(
        variant in variant(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        compare(variant, &ops);
    }

    #[test]
    fn a_full_buffer_makes_writes_wait_as_in_the_reference(
        variant in variant(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        compare(Variant { buffer: 4 * PAGE, ..variant }, &ops);
    }
}
