//! Recordings against the store: a replay gives the state that was there, and a state that a replay
//! makes up is one that a power cut could have left.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::{Keep, Mark, RecordError, RecordReader, Recording, marks, replay};
use crate::store::{Change, Store, StoreKind, ZoneChange, ZoneLayout};

const BLOCK: u64 = 512;
const BLOCKS: u64 = 16;

fn kinds() -> Vec<StoreKind> {
    let conventional = StoreKind {
        size_bytes: BLOCKS * BLOCK,
        block_bytes: BLOCK,
        zones: None,
    };
    let zoned = StoreKind {
        zones: Some(ZoneLayout {
            size_bytes: 8 * BLOCK,
            capacity_bytes: 7 * BLOCK,
            count: 2,
        }),
        ..conventional.clone()
    };
    vec![conventional, zoned]
}

/// The whole visible state of a device: its bytes, and the ends of its zones.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    bytes: Vec<Vec<u8>>,
    zones: Vec<u64>,
}

fn shown(store: &Store) -> Shown {
    let bytes = store.namespaces.iter().map(|namespace| {
        let mut bytes = vec![0; namespace.size_bytes() as usize];
        namespace.read(0, &mut bytes).unwrap();
        bytes
    });
    Shown {
        bytes: bytes.collect(),
        zones: store.namespaces[1]
            .zones_now()
            .iter()
            .map(|zone| zone.written() / BLOCK)
            .collect(),
    }
}

struct Bench {
    folder: tempfile::TempDir,
    store: Store,
    recording: Recording,
    zone_written: [u64; 2],
}

impl Bench {
    fn new(cache_blocks: u64) -> Self {
        let store = Store::in_memory(&kinds(), cache_blocks * BLOCK).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let bench = Self {
            folder,
            store,
            recording: Recording::default(),
            zone_written: [0; 2],
        };
        // Some data is there already when the recording begins.
        bench.store.namespaces[0]
            .write(3 * BLOCK, &[0xaa; 512], true)
            .unwrap();
        bench
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("recording")
    }

    fn begin(&self) {
        self.recording
            .begin(&self.path(), "test", &kinds(), &self.store)
            .unwrap();
    }

    fn apply(&self, namespace: usize, change: &Change<'_>) {
        let mut log = self.recording.lock();
        self.store.namespaces[namespace].apply(change).unwrap();
        log.note(namespace as u32 + 1, change);
    }

    /// Write to a place on the conventional namespace, or to the zone that it names.
    fn write(&mut self, namespace: usize, at: u64, count: u64, version: u8, fua: bool) -> bool {
        let (at, count) = if namespace == 0 {
            (at, count.min(BLOCKS - at))
        } else {
            let zone = at as usize % 2;
            let written = self.zone_written[zone];
            let count = count.min(7 - written);
            self.zone_written[zone] += count;
            (zone as u64 * 8 + written, count)
        };
        if count > 0 {
            let data = vec![version; (count * BLOCK) as usize];
            let offset = at * BLOCK;
            self.apply(
                namespace,
                &Change::Write {
                    offset,
                    data: &data,
                    fua,
                },
            );
        }
        count > 0
    }
}

#[derive(Clone, Debug)]
enum LoggedStep {
    Write(usize, u64, u64, bool),
    Zero(u64, u64),
    Flush(usize),
    Reset(usize),
}

fn step() -> impl Strategy<Value = LoggedStep> {
    prop_oneof![
        8 => (0usize..2, 0..BLOCKS, 1u64..5, any::<bool>(), any::<bool>())
            .prop_map(|(namespace, at, count, a, b)| LoggedStep::Write(namespace, at, count, a && b)),
        1 => (0..BLOCKS, 1u64..5).prop_map(|(at, count)| LoggedStep::Zero(at, count)),
        2 => (0usize..2).prop_map(LoggedStep::Flush),
        1 => (0usize..2).prop_map(LoggedStep::Reset),
    ]
}

fn replayed(path: &Path, until: &Mark, keep: Keep) -> Shown {
    let (store, _) = replay(path, until, keep, None).unwrap();
    shown(&store)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_is_what_was_there_or_could_be_left(
        steps in proptest::collection::vec(step(), 1..40),
        seeds: [u64; 4],
        cache in prop_oneof![Just(0u64), Just(3), Just(64)],
    ) {
        let mut bench = Bench::new(cache);
        bench.begin();
        let mut at_flush = vec![shown(&bench.store)];
        // Versions of each block that may be there after a power cut at the end, the durable one
        // first; for zones, the least and the most that is written.
        let mut versions: Vec<Vec<u8>> = (0..BLOCKS)
            .map(|block| vec![if block == 3 { 0xaa } else { 0 }])
            .collect();
        let mut durable = [0u64; 2];
        for (number, step) in (1u8..).zip(&steps) {
            match *step {
                LoggedStep::Write(namespace, at, count, fua) => {
                    let written = bench.write(namespace, at, count, number, fua);
                    if namespace == 0 {
                        for block in at..(at + count).min(BLOCKS) {
                            let legal = &mut versions[block as usize];
                            if fua {
                                legal.clear();
                            }
                            legal.push(number);
                        }
                    } else if fua && written {
                        durable[at as usize % 2] = bench.zone_written[at as usize % 2];
                    }
                }
                LoggedStep::Zero(at, count) => {
                    let count = count.min(BLOCKS - at);
                    let (offset, len) = (at * BLOCK, count * BLOCK);
                    bench.apply(0, &Change::Zero { offset, len, fua: false });
                    (at..at + count).for_each(|block| versions[block as usize].push(0));
                }
                LoggedStep::Flush(namespace) => {
                    bench.apply(namespace, &Change::Flush);
                    at_flush.push(shown(&bench.store));
                    if namespace == 0 {
                        for legal in &mut versions {
                            *legal = vec![*legal.last().unwrap()];
                        }
                    } else {
                        durable = bench.zone_written;
                    }
                }
                LoggedStep::Reset(zone) => {
                    let change = ZoneChange::Reset;
                    bench.apply(1, &Change::Zone { zone, change });
                    bench.zone_written[zone] = 0;
                    durable[zone] = 0;
                }
            }
        }
        bench.recording.end().unwrap();

        // The state at every flush boundary, and at the end, is exactly the one that was there.
        for (number, expected) in at_flush.iter().enumerate() {
            let mark = Mark::Flush(number as u64);
            prop_assert_eq!(&replayed(&bench.path(), &mark, Keep::Everything), expected);
        }
        let all = replayed(&bench.path(), &Mark::End, Keep::Everything);
        prop_assert_eq!(&all, &shown(&bench.store));

        // States that are made up are legal, by rules of their own; and so are the losses of the
        // store.
        let mut cuts = vec![replayed(&bench.path(), &Mark::End, Keep::Durable)];
        for (block, legal) in versions.iter().enumerate() {
            prop_assert_eq!(cuts[0].bytes[0][block * 512], legal[0]);
        }
        prop_assert_eq!(&cuts[0].zones[..], &durable[..]);
        for seed in seeds {
            let cut = replayed(&bench.path(), &Mark::End, Keep::Reordered(seed));
            prop_assert_eq!(&cut, &replayed(&bench.path(), &Mark::End, Keep::Reordered(seed)));
            cuts.push(cut);
        }
        bench.store.namespaces.iter().for_each(|namespace| {
            namespace.power_cut();
        });
        cuts.push(shown(&bench.store));
        for cut in cuts {
            for (block, legal) in versions.iter().enumerate() {
                let found = cut.bytes[0][block * 512];
                prop_assert!(legal.contains(&found), "block {}: {} of {:?}", block, found, legal);
            }
            for (zone, durable) in durable.iter().enumerate() {
                let legal = *durable..=bench.zone_written[zone];
                prop_assert!(legal.contains(&cut.zones[zone]));
                // The written part of a zone holds the data that was written, and zeroes follow it.
                let (from, until) = (zone * 8 * 512, (zone + 1) * 8 * 512);
                let end = from + cut.zones[zone] as usize * 512;
                prop_assert_eq!(&cut.bytes[1][from..end], &all.bytes[1][from..end]);
                prop_assert!(cut.bytes[1][end..until].iter().all(|byte| *byte == 0));
            }
        }
    }
}

#[test]
fn all_zones_are_as_they_were_when_a_recording_begins() {
    let mut bench = Bench::new(0);
    bench.write(1, 0, 2, 1, false);
    bench.write(1, 1, 3, 2, false);
    bench.begin();
    bench.recording.end().unwrap();
    let all = replayed(&bench.path(), &Mark::End, Keep::Everything);
    assert_eq!(all.zones, [2, 3]);
    assert_eq!(all, shown(&bench.store));
}

#[test]
fn what_is_there_when_a_recording_begins_stays_when_the_power_is_cut() {
    let mut bench = Bench::new(64);
    bench.write(0, 8, 4, 1, false);
    bench.write(1, 0, 2, 2, false);
    bench.begin();
    bench.recording.end().unwrap();
    let least = replayed(&bench.path(), &Mark::End, Keep::Durable);
    bench.store.namespaces.iter().for_each(|namespace| {
        namespace.power_cut();
    });
    assert_eq!(shown(&bench.store), least);
}

#[test]
fn reordering_reaches_states_between_nothing_and_everything() {
    let mut bench = Bench::new(64);
    bench.begin();
    bench.write(0, 8, 4, 1, false);
    bench.write(0, 8, 4, 2, false);
    bench.write(1, 0, 4, 3, false);
    bench.recording.end().unwrap();
    let mut seen = std::collections::HashSet::new();
    for seed in 0..400 {
        let cut = replayed(&bench.path(), &Mark::End, Keep::Reordered(seed));
        let blocks: Vec<u8> = (8..12).map(|block| cut.bytes[0][block * 512]).collect();
        seen.insert((blocks, cut.zones[0]));
    }
    let blocks = |wanted: [u8; 4]| seen.iter().any(|(blocks, _)| blocks[..] == wanted);
    assert!(
        blocks([0; 4]) && blocks([1; 4]) && blocks([2; 4]),
        "whole commands"
    );
    let torn = |(blocks, _): &&(Vec<u8>, u64)| blocks.windows(2).any(|pair| pair[0] != pair[1]);
    assert!(seen.iter().filter(torn).count() > 10, "torn commands");
    for written in 0..=4 {
        assert!(
            seen.iter().any(|(_, zone)| *zone == written),
            "{written} blocks"
        );
    }
}

#[test]
fn marks_are_listed_and_found() {
    let mut bench = Bench::new(4);
    assert!(matches!(
        bench.recording.mark("x"),
        Err(RecordError::NotRecording)
    ));
    bench.begin();
    bench.write(0, 0, 1, 1, false);
    bench.recording.mark("one").unwrap();
    bench.write(0, 0, 1, 2, false);
    bench.apply(0, &Change::Flush);
    let other = bench.folder.path().join("other");
    let again = bench
        .recording
        .begin(&other, "test", &kinds(), &bench.store);
    assert!(matches!(again, Err(RecordError::Already { .. })));
    let state = bench.recording.end().unwrap();
    assert_eq!(state.flushes, 1);
    let found: Vec<String> = marks(&bench.path())
        .unwrap()
        .into_iter()
        .map(|m| m.mark)
        .collect();
    assert_eq!(found, ["mark:start", "mark:one", "flush:1"]);
    let first =
        |mark: &str| replayed(&bench.path(), &mark.parse().unwrap(), Keep::Everything).bytes[0][0];
    assert_eq!(
        [first("mark:one"), first("flush:1"), first("flush:0")],
        [1, 2, 0]
    );
    let missing = replay(&bench.path(), &Mark::Flush(2), Keep::Everything, None);
    assert!(matches!(missing, Err(RecordError::NoSuchMark { .. })));
    for text in ["", "flush", "flush:x", "mark:", "middle", "flush:-1"] {
        assert!(text.parse::<Mark>().is_err(), "{text}");
    }
}

#[test]
fn a_torn_end_is_an_end_and_damage_is_told() {
    let mut bench = Bench::new(4);
    bench.begin();
    bench.write(0, 0, 2, 1, false);
    bench.write(0, 4, 2, 2, false);
    bench.recording.end().unwrap();
    let whole = std::fs::read(bench.path()).unwrap();
    let path = bench.folder.path().join("torn");
    let read_all = |bytes: &[u8]| -> Result<(u64, bool), RecordError> {
        std::fs::write(&path, bytes).unwrap();
        let mut reader = RecordReader::open(&path)?;
        while reader.next_entry()?.is_some() {}
        Ok((reader.sequence(), reader.is_torn()))
    };
    let (entries, torn) = read_all(&whole).unwrap();
    assert!(!torn);
    let last = 40 + 2 * 512;
    for len in (whole.len() - last + 1..whole.len()).step_by(29) {
        assert_eq!(
            read_all(&whole[..len]).unwrap(),
            (entries - 1, true),
            "{len}"
        );
    }
    // Every bit of an entry in the middle counts.
    let middle = whole.len() - 2 * last;
    for bit in (0..40 * 8).chain((40..last).step_by(41).map(|byte| byte * 8)) {
        let mut damaged = whole.clone();
        damaged[middle + bit / 8] ^= 1 << (bit % 8);
        let error = read_all(&damaged).unwrap_err();
        assert!(error.to_string().contains("damaged"), "bit {bit}: {error}");
    }
    assert!(read_all(b"").is_err() && read_all(b"something else entirely").is_err());
}

#[test]
fn a_recording_ends_with_the_power() {
    let mut bench = Bench::new(4);
    bench.begin();
    bench.write(0, 0, 1, 1, false);
    bench.recording.lock().power_cut();
    bench.write(0, 1, 1, 2, false);
    let state = bench.recording.state();
    assert_eq!(state.path, None);
    assert!(state.failed.unwrap().contains("power"));
    let all = replayed(&bench.path(), &Mark::End, Keep::Everything);
    assert_eq!((all.bytes[0][0], all.bytes[0][512]), (1, 0));
}
