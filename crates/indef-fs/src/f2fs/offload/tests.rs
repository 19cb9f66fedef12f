use linux_abi::f2fs::offload::Capability;

use super::*;
use crate::NoCheckpoint;

fn report(ranges: &[(Status, u64)], steps: u32) -> Report {
    Report {
        capability: Capability {
            way: Way::InDevice,
            max_blocks: 1,
            logs: 2,
        },
        ranges: ranges
            .iter()
            .map(|&(status, moved)| RangeOutcome { status, moved })
            .collect(),
        bytes_in_device: ranges.iter().map(|(_, moved)| moved).sum(),
        bytes_copied: 0,
        bytes_host: 0,
        bytes_from_memory: 0,
        commands: steps.into(),
        bus_bytes: 0,
        steps,
        locked_ns: 0,
        locked_blocks: 0,
        stalls: 0,
    }
}

#[test]
fn after_a_checkpoint_only_what_is_left_is_tried_again() {
    let done = (Status::Done, 7);
    let first = report(
        &[
            done,
            (Status::NoSection, 3),
            done,
            (Status::Pinned, 0),
            (Status::NoSection, 4),
            (Status::NotReached, 0),
        ],
        2,
    );
    let left = left(&first);
    assert_eq!(left, [1, 4, 5]);
    let second = report(
        &[
            (Status::Done, 2),
            (Status::Contiguous, 0),
            (Status::NoSection, 0),
        ],
        1,
    );
    let both = join(first, &left, second);
    let wanted = report(
        &[
            done,
            (Status::Done, 5),
            done,
            (Status::Pinned, 0),
            (Status::Done, 4),
            (Status::NoSection, 0),
        ],
        3,
    );
    assert_eq!(both, wanted);
}

#[test]
fn a_call_that_had_room_is_not_repeated() {
    let interrupted = report(&[(Status::Interrupted, 1), (Status::NotReached, 0)], 1);
    assert!(left(&interrupted).is_empty());
}

/// Each file keeps the error and what it means: the copies are the device's, and nothing is in memory alone.
#[test]
fn of_a_checkpoint_that_fails_each_file_is_told_the_same() {
    let paths = || BTreeSet::from(["a", "b"].map(PathBuf::from));
    let failed: Vec<_> = uncommitted(paths(), Errno::IO.into()).collect();
    assert_eq!(failed.len(), 2);
    for error in failed {
        let source = error.source.get_ref().unwrap();
        let none = source.downcast_ref::<NoCheckpoint>().unwrap();
        assert_eq!(none.source.raw_os_error(), Some(5), "{error}");
    }
    let off = uncommitted(paths(), Finding::CheckpointsOff.into());
    let mut findings = off.map(|error| error.finding());
    assert!(findings.all(|finding| finding == Some(Finding::CheckpointsOff)));
}
