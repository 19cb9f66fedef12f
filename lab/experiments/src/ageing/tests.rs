use std::collections::HashSet;

use super::{
    fileset::Fileset,
    flow::{Flow, Op, preallocate},
    size::file_bytes,
    *,
};
use workloads::Numbers;

const MIB: u64 = 1 << 20;

fn plan(personality: Personality) -> Plan {
    Plan {
        personality,
        writes: Writes::Cached,
        factor: 64,
        rounds: 1.5,
        reads_percent: 100,
        seed: 7,
        is_trial: false,
    }
}

/// All operations, with the flows by turns, checked as a file system would.
fn operations(plan: Plan) -> (Vec<Op>, Fileset) {
    let mut files = Fileset::new(plan);
    let mut ops = preallocate(plan, &mut files);
    let mut flows: Vec<Flow> = (0..FLOWS as u64).map(|n| Flow::new(plan, n)).collect();
    while !flows.is_empty() {
        flows.retain_mut(|flow| match flow.next(&mut files) {
            Some(op) => {
                ops.push(op);
                true
            }
            None => false,
        });
        assert!(files.live_bytes() <= plan.fill_bytes() + FLOWS as u64 * APPEND_BYTES);
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
        let plan = plan(personality);
        let (ops, files) = operations(plan);
        assert_eq!(lengths(&ops), files.files().collect());
        assert!(files.deleted > 0 && files.created > files.deleted);
        assert_eq!(ops, operations(plan).0);
        assert_ne!(ops, operations(Plan { seed: 8, ..plan }).0);
    }
}

#[test]
fn files_fill_the_device_as_the_papers_do() {
    for (personality, percent) in [
        (Personality::Fileserver, 75.0),
        (Personality::Varmail, 79.3),
    ] {
        let plan = plan(personality);
        let (_, files) = operations(plan);
        let fill = 100.0 * files.live_bytes() as f64 / plan.device_bytes() as f64;
        assert!((fill - percent).abs() < 6.0, "{personality:?}: {fill} %");
    }
    assert_eq!(plan(Personality::Varmail).device_bytes() * 64, 16 << 30);
}

#[test]
fn varmail_only_appends_and_makes_each_append_durable() {
    let (ops, _) = operations(plan(Personality::Varmail));
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
    let plan = plan(Personality::Fileserver);
    let (ops, _) = operations(plan);
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
    let wanted = plan.fill_bytes() * 3 / 4 + plan.bytes_to_write();
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

#[test]
fn threads_make_the_files() {
    for personality in [Personality::Fileserver, Personality::Varmail] {
        let plan = Plan {
            factor: 2048,
            ..plan(personality)
        };
        let dir = tempfile::tempdir().unwrap();
        let aged = age(plan, dir.path()).unwrap();
        let files = std::fs::read_dir(dir.path()).unwrap();
        let lengths: Vec<u64> = files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(lengths.len() as u64, aged.files);
        assert_eq!(lengths.iter().sum::<u64>(), aged.bytes);
        assert!(aged.deleted > 0);
    }
}
