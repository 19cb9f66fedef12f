use flash_model::Profile;
use workloads::filebench::Personality;

use super::*;
use crate::{
    block::BLOCK,
    device,
    log::{LogMode, Owner, Shape},
    volume::{InPlaceVolume, LogVolume},
};

/// A device of 1 GiB with zones of 4 MiB, and a 16th of InDeF's files.
const SECTIONS: u32 = 256;
const ZONE: Bytes = Bytes::mib(4);

fn parameters() -> Parameters {
    let mut parameters = Parameters::default();
    parameters.log.section = ZONE;
    parameters
}

fn ageing(personality: Personality) -> filebench::Ageing {
    let (files, mean_bytes) = personality.files_of_indef();
    filebench::Ageing {
        personality,
        files: files / 16,
        mean_bytes,
        rounds: 1.0,
        reads_percent: 5,
        seed: 7,
    }
}

fn disk(zoned: bool) -> Disk {
    let text = Profile::builtin_text("indef-femu-16k").unwrap();
    let text = text.replace(
        "pages_per_block = { value = 128",
        "pages_per_block = { value = 16",
    );
    let text = text.replace("\nsize = { value = 32,", "\nsize = { value = 4,");
    let text = text.replace("capacity = { value = 32,", "capacity = { value = 4,");
    let profile = Profile::parse("small", &text).unwrap();
    let size = ZONE * u64::from(SECTIONS);
    let device = match zoned {
        true => device::zoned(&profile, size),
        false => device::conventional(&profile, size),
    };
    Disk::new(device.unwrap(), 128)
}

fn shape() -> Shape {
    Shape {
        segment_blocks: 512,
        segments_per_section: 2,
        sections: SECTIONS,
    }
}

fn age_log(personality: Personality, writes: Writes) -> Aged {
    age_as(ageing(personality), writes)
}

fn age_as(ageing: filebench::Ageing, writes: Writes) -> Aged {
    let volume = Volume::from(LogVolume::new(shape(), LogMode::Lfs));
    age(&parameters(), volume, &mut disk(true), ageing, writes).unwrap()
}

fn layouts(aged: &Aged) -> Vec<indef_core::layout::Layout> {
    aged.files
        .iter()
        .map(|file| aged.volume.layout(*file))
        .collect()
}

/// Mean bytes of a fragment.
fn fragment_bytes(aged: &Aged) -> u64 {
    let layouts = layouts(aged);
    let bytes: Bytes = layouts.iter().map(|layout| layout.allocated()).sum();
    bytes.0 / layouts.iter().map(|layout| layout.fragments()).sum::<u64>()
}

/// Every block of every file is mapped, by one owner; nothing else of users is valid.
fn check(aged: &Aged) {
    let Volume::Log(volume) = &aged.volume else {
        panic!("a log");
    };
    let files = aged.volume.files();
    assert_eq!(aged.files.len(), aged.volume.user_files().len());
    let mut blocks = 0;
    for &file in &aged.files {
        for index in 0..files.blocks(file) {
            let block = files.block(file, index).expect("it is mapped");
            assert_eq!(
                volume.space().owner(block),
                Some(Owner::Data { file, index })
            );
            blocks += 1;
        }
    }
    let all = (0..shape().segments()).flat_map(|segment| volume.space().valid(segment));
    let of_users = |(_, owner): &(crate::Block, Owner)| matches!(owner, Owner::Data { file, .. } if *file != volume.directory());
    assert_eq!(all.filter(of_users).count(), blocks);
}

#[test]
fn threads_that_write_at_once_fragment_their_files() {
    let aged = age_log(Personality::Fileserver, Writes::Direct);
    check(&aged);
    let counters = aged.counters;
    assert!(
        counters.cleaned_sections > 0 && counters.checkpoints > 1,
        "{counters:?}"
    );
    assert!(
        fragment_bytes(&aged) < 64 << 10,
        "{}",
        fragment_bytes(&aged)
    );
    // Those before the flows are not: they were written one after the other.
    assert!(aged.first_bytes > Bytes::ZERO);
    let fragments: Vec<u64> = layouts(&aged)
        .iter()
        .map(|layout| layout.fragments())
        .collect();
    assert!(
        fragments.iter().any(|fragments| *fragments < 8),
        "{fragments:?}"
    );
}

#[test]
fn varmail_has_a_fragment_for_each_append() {
    let aged = age_log(Personality::Varmail, Writes::Cached);
    check(&aged);
    assert!(
        fragment_bytes(&aged) < 16 << 10,
        "{}",
        fragment_bytes(&aged)
    );
    assert_eq!(aged.first_bytes, Bytes::ZERO);
}

/// The flusher writes file after file.
#[test]
fn the_page_cache_keeps_files_together() {
    let cached = age_log(Personality::Fileserver, Writes::Cached);
    check(&cached);
    let direct = age_log(Personality::Fileserver, Writes::Direct);
    let [cached, direct] = [&cached, &direct].map(fragment_bytes);
    assert!(cached > 10 * direct, "{cached} {direct}");
}

#[test]
fn the_same_seed_gives_the_same_layout_and_time() {
    let run = |seed| {
        let ageing = filebench::Ageing {
            seed,
            rounds: 0.3,
            ..ageing(Personality::Varmail)
        };
        let aged = age_as(ageing, Writes::Cached);
        (layouts(&aged), aged.flows, aged.counters)
    };
    let (first, again) = (run(7), run(7));
    assert!(first == again);
    assert!(first.0 != run(8).0);
}

/// Speed is a question of the steps: a few for each turn at the log, and for each request.
#[test]
fn the_work_is_bounded_by_what_is_written() {
    let aged = age_log(Personality::Fileserver, Writes::Direct);
    let Aged {
        flows, counters, ..
    } = &aged;
    let blocks = counters.placed_blocks + counters.cleaned_blocks;
    assert!(
        flows.steps < 4 * blocks,
        "{} steps, {blocks} blocks",
        flows.steps
    );
    assert!(
        flows.commands < blocks,
        "{} commands, {blocks} blocks",
        flows.commands
    );
}

#[test]
fn delayed_allocation_gives_files_longer_pieces() {
    let age_in_place = |delayed, personality| {
        let volume = Volume::from(InPlaceVolume::new(shape().blocks(), 32768, true));
        let mut parameters = parameters();
        parameters.groups.delayed_allocation = delayed;
        parameters.cache.dirty_background = Bytes::mib(64);
        parameters.cache.dirty_limit = Bytes::mib(128);
        let ageing = ageing(personality);
        let aged = age(
            &parameters,
            volume,
            &mut disk(false),
            ageing,
            Writes::Cached,
        )
        .unwrap();
        let bytes: u64 = layouts(&aged)
            .iter()
            .map(|layout| layout.allocated().0)
            .sum();
        let Volume::InPlace(volume) = &aged.volume else {
            panic!("in place");
        };
        let taken = shape().blocks() - volume.space().free_blocks();
        let used = u64::from(taken - volume.preallocated_blocks());
        assert_eq!(used * BLOCK.0, bytes);
        fragment_bytes(&aged)
    };
    let [delayed, at_once] =
        [true, false].map(|delayed| age_in_place(delayed, Personality::Fileserver));
    assert!(delayed > at_once, "{delayed} {at_once}");
    // fsync leaves nothing to delay.
    assert!(age_in_place(true, Personality::Varmail) < 64 << 10);
}

#[test]
fn a_migration_and_the_flows_slow_each_other_down() {
    use crate::{host::Carrier, planning};
    use indef_core::plan::{PlanOptions, Policy};

    let run = |bytes: Bytes| {
        let volume = Volume::from(LogVolume::new(shape(), LogMode::Lfs));
        let options = PlanOptions {
            policy: Policy::Whole,
            ..PlanOptions::default()
        };
        let plan = |volume: &Volume, files: &[FileId]| {
            let plan = |file: &FileId| {
                let layout = volume.layout(*file);
                let plans = planning::plan(&options, [(&layout, [].as_slice())]);
                (*file, plans.into_iter().next().unwrap())
            };
            files.iter().map(plan).collect()
        };
        let later = Later {
            alone: 0.25,
            bytes,
            carrier: Carrier::Device,
        };
        let ageing = filebench::Ageing {
            rounds: 0.5,
            ..ageing(Personality::Fileserver)
        };
        let parameters = parameters();
        migrate_beside(
            &parameters,
            volume,
            &mut disk(true),
            ageing,
            Writes::Direct,
            later,
            plan,
        )
        .unwrap()
    };
    let moved = run(Bytes::mib(40));
    assert!(moved.moved >= Bytes::mib(40), "{moved:?}");
    assert!(moved.moved < Bytes::mib(60), "{moved:?}");
    assert!(moved.beside.written > Bytes::ZERO, "{moved:?}");
    let speeds = [moved.alone, moved.beside].map(Part::megabytes_per_second);
    assert!(speeds[1] < speeds[0], "{speeds:?}");
    let nothing = run(Bytes::ZERO);
    assert_eq!(nothing.moved, Bytes::ZERO);
    assert_eq!(nothing.alone, moved.alone);
    assert_eq!(run(Bytes::mib(40)), moved);
}

/// Day after day, with a defragmenter in between.
#[test]
fn a_volume_lives_on() {
    for is_log in [true, false] {
        let mut disk = disk(is_log);
        let blocks = shape().blocks();
        let volume = match is_log {
            true => Volume::from(LogVolume::new(shape(), LogMode::Lfs)),
            false => Volume::from(InPlaceVolume::new(blocks, 32768, true)),
        };
        let of = filebench::Ageing {
            rounds: 0.1,
            ..ageing(Personality::Fileserver)
        };
        let mut living =
            Living::begin(&parameters(), volume, &mut disk, of, Writes::Direct, 8).unwrap();
        for _ in 0..3 {
            let day = Bytes::mib(64);
            let elapsed = living.go_on(&mut disk, day).unwrap();
            let written = elapsed.stats.host_written_bytes;
            // What is under way when the day ends is finished: a file of each flow at most.
            assert!((40 << 20..200 << 20).contains(&written), "{written}");
            let files = living.files();
            assert!(files.iter().all(|file| living.volume().files().has(*file)));
            let held: u64 = files
                .iter()
                .map(|file| living.volume().files().bytes(*file).0)
                .sum();
            assert!(held <= of.fill_bytes() + (8 << 20), "{held}");
            if let Volume::InPlace(volume) = living.volume() {
                assert_eq!(volume.preallocated_blocks(), 0);
            }
        }
        let before = living.clone();
        let nothing = living
            .migrate(&mut disk, &[], crate::host::Carrier::Device)
            .unwrap();
        assert_eq!(nothing.0, Bytes::ZERO);
        assert_eq!(before.files(), living.files());
    }
}

#[test]
fn files_that_are_made_side_by_side_lie_in_pieces_if_they_do_not_wait_in_memory() {
    use workloads::filebench::Oltp;

    let fragments = |background: Bytes| {
        let mut parameters = parameters();
        parameters.cache.dirty_background = background;
        parameters.cache.dirty_limit = background * 2;
        let volume = Volume::from(InPlaceVolume::new(shape().blocks(), 32_768, true));
        let mut oltp = Oltp::new(4, 32 << 20);
        let others = Box::new(move |thread| oltp.next(thread));
        let aged = age_by(&parameters, volume, &mut disk(false), others).unwrap();
        let layouts = layouts(&aged);
        assert_eq!(layouts.len(), 4);
        for layout in &layouts {
            assert_eq!(layout.allocated(), Bytes::mib(32));
        }
        layouts.iter().map(|it| it.fragments()).sum::<u64>()
    };
    assert!(fragments(Bytes::mib(8)) > 4);
    assert_eq!(fragments(Bytes::mib(256)), 4);
}
