//! The rules of the store, against a slow model that knows every version of every block.

use std::{
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

use proptest::prelude::*;

use super::{
    Change, FileOptions, Health, Store, StoreError, StoreFault, StoreKind, StoredNamespace,
    ZoneChange, ZoneLayout, ZoneRest,
    base::{Base, Region},
    locked::Locked,
    zones::Zones,
};

const BLOCK: u64 = 512;
const BLOCKS: u64 = 16;

fn conventional() -> StoreKind {
    StoreKind {
        size_bytes: BLOCKS * BLOCK,
        block_bytes: BLOCK,
        zones: None,
    }
}

/// Four zones of eight blocks, of which six can be written.
fn zoned() -> StoreKind {
    StoreKind {
        size_bytes: 32 * BLOCK,
        block_bytes: BLOCK,
        zones: Some(ZoneLayout {
            size_bytes: 8 * BLOCK,
            capacity_bytes: 6 * BLOCK,
            count: 4,
        }),
    }
}

fn options(path: &Path) -> FileOptions {
    FileOptions {
        path: path.to_owned(),
        sparse: true,
        host_sync: false,
    }
}

fn open(path: &Path, kinds: &[StoreKind], cache_blocks: u64) -> Result<Store, StoreError> {
    Store::open(&options(path), kinds, cache_blocks * BLOCK, "test").map(|(store, _)| store)
}

/// A step of a device's life.
#[derive(Clone, Debug)]
enum StoreStep {
    Write {
        at: u64,
        count: u64,
        fua: bool,
    },
    Zero {
        at: u64,
        count: u64,
    },
    Flush,
    /// A change of a zone, if there are zones.
    Zone(usize, ZoneChange),
    /// The power is cut, or with a file the daemon is killed.
    PowerCut,
}

fn step(blocks: u64) -> impl Strategy<Value = StoreStep> {
    prop_oneof![
        8 => (0..blocks, 1u64..6, any::<bool>(), any::<bool>()).prop_map(|(at, count, a, b)| {
            StoreStep::Write { at, count, fua: a && b }
        }),
        2 => (0..blocks, 1u64..10).prop_map(|(at, count)| StoreStep::Zero { at, count }),
        2 => Just(StoreStep::Flush),
        1 => (0usize..4, prop_oneof![
            4 => Just(ZoneChange::Reset), 1 => Just(ZoneChange::Finish),
            1 => Just(ZoneChange::Offline), 1 => Just(ZoneChange::ReadOnly),
        ]).prop_map(|(zone, change)| StoreStep::Zone(zone, change)),
        1 => Just(StoreStep::PowerCut),
    ]
}

/// A store that can lose its power in one of two ways.
struct Bench {
    _folder: Option<tempfile::TempDir>,
    path: Option<std::path::PathBuf>,
    kind: StoreKind,
    cache: u64,
    store: Option<Store>,
}

impl Bench {
    fn new(kind: StoreKind, cache: u64, in_file: bool) -> Self {
        let folder = in_file.then(|| tempfile::tempdir().unwrap());
        let path = folder.as_ref().map(|folder| folder.path().join("store"));
        let mut bench = Self {
            _folder: folder,
            path,
            kind,
            cache,
            store: None,
        };
        bench.start();
        bench
    }

    fn start(&mut self) {
        // Drop the old store first, with its lock.
        self.store = None;
        let kinds = [self.kind.clone()];
        self.store = Some(match &self.path {
            Some(path) => open(path, &kinds, self.cache).unwrap(),
            None => Store::in_memory(&kinds, self.cache * BLOCK).unwrap(),
        });
    }

    fn namespace(&self) -> &super::StoredNamespace {
        &self.store.as_ref().unwrap().namespaces[0]
    }

    fn cut_power(&mut self) {
        if self.path.is_some() {
            self.start();
        } else {
            self.namespace().power_cut();
        }
    }

    fn block(&self, block: u64) -> u8 {
        let mut bytes = [0xee; BLOCK as usize];
        self.namespace().read(block * BLOCK, &mut bytes).unwrap();
        assert!(
            bytes.iter().all(|byte| *byte == bytes[0]),
            "torn: {bytes:?}"
        );
        bytes[0]
    }
}

/// Each block's versions since it was last durable, that one first.
struct Versions(Vec<Vec<u8>>);

impl Versions {
    fn write(&mut self, block: u64, version: u8, durable: bool) {
        let versions = &mut self.0[block as usize];
        if durable {
            versions.clear();
        }
        versions.push(version);
    }

    fn flush(&mut self) {
        for versions in &mut self.0 {
            *versions = vec![*versions.last().unwrap()];
        }
    }
}

fn conventional_case(steps: &[StoreStep], cache: u64, in_file: bool) {
    let mut bench = Bench::new(conventional(), cache, in_file);
    let mut versions = Versions(vec![vec![0]; BLOCKS as usize]);
    for (number, step) in (1u8..).zip(steps) {
        match *step {
            StoreStep::Write { at, count, fua } => {
                let count = count.min(BLOCKS - at);
                let data = vec![number; (count * BLOCK) as usize];
                bench.namespace().write(at * BLOCK, &data, fua).unwrap();
                (at..at + count).for_each(|block| versions.write(block, number, fua));
            }
            StoreStep::Zero { at, count } => {
                let count = count.min(BLOCKS - at);
                bench
                    .namespace()
                    .zero(at * BLOCK, count * BLOCK, false)
                    .unwrap();
                (at..at + count).for_each(|block| versions.write(block, 0, false));
            }
            StoreStep::Flush => {
                bench.namespace().flush().unwrap();
                versions.flush();
            }
            StoreStep::Zone(..) => {}
            StoreStep::PowerCut => {
                bench.cut_power();
                for block in 0..BLOCKS {
                    let found = bench.block(block);
                    let legal = &mut versions.0[block as usize];
                    assert!(
                        legal.contains(&found),
                        "block {block}: {found} of {legal:?}"
                    );
                    if cache >= BLOCKS * 2 && !steps_zero_much(steps, cache) {
                        assert_eq!(found, legal[0], "nothing has pushed it out of the cache");
                    }
                    *legal = vec![found];
                }
            }
        }
        for block in 0..BLOCKS {
            let newest = *versions.0[block as usize].last().unwrap();
            assert_eq!(bench.block(block), newest, "block {block} after {step:?}");
        }
    }
}

/// Zeroing more than half of the cache bypasses it.
fn steps_zero_much(steps: &[StoreStep], cache: u64) -> bool {
    steps
        .iter()
        .any(|step| matches!(step, StoreStep::Zero { count, .. } if *count > cache / 2))
}

fn zoned_case(steps: &[StoreStep], cache: u64, in_file: bool) {
    let mut bench = Bench::new(zoned(), cache, in_file);
    // Content of each zone, how much of it is durable at least, and whether more can come.
    let mut zones: Vec<(Vec<u8>, usize, bool)> = vec![(Vec::new(), 0, true); 4];
    for (number, step) in (1u8..).zip(steps) {
        match *step {
            StoreStep::Write { at, count, fua } => {
                let (content, durable, open) = &mut zones[at as usize % 4];
                let count = count.min(6 - content.len() as u64);
                if count == 0 || !*open {
                    continue;
                }
                let place = (at % 4 * 8 + content.len() as u64) * BLOCK;
                let data = vec![number; (count * BLOCK) as usize];
                bench.namespace().write(place, &data, fua).unwrap();
                content.extend(vec![number; count as usize]);
                if fua {
                    *durable = content.len();
                }
            }
            StoreStep::Zero { .. } => {}
            StoreStep::Flush => {
                bench.namespace().flush().unwrap();
                zones
                    .iter_mut()
                    .for_each(|(c, durable, _)| *durable = c.len());
            }
            StoreStep::Zone(zone, change) => {
                let change_it = Change::Zone { zone, change };
                let (content, durable, open) = &mut zones[zone];
                if bench.namespace().durable_zones()[zone] == ZoneRest::Offline {
                    // There is no way back from there.
                    continue;
                }
                match change {
                    ZoneChange::Reset => {
                        (*content, *durable, *open) = (Vec::new(), 0, true);
                    }
                    ZoneChange::Finish | ZoneChange::ReadOnly => {
                        (*durable, *open) = (content.len(), false);
                    }
                    ZoneChange::Offline => {
                        (*content, *durable, *open) = (Vec::new(), 0, false);
                    }
                }
                bench.namespace().apply(&change_it).unwrap();
            }
            StoreStep::PowerCut => {
                bench.cut_power();
                let rests = bench.namespace().durable_zones();
                for (index, (content, durable, open)) in zones.iter_mut().enumerate() {
                    let written = (rests[index].written() / BLOCK) as usize;
                    assert!(
                        (*durable..=content.len()).contains(&written),
                        "zone {index}"
                    );
                    assert_eq!(*open, matches!(rests[index], ZoneRest::Written(_)));
                    content.truncate(written);
                    *durable = written;
                }
            }
        }
        for (index, (content, _, _)) in zones.iter().enumerate() {
            if bench.namespace().durable_zones()[index] == ZoneRest::Offline {
                continue;
            }
            for within in 0..8 {
                let expected = content.get(within).copied().unwrap_or(0);
                assert_eq!(bench.block((index * 8 + within) as u64), expected);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_power_cut_leaves_what_is_legal(
        steps in proptest::collection::vec(step(BLOCKS), 1..60),
        cache in prop_oneof![Just(0), Just(1), Just(4), Just(2 * BLOCKS)],
        in_file: bool,
    ) {
        conventional_case(&steps, cache, in_file);
    }

    #[test]
    fn zones_end_where_they_are_durable(
        steps in proptest::collection::vec(step(32), 1..60),
        cache in prop_oneof![Just(0), Just(1), Just(3), Just(64)],
        in_file: bool,
    ) {
        zoned_case(&steps, cache, in_file);
    }
}

#[test]
fn a_kill_while_the_file_is_made_leaves_one_that_opens() {
    let folder = tempfile::tempdir().unwrap();
    let kinds = [conventional(), zoned()];
    let path = folder.path().join("store");
    drop(open(&path, &kinds, 4).unwrap());
    let whole = std::fs::read(&path).unwrap();
    let other = folder.path().join("other");
    let reopen = |bytes: &[u8], what: &str| {
        std::fs::write(&other, bytes).unwrap();
        let store = open(&other, &kinds, 4);
        assert!(store.is_ok(), "{what}: {:?}", store.err());
    };
    // The first thing that is ever written is the forming superblock, within one page.
    let forming = super::superblock::forming_bytes();
    assert!(forming.len() < 4096);
    reopen(&[], "made, nothing written");
    reopen(&forming, "forming");
    let mut grown = forming.clone();
    grown.resize(whole.len(), 0);
    reopen(&grown, "grown");
    // Then superblock B, torn anywhere, then A.
    let second = 64 << 10;
    for torn in [1, 8, 12, 100, 300] {
        grown[second..second + torn].copy_from_slice(&whole[second..second + torn]);
        reopen(&grown, "B torn");
    }
    let mut both = whole.clone();
    for torn in [0, 1, 8, 12, 100] {
        both[..forming.len()].copy_from_slice(&forming);
        both[..torn].copy_from_slice(&whole[..torn]);
        reopen(&both, "A torn");
    }
}

#[test]
fn damage_is_told_for_the_namespace_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let kinds = [conventional(), zoned(), conventional()];
    let store = open(&path, &kinds, 4).unwrap();
    for namespace in &store.namespaces {
        namespace.write(0, &[7; BLOCK as usize], true).unwrap();
    }
    drop(store);
    let file = std::fs::File::options().write(true).open(&path).unwrap();

    // The first superblock: the second one is as good.
    file.write_all_at(&[0xff; 64], 16).unwrap();
    assert_eq!(Store::describe(&path).unwrap(), kinds);
    // A record of a zone: that zone is offline, the others are not.
    let records = super::superblock::records_start(&path, 1);
    file.write_all_at(&[0xff], records + 32 + 5).unwrap();
    let store = open(&path, &kinds, 4).unwrap();
    assert!(store.namespaces[0].health().is_healthy());
    let Health::Degraded(damage) = store.namespaces[1].health() else {
        panic!("zone 1 is damaged");
    };
    let reason = damage.to_string();
    assert!(reason.contains("from zone 1 on"), "{reason}");
    let zones = store.namespaces[1].durable_zones();
    assert_eq!(zones[0], ZoneRest::Written(BLOCK));
    assert_eq!(zones[1], ZoneRest::Offline);
    store.namespaces[1].flush().unwrap();
    assert!(
        !store.namespaces[1].health().is_healthy(),
        "it still is damaged"
    );
    drop(store);

    // The end is missing: the last namespace is out of service, the first is as it was.
    file.set_len(file.metadata().unwrap().len() - BLOCK)
        .unwrap();
    let end = super::superblock::data_start(&path, 2) + BLOCK;
    file.set_len(end).unwrap();
    let store = open(&path, &kinds, 4).unwrap();
    let mut block = [0; BLOCK as usize];
    store.namespaces[0].read(0, &mut block).unwrap();
    assert_eq!(block[0], 7);
    assert!(matches!(store.namespaces[2].health(), Health::Failed(_)));
    let error = store.namespaces[2].read(0, &mut block).unwrap_err();
    assert!(error.to_string().contains("truncated"), "{error}");
    // What is kept behind it would make it long again, with zeroes where data is missing.
    store.save_image(|| b"mapping".to_vec()).unwrap();
    store.save_life(&store.life()).unwrap();
    drop(store);
    assert_eq!(file.metadata().unwrap().len(), end);

    // Both superblocks: it is left as it is.
    file.write_all_at(&[0xff; 64], (64 << 10) + 16).unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = open(&path, &kinds, 4).unwrap_err();
    assert!(error.to_string().contains("no flashd store"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_that_is_cut_short_while_in_use_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let kinds = [conventional(), conventional()];
    let store = open(&path, &kinds, 4).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(super::superblock::data_start(&path, 1))
        .unwrap();
    let mut block = [0; BLOCK as usize];
    let error = store.namespaces[1].read(0, &mut block).unwrap_err();
    assert_eq!(error.fault(), StoreFault::Media);
    assert!(error.to_string().contains("truncated"), "{error}");
    assert!(matches!(store.namespaces[1].health(), Health::Degraded(_)));
    store.namespaces[0].read(0, &mut block).unwrap();
    assert!(store.namespaces[0].health().is_healthy());
}

/// A region of zeroes that has room for nothing.
fn full_disk() -> Region {
    let mut options = std::fs::File::options();
    let full = options.read(true).write(true).open("/dev/full").unwrap();
    Region {
        file: Arc::new(Locked::new(full)),
        path: Arc::default(),
        start: 0,
        sparse: true,
        host_sync: false,
    }
}

impl StoredNamespace {
    /// One without zones that loses nothing and can make nothing durable.
    pub(crate) fn on_full_disk(size_bytes: u64, block_bytes: u64, cache_bytes: u64) -> Self {
        let base = Base::File(full_disk());
        let health = Health::Healthy;
        Self::new(1, size_bytes, block_bytes, cache_bytes, base, None, health)
    }
}

/// The data of a write is there, and there is no room for the record of its zone.
#[test]
fn what_no_record_covers_is_not_in_a_zone() {
    let (size, layout) = (zoned().size_bytes, zoned().zones.unwrap());
    let (zones, _) = Zones::load(layout, full_disk()).unwrap();
    let base = Base::memory(size).unwrap();
    let namespace = StoredNamespace::new(1, size, BLOCK, 0, base, Some(zones), Health::Healthy);
    let error = namespace.write(0, &[1; BLOCK as usize], false).unwrap_err();
    assert_eq!(error.fault(), StoreFault::Full);
    // Else the flush that follows would be told, and the block lost by a power cut.
    namespace.flush().unwrap();
    assert_eq!(namespace.zones_now(), namespace.durable_zones());
}

#[test]
fn a_store_that_is_gone_can_be_opened_while_programs_are_started() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    std::thread::scope(|scope| {
        // Each has all our files until it executes its program.
        let starting = scope.spawn(|| {
            for _ in 0..150 {
                let mut child = std::process::Command::new("true").spawn().unwrap();
                child.wait().unwrap();
            }
        });
        while !starting.is_finished() {
            drop(open(&path, &[conventional()], 4).unwrap());
        }
    });
}

#[test]
fn two_cannot_have_one_file_and_a_foreign_one_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let kinds = [conventional()];
    let first = open(&path, &kinds, 4).unwrap();
    let error = open(&path, &kinds, 4).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    let uuid = first.uuids[0];
    drop(first);
    assert_eq!(open(&path, &kinds, 4).unwrap().uuids[0], uuid);

    let error = open(&path, &[zoned()], 4).unwrap_err();
    assert!(error.to_string().contains("zoned"), "{error}");
    let foreign = folder.path().join("letter");
    std::fs::write(&foreign, "Dear reader").unwrap();
    assert!(open(&foreign, &kinds, 4).is_err());
    assert_eq!(std::fs::read(&foreign).unwrap(), b"Dear reader");
    assert!(open(folder.path(), &kinds, 4).is_err(), "a directory");
}

#[test]
fn the_models_state_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let kinds = [conventional()];
    let store = open(&path, &kinds, 4).unwrap();
    store.save_image(|| b"first".to_vec()).unwrap();
    store.save_image(|| b"second".to_vec()).unwrap();
    drop(store);
    let (_, image) = Store::open(&options(&path), &kinds, 4, "test").unwrap();
    assert_eq!(image.as_deref(), Some(&b"second"[..]));
}

/// Two save at the same time: what was taken first is not what is left.
#[test]
fn the_models_latest_state_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let kinds = [conventional()];
    let store = open(&path, &kinds, 4).unwrap();
    let (tell, was_taken) = mpsc::channel();
    let (tell_saved, was_saved) = mpsc::channel();
    std::thread::scope(|scope| {
        let store = &store;
        scope.spawn(move || {
            let first = || {
                tell.send(()).unwrap();
                // The other one gets no turn meanwhile.
                let _ = was_saved.recv_timeout(Duration::from_millis(100));
                b"first".to_vec()
            };
            store.save_image(first).unwrap();
        });
        was_taken.recv().unwrap();
        store.save_image(|| b"second".to_vec()).unwrap();
        let _ = tell_saved.send(());
    });
    drop(store);
    let (_, image) = Store::open(&options(&path), &kinds, 4, "test").unwrap();
    assert_eq!(image.as_deref(), Some(&b"second"[..]));
}
