//! A walk against [`replay`]: the same states, byte for byte.

use std::fs;

use proptest::prelude::*;

use super::Walk;
use crate::{
    record::{Keep, Mark, RecordError, Recording, replay},
    store::{Change, Store, StoreKind, ZoneLayout},
};

const BLOCK: u64 = 512;
const BLOCKS: u64 = 16;

fn kind() -> StoreKind {
    StoreKind {
        size_bytes: BLOCKS * BLOCK,
        block_bytes: BLOCK,
        zones: None,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64, bool),
    Zero(u64, u64, bool),
    Flush,
    Mark,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..BLOCKS, 1u64..5, 0u8..5).prop_map(|(at, count, fua)| Step::Write(at, count, fua == 0)),
        2 => (0..BLOCKS, 1u64..5, 0u8..5).prop_map(|(at, count, fua)| Step::Zero(at, count, fua == 0)),
        2 => Just(Step::Flush),
        3 => Just(Step::Mark),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_makes_the_states_that_a_replay_makes(
        steps in proptest::collection::vec(step(), 1..60),
        seeds: [u64; 3],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        let store = Store::in_memory(&[kind()], 64 * BLOCK).unwrap();
        store.namespaces[0].write(3 * BLOCK, &[0xaa; 512], true).unwrap();
        let recording = Recording::default();
        recording.begin(&path, "test", &[kind()], &store).unwrap();
        let mut marks = 0;
        for (version, step) in (1u8..).zip(&steps) {
            let range = |at: u64, count: u64| (at * BLOCK, count.min(BLOCKS - at) * BLOCK);
            let data;
            let change = match *step {
                Step::Write(at, count, fua) => {
                    let (offset, len) = range(at, count);
                    data = vec![version; len as usize];
                    Change::Write { offset, data: &data, fua }
                }
                Step::Zero(at, count, fua) => {
                    let (offset, len) = range(at, count);
                    Change::Zero { offset, len, fua }
                }
                Step::Flush => Change::Flush,
                Step::Mark => {
                    recording.mark(&format!("m{marks}")).unwrap();
                    marks += 1;
                    continue;
                }
            };
            store.namespaces[0].apply(&change).unwrap();
            recording.lock().note(1, &change);
        }
        recording.end().unwrap();

        let mut walk = Walk::open(&path, &folder.path().join("base")).unwrap();
        let to = folder.path().join("state");
        for mark in 0..marks {
            let name = format!("m{mark}");
            walk.go_to(&name).unwrap();
            let [a, b, c] = seeds.map(Keep::Reordered);
            for keep in [Keep::Durable, Keep::Everything, a, b, c] {
                let walked = walk.state(keep, &to).unwrap();
                let (store, replayed) = replay(&path, &Mark::Name(name.clone()), keep, None).unwrap();
                let mut expected = vec![0; (BLOCKS * BLOCK) as usize];
                store.namespaces[0].read(0, &mut expected).unwrap();
                prop_assert!(fs::read(&to).unwrap() == expected, "{} {:?}", name, keep);
                prop_assert_eq!(walked, replayed);
                fs::remove_file(&to).unwrap();
            }
        }
        let over = walk.go_to("m0");
        prop_assert!(matches!(over, Err(RecordError::NoSuchMark { .. })), "{:?}", over);
    }
}

#[test]
fn only_recordings_of_one_conventional_namespace_are_walked() {
    let zones = ZoneLayout {
        size_bytes: 8 * BLOCK,
        capacity_bytes: 8 * BLOCK,
        count: 2,
    };
    let zoned = StoreKind {
        zones: Some(zones),
        ..kind()
    };
    for (kinds, why) in [
        (vec![kind(), kind()], "several namespaces"),
        (vec![zoned], "has zones"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        let store = Store::in_memory(&kinds, 0).unwrap();
        let recording = Recording::default();
        recording.begin(&path, "test", &kinds, &store).unwrap();
        recording.end().unwrap();
        let error = Walk::open(&path, &folder.path().join("base")).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}
