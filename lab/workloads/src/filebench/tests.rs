use std::collections::HashSet;

use super::{size::file_bytes, *};
use crate::Numbers;

const MIB: u64 = 1 << 20;

/// The files of InDeF, 64 times fewer.
fn ageing(personality: Personality) -> Ageing {
    let (files, mean_bytes) = personality.files_of_indef();
    Ageing {
        personality,
        files: files / 64,
        mean_bytes,
        rounds: 1.5,
        reads_percent: 100,
        seed: 7,
    }
}

/// All operations, with the flows by turns, checked as a file system would.
fn operations(ageing: Ageing) -> (Vec<Op>, Fileset) {
    let mut files = Fileset::new(ageing);
    let mut ops = preallocate(ageing, &mut files);
    let mut flows: Vec<Flow> = (0..FLOWS as u64).map(|n| Flow::new(ageing, n)).collect();
    while !flows.is_empty() {
        flows.retain_mut(|flow| match flow.next(&mut files) {
            Some(op) => {
                ops.push(op);
                true
            }
            None => false,
        });
        assert!(files.live_bytes() <= ageing.fill_bytes() + FLOWS as u64 * APPEND_BYTES);
    }
    (ops, files)
}

/// The lengths of the files after the operations.
fn lengths(ops: &[Op]) -> std::collections::BTreeMap<usize, u64> {
    let mut files = std::collections::BTreeMap::new();
    for op in ops {
        match *op {
            Op::Create(id) => assert_eq!(files.insert(id, 0), None, "{id} is there"),
            Op::Append { id, at, bytes, .. } => {
                let length = files.get_mut(&id).expect("it is there");
                assert_eq!(*length, at);
                assert!((1..=IO_BYTES).contains(&bytes));
                *length += bytes;
            }
            Op::Sync(id) | Op::Read(id) => assert!(files.contains_key(&id)),
            Op::Delete(id) => assert!(files.remove(&id).is_some()),
            Op::Wait => {}
        }
    }
    files
}

#[test]
fn flows_are_possible_and_the_same_every_time() {
    for personality in [Personality::Fileserver, Personality::Varmail] {
        let ageing = ageing(personality);
        let (ops, files) = operations(ageing);
        assert_eq!(lengths(&ops), files.files().collect());
        assert!(files.deleted > 0 && files.created > files.deleted);
        assert_eq!(ops, operations(ageing).0);
        assert_ne!(ops, operations(Ageing { seed: 8, ..ageing }).0);
    }
}

#[test]
fn files_come_to_the_wanted_bytes() {
    for personality in [Personality::Fileserver, Personality::Varmail] {
        let ageing = ageing(personality);
        let (_, files) = operations(ageing);
        let fill = files.live_bytes() as f64 / ageing.fill_bytes() as f64;
        assert!((fill - 1.0).abs() < 0.08, "{personality}: {fill}");
        assert_eq!(personality.name().parse(), Ok(personality));
    }
    assert!("webserver".parse::<Personality>().is_err());
}

#[test]
fn varmail_only_appends_and_makes_each_append_durable() {
    let (ops, _) = operations(ageing(Personality::Varmail));
    let mut unsynced = HashSet::new();
    for op in ops {
        match op {
            Op::Append { id, bytes, .. } => {
                assert!(bytes <= APPEND_BYTES);
                assert!(unsynced.insert(id));
            }
            Op::Sync(id) => assert!(unsynced.remove(&id)),
            _ => {}
        }
    }
}

#[test]
fn fileserver_writes_whole_files_by_the_mebibyte() {
    let ageing = ageing(Personality::Fileserver);
    let (ops, _) = operations(ageing);
    let whole = ops
        .iter()
        .filter(|op| matches!(op, Op::Append { bytes, .. } if *bytes == MIB));
    let small = ops
        .iter()
        .filter(|op| matches!(op, Op::Append { bytes, .. } if *bytes <= APPEND_BYTES));
    assert!(whole.count() > 100 && small.count() > 10);
    let bytes = ops.iter().map(|op| match op {
        Op::Append { bytes, .. } => *bytes,
        _ => 0,
    });
    // The first files are no part of the ageing.
    let wanted = ageing.fill_bytes() * 3 / 4 + ageing.bytes_to_write();
    let written: u64 = bytes.sum();
    assert!(written > wanted, "{written} of {wanted}");
    assert!(!ops.iter().any(|op| matches!(op, Op::Sync(_))));
}

#[test]
fn sizes_have_filebenchs_mean_and_spread() {
    let mut numbers = Numbers::new(3);
    let sizes: Vec<f64> = (0..20_000)
        .map(|_| file_bytes(&mut numbers, 4 * MIB) as f64)
        .collect();
    let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / sizes.len() as f64;
    let wanted = 4.0 * MIB as f64;
    assert!((mean / wanted - 1.0).abs() < 0.03, "{mean}");
    // Of a gamma distribution with shape 1.5.
    assert!((variance.sqrt() / mean - (1.0_f64 / 1.5).sqrt()).abs() < 0.03);
}

/// A set so small that chance may make all of its files fit: appends do not go beyond the fill.
#[test]
fn a_small_fileset_does_not_outgrow_its_fill() {
    for seed in 0..40 {
        let ageing = Ageing {
            personality: Personality::Fileserver,
            files: 5,
            mean_bytes: 1 << 20,
            rounds: 4.0,
            reads_percent: 0,
            seed,
        };
        let mut files = Fileset::new(ageing);
        let first = preallocate(ageing, &mut files);
        assert!(!first.is_empty());
        let mut flow = Flow::new(ageing, 0);
        while flow.next(&mut files).is_some() {
            assert!(
                files.live_bytes() <= ageing.fill_bytes() + 2 * APPEND_BYTES,
                "{seed}"
            );
        }
    }
}

#[test]
fn the_files_of_oltp_are_made_side_by_side() {
    let mut oltp = Oltp::new(2, IO_BYTES + 1);
    let append = |id, at, bytes| {
        Some(Op::Append {
            id,
            generation: 1,
            at,
            bytes,
        })
    };
    for (thread, expected) in [
        (0, Some(Op::Create(0))),
        (1, Some(Op::Create(1))),
        (1, append(1, 0, IO_BYTES)),
        (0, append(0, 0, IO_BYTES)),
        (0, append(0, IO_BYTES, 1)),
        (0, None),
        (2, None),
    ] {
        assert_eq!(oltp.next(thread), expected);
    }
}
