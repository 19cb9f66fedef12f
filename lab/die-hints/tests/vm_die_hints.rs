//! ext4 of the kernel with die hints, in a guest on flashd: files that were written bit by bit are read
//! as fast as contiguous ones, and nobody sends hints who was not asked to.
//!
//! The kernel takes long to build (`cargo lab kernels --die-hints`); where it was not, these tests
//! are reported as skipped. With `INDEF_DEBUG_KERNEL` they boot the one with lockdep and KASAN
//! (`--die-hints-debug`).

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use die_hints::{Case, Comparison, FOLDER, FileSystem, Lab, options, words};
use flashd::{
    device::{Device, DeviceOptions, StoreOptions},
    record::{Keep, Mark, marks, replay},
    store::FileOptions,
};
use guest::{Guest, Release, require};
use units::Bytes;

const SIZE: Bytes = Bytes::gib(2);

/// One guest at a time: they share the same processors.
static TURN: Mutex<()> = Mutex::new(());

fn with_lab(trial: impl FnOnce(&mut Lab)) {
    with_lab_of(SIZE, trial);
}

fn with_lab_of(size: Bytes, trial: impl FnOnce(&mut Lab)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = ["mkfs.ext4", "e2fsck", "mkfs.f2fs", "fsck.f2fs"];
    if !programs.into_iter().all(scratch_fs::require_program) {
        return;
    }
    let guest = match std::env::var_os("INDEF_DEBUG_KERNEL") {
        None => Guest::with_die_hints(),
        Some(_) => Guest::with_die_hints_debug().map(|guest| guest.memory_mib(2048)),
    };
    let Some(guest) = require(guest) else {
        return;
    };
    let program = Path::new(env!("CARGO_BIN_EXE_die-hints"));
    // A disk that takes no hints, beside the device.
    let guest = guest.disk(Bytes::mib(64));
    let mut lab = Lab::start(guest, program, size, Arc::default()).unwrap();
    trial(&mut lab);
    lab.end().unwrap();
}

/// Compare a case: hints are given where they are asked for, and nowhere else. Returns the shares of the
/// contiguous files' speed without and with them, by the first reading.
fn compare(lab: &Lab, system: FileSystem, case: &Case, age: Option<u64>) -> (Comparison, [f64; 2]) {
    let found = lab.compare(system, case, age).unwrap();
    for (number, (name, _)) in case.readings.iter().enumerate() {
        let [without, with] = [0, 1].map(|of| found.share(&found.written[of], number));
        println!(
            "{system}, {case}, {name}: {without:.3} without, {with:.3} with; {:.0} MiB/s contiguous",
            found.contiguous.speeds[number]
        );
    }
    let [without, with] = &found.written;
    for (way, outcome) in [
        ("contiguous", &found.contiguous),
        ("without", without),
        ("with", with),
    ] {
        println!(
            "{way}: {} extents, {:?}; {:?}",
            outcome.extents, outcome.place, outcome.hints
        );
    }
    for of in [&found.contiguous, without] {
        assert_eq!(of.hints.given, 0, "{case}: nobody asked for hints");
    }
    let shares = [without, with].map(|of| found.share(of, 0));
    (found, shares)
}

/// With hints, at least this share of the contiguous files' speed is left; without, `worst` cases are
/// slow, or they would show nothing.
fn check(lab: &Lab, system: FileSystem, case: &Case, least: f64) {
    let (found, [without, with]) = compare(lab, system, case, None);
    let hints = found.written[1].hints;
    assert!(hints.given >= 255, "{case}: {hints:?}");
    assert!(with > least, "{case}: {without} {with}");
    let is_worst = case.to_string().contains("worst");
    if system == FileSystem::Ext4JournalApart {
        assert!(without < with, "{case}: {without} {with}");
        assert!(!is_worst || without < 0.5, "{case}: {without} {with}");
    }
}

#[test]
fn vm_pieces_are_read_as_fast_as_a_contiguous_file() {
    with_lab(|lab| {
        for way in ["fdatasync", "direct"] {
            for case in Case::pieces(way) {
                check(lab, FileSystem::Ext4JournalApart, &case, 0.98);
            }
        }
    });
}

fn beside_a_journal(change: &str) {
    with_lab(|lab| {
        let pieces = Case::pieces("fdatasync").into_iter();
        for case in pieces.filter(|case| case.to_string().contains(change)) {
            check(lab, FileSystem::Ext4, &case, 0.98);
        }
    });
}

#[test]
fn vm_appends_beside_a_journal_are_read_as_fast() {
    beside_a_journal("append");
}

#[test]
fn vm_overwrites_beside_a_journal_are_read_as_fast() {
    beside_a_journal("overwrite");
}

/// Figure 12's programs of this name, by each reading: hints leave at least this share of the contiguous files'
/// speed, and gain at least this much of it.
fn check_programs(name: &str, least: f64, gain: f64) {
    with_lab(|lab| {
        let programs = Case::programs().into_iter();
        for case in programs.filter(|case| case.to_string().contains(name)) {
            let (found, _) = compare(lab, FileSystem::Ext4JournalApart, &case, None);
            for (number, (reading, _)) in case.readings.iter().enumerate() {
                let [without, with] = [0, 1].map(|of| found.share(&found.written[of], number));
                assert!(
                    with > least && with > without + gain,
                    "{case}, {reading}: {without} {with}"
                );
            }
        }
    });
}

#[test]
fn vm_a_database_is_read_faster() {
    if scratch_fs::require_program("sqlite3") {
        check_programs("SQLite", 0.65, 0.03);
    }
}

#[test]
fn vm_file_servers_are_read_faster() {
    check_programs("fileserver", 0.65, 0.02);
}

/// Figure 3, as far as the device has room for what lies between the fragments. Where the file goes on in another extent within
/// a granule, its fragments are cut: 128 of them had 0.87 to 0.91 of the contiguous speed here.
#[test]
fn vm_fragments_are_read_nearly_as_fast_as_a_contiguous_file() {
    with_lab(|lab| {
        let mut cases = Case::fragments();
        cases.retain(|case| ["64 fragments", "128 fragments"].contains(&case.to_string().as_str()));
        for case in &cases {
            let (found, _) = compare(lab, FileSystem::Ext4JournalApart, case, None);
            for (number, (depth, _)) in case.readings.iter().enumerate() {
                let [without, with] = [0, 1].map(|of| found.share(&found.written[of], number));
                assert!(
                    with > 0.8 && with > without + 0.15,
                    "{case}, {depth}: {without} {with}"
                );
            }
        }
    });
}

/// Figure 7, however long the commands are. One at a time, a unit in two extents is two commands, one after the
/// other: hints cannot help that.
#[test]
fn vm_units_are_read_as_fast_as_those_of_a_contiguous_file() {
    with_lab(|lab| {
        for case in &Case::units() {
            let (found, _) = compare(lab, FileSystem::Ext4JournalApart, case, None);
            for (number, (name, _)) in case.readings.iter().enumerate() {
                let share = found.share(&found.written[1], number);
                let least = if name.ends_with("depth 1") { 0.9 } else { 0.98 };
                assert!(share > least, "{case}, {name}: {share}");
            }
        }
    });
}

/// On a device of which all is in use, and which has no more to spare than its profile says, hints keep
/// nine tenths of the speed while it collects garbage; and after it has moved all of the file.
#[test]
fn vm_hints_keep_the_speed_while_garbage_is_collected() {
    with_lab_of(Bytes::gib(8), |lab| {
        lab.fill(2).unwrap();
        let mut cases = Case::pieces("fdatasync");
        cases.retain(|case| case.to_string().contains("random"));
        for case in &cases {
            let (found, [_, new]) = compare(lab, FileSystem::Ext4, case, Some(2));
            let with = &found.written[1];
            let aged = found.aged_share(with).unwrap();
            let (_, how) = with.aged.unwrap();
            println!("{case}: {new:.3} new, {aged:.3} aged; {how:?}");
            assert!(new > 0.9 && aged > 0.9, "{case}: {new} {aged}");
            assert!(how.moved > 0.9, "{how:?}");
            assert!(how.write_amplification > 4.0, "{how:?}");
        }
    });
}

/// fio writes with checksums and reads them back, once around the page cache and once through it.
#[test]
fn vm_fio_verifies_what_was_written_with_hints() {
    if !scratch_fs::require_program("fio") {
        return;
    }
    with_lab(|lab| {
        for system in [FileSystem::Ext4, FileSystem::F2fs] {
            lab.make(system, "die_hints").unwrap();
            let before = lab.device().stats().model.hints.given;
            for (how, engine) in [
                ("--direct=1", "libaio"),
                ("--direct=0 --fdatasync=4", "psync"),
            ] {
                lab.shell(&format!(
                    "fio --name=verify --directory={FOLDER} --ioengine={engine} {how} --iodepth=8 \
                       --rw=randwrite --bsrange=4k-64k --blockalign=4k --size=16m --numjobs=2 \
                       --randseed=13 --verify=crc32c --verify_fatal=1 --do_verify=1 --group_reporting \
                       --output-format=terse"
                ))
                .unwrap();
            }
            let given = lab.device().stats().model.hints.given - before;
            assert!(given > 100, "{system}: {given} hints");
            lab.unmount(system).unwrap();
        }
    });
}

/// Writes, mapped writes, truncations, holes, collapsed and inserted ranges of one file, beside its copy
/// in memory.
#[test]
fn vm_a_file_that_changes_in_every_way_has_its_content() {
    with_lab(|lab| {
        for system in [FileSystem::Ext4, FileSystem::F2fs] {
            lab.make(system, "die_hints").unwrap();
            let before = lab.device().stats().model.hints.given;
            for seed in 1..=3 {
                lab.program(&words(&format!("exercise 1500 {seed}")))
                    .unwrap();
            }
            let given = lab.device().stats().model.hints.given - before;
            assert!(given > 500, "{system}: {given} hints");
            lab.unmount(system).unwrap();
        }
    });
}

#[test]
fn vm_f2fs_gives_hints() {
    with_lab(|lab| {
        for case in Case::pieces("fdatasync") {
            check(lab, FileSystem::F2fs, &case, 0.0);
        }
        lab.make(FileSystem::F2fs, "die_hints").unwrap();
        lab.write(&words("random 300")).unwrap();
        lab.unmount(FileSystem::F2fs).unwrap();
    });
}

#[test]
fn vm_what_was_written_with_hints_is_read_again() {
    with_lab(|lab| {
        lab.make(FileSystem::Ext4, "die_hints").unwrap();
        lab.write(&words("random 1000")).unwrap();
        let hints = lab.device().stats().model.hints;
        println!("{hints:?}");
        assert!(hints.given > 2000, "{hints:?}");
        lab.unmount(FileSystem::Ext4).unwrap();
    });
}

/// Options come and go, are of no use on a device without hints, and a wrong hint is refused.
#[test]
fn vm_the_option_is_only_an_option() {
    with_lab(|lab| {
        let given = |lab: &Lab| lab.device().stats().model.hints;
        let is_told = |lab: &Lab| {
            let said = lab.program(&words("told")).unwrap();
            said.lines().next() == Some("true")
        };
        // The second piece comes after the first, and the first is then overwritten.
        let write = |lab: &Lab| {
            let before = given(lab).given;
            let piece = |seek: u64| {
                format!(
                    "dd if=/dev/urandom of={FOLDER}/file bs=32k count=1 seek={seek} conv=notrunc,fdatasync\n"
                )
            };
            lab.shell(&[piece(0), piece(1), piece(0)].concat()).unwrap();
            given(lab).given - before
        };
        for system in [FileSystem::Ext4, FileSystem::F2fs] {
            lab.make(system, "die_hints").unwrap();
            assert!(write(lab) > 0, "{system}: {:?}", given(lab));
            assert!(is_told(lab), "{system}");
            lab.shell(&format!("mount -o remount,nodie_hints {FOLDER}"))
                .unwrap();
            assert_eq!(write(lab), 0, "{system}");
            assert!(!is_told(lab), "{system}");
            lab.shell(&format!("mount -o remount,ro,die_hints {FOLDER}"))
                .unwrap();
            lab.shell(&format!(
                "grep ' {FOLDER} ' /proc/mounts | grep -q die_hints"
            ))
            .unwrap();
            lab.unmount(system).unwrap();
            lab.mount(system, "ro,die_hints").unwrap();
            lab.unmount(system).unwrap();
        }
        // The predecessor is allocated, and the device has nothing there.
        lab.make(FileSystem::Ext4, "die_hints").unwrap();
        let before = given(lab).refused_unmapped;
        lab.shell(&format!(
            "fallocate -l 65536 {FOLDER}/hole
             dd if=/dev/urandom of={FOLDER}/hole bs=32k count=1 seek=1 conv=notrunc,fdatasync"
        ))
        .unwrap();
        assert!(given(lab).refused_unmapped > before, "{:?}", given(lab));
        lab.unmount(FileSystem::Ext4).unwrap();
        // A disk that takes none.
        lab.shell(&format!(
            "mkfs.ext4 -q -F /dev/vda && mount -t ext4 -o die_hints /dev/vda {FOLDER}
             dmesg | grep -q 'the device does not take die hints'
             [ $(cat /sys/block/vda/queue/die_hints) = 0 ]
             echo 1 >{FOLDER}/file && sync && umount {FOLDER} && e2fsck -fn /dev/vda"
        ))
        .unwrap();
    });
}

/// Debian's own kernel, which gives no hints: what they would have given is asked of a model in which the
/// commands of the run are done again.
#[test]
fn vm_hints_are_foreseen_with_a_stock_kernel() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = ["mkfs.ext4", "e2fsck", "mkfs.f2fs", "fsck.f2fs"];
    if !programs.into_iter().all(scratch_fs::require_program) {
        return;
    }
    let Some(guest) = require(Guest::with(Release::Linux6_12)) else {
        return;
    };
    let program = Path::new(env!("CARGO_BIN_EXE_die-hints"));
    let lab = Lab::start(guest, program, SIZE, Arc::default()).unwrap();
    for (system, least) in [
        (FileSystem::Ext4, 0.97),
        (FileSystem::Ext4JournalApart, 0.97),
        // A log goes on in another segment in the middle of a piece.
        (FileSystem::F2fs, 0.9),
    ] {
        let cases = Case::pieces("fdatasync");
        let foresee = |case: &Case, words| lab.foresee(system, words, case.readings[0].1).unwrap();
        let (_, [contiguous, ..]) = foresee(&cases[0], &cases[0].contiguous);
        for case in &cases {
            let (files, times) = foresee(case, &case.words);
            let [own, plain, with] = times.map(|time| contiguous.0 as f64 / time.0 as f64);
            let extents = &files.extents[0];
            println!(
                "{system}, {case}: {own:.3}, done again {plain:.3}, with hints {with:.3}; {} extents, \
                 the first at block {} of a granule",
                extents.len(),
                extents[0].offset / 4096 % 8
            );
            assert_eq!(files.hints.given, 0, "{case}");
            // The models differ only in what they were told.
            assert!((plain / own - 1.0).abs() < 0.1, "{case}: {own} {plain}");
            assert!(with > least && with > plain, "{system}, {case}: {with}");
        }
    }
    lab.end().unwrap();
}

/// Writes of the trial whose power is cut.
const WRITES: u64 = 150;

#[test]
fn vm_power_cuts_leave_what_was_durable() {
    let states = std::env::var("INDEF_POWER_CUTS").map_or(8, |count| count.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    with_lab(|lab| {
        lab.make(FileSystem::Ext4, "die_hints").unwrap();
        let before = lab.device().stats().model.hints.given;
        lab.device().flush_all().unwrap();
        lab.device().record_to(&recording).unwrap();
        let log = "/dev/ssd2";
        lab.program(&words(&format!("durable {WRITES} {log}")))
            .unwrap();
        lab.device().recording().end().unwrap();
        let given = lab.device().stats().model.hints.given - before;
        assert!(given >= WRITES, "{given} hints");
        lab.unmount(FileSystem::Ext4).unwrap();

        let marks = marks(&recording).unwrap();
        let flushes: Vec<u64> = (marks.iter())
            .filter(|mark| mark.mark.starts_with("flush:"))
            .map(|mark| mark.entries)
            .collect();
        let (first, last) = (marks[0].entries, marks.last().unwrap().entries);
        let mut most = 0;
        for number in 0..states {
            let (at, keep) = match number % 2 {
                0 => {
                    let nth = flushes.len() as u64 * number / states;
                    (flushes[nth as usize], Keep::Durable)
                }
                _ => {
                    let at = first + 1 + (last - first - 1) * number / states;
                    (at, Keep::Reordered(number))
                }
            };
            let store = FileOptions {
                path: folder.path().join(format!("state{number}")),
                sparse: true,
                host_sync: false,
            };
            replay(&recording, &Mark::Entry(at), keep, Some(&store)).unwrap();
            let device = Device::open(&DeviceOptions {
                store: StoreOptions::File(store),
                ..options(SIZE).unwrap()
            });
            lab.exchange(device.unwrap()).unwrap();
            lab.mount(FileSystem::Ext4, "die_hints").unwrap();
            let said = lab
                .program(&words(&format!("examine {WRITES} {log}")))
                .unwrap();
            println!("entry {at}, {keep:?}: {}", said.lines().next().unwrap());
            let durable = said.split(' ').next().unwrap();
            most = most.max(durable.parse().unwrap());
            lab.unmount(FileSystem::Ext4).unwrap();
        }
        assert!(most > WRITES / 2, "the cuts came before {most}");
    });
}
