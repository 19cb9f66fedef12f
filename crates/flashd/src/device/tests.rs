//! The device as its hosts see it.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use flash_model::{Move, NamespaceKind, Placement, Profile, Refused, Span, ZoneAction, ZoneState};
use units::{Bytes, Nanos};

use super::{
    Access, Device, DeviceOptions, ErrorFault, Failure, FaultError, FaultReport, NamespaceOptions,
    Request, RequestResult, SlowDie, StoreOptions,
};
use crate::{
    record::{Keep, Mark, replay},
    store::StoredNamespace,
};

const CONVENTIONAL: usize = 0;
const ZONED: usize = 1;
const BLOCK: u64 = 4096;

fn options() -> DeviceOptions {
    let kind = |kind| NamespaceOptions {
        kind,
        size: Bytes::mib(256),
    };
    DeviceOptions::in_memory(
        Profile::builtin("zero").unwrap(),
        &[
            kind(NamespaceKind::Conventional),
            kind(NamespaceKind::Zoned),
        ],
    )
}

fn device() -> Arc<Device> {
    Device::open(&options()).unwrap()
}

fn wait(device: &Arc<Device>, namespace: usize, request: &Request<'_>) -> RequestResult {
    let (sender, outcome) = mpsc::channel();
    device.submit(namespace, request, move |outcome| {
        sender.send(outcome).unwrap();
    });
    outcome.recv().unwrap()
}

fn write(
    device: &Arc<Device>,
    namespace: usize,
    offset: u64,
    byte: u8,
    blocks: u64,
) -> RequestResult {
    let request = Request::Write {
        offset,
        data: &vec![byte; (blocks * BLOCK) as usize],
        fua: false,
        placement: Placement::RoundRobin,
    };
    wait(device, namespace, &request)
}

fn block(device: &Device, namespace: usize, offset: u64) -> u8 {
    let mut bytes = [0; BLOCK as usize];
    device.read_into(namespace, offset, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

/// A device with power loss protection, and perhaps a write cache that it does not cover.
fn protected(write_cache: Option<Bytes>) -> Arc<Device> {
    let profile = Profile::builtin("zn540").unwrap();
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size: Bytes::mib(64),
    };
    let options = DeviceOptions {
        write_cache,
        ..DeviceOptions::in_memory(profile, &[namespace])
    };
    Device::open(&options).unwrap()
}

/// A device with a write cache, over a disk that has no room for what leaves the cache.
pub(crate) fn on_full_disk(profile: &str) -> Arc<Device> {
    let (size, write_cache) = (Bytes::mib(64), Bytes::mib(1));
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size,
    };
    let profile = Profile::builtin(profile).unwrap();
    let mut device = Device::open(&DeviceOptions {
        write_cache: Some(write_cache),
        ..DeviceOptions::in_memory(profile, &[namespace])
    })
    .unwrap();
    let inside = Arc::get_mut(&mut device).expect("nobody else has it");
    inside.store.namespaces[0] =
        StoredNamespace::on_full_disk(size.get(), BLOCK, write_cache.get());
    device
}

/// Only the write cache that was asked for loses data on a device with power loss protection.
#[test]
fn a_protected_buffer_loses_nothing() {
    for (write_cache, left) in [(None, 1), (Some(Bytes::mib(1)), 0)] {
        let device = protected(write_cache);
        assert_eq!(device.has_volatile_cache(), write_cache.is_some());
        write(&device, 0, 0, 1, 2).unwrap();
        device.power_cut();
        assert_eq!(block(&device, 0, 0), left, "cache: {write_cache:?}");
    }
}

/// Such a device gets no flushes, and its recording has none.
#[test]
fn a_recording_knows_that_a_protected_buffer_loses_nothing() {
    for (write_cache, left) in [(None, [0, 2]), (Some(Bytes::mib(1)), [1, 0])] {
        let device = protected(write_cache);
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        write(&device, 0, 0, 1, 1).unwrap();
        device.record_to(&log).unwrap();
        write(&device, 0, BLOCK, 2, 1).unwrap();
        let (offset, len) = (0, BLOCK);
        wait(&device, 0, &Request::Deallocate { offset, len }).unwrap();
        device.recording().end().unwrap();
        let (store, _) = replay(&log, &Mark::End, Keep::Durable, None).unwrap();
        let mut bytes = [9; 2 * BLOCK as usize];
        store.namespaces[0].read(0, &mut bytes).unwrap();
        let found = [bytes[0], bytes[BLOCK as usize]];
        assert_eq!(found, left, "cache: {write_cache:?}");
    }
}

/// Zeroes that are too many for the cache are durable at once; a recording leaves what a power cut leaves.
#[test]
fn a_recording_knows_what_is_durable_as_it_bypasses_the_cache() {
    let device = protected(Some(Bytes::mib(1)));
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let (half, all) = (Bytes::kib(512).get(), Bytes::mib(1).get());
    write(&device, 0, 0, 1, 2 * all / BLOCK).unwrap();
    wait(&device, 0, &Request::Flush).unwrap();
    device.record_to(&log).unwrap();
    let (few, many) = ((0, half), (all, half + BLOCK));
    for (offset, len) in [few, many] {
        let fua = false;
        wait(&device, 0, &Request::WriteZeroes { offset, len, fua }).unwrap();
    }
    device.recording().end().unwrap();
    device.power_cut();
    let (store, _) = replay(&log, &Mark::End, Keep::Durable, None).unwrap();
    for ((offset, _), left) in [(few, 1), (many, 0)] {
        let mut bytes = [9; BLOCK as usize];
        store.namespaces[0].read(offset, &mut bytes).unwrap();
        assert_eq!((bytes[0], block(&device, 0, offset)), (left, left));
    }
}

#[test]
fn zones_go_back_to_what_is_durable_when_the_power_is_cut() {
    let device = device();
    let zone = device.zones(ZONED)[0];
    write(&device, ZONED, 0, 1, 2).unwrap();
    wait(&device, ZONED, &Request::Flush).unwrap();
    write(&device, ZONED, 2 * BLOCK, 2, 3).unwrap();
    let data = [3; BLOCK as usize];
    let append = Request::Append {
        zone: zone.size,
        data: &data,
        fua: true,
    };
    assert_eq!(
        wait(&device, ZONED, &append).unwrap().wrote_at,
        Some(zone.size)
    );
    assert_eq!(device.zones(ZONED)[0].write_pointer, 5 * BLOCK);
    assert_eq!(device.power_cut(), 3 * BLOCK);

    let zones = device.zones(ZONED);
    assert_eq!(zones[0].write_pointer, 2 * BLOCK);
    assert_eq!(zones[0].state, ZoneState::Closed);
    assert_eq!(zones[1].write_pointer, zone.size + BLOCK, "FUA");
    assert_eq!(zones[2].state, ZoneState::Empty);
    let bytes = [0, 1, 2].map(|at| block(&device, ZONED, at * BLOCK));
    assert_eq!(bytes, [1, 1, 0]);
    // And it goes on from there, and nowhere else.
    let refused = write(&device, ZONED, 5 * BLOCK, 4, 1);
    assert_eq!(refused, Err(Failure::Refused(Refused::InvalidWrite)));
    write(&device, ZONED, 2 * BLOCK, 4, 1).unwrap();
    assert_eq!(block(&device, ZONED, 2 * BLOCK), 4);
}

#[test]
fn zone_management_reaches_the_bytes() {
    let device = device();
    let size = device.zones(ZONED)[0].size;
    let manage = |start, all, action| wait(&device, ZONED, &Request::Zone { start, all, action });
    for zone in 0..3 {
        write(&device, ZONED, zone * size, 7, 1).unwrap();
    }
    manage(0, false, ZoneAction::Finish).unwrap();
    manage(size, false, ZoneAction::Reset).unwrap();
    device.power_cut();
    let zones = device.zones(ZONED);
    assert_eq!(zones[0].state, ZoneState::Full);
    assert_eq!(zones[1].state, ZoneState::Empty);
    assert_eq!(zones[2].state, ZoneState::Empty, "it was not flushed");
    assert_eq!(block(&device, ZONED, 0), 7, "finishing made it durable");
    assert_eq!(block(&device, ZONED, size), 0);
    manage(0, true, ZoneAction::Reset).unwrap();
    assert_eq!(block(&device, ZONED, 0), 0);
    assert!(
        device
            .zones(ZONED)
            .iter()
            .all(|zone| zone.state == ZoneState::Empty)
    );
}

#[test]
fn copies_move_the_bytes() {
    let device = device();
    for at in 0..8 {
        write(&device, CONVENTIONAL, at * BLOCK, at as u8 + 1, 1).unwrap();
        write(&device, ZONED, at * BLOCK, at as u8 + 1, 1).unwrap();
    }
    let span = |at, len| Span {
        offset: at * BLOCK,
        len: len * BLOCK,
    };
    let sources = [span(6, 2), span(0, 1)];
    for namespace in [CONVENTIONAL, ZONED] {
        let destination = device.zones(ZONED)[0].size;
        let copy = Request::Copy {
            sources: &sources,
            destination,
        };
        wait(&device, namespace, &copy).unwrap();
        let copied = [0, 1, 2].map(|at| block(&device, namespace, destination + at * BLOCK));
        assert_eq!(copied, [7, 8, 1]);
    }
    let moves: Vec<Move> = [(1, 20), (3, 21), (5, 22)]
        .map(|(from, to)| Move {
            from: from * BLOCK,
            to: to * BLOCK,
            len: BLOCK,
        })
        .to_vec();
    wait(&device, CONVENTIONAL, &Request::Migrate { moves: &moves }).unwrap();
    let moved = [20, 21, 22].map(|at| block(&device, CONVENTIONAL, at * BLOCK));
    assert_eq!(moved, [2, 4, 6]);
}

#[test]
fn commands_are_logged_with_their_times_and_lists() {
    let mut options = options();
    options.profile = Profile::builtin("indef-femu").unwrap();
    options.time_scale = 0.01;
    let device = Device::open(&options).unwrap();
    // A row of whole pages, which a flush brings to flash.
    write(&device, ZONED, 0, 7, 64).unwrap();
    wait(&device, ZONED, &Request::Flush).unwrap();
    device.begin_command_log();
    let moves = [0, 2].map(|from| Move {
        from: from * BLOCK,
        to: (64 + from / 2) * BLOCK,
        len: BLOCK,
    });
    let migrate = Request::Migrate { moves: &moves };
    let read = Request::Read {
        offset: BLOCK,
        len: BLOCK,
    };
    let flush = Request::Flush;
    for request in [&migrate, &read, &flush] {
        wait(&device, ZONED, request).unwrap();
    }
    // What is refused has no part in it.
    write(&device, ZONED, 200 * BLOCK, 1, 1).unwrap_err();
    let log = device.take_command_log();
    let commands: Vec<_> = log
        .iter()
        .map(|logged| logged.command.as_command())
        .collect();
    assert_eq!(
        commands,
        [migrate, read, flush].map(|request| request.command())
    );
    let mut before = Nanos(0);
    for logged in &log {
        assert_eq!(logged.namespace, ZONED);
        assert!(logged.submitted >= before);
        before = logged.done.expect("it is done");
        assert!(before >= logged.submitted);
    }
    let (read, took) = (&log[1], Nanos(86_000));
    assert!(read.done >= Some(Nanos(read.submitted.get() + took.get())));
    assert!(device.take_command_log().is_empty());
}

#[test]
fn what_is_outside_is_refused() {
    let device = device();
    let mut bytes = [0; BLOCK as usize];
    let end = device.namespaces()[CONVENTIONAL].size_bytes;
    for offset in [end, u64::MAX - BLOCK + 1, end - 512] {
        let read = device.read_into(CONVENTIONAL, offset, &mut bytes);
        assert!(matches!(read, Err(Failure::Refused(_))), "{offset}");
    }
    assert!(device.read_into(7, 0, &mut bytes).is_err());
    assert!(write(&device, CONVENTIONAL, end, 1, 1).is_err());
    assert!(write(&device, 7, 0, 1, 1).is_err());
    let part = Request::Read {
        offset: 512,
        len: 512,
    };
    assert!(wait(&device, CONVENTIONAL, &part).is_err(), "half a block");
}

#[test]
fn a_device_in_a_file_is_the_same_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options();
    options.store = StoreOptions::sparse_file(&folder.path().join("store"));
    let device = Device::open(&options).unwrap();
    let namespaces = device.namespaces().to_vec();
    write(&device, CONVENTIONAL, 0, 5, 1).unwrap();
    write(&device, ZONED, 0, 6, 3).unwrap();
    device.close().unwrap();
    write(&device, ZONED, 3 * BLOCK, 6, 1).unwrap();
    // As good as a kill: nothing is flushed on the way out.
    drop(device);
    options.namespaces.clear();
    let device = Device::open(&options).unwrap();
    assert_eq!(device.namespaces(), namespaces);
    assert_eq!(block(&device, CONVENTIONAL, 0), 5);
    assert_eq!(device.zones(ZONED)[0].write_pointer, 3 * BLOCK);
    assert_eq!(device.zones(ZONED)[0].state, ZoneState::Closed);
}

#[test]
fn many_threads_append_to_one_zone_without_holes() {
    let device = device();
    let places: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=4u8)
            .map(|thread| {
                let device = &device;
                scope.spawn(move || {
                    let data = [thread; BLOCK as usize];
                    let append = Request::Append {
                        zone: 0,
                        data: &data,
                        fua: thread == 4,
                    };
                    let places: Vec<u64> = (0..50)
                        .map(|_| wait(device, ZONED, &append).unwrap().wrote_at.unwrap())
                        .collect();
                    for place in &places {
                        assert_eq!(block(device, ZONED, *place), thread);
                    }
                    places
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.flatten().collect()
    });
    let mut sorted = places;
    sorted.sort_unstable();
    let expected: Vec<u64> = (0..200).map(|at| at * BLOCK).collect();
    assert_eq!(sorted, expected);
    device.power_cut();
    let written = device.zones(ZONED)[0].write_pointer;
    assert!((0..written / BLOCK).all(|at| block(&device, ZONED, at * BLOCK) != 0));
}

#[test]
fn everything_is_answered_in_time_and_late_ends_are_not_lost() {
    let mut options = options();
    options.profile = Profile::builtin("indef-femu").unwrap();
    let device = Device::open(&options).unwrap();
    let reads = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let device = &device;
                scope.spawn(move || {
                    for round in 0..40 {
                        let offset = (thread * 64 + round) * BLOCK;
                        let write = Request::Write {
                            offset,
                            data: &[round as u8; BLOCK as usize],
                            fua: round % 3 == 0,
                            placement: Placement::RoundRobin,
                        };
                        wait(device, CONVENTIONAL, &write).unwrap();
                        let moves = [Move {
                            from: offset,
                            to: offset + (8 << 20),
                            len: BLOCK,
                        }];
                        match round % 4 {
                            0 => wait(device, CONVENTIONAL, &Request::Flush).unwrap(),
                            1 => wait(device, CONVENTIONAL, &Request::Migrate { moves: &moves })
                                .unwrap(),
                            2 => device.account(CONVENTIONAL, &Request::Flush).unwrap(),
                            _ => Default::default(),
                        };
                    }
                    40
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.sum::<u64>()
    });
    assert_eq!(reads, 160);
    assert!(device.lateness().report().answers > 50);
    // Nobody waits for anything any more.
    wait_until_nothing_is_pending(&device);
}

/// Nothing is kept of commands that have ended.
fn wait_until_nothing_is_pending(device: &Device) {
    let is_empty = || {
        let pending = super::lock(&device.pending);
        pending.waiting.is_empty() && pending.early.is_empty() && pending.lost.is_empty()
    };
    for _ in 0..1000 {
        if is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{:?}", super::lock(&device.pending));
}

#[test]
fn nothing_is_kept_of_a_flush_that_fails() {
    let device = on_full_disk("indef-femu");
    // Enough that not all is programmed at once.
    write(&device, 0, 0, 1, 128).unwrap();
    let failure = wait(&device, 0, &Request::Flush).unwrap_err();
    assert!(matches!(failure, Failure::NoSpace(_)), "{failure}");
    // The model goes on to the end of this, and the end of the flush is before it.
    let moves = [Move {
        from: 0,
        to: 8 << 20,
        len: BLOCK,
    }];
    wait(&device, 0, &Request::Migrate { moves: &moves }).unwrap();
    wait_until_nothing_is_pending(&device);
}

#[test]
fn a_power_cut_answers_those_that_wait() {
    let mut options = options();
    options.profile = Profile::builtin("indef-femu").unwrap();
    options.time_scale = 1000.0;
    let device = Device::open(&options).unwrap();
    device
        .account(
            CONVENTIONAL,
            &Request::Write {
                offset: 0,
                data: &[1; BLOCK as usize],
                fua: false,
                placement: Placement::RoundRobin,
            },
        )
        .unwrap();
    let (sender, outcome) = mpsc::channel();
    device.submit(CONVENTIONAL, &Request::Flush, move |outcome| {
        sender.send(outcome).unwrap();
    });
    // Programming a page takes 700 ms at this pace.
    device.power_cut();
    assert_eq!(outcome.recv().unwrap(), Err(Failure::PowerLost));
    assert_eq!(
        block(&device, CONVENTIONAL, 0),
        1,
        "it was flushed all the same"
    );
}

/// The model has reported the end of a move, and the power is cut before the answer is sent: by the
/// late answer of a command that fails, between the two on the same thread.
#[test]
fn an_answer_that_is_due_is_none_after_a_power_cut() {
    let mut options = options();
    options.profile = Profile::builtin("indef-femu").unwrap();
    let device = Device::open(&options).unwrap();
    write(&device, CONVENTIONAL, 0, 1, 1).unwrap();
    let fault = ErrorFault {
        delay_ns: 100_000_000,
        ..error(1, Some(Access::Read), 9, None)
    };
    device.inject_error(fault).unwrap();
    // The thread that sends answers is kept busy until all is due.
    let (go_on, wait_for_it) = mpsc::channel::<()>();
    let (tell, is_busy) = mpsc::channel();
    device.on_pace(move || {
        tell.send(()).unwrap();
        wait_for_it.recv().unwrap();
    });
    is_busy.recv().unwrap();
    let moves = [Move {
        from: 0,
        to: 8 << 20,
        len: BLOCK,
    }];
    let (sender, outcome) = mpsc::channel();
    let migrate = Request::Migrate { moves: &moves };
    device.submit(CONVENTIONAL, &migrate, move |outcome| {
        sender.send(outcome).unwrap();
    });
    let read = Request::Read {
        offset: 9 * BLOCK,
        len: BLOCK,
    };
    let cut = Arc::clone(&device);
    device.submit(CONVENTIONAL, &read, move |_| {
        cut.power_cut();
    });
    std::thread::sleep(Duration::from_millis(200));
    go_on.send(()).unwrap();
    assert_eq!(outcome.recv().unwrap(), Err(Failure::PowerLost));
    assert_eq!(block(&device, CONVENTIONAL, 8 << 20), 0, "it was not moved");
}

#[test]
fn another_pace_holds_for_what_comes_then() {
    let mut options = options();
    options.profile = Profile::builtin("indef-femu").unwrap();
    options.time_scale = 1e9;
    let device = Device::open(&options).unwrap();
    let write = Request::Write {
        offset: 0,
        data: &[1; BLOCK as usize],
        fua: true,
        placement: Placement::RoundRobin,
    };
    let (sender, outcome) = mpsc::channel();
    let answer_within = |wait| {
        let sender = sender.clone();
        device.submit(CONVENTIONAL, &write, move |outcome| {
            // The first one is answered when nobody listens any more.
            let _ = sender.send(outcome);
        });
        outcome.recv_timeout(wait)
    };
    // Programming a page takes eight days at this pace.
    assert!(answer_within(Duration::from_millis(50)).is_err());
    assert!(device.set_time_scale(0.0).is_none());
    device.set_time_scale(0.001).unwrap();
    let answered = answer_within(Duration::from_secs(60)).unwrap();
    assert!(answered.is_ok(), "{answered:?}");
    assert_eq!(device.stats().time_scale, 0.001);
}

fn error(namespace: u32, access: Option<Access>, block: u64, left: Option<u64>) -> ErrorFault {
    ErrorFault {
        namespace,
        offset_bytes: block * BLOCK,
        length_bytes: BLOCK,
        access,
        left,
        delay_ns: 0,
        failed: 0,
    }
}

#[test]
fn an_error_may_come_late() {
    let device = device();
    let fault = ErrorFault {
        delay_ns: 2_000_000_000,
        ..error(1, None, 0, None)
    };
    let late = Duration::from_nanos(fault.delay_ns);
    device.inject_error(fault).unwrap();
    let begun = std::time::Instant::now();
    let failed = write(&device, CONVENTIONAL, 0, 1, 1);
    assert_eq!(failed, Err(Failure::Injected(Access::Write)));
    assert!(begun.elapsed() >= late);
    // Others do not wait for it.
    let begun = std::time::Instant::now();
    write(&device, CONVENTIONAL, BLOCK, 1, 1).unwrap();
    assert!(begun.elapsed() < late);
}

#[test]
fn injected_errors_strike_what_touches_them_and_change_nothing() {
    let device = device();
    let read = |at, blocks| {
        let (offset, len) = (at * BLOCK, blocks * BLOCK);
        wait(&device, CONVENTIONAL, &Request::Read { offset, len })
    };
    write(&device, CONVENTIONAL, 0, 1, 8).unwrap();
    let (reads, writes) = (Some(Access::Read), Some(Access::Write));
    device.inject_error(error(1, reads, 2, None)).unwrap();
    device.inject_error(error(1, writes, 5, Some(2))).unwrap();

    for (at, blocks, fails) in [(0, 2, false), (0, 3, true), (2, 1, true), (3, 5, false)] {
        let failure = fails.then_some(Failure::Injected(Access::Read));
        assert_eq!(read(at, blocks).err(), failure, "{at} + {blocks}");
    }
    // A range whose reads fail can be written, and its neighbours are not in the way.
    write(&device, CONVENTIONAL, 2 * BLOCK, 2, 1).unwrap();
    write(&device, CONVENTIONAL, 4 * BLOCK, 2, 1).unwrap();
    let failed = Err(Failure::Injected(Access::Write));
    assert_eq!(write(&device, CONVENTIONAL, 4 * BLOCK, 3, 2), failed);
    let zeroes = Request::WriteZeroes {
        offset: 0,
        len: 8 * BLOCK,
        fua: false,
    };
    assert_eq!(wait(&device, CONVENTIONAL, &zeroes), failed);
    let now = [0, 2, 4, 5].map(|at| block(&device, CONVENTIONAL, at * BLOCK));
    assert_eq!(now, [1, 2, 2, 1]);
    // Two have failed; the third does not.
    write(&device, CONVENTIONAL, 4 * BLOCK, 3, 2).unwrap();
    // A deallocated block has nothing to read, yet its place is as bad as before.
    let (offset, len) = (2 * BLOCK, BLOCK);
    wait(&device, CONVENTIONAL, &Request::Deallocate { offset, len }).unwrap();
    device.power_cut();
    assert!(read(2, 1).is_err());

    let FaultReport { errors, .. } = device.faults();
    let counts: Vec<_> = errors
        .iter()
        .map(|fault| (fault.failed, fault.left))
        .collect();
    assert_eq!(counts, [(3, None), (2, Some(0))]);
    device.clear_faults();
    assert_eq!(device.faults(), FaultReport::default());
    read(2, 1).unwrap();
}

#[test]
fn injected_errors_strike_appends_and_moves() {
    let device = device();
    let zone = device.zones(ZONED)[0].size;
    write(&device, ZONED, 0, 1, 4).unwrap();
    device
        .inject_error(error(2, Some(Access::Write), 5, Some(1)))
        .unwrap();
    let append = Request::Append {
        zone: 0,
        data: &[2; BLOCK as usize],
        fua: false,
    };
    assert_eq!(
        wait(&device, ZONED, &append).unwrap().wrote_at,
        Some(4 * BLOCK)
    );
    let failed = Err(Failure::Injected(Access::Write));
    assert_eq!(wait(&device, ZONED, &append), failed);
    assert_eq!(device.zones(ZONED)[0].write_pointer, 5 * BLOCK);
    assert_eq!(
        wait(&device, ZONED, &append).unwrap().wrote_at,
        Some(5 * BLOCK)
    );

    // Sources are read and destinations written, in whichever part of the command they are.
    device
        .inject_error(error(2, Some(Access::Read), 3, Some(2)))
        .unwrap();
    let sources = [0, 3].map(|at| Span {
        offset: at * BLOCK,
        len: BLOCK,
    });
    let copy = Request::Copy {
        sources: &sources,
        destination: zone,
    };
    let moves = [0, 3].map(|at| Move {
        from: at * BLOCK,
        to: zone + at / 3 * BLOCK,
        len: BLOCK,
    });
    let migrate = Request::Migrate { moves: &moves };
    let failed = Err(Failure::Injected(Access::Read));
    assert_eq!(wait(&device, ZONED, &copy), failed);
    assert_eq!(wait(&device, ZONED, &migrate), failed);
    assert_eq!(device.zones(ZONED)[1].write_pointer, zone);
    device
        .inject_error(error(2, Some(Access::Write), zone / BLOCK + 1, Some(2)))
        .unwrap();
    let failed = Err(Failure::Injected(Access::Write));
    assert_eq!(wait(&device, ZONED, &copy), failed);
    assert_eq!(wait(&device, ZONED, &migrate), failed);
    assert_eq!(device.zones(ZONED)[1].write_pointer, zone);
    wait(&device, ZONED, &copy).unwrap();
    assert_eq!(device.zones(ZONED)[1].write_pointer, zone + 2 * BLOCK);
}

#[test]
fn faults_that_cannot_be_are_refused() {
    let device = device();
    let size = device.namespaces()[CONVENTIONAL].size_bytes;
    let refused = |fault| device.inject_error(fault).unwrap_err();
    let (id, count) = (3, 2);
    assert_eq!(
        refused(error(3, None, 0, None)),
        FaultError::Namespace { id, count }
    );
    assert_eq!(refused(error(1, None, 0, Some(0))), FaultError::NoTimes);
    for (offset_bytes, length_bytes) in [(0, 0), (size, 1), (1, size), (u64::MAX, 2)] {
        let fault = ErrorFault {
            offset_bytes,
            length_bytes,
            ..error(1, None, 0, None)
        };
        assert!(matches!(refused(fault), FaultError::Range { .. }));
    }
    let slow = |die, factor| device.slow_die(SlowDie { die, factor });
    let count = device.geometry().dies();
    assert_eq!(slow(count, 2.0), Err(FaultError::Die { die: count, count }));
    for factor in [0.5, f64::NAN, f64::INFINITY, 1001.0, -1.0] {
        assert!(matches!(slow(0, factor), Err(FaultError::Factor(_))));
    }
    assert_eq!(slow(0, 2.0), Err(FaultError::NoLatency));
    assert_eq!(device.faults(), FaultReport::default());
}
