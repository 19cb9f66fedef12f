//! A walk against [`replay`]: the same states, byte for byte.

use std::{fs, path::Path};

use proptest::prelude::*;

use super::{Form, Walk};
use crate::{
    record::{Keep, Mark, RecordError, Recording, replay},
    store::{Change, FileOptions, Store, StoreKind, ZoneChange, ZoneLayout, ZoneRest},
};

const BLOCK: u64 = 512;
const BLOCKS: u64 = 16;
const ZONE_BLOCKS: u64 = 8;

fn kind() -> StoreKind {
    StoreKind {
        size_bytes: BLOCKS * BLOCK,
        block_bytes: BLOCK,
        zones: None,
    }
}

fn zoned() -> StoreKind {
    let zones = ZoneLayout {
        size_bytes: ZONE_BLOCKS * BLOCK,
        capacity_bytes: ZONE_BLOCKS * BLOCK,
        count: (BLOCKS / ZONE_BLOCKS) as usize,
    };
    StoreKind {
        zones: Some(zones),
        ..kind()
    }
}

/// A step of the workload; in a namespace with zones, only the zone of a place counts.
#[derive(Clone, Debug)]
enum WalkStep {
    Write(u64, u64, bool),
    Zero(u64, u64, bool),
    Flush,
    /// Finish a zone, or else reset it.
    Zone(u64, bool),
    Mark,
}

fn step() -> impl Strategy<Value = (usize, WalkStep)> {
    let step = prop_oneof![
        8 => (0..BLOCKS, 1u64..5, 0u8..5).prop_map(|(at, count, fua)| WalkStep::Write(at, count, fua == 0)),
        2 => (0..BLOCKS, 1u64..5, 0u8..5).prop_map(|(at, count, fua)| WalkStep::Zero(at, count, fua == 0)),
        2 => Just(WalkStep::Flush),
        2 => (0..BLOCKS, 0u8..4).prop_map(|(at, finish)| WalkStep::Zone(at, finish == 0)),
        3 => Just(WalkStep::Mark),
    ];
    (0..2usize, step)
}

/// The whole content of a device.
#[derive(Debug, PartialEq)]
struct Shown(Vec<(Vec<u8>, Vec<ZoneRest>)>);

impl Shown {
    fn of(store: &Store) -> Self {
        let namespaces = store.namespaces.iter().map(|namespace| {
            let mut bytes = vec![0; namespace.size_bytes() as usize];
            namespace.read(0, &mut bytes).unwrap();
            (bytes, namespace.durable_zones())
        });
        Self(namespaces.collect())
    }

    fn of_state(file: &Path, form: Form, kinds: &[StoreKind]) -> Self {
        if form == Form::Image {
            return Self(vec![(fs::read(file).unwrap(), Vec::new())]);
        }
        let options = FileOptions {
            path: file.to_owned(),
            sparse: true,
            host_sync: false,
        };
        Self::of(&Store::open(&options, kinds, 0, "test").unwrap().0)
    }
}

/// Record the steps; return the number of marks.
fn record(path: &Path, kinds: &[StoreKind], steps: &[(usize, WalkStep)]) -> u32 {
    let store = Store::in_memory(kinds, 64 * BLOCK).unwrap();
    store.namespaces[0]
        .write(3 * BLOCK, &[0xaa; 512], true)
        .unwrap();
    let recording = Recording::default();
    recording.begin(path, "test", kinds, &store).unwrap();
    let mut marks = 0;
    for (version, (namespace, step)) in (1u8..).zip(steps) {
        let index = namespace % kinds.len();
        let namespace = &store.namespaces[index];
        // From the place where a zone is written next, and no further than its end.
        let range = |at: u64, count: u64| {
            let (at, end) = match namespace.zone_layout() {
                None => (at * BLOCK, BLOCKS * BLOCK),
                Some(zones) => {
                    let zone = at / ZONE_BLOCKS;
                    let rest = namespace.zones_now()[zone as usize];
                    let end = match rest {
                        ZoneRest::Written(_) => zones.capacity_bytes,
                        _ => rest.written(),
                    };
                    let start = zone * zones.size_bytes;
                    (start + rest.written(), start + end)
                }
            };
            (at, (count * BLOCK).min(end - at))
        };
        let data;
        let change = match *step {
            WalkStep::Write(at, count, fua) => {
                let (offset, len) = range(at, count);
                data = vec![version; len as usize];
                Change::Write {
                    offset,
                    data: &data,
                    fua,
                }
            }
            WalkStep::Zero(at, count, fua) => {
                let (offset, len) = range(at, count);
                Change::Zero { offset, len, fua }
            }
            WalkStep::Flush => Change::Flush,
            WalkStep::Zone(at, finish) => {
                let zone = (at / ZONE_BLOCKS) as usize;
                let change = if finish {
                    ZoneChange::Finish
                } else {
                    ZoneChange::Reset
                };
                if namespace.zone_layout().is_none() {
                    continue;
                }
                Change::Zone { zone, change }
            }
            WalkStep::Mark => {
                recording.mark(&format!("m{marks}")).unwrap();
                marks += 1;
                continue;
            }
        };
        if matches!(
            change,
            Change::Write { data: &[], .. } | Change::Zero { len: 0, .. }
        ) {
            continue;
        }
        namespace.apply(&change).unwrap();
        recording.lock().note(index as u32 + 1, &change);
    }
    recording.end().unwrap();
    marks
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_makes_the_states_that_a_replay_makes(
        steps in proptest::collection::vec(step(), 1..80),
        seeds: [u64; 3],
        form in prop_oneof![Just(Form::Image), Just(Form::Store)],
    ) {
        let kinds = match form {
            Form::Image => vec![kind()],
            Form::Store => vec![kind(), zoned()],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        let marks = record(&path, &kinds, &steps);

        let mut walk = Walk::open(&path, &folder.path().join("base"), form).unwrap();
        let to = folder.path().join("state");
        for mark in 0..marks {
            let name = format!("m{mark}");
            walk.go_to(&name).unwrap();
            let [a, b, c] = seeds.map(Keep::Reordered);
            for keep in [Keep::Durable, Keep::Everything, a, b, c] {
                let walked = walk.state(keep, &to).unwrap();
                let (store, replayed) = replay(&path, &Mark::Name(name.clone()), keep, None).unwrap();
                let made = Shown::of_state(&to, form, &kinds);
                prop_assert_eq!(made, Shown::of(&store), "{} {:?}", name, keep);
                prop_assert_eq!(walked, replayed);
                fs::remove_file(&to).unwrap();
            }
        }
        let over = walk.go_to("m0");
        prop_assert!(matches!(over, Err(RecordError::NoSuchMark { .. })), "{:?}", over);
    }
}

#[test]
fn an_image_has_one_conventional_namespace() {
    for (kinds, why) in [
        (vec![kind(), kind()], "several namespaces"),
        (vec![zoned()], "has zones"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        let store = Store::in_memory(&kinds, 0).unwrap();
        let recording = Recording::default();
        recording.begin(&path, "test", &kinds, &store).unwrap();
        recording.end().unwrap();
        let base = folder.path().join("base");
        let error = Walk::open(&path, &base, Form::Image).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}
