use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use linux_abi::f2fs::offload::{Capability, Status, Way};
use proptest::prelude::*;
use units::FileRange;

use super::*;

fn part(start: u64, len: u64, continues: bool) -> Part {
    Part {
        range: FileRange::new(start, len),
        continues,
    }
}

fn request(relocation: u64, parts: Vec<Part>) -> Request {
    let file = Arc::new(File::open("/proc/self/exe").unwrap());
    Request {
        relocation,
        file,
        parts,
        limit: Bytes::mib(1),
    }
}

/// Everything moved, by the device.
fn all_done(requests: &[Request]) -> Report {
    let ranges: Vec<_> = requests
        .iter()
        .flat_map(|request| &request.parts)
        .map(|part| RangeOutcome {
            status: Status::Done,
            moved: part.range.len.get(),
        })
        .collect();
    Report {
        capability: Capability {
            way: Way::InDevice,
            max_blocks: 1,
            logs: 2,
        },
        bytes_in_device: ranges.iter().map(|range| range.moved).sum(),
        ranges,
        bytes_copied: 0,
        bytes_host: 0,
        bytes_from_memory: 0,
        commands: 1,
        bus_bytes: 0,
        steps: 1,
        locked_ns: 0,
        locked_blocks: 0,
        stalls: 0,
    }
}

#[test]
fn a_range_in_several_calls_is_not_cut_by_others() {
    let batches = Batches::new(1);
    let log = Mutex::new(Vec::new());
    let call = |requests: &[Request], _| {
        let mut log = log.lock().unwrap();
        log.extend(requests.iter().map(|request| request.relocation));
        thread::sleep(Duration::from_millis(1));
        Ok(all_done(requests))
    };
    thread::scope(|scope| {
        for relocation in 0..6u64 {
            let (batches, call) = (&batches, &call);
            scope.spawn(move || {
                for range in 0..5 {
                    // Even ones move their ranges in three calls, odd ones in one.
                    let calls = if relocation % 2 == 0 { 3 } else { 1 };
                    for n in 0..calls {
                        let parts = vec![part((range * 3 + n) << 20, 4096, n + 1 < calls)];
                        let answer = batches.submit(request(relocation, parts), call).unwrap();
                        assert_eq!(answer.moved.relocated, Bytes(4096));
                    }
                }
                batches.release(relocation);
            });
        }
    });
    let log = log.into_inner().unwrap();
    let mut at = 0;
    while at < log.len() {
        let run = if log[at] % 2 == 0 { 3 } else { 1 };
        assert!(
            log[at..at + run].iter().all(|who| *who == log[at]),
            "{log:?}"
        );
        at += run;
    }
}

#[test]
fn a_call_is_under_way_for_each_log() {
    #[derive(Default)]
    struct Seen {
        inside: usize,
        most_inside: usize,
        sizes: Vec<usize>,
    }
    let batches = Batches::new(2);
    let (seen, changed) = (Mutex::new(Seen::default()), Condvar::new());
    let call = |requests: &[Request], _| {
        let mut seen = seen.lock().unwrap();
        seen.inside += 1;
        seen.most_inside = seen.most_inside.max(seen.inside);
        seen.sizes.push(requests.len());
        changed.notify_all();
        // The first one does not end before there is another one.
        let longest = Duration::from_secs(10);
        let alone = |seen: &mut Seen| seen.most_inside < 2;
        let (mut seen, _) = changed.wait_timeout_while(seen, longest, alone).unwrap();
        seen.inside -= 1;
        Ok(all_done(requests))
    };
    for _ in 0..8 {
        batches.enter();
    }
    thread::scope(|scope| {
        for n in 0..8 {
            let (batches, call) = (&batches, &call);
            scope.spawn(move || {
                batches
                    .submit(request(n, vec![part(0, 4096, false)]), call)
                    .unwrap();
            });
        }
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.most_inside, 2);
    assert_eq!(seen.sizes.iter().sum::<usize>(), 8);
    // Half of them each, so that there are some for the other log.
    assert!(seen.sizes.iter().all(|size| *size <= 4), "{:?}", seen.sizes);
}

#[test]
fn a_range_in_several_calls_keeps_to_its_log() {
    let batches = Batches::new(2);
    let logs = [const { Mutex::new(Vec::new()) }; 2];
    let call = |requests: &[Request], log: u32| {
        let ranges = requests.iter().map(|it| (it.relocation, it.parts[0].range));
        logs[log as usize].lock().unwrap().extend(ranges);
        thread::sleep(Duration::from_millis(1));
        Ok(all_done(requests))
    };
    const CALLS: u64 = 4;
    for _ in 0..6 {
        batches.enter();
    }
    thread::scope(|scope| {
        for relocation in 0..6 {
            let (batches, call) = (&batches, &call);
            scope.spawn(move || {
                for n in 0..CALLS {
                    let part = part(n * 4096, 4096, n + 1 < CALLS);
                    batches
                        .submit(request(relocation, vec![part]), call)
                        .unwrap();
                }
                batches.release(relocation);
            });
        }
    });
    let all = logs.map(|log| log.into_inner().unwrap());
    assert!(all.iter().all(|log| !log.is_empty()));
    for log in all {
        for range in log.chunks(CALLS as usize) {
            let at = |n: u64| (range[0].0, FileRange::new(n * 4096, 4096));
            assert!(range.iter().copied().eq((0..CALLS).map(at)), "{range:?}");
        }
    }
}

#[test]
fn a_closed_log_gets_no_call() {
    let batches = Batches::new(2);
    let call = |requests: &[Request], log: u32| {
        assert_eq!(log, 0);
        Ok(all_done(requests))
    };
    // It owns the first one.
    batches
        .submit(request(1, vec![part(0, 4096, true)]), &call)
        .unwrap();
    batches.close(1);
    thread::scope(|scope| {
        let other = scope.spawn(|| batches.submit(request(2, vec![part(0, 4096, false)]), &call));
        thread::sleep(Duration::from_millis(20));
        assert!(!other.is_finished());
        batches
            .submit(request(1, vec![part(4096, 4096, false)]), &call)
            .unwrap();
        other.join().unwrap().unwrap();
    });
}

#[test]
fn those_who_wait_share_a_call() {
    let batches = Batches::new(1);
    let (calls, all_in) = (AtomicU64::new(0), Barrier::new(2));
    let call = |requests: &[Request], _| {
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            // The others come while the first call is under way.
            all_in.wait();
            while batches.lock().waiting.len() < 4 {
                thread::yield_now();
            }
        }
        Ok(all_done(requests))
    };
    thread::scope(|scope| {
        let submit = |n| batches.submit(request(n, vec![part(0, 4096, false)]), &call);
        let first = scope.spawn(move || submit(0).unwrap());
        all_in.wait();
        for n in 1..5 {
            scope.spawn(move || submit(n).unwrap());
        }
        first.join().unwrap();
    });
    assert_eq!(calls.into_inner(), 2);
}

#[test]
fn a_small_call_is_held_back_for_others() {
    let batches = Batches::new(1);
    let calls = Mutex::new(Vec::new());
    let call = |requests: &[Request], _| {
        calls.lock().unwrap().push(requests.len());
        Ok(all_done(requests))
    };
    let begun = Barrier::new(8);
    thread::scope(|scope| {
        for n in 0..8 {
            let (batches, call, begun) = (&batches, &call, &begun);
            scope.spawn(move || {
                batches.enter();
                begun.wait();
                batches
                    .submit(request(n, vec![part(0, 4096, false)]), call)
                    .unwrap();
                batches.release(n);
            });
        }
    });
    // A thread may come too late.
    let calls = calls.into_inner().unwrap();
    assert_eq!(calls.iter().sum::<usize>(), 8);
    assert!(calls.len() < 5, "{calls:?}");
    // Whoever is alone does not wait, nor does who fills a step.
    batches.enter();
    assert!(!waits(&batches, 4096));
    batches.enter();
    assert!(waits(&batches, 4096));
    assert!(!waits(&batches, 1 << 20));
}

/// Whether a request of this many bytes would be held back.
fn waits(batches: &Batches, bytes: u64) -> bool {
    let mut state = batches.lock();
    let request = request(0, vec![part(0, bytes, false)]);
    state.waiting.push_back((99, request));
    let waits = state.grows(&[99]);
    state.waiting.clear();
    waits
}

#[test]
fn no_step_is_larger_than_the_least_that_was_asked_for() {
    let mut requests = [request(1, Vec::new()), request(2, Vec::new())];
    requests[1].limit = Bytes::mib(32);
    assert_eq!(step_of(&requests), Bytes::mib(1));
}

#[test]
fn a_relocation_that_gives_up_lets_the_others_go_on() {
    let batches = Batches::new(1);
    let call = |requests: &[Request], _| Ok(all_done(requests));
    batches
        .submit(request(1, vec![part(0, 4096, true)]), &call)
        .unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| batches.submit(request(2, vec![part(0, 4096, false)]), &call));
        thread::sleep(Duration::from_millis(20));
        assert!(!other.is_finished());
        batches.release(1);
        other.join().unwrap().unwrap();
    });
}

#[test]
fn who_panics_takes_nobody_along() {
    let batches = Batches::new(1);
    let began = Barrier::new(2);
    let call = |_: &[Request], _| -> io::Result<Report> {
        began.wait();
        while batches.lock().waiting.is_empty() {
            thread::yield_now();
        }
        panic!("on purpose");
    };
    let fine = |requests: &[Request], _| Ok(all_done(requests));
    thread::scope(|scope| {
        let first = scope.spawn(|| batches.submit(request(1, vec![part(0, 4096, false)]), &call));
        began.wait();
        let second = scope.spawn(|| batches.submit(request(2, vec![part(0, 4096, false)]), &fine));
        assert!(first.join().is_err());
        assert!(second.join().unwrap().is_ok());
    });
}

#[test]
fn a_failed_call_is_told_to_everybody_with_its_number() {
    let call = |_: &[Request], _| Err(io::Error::from_raw_os_error(5));
    let requests = [
        request(1, vec![part(0, 4096, false)]),
        request(2, vec![part(0, 4096, false)]),
    ];
    for answer in carry_out(&requests, 0, &call) {
        assert_eq!(answer.unwrap_err().raw_os_error(), Some(5));
    }
}

#[test]
fn where_the_first_file_is_refused_the_others_are_moved() {
    let call = |requests: &[Request], _| match requests[0].relocation {
        1 => Err(io::Error::from_raw_os_error(30)),
        _ => Ok(all_done(requests)),
    };
    let requests = [1, 2, 3].map(|n| request(n, vec![part(0, 4096, false)]));
    let answers = carry_out(&requests, 0, &call);
    let moved = answers.into_iter().map(|answer| match answer {
        Ok(answer) => Ok(answer.moved.relocated),
        Err(error) => Err(error.raw_os_error()),
    });
    let moved: Vec<_> = moved.collect();
    assert_eq!(moved, [Err(Some(30)), Ok(Bytes::kib(4)), Ok(Bytes::kib(4))]);
}

#[test]
fn what_was_written_in_vain_is_somebodys() {
    let requests = [4096, 8192].map(|len| request(1, vec![part(0, len, false)]));
    let mut report = all_done(&requests);
    for outcome in &mut report.ranges {
        outcome.status = Status::Device(5);
        outcome.moved = 0;
    }
    report.bytes_in_device = 9000;
    let answers = share(&requests, &report).into_iter();
    let written: Vec<_> = answers.map(|answer| answer.moved.offloaded).collect();
    assert_eq!(written, [Bytes(3000), Bytes(6000)]);
}

#[test]
fn each_stall_of_a_call_is_told_once() {
    let requests = [1, 2].map(|n| request(n, vec![part(0, 4096, false)]));
    let mut report = all_done(&requests);
    (report.locked_ns, report.stalls) = (1000, 3);
    let answers = share(&requests, &report).into_iter();
    let told: Vec<_> = answers
        .map(|answer| (answer.moved.locked, answer.moved.further_stalls))
        .collect();
    assert_eq!(told, [(Nanos(1000), 2), (Nanos(0), 0)]);
}

#[test]
fn a_lock_in_vain_counts_too() {
    let requests = [1, 2].map(|n| request(n, vec![part(0, 4096, false)]));
    let mut report = all_done(&requests);
    for outcome in &mut report.ranges {
        *outcome = RangeOutcome {
            status: Status::Device(5),
            moved: 0,
        };
    }
    (report.locked_ns, report.locked_blocks) = (1000, 2);
    let locks = share(&requests, &report).into_iter().map(|answer| {
        let moved = answer.moved;
        (moved.locked, moved.locked_bytes)
    });
    let locks: Vec<_> = locks.collect();
    assert_eq!(
        locks,
        [(Nanos(1000), Bytes::kib(8)), (Nanos(0), Bytes::ZERO)]
    );
}

proptest! {
    #[test]
    fn shares_add_up(
        moved in prop::collection::vec(prop::collection::vec(0u64..1 << 40, 1..4), 1..6),
        ways in (0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40),
    ) {
        let requests: Vec<_> = moved
            .iter()
            .map(|ranges| request(0, ranges.iter().map(|_| part(0, 4096, false)).collect()))
            .collect();
        let mut report = all_done(&requests);
        for (outcome, moved) in report.ranges.iter_mut().zip(moved.iter().flatten()) {
            outcome.moved = *moved;
        }
        (report.bytes_in_device, report.bytes_copied, report.bytes_host, report.bytes_from_memory) = ways;
        (report.locked_ns, report.locked_blocks) = (1000, 7);
        let answers = share(&requests, &report);
        let mut sum = Moved::default();
        for answer in &answers {
            sum += answer.moved;
        }
        let all: u64 = moved.iter().flatten().sum();
        prop_assert_eq!(sum.relocated, Bytes(all));
        let locked = answers.iter().filter(|answer| answer.moved.locked > Nanos(0));
        prop_assert_eq!(locked.count(), 1);
        prop_assert_eq!(sum.locked, Nanos(1000));
        prop_assert_eq!(sum.locked_bytes, Bytes::kib(28));
        prop_assert_eq!(sum.offloaded, Bytes(ways.0 + ways.1));
        prop_assert_eq!(sum.host_read, Bytes(ways.2));
        prop_assert_eq!(sum.host_written, Bytes(ways.2 + ways.3));
    }
}
