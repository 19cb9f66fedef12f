//! The model against a slow one that is written differently.
//!
//! The reference goes through time nanosecond by nanosecond, keeps what is taken as one flag for
//! each nanosecond, and looks at data sector by sector. It knows nothing of calendars, intervals,
//! heaps or layouts. Both must agree to the nanosecond on every answer.

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
    )
        .prop_map(
            |(cache_register, interleave, zone_dies, transfer, link, drain)| Variant {
                cache_register,
                interleave,
                zone_dies,
                transfer,
                link,
                drain,
                buffer: 1 << 20,
            },
        )
}

/// Runs the same on both. With `small` the buffer is, and then nothing is flushed or reset: the
/// programs that a full buffer has decided on already would be in the way of comparing.
fn compare(variant: Variant, ops: &[(u64, Op)], small: bool) {
    let variant = Variant {
        buffer: if small { 4 * PAGE } else { variant.buffer },
        ..variant
    };
    let spec = NamespaceSpec {
        kind: NamespaceKind::Zoned,
        size: Bytes(ZONES * ZONE),
    };
    let mut device = Device::new(&variant.profile(), &[spec]).unwrap();
    let mut reference = Reference::new(variant);
    let mut now = 0;
    let mut expected: BTreeMap<Ticket, (u64, usize)> = BTreeMap::new();
    let mut submit =
        |now, command: &Command<'_>| device.submit(Nanos(now), 0, command).unwrap().done;
    for &(delay, op) in ops {
        now += delay;
        let (command, answer) = match op {
            Op::Write { zone, sectors } => {
                let at = reference.filled[zone as usize];
                let len = (sectors * SECTOR).min(ZONE - at);
                if len == 0 {
                    continue;
                }
                let placement = Placement::RoundRobin;
                let offset = zone * ZONE + at;
                let command = Command::Write {
                    offset,
                    len,
                    fua: false,
                    placement,
                };
                (command, reference.write(now, zone, len))
            }
            Op::Read { sector, sectors } => {
                let (offset, len) = (sector * SECTOR, sectors * SECTOR);
                (
                    Command::Read { offset, len },
                    reference.read(now, offset, len),
                )
            }
            Op::Flush if !small => {
                let (ready, programs) = reference.flush(now);
                match submit(now, &Command::Flush) {
                    Done::Later(ticket) => {
                        expected.insert(ticket, (ready, programs));
                    }
                    Done::At(at) => {
                        let last = reference.ends.iter().map(|end| end.unwrap()).max();
                        assert_eq!(at.0, ready.max(last.unwrap_or(0)));
                    }
                }
                continue;
            }
            Op::Reset { zone } if !small => {
                let (start, action) = (zone * ZONE, ZoneAction::Reset);
                if reference.filled[zone as usize] == 0 {
                    continue;
                }
                (
                    Command::Zone {
                        start,
                        all: false,
                        action,
                    },
                    reference.reset(now, zone),
                )
            }
            Op::Flush | Op::Reset { .. } => continue,
        };
        assert_eq!(
            submit(now, &command),
            Done::At(Nanos(answer)),
            "{op:?} at {now}"
        );
    }
    let mut finished = Vec::new();
    device.advance(Nanos(HORIZON as u64 / 2), &mut finished);
    reference.run_until(HORIZON as u64 / 2);
    for (ticket, at) in finished {
        let (ready, programs) = expected.remove(&ticket).unwrap();
        let last = reference.ends[..programs]
            .iter()
            .map(|end| end.unwrap())
            .max();
        assert_eq!(at.0, ready.max(last.unwrap_or(0)));
    }
    assert!(expected.is_empty());
    for (die, of) in device.stats().dies.iter().zip(&reference.dies) {
        assert_eq!(die.reads, of.outs.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_that_of_the_reference(
        variant in variant(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        compare(variant, &ops, false);
    }

    #[test]
    fn a_full_buffer_makes_writes_wait_as_in_the_reference(
        variant in variant(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        compare(variant, &ops, true);
    }
}
