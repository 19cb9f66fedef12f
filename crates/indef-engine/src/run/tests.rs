//! The whole executor, on a simulated file system.

mod simulated;

use std::{
    collections::BTreeMap,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use units::FileRange;

use super::{job::FileJob, limits::Stop, *};
use simulated::{BLOCK, Simulated};

const MIB: u64 = 1 << 20;

fn options() -> RunOptions {
    RunOptions {
        jobs: 3,
        min_free_pct: 0.0,
        ..RunOptions::default()
    }
}

fn find<'a>(result: &'a RunResult, name: &str) -> &'a FileResult {
    result
        .files
        .iter()
        .find(|file| file.path.ends_with(name))
        .unwrap()
}

fn skip(reason: SkipReason) -> Option<Reason> {
    Some(Reason::Skip(reason))
}

#[test]
fn everything_planned_is_moved_and_a_second_run_writes_nothing() {
    let sim = Simulated::new();
    let plans: Vec<_> = (0..50)
        .map(|n| sim.file(&format!("{n}"), 2 + n, BLOCK * (1 + n % 3)))
        .collect();
    let cost: Bytes = plans.iter().map(FilePlan::cost).sum();
    let result = sim.run(plans.clone(), &options());
    assert_eq!(result.totals.files_moved, 50);
    assert_eq!(result.totals.bytes_relocated, cost);
    assert!(result.stopped.is_none());
    assert!(result.files.iter().all(|f| f.extents_after == 1));
    assert_eq!(result.maps.len(), 12);
    assert_eq!(result.maps[0].extents_before, 51);
    assert_eq!(result.maps[0].before.len(), 51);
    assert_eq!(result.maps[0].after.len(), 1);
    let again = sim.run(plans, &options());
    assert_eq!(again.totals.files_skipped, 50);
    assert_eq!(again.totals.bytes_relocated, Bytes::ZERO);
    assert_eq!(again.files[0].reason, skip(SkipReason::Contiguous));
}

#[test]
fn a_file_is_mapped_before_and_after_and_written_back_once() {
    let sim = Simulated::new();
    let plan = sim.file("file", 64, BLOCK);
    let result = sim.run(vec![plan], &options());
    assert_eq!(result.files[0].status, Status::Moved);
    assert_eq!(sim.state.lock().unwrap().maps, [true, false]);
}

#[test]
fn what_changed_since_the_plan_is_left_alone() {
    let sim = Simulated::new();
    let plans = ["gone", "replaced", "shrunk", "swap", "no-better-place"]
        .map(|name| sim.file(name, 8, BLOCK));
    fs::remove_file(sim.path("gone")).unwrap();
    fs::write(sim.path("new"), "x").unwrap();
    fs::rename(sim.path("new"), sim.path("replaced")).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(sim.path("shrunk"))
        .unwrap()
        .set_len(0)
        .unwrap();
    let result = sim.run(plans.to_vec(), &options());
    for (name, reason) in [
        ("gone", SkipReason::Gone),
        ("replaced", SkipReason::Changed),
        ("shrunk", SkipReason::OutOfRange),
        ("swap", SkipReason::SwapFile),
        ("no-better-place", SkipReason::NoGain),
    ] {
        let file = find(&result, name);
        assert_eq!(
            (file.status, &file.reason),
            (Status::Skipped, &skip(reason))
        );
    }
    assert!(sim.state.lock().unwrap().steps.is_empty());
}

#[test]
fn failures_and_panics_stay_with_their_file() {
    let sim = Simulated::new();
    let mut plans = ["panics-at-open", "panics-in-step", "fails-in-step"]
        .map(|name| sim.file(name, 1024, BLOCK))
        .to_vec();
    plans.extend((0..10).map(|n| sim.file(&format!("{n}"), 16, BLOCK)));
    let result = sim.run(plans, &options());
    assert_eq!(result.totals.files_moved, 10);
    assert_eq!(result.totals.files_failed, 3);
    let text = |name| find(&result, name).reason.as_ref().unwrap().to_string();
    assert!(text("panics-at-open").contains("as it was told"));
    assert!(text("panics-in-step").contains("as it was told"));
    assert!(text("fails-in-step").contains("move extents"));
}

/// Run, and count how often it is told that a device is full.
fn run_and_count_full(
    sim: &Simulated,
    plans: Vec<FilePlan>,
    options: &RunOptions,
) -> (RunResult, u64) {
    let told = AtomicU64::new(0);
    let observer = |event: RunEvent<'_>| {
        if let RunEvent::DeviceFull { .. } = event {
            told.fetch_add(1, Ordering::Relaxed);
        }
    };
    let result = sim.run_until(plans, options, &Cancel::new(), &observer);
    (result, told.into_inner())
}

/// Each further file would fail as well.
#[test]
fn nothing_more_is_moved_where_the_device_is_full() {
    let sim = Simulated::new();
    // The most gain for each byte is of the shortest fragments.
    let mut plans = vec![sim.file("device-is-full", 1024, BLOCK)];
    plans.extend((0..10).map(|n| sim.file(&format!("{n}"), 16, 16 * BLOCK)));
    let one = RunOptions {
        jobs: 1,
        ..options()
    };
    let (result, told) = run_and_count_full(&sim, plans, &one);
    let totals = result.totals;
    assert_eq!((totals.files_failed, totals.files_moved), (1, 0));
    assert_eq!(find(&result, "device-is-full").status, Status::Failed);
    assert_eq!(sim.state.lock().unwrap().begun.len(), 1);
    assert_eq!(result.stopped, Some(StopCause::DeviceFull));
    let unfinished = result.files.iter().filter(|file| file.is_unfinished());
    assert_eq!(unfinished.count(), 10);
    assert_eq!(told, 1);
}

/// The space of trees may be what there was none of.
#[test]
fn a_file_system_without_space_is_no_full_device() {
    let sim = Simulated::new();
    let plans = vec![sim.file("device-is-full-is-crowded", 1024, BLOCK)];
    let (result, told) = run_and_count_full(&sim, plans, &options());
    assert_eq!(result.files[0].status, Status::Failed);
    assert_eq!((told, result.stopped), (0, None));
}

/// It is why there are more of them.
#[test]
fn what_may_be_lost_is_told_whatever_the_fragments_are() {
    let sim = Simulated::new();
    let plan = sim.file("device-is-full-becomes-worse", 4, 256 * BLOCK);
    let result = sim.run(vec![plan], &options());
    let file = &result.files[0];
    assert_eq!((file.status, file.extents_after), (Status::Failed, 1000));
    assert!(file.is_unwritten(), "{:?}", file.reason);
}

#[test]
fn a_file_that_ends_with_more_fragments_is_a_failure() {
    let sim = Simulated::new();
    let plan = sim.file("becomes-worse", 4, 256 * BLOCK);
    let result = sim.run(vec![plan], &options());
    assert_eq!(result.files[0].status, Status::Failed);
    assert_eq!(result.files[0].extents_after, 1000);
    assert!(
        result.files[0]
            .reason
            .as_ref()
            .unwrap()
            .to_string()
            .contains("more fragments than before (1000 instead of 4)")
    );
}

/// Programs that copy in place write, and then set the time of what they copied: that of before, perhaps.
#[test]
fn a_file_that_was_written_and_has_its_time_of_before_is_none() {
    let sim = Simulated::new();
    let plan = sim.file("becomes-worse-as-written-with-old-times", 4, 256 * BLOCK);
    let result = sim.run(vec![plan], &options());
    let file = &result.files[0];
    assert_eq!((file.status, &file.reason), (Status::Moved, &None));
    assert_eq!(file.extents_after, 1000);
}

#[test]
fn a_file_that_the_file_system_collects_garbage_of_is_none() {
    let sim = Simulated::new();
    let plan = sim.file("becomes-worse-garbage-collected", 4, 256 * BLOCK);
    let result = sim.run(vec![plan], &options());
    let file = &result.files[0];
    assert_eq!(file.status, Status::Moved);
    assert_eq!(file.reason, skip(SkipReason::Collected));
    assert_eq!((file.extents_before, file.extents_after), (4, 1000));
}

#[test]
fn no_more_is_written_than_the_budget_and_the_best_goes_first() {
    let sim = Simulated::new();
    // The same bytes, more and more fragments.
    let plans: Vec<_> = (1..=10)
        .map(|n| sim.file(&format!("{n}"), 16 * n, 10 * MIB / (16 * n) / BLOCK * BLOCK))
        .collect();
    let options = RunOptions {
        budget: Some(Bytes::mib(35)),
        jobs: 1,
        ..options()
    };
    let result = sim.run(plans, &options);
    assert!(result.totals.bytes_relocated <= Bytes::mib(35));
    assert_eq!(result.totals.files_moved, 3);
    for name in ["10", "9", "8"] {
        assert_eq!(find(&result, name).status, Status::Moved);
    }
    assert_eq!(find(&result, "1").reason, skip(SkipReason::OverBudget));
    assert!(result.stopped.is_none());
}

#[test]
fn bytes_beyond_what_an_engine_said_are_those_of_other_files() {
    let sim = Simulated::new();
    // The first one has the most fragments, and is moved first.
    let plans = ["writes-twice", "second", "third"]
        .iter()
        .zip([64, 32, 16])
        .map(|(name, fragments)| sim.file(name, fragments, 64 / fragments * BLOCK))
        .collect();
    let options = RunOptions {
        jobs: 1,
        ..options()
    };
    let result = sim.run(plans, &options);
    let reasons =
        ["writes-twice", "second", "third"].map(|name| find(&result, name).reason.clone());
    assert_eq!(reasons, [None, None, skip(SkipReason::BeyondPlan)]);
}

/// Nobody else keeps a deleted file, and what is allocated ahead is missing to others.
#[test]
fn a_move_ends_where_others_need_its_space() {
    for (name, min_free_pct, reason) in [
        ("is-deleted", 0.0, skip(SkipReason::Gone)),
        ("is-crowded", 5.0, skip(SkipReason::NoSpace)),
        // Others leave 2 %, more than half of that.
        ("is-crowded", 3.0, None),
    ] {
        let sim = Simulated::new();
        let plan = sim.file(name, 64, 16 * BLOCK);
        let options = RunOptions {
            min_free_pct,
            ..options()
        };
        let result = sim.run(vec![plan], &options);
        assert_eq!(result.files[0].reason, reason, "{name}");
        let steps = sim.state.lock().unwrap().steps.len();
        assert_eq!(steps == 1, reason.is_some(), "{name}: {steps}");
    }
}

/// A file that is written while it is copied is copied once more, from what the others leave.
#[test]
fn what_is_copied_again_is_within_the_limits() {
    for (names, budget, reasons, copied) in [
        (
            &["changes"][..],
            None,
            &[skip(SkipReason::BeyondPlan)][..],
            64,
        ),
        (
            &["changes", "second"],
            None,
            &[None, skip(SkipReason::BeyondPlan)],
            128,
        ),
        (
            &["changes", "second"],
            Some(96),
            &[skip(SkipReason::OverBudget), skip(SkipReason::OverBudget)],
            64,
        ),
        (
            &["first", "changes"],
            None,
            &[None, skip(SkipReason::BeyondPlan)],
            128,
        ),
    ] {
        let sim = Simulated::new();
        sim.state.lock().unwrap().copies = true;
        // The first one has the most fragments, and is moved first.
        let plans = (names.iter().zip([64, 32]))
            .map(|(name, fragments)| sim.file(name, fragments, 64 / fragments * BLOCK))
            .collect();
        let options = RunOptions {
            jobs: 1,
            budget: budget.map(|blocks| Bytes(blocks * BLOCK)),
            ..options()
        };
        let open = Mutex::new(0);
        let observer = |event: RunEvent<'_>| match event {
            RunEvent::Reserved { bytes, .. } => *open.lock().unwrap() += bytes.get(),
            RunEvent::Settled {
                reserved, spent, ..
            } => {
                assert!(spent <= reserved);
                *open.lock().unwrap() -= reserved.get();
            }
            _ => {}
        };
        let result = sim.run_until(plans, &options, &Cancel::new(), &observer);
        let told: Vec<_> = { names.iter() }
            .map(|name| find(&result, name).reason.clone())
            .collect();
        assert_eq!(told, reasons, "{names:?}");
        assert_eq!(
            sim.state.lock().unwrap().copied,
            copied * BLOCK,
            "{names:?}"
        );
        assert_eq!(open.into_inner().unwrap(), 0);
    }
}

#[test]
fn no_more_is_written_than_the_plans_said() {
    let sim = Simulated::new();
    let mut plan = sim.file("whole-file-engine", 64, BLOCK);
    // Only a quarter was planned, but the engine can only move all of it.
    for chunk in &mut plan.chunks {
        chunk.range.len = Bytes(16 * BLOCK);
        chunk.cost = Bytes(16 * BLOCK);
    }
    sim.state.lock().unwrap().splits = false;
    for (budget, reason) in [
        (None, SkipReason::BeyondPlan),
        (Some(Bytes(8 * BLOCK)), SkipReason::OverBudget),
    ] {
        let options = RunOptions {
            budget,
            ..options()
        };
        let result = sim.run(vec![plan.clone()], &options);
        assert_eq!(result.files[0].reason, skip(reason), "{budget:?}");
        assert!(sim.state.lock().unwrap().begun.is_empty());
    }
}

#[test]
fn a_part_that_fits_the_budget_is_moved() {
    let sim = Simulated::new();
    let mut plan = sim.file("parts", 64, BLOCK);
    let chunk = plan.chunks[0];
    plan.chunks = (0..4)
        .map(|n| indef_core::plan::Chunk {
            range: FileRange::new(n * 16 * BLOCK, 8 * BLOCK),
            cost: Bytes(8 * BLOCK),
            ..chunk
        })
        .collect();
    let options = RunOptions {
        budget: Some(Bytes(17 * BLOCK)),
        ..options()
    };
    let result = sim.run(vec![plan], &options);
    let file = &result.files[0];
    assert_eq!(file.status, Status::Moved);
    assert_eq!(file.reason, skip(SkipReason::OverBudget));
    assert_eq!(file.bytes_relocated, Bytes(16 * BLOCK));
    assert_eq!(file.bytes_planned, Bytes(32 * BLOCK));
    assert_eq!((file.extents_before, file.extents_after), (64, 64 - 14));
}

#[test]
fn of_a_half_moved_range_the_rest_is_enough_where_the_budget_is_short() {
    let sim = Simulated::new();
    let plan = sim.file("half-moved", 64, BLOCK);
    sim.contiguous("half-moved", FileRange::new(0, 48 * BLOCK));
    let options = RunOptions {
        budget: Some(Bytes(16 * BLOCK)),
        ..options()
    };
    let result = sim.run(vec![plan], &options);
    let file = &result.files[0];
    assert_eq!(file.status, Status::Moved);
    assert_eq!(file.reason, None);
    assert_eq!(file.bytes_relocated, Bytes(16 * BLOCK));
    assert_eq!((file.extents_before, file.extents_after), (17, 2));
}

#[test]
fn steps_stay_within_the_stall_limit() {
    let sim = Simulated::new();
    {
        let mut state = sim.state.lock().unwrap();
        state.per_mib = Duration::from_millis(20);
    }
    let plan = sim.file("slow", 1024, 64 * BLOCK);
    let options = RunOptions {
        max_stall: Duration::from_millis(8),
        ..options()
    };
    let result = sim.run(vec![plan], &options);
    assert_eq!(result.totals.files_moved, 1);
    let state = sim.state.lock().unwrap();
    // The smallest step is within the limit.
    let longest = state.steps.iter().map(|(_, bytes)| *bytes).max();
    assert!(longest.unwrap() <= MIB / 4, "{longest:?}");
    assert!(state.steps.len() < 2000, "{}", state.steps.len());
    assert_eq!(result.longest_lock.get(), 5_010_000);
    assert_eq!(result.stalls_over_limit, 0);
}

#[test]
fn each_stall_of_a_step_counts() {
    let sim = Simulated::new();
    {
        let mut state = sim.state.lock().unwrap();
        state.fixed = Duration::from_millis(9);
        state.further_stalls = 3;
    }
    let options = RunOptions {
        max_stall: Duration::from_millis(8),
        ..options()
    };
    let result = sim.run(vec![sim.file("file", 4, BLOCK)], &options);
    assert_eq!(result.stalls_over_limit, 4);
}

/// A child process has address space for so many further threads, and no more.
#[test]
fn a_run_goes_on_with_the_threads_that_there_are() {
    const STACK: u64 = 1 << 30;
    const VARIABLE: &str = "INDEF_TEST_THREADS";
    let Some(threads) = std::env::var(VARIABLE).ok() else {
        for threads in ["0", "2"] {
            let name = "run::tests::a_run_goes_on_with_the_threads_that_there_are";
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name])
                .env(VARIABLE, threads)
                .env("RUST_MIN_STACK", STACK.to_string())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{threads} threads: {said}");
            assert!(said.contains("1 passed"), "{said}");
        }
        return;
    };
    let sim = Simulated::new();
    let plans = (0..20)
        .map(|n| sim.file(&format!("{n}"), 4, BLOCK))
        .collect();
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let most = pages * rustix::param::page_size() as u64;
    let room = threads.parse::<u64>().unwrap() * (STACK + (128 << 20)) + (256 << 20);
    let limit = rustix::process::Rlimit {
        current: Some(most + room),
        maximum: None,
    };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
    let options = RunOptions {
        jobs: 8,
        ..options()
    };
    assert_eq!(sim.run(plans, &options).totals.files_moved, 20);
}

#[test]
fn the_rate_is_kept_with_and_without_copying() {
    for copies in [false, true] {
        let sim = Simulated::new();
        sim.state.lock().unwrap().copies = copies;
        let plans: Vec<_> = (0..4)
            .map(|n| sim.file(&format!("{n}"), 64, 4 * BLOCK))
            .collect();
        let options = RunOptions {
            rate: Some(Bytes::mib(8)),
            ..options()
        };
        let progress = Mutex::new(Bytes::ZERO);
        let observer = |event: RunEvent<'_>| {
            if let RunEvent::Progress { bytes } = event {
                *progress.lock().unwrap() += bytes;
            }
        };
        let result = sim.run_until(plans, &options, &Cancel::new(), &observer);
        // 4 MiB at 8 MiB/s, less the burst at the beginning and the bytes that are paid for
        // afterwards.
        assert!(result.duration >= Duration::from_millis(250), "{result:?}");
        assert!(result.duration < Duration::from_secs(30));
        assert_eq!(result.totals.bytes_relocated, Bytes::mib(4));
        let host = if copies { Bytes::mib(4) } else { Bytes::ZERO };
        assert_eq!(result.totals.bytes_host_written, host);
        assert_eq!(progress.into_inner().unwrap(), Bytes::mib(4));
    }
}

#[test]
fn an_engine_that_moves_files_together_gets_many_unless_somebody_said_how_many() {
    const FILES: u64 = 24;
    const SIZE: u64 = 64 * BLOCK;
    let most_at_once = |jobs, rate| {
        let sim = Simulated::new();
        {
            let mut state = sim.state.lock().unwrap();
            state.gathers = 16;
            state.sleeps = true;
            state.fixed = Duration::from_millis(100);
        }
        let plans: Vec<_> = (0..FILES)
            .map(|n| sim.file(&format!("{n}"), 64, BLOCK))
            .collect();
        let options = RunOptions {
            jobs,
            rate,
            ..options()
        };
        let result = sim.run(plans, &options);
        assert_eq!(result.totals.bytes_relocated, Bytes(FILES * SIZE));
        let state = sim.state.lock().unwrap();
        state.most_taken / SIZE
    };
    let many = most_at_once(0, None);
    assert!((8..=16).contains(&many), "{many}");
    assert!(most_at_once(3, None) <= 3);
    assert!(most_at_once(0, Some(Bytes::gib(1))) <= 4);
}

#[test]
fn workers_for_files_that_are_moved_together_leave_those_of_another_file_system_alone() {
    const FILES: usize = 40;
    let sim = Simulated::new();
    {
        let mut state = sim.state.lock().unwrap();
        state.gathers = 32;
        state.sleeps = true;
        state.fixed = Duration::from_millis(50);
    }
    let plans: Vec<_> = (0..FILES)
        .map(|n| ["", "other-"][n % 2].to_owned() + &n.to_string())
        .map(|name| sim.file(&name, 64, BLOCK))
        .collect();
    let options = RunOptions {
        jobs: 0,
        ..options()
    };
    let result = sim.run(plans, &options);
    assert_eq!(result.totals.files_moved, FILES as u64);
    let others = sim.state.lock().unwrap().most_others;
    assert!(others <= options.workers(), "{others}");
}

#[test]
fn files_that_are_moved_together_have_one_step_size() {
    let first_step_of_the_last_file = |gathers| {
        let sim = Simulated::new();
        sim.state.lock().unwrap().gathers = gathers;
        let plans: Vec<_> = (0..4)
            .map(|n| sim.file(&format!("{n}"), 2048, 4 * BLOCK))
            .collect();
        let options = RunOptions {
            jobs: 1,
            ..options()
        };
        sim.run(plans, &options);
        let state = sim.state.lock().unwrap();
        let last = *state.begun.last().unwrap();
        let steps = state.steps.iter().filter(|(inode, _)| *inode == last);
        steps.map(|(_, bytes)| *bytes).next().unwrap()
    };
    assert_eq!(first_step_of_the_last_file(0), 256 << 10);
    assert!(first_step_of_the_last_file(16) >= 2 << 20);
}

#[test]
fn a_stop_comes_after_the_current_step_and_the_rest_is_named() {
    let sim = Simulated::new();
    {
        let mut state = sim.state.lock().unwrap();
        state.fixed = Duration::from_millis(5);
        state.sleeps = true;
    }
    let plans: Vec<_> = (0..20)
        .map(|n| sim.file(&format!("{n}"), 2048, 16 * BLOCK))
        .collect();
    let cancel = Cancel::new();
    let stopping = AtomicBool::new(false);
    let observer = |event: RunEvent<'_>| match event {
        RunEvent::FileDone(_) => cancel.cancel(),
        RunEvent::Stopping(cause) => {
            assert_eq!(cause, StopCause::Cancelled);
            stopping.store(true, Ordering::Relaxed);
        }
        _ => {}
    };
    let result = sim.run_until(plans, &options(), &cancel, &observer);
    assert_eq!(result.stopped, Some(StopCause::Cancelled));
    assert!(stopping.into_inner());
    assert_eq!(result.files.len(), 20);
    let unfinished = result.files.iter().filter(|f| f.is_unfinished()).count();
    assert!((17..20).contains(&unfinished), "{unfinished}");
}

#[test]
fn the_time_limit_ends_a_run() {
    let sim = Simulated::new();
    {
        let mut state = sim.state.lock().unwrap();
        state.fixed = Duration::from_millis(10);
        state.sleeps = true;
    }
    let plan = sim.file("long", 2048, 128 * BLOCK);
    let options = RunOptions {
        time_limit: Some(Duration::from_millis(700)),
        max_stall: Duration::from_millis(1),
        ..options()
    };
    let begin = Instant::now();
    let result = sim.run(vec![plan], &options);
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert_eq!(result.stopped, Some(StopCause::TimeLimit));
    assert_eq!(result.files[0].reason, skip(SkipReason::Stopped));
    assert_eq!(result.files[0].status, Status::Moved);
}

#[test]
fn what_no_step_has_told_of_is_told_when_a_run_is_stopped() {
    let sim = Simulated::new();
    {
        let mut state = sim.state.lock().unwrap();
        state.fixed = Duration::from_millis(10);
        state.sleeps = true;
    }
    let plan = sim.file("tells-late", 2048, 128 * BLOCK);
    let options = RunOptions {
        time_limit: Some(Duration::from_millis(300)),
        max_stall: Duration::from_millis(1),
        ..options()
    };
    let result = sim.run(vec![plan], &options);
    let moved: u64 = sim
        .state
        .lock()
        .unwrap()
        .steps
        .iter()
        .map(|step| step.1)
        .sum();
    let file = &result.files[0];
    assert_eq!(file.reason, skip(SkipReason::Stopped));
    assert_eq!(file.status, Status::Moved);
    assert!(moved > 0);
    assert_eq!(file.bytes_relocated, Bytes(moved));
    assert_eq!(file.bytes_host_written, Bytes(moved));
}

/// Which engine takes a file may follow from the look at it, and from the engine how its runs are cut.
#[test]
fn a_long_file_that_others_may_share_is_written_back_and_looked_at_once() {
    let sim = Simulated::new();
    {
        let mut state = sim.state.lock().unwrap();
        (state.keeps_sharing, state.splits) = (true, false);
    }
    let plan = sim.file("large", 3 << 14, 16 * BLOCK);
    let result = sim.run(vec![plan], &options());
    assert_eq!(result.files[0].status, Status::Moved);
    assert_eq!(result.files[0].extents_after, 1);
    let maps = sim.state.lock().unwrap().maps.clone();
    assert_eq!(maps.iter().filter(|sync| **sync).count(), 1, "{maps:?}");
}

/// What it holds is asked for once it is written back, and then it is mapped, in six windows.
#[test]
fn a_long_file_that_lets_extents_go_is_written_back_and_looked_at_once() {
    let sim = Simulated::new();
    let plan = sim.file("large", 3 << 14, 16 * BLOCK);
    let options = RunOptions {
        reclaim_ratio: Some(0.25),
        ..options()
    };
    let result = sim.run(vec![plan], &options);
    assert_eq!(result.files[0].reason, skip(SkipReason::AllReached));
    assert_eq!(result.files[0].extents_before, 3 << 14);
    let maps = sim.state.lock().unwrap().maps.clone();
    assert_eq!(maps, [true, false, false, false, false, false, false]);
}

#[test]
fn nothing_left_to_do_is_not_stopped() {
    let sim = Simulated::new();
    let plan = sim.file("one", 4, BLOCK);
    let cancel = Cancel::new();
    let observer = |event: RunEvent<'_>| {
        if matches!(event, RunEvent::FileDone(_)) {
            cancel.cancel();
        }
    };
    let result = sim.run_until(vec![plan], &options(), &cancel, &observer);
    assert_eq!(result.stopped, None);
}

#[test]
fn free_space_is_kept_however_many_donors_there_are() {
    let sim = Simulated::new();
    {
        let mut state = sim.state.lock().unwrap();
        state.free = 100 * MIB;
        state.fixed = Duration::from_millis(2);
        state.sleeps = true;
    }
    let mut plans: Vec<_> = (0..12)
        .map(|n| sim.file(&format!("{n}"), 2560, 4 * BLOCK))
        .collect();
    plans.push(sim.file("large", 5120, 5 * BLOCK));
    let options = RunOptions {
        jobs: 8,
        min_free_pct: 20.0,
        ..options()
    };
    let result = sim.run(plans, &options);
    assert_eq!(find(&result, "large").reason, skip(SkipReason::NoSpace));
    assert_eq!(result.totals.files_moved, 12);
    let state = sim.state.lock().unwrap();
    assert!(state.most_taken <= 80 * MIB, "{}", state.most_taken);
    assert!(state.most_taken >= 40 * MIB, "{}", state.most_taken);
}

/// What others have written is written back with it, and may not find a place.
#[test]
fn where_a_commit_for_room_fails_there_is_none() {
    let sim = Simulated::new();
    let job = FileJob::new(sim.file("file", 2, BLOCK));
    let target = sim.open(&job).unwrap();
    let options = RunOptions {
        reclaim_ratio: Some(0.25),
        ..options()
    };
    let volumes = Volumes::default();
    let volume = volumes
        .of(&sim, &target, &options, &())
        .unwrap_or_else(|_| panic!());
    {
        let mut state = sim.state.lock().unwrap();
        state.free = 100 * MIB;
        state.commits_fail = true;
    }
    let (cancel, needed) = (Cancel::new(), Bytes::mib(101));
    let taken = volume
        .room
        .take(&sim, &target, needed, &Stop::new(&cancel, None));
    assert_eq!(taken.err(), skip(SkipReason::NoSpace));
}

/// Subvolumes have device numbers of their own.
#[test]
fn what_is_on_one_file_system_has_one_room() {
    let sim = Simulated::new();
    let volumes = Volumes::default();
    let [one, other] = ["one", "other"].map(|name| {
        let job = FileJob::new(sim.file(name, 2, BLOCK));
        let target = sim.open(&job).unwrap();
        volumes
            .of(&sim, &target, &options(), &())
            .unwrap_or_else(|reason| panic!("{reason}"))
    });
    assert!(!Arc::ptr_eq(&one, &other));
    assert!(Arc::ptr_eq(&one.room, &other.room));
}

#[test]
fn a_large_file_is_shared_by_all_workers_in_pieces_of_a_gib() {
    let sim = Simulated::new();
    {
        let mut state = sim.state.lock().unwrap();
        state.per_mib = Duration::from_nanos(10_000);
        state.sleeps = true;
    }
    // 5.5 GiB in 64 KiB pieces.
    let fragments = 11 << 13;
    let plan = sim.file("large", fragments, 16 * BLOCK);
    let result = sim.run(vec![plan.clone()], &options());
    assert_eq!(result.files[0].status, Status::Moved);
    assert_eq!(result.files[0].extents_after, 5);
    assert_eq!(sim.state.lock().unwrap().begun.len(), 5);
    let before = &result.maps[0].before;
    assert_eq!(before.iter().map(|e| e.fragments).sum::<u64>(), fragments);
    // Where the engine can only exchange a whole file, it stays whole.
    let sim = Simulated::new();
    sim.state.lock().unwrap().splits = false;
    let plan = sim.file("large", fragments, 16 * BLOCK);
    let result = sim.run(vec![plan], &options());
    assert_eq!(result.files[0].extents_after, 1);
}

#[test]
fn a_dry_run_says_what_would_be_written_and_writes_nothing() {
    let sim = Simulated::new();
    let plan = sim.file("file", 64, BLOCK);
    let options = RunOptions {
        dry_run: true,
        ..options()
    };
    let result = sim.run(vec![plan], &options);
    let file = &result.files[0];
    assert_eq!(file.status, Status::Skipped);
    assert_eq!(file.reason, Some(Reason::DryRun));
    assert_eq!(file.bytes_planned, Bytes(64 * BLOCK));
    assert!(sim.state.lock().unwrap().begun.is_empty());
}

#[test]
fn an_engine_that_is_not_there_is_a_skip() {
    let sim = Simulated::new();
    let plan = sim.file("file", 64, BLOCK);
    let options = RunOptions {
        engine: Some(indef_fs::EngineKind::XfsSwapExtents),
        ..options()
    };
    let result = sim.run(vec![plan], &options);
    assert_eq!(result.files[0].reason, skip(SkipReason::NoEngine));
    assert_eq!(result.files[0].status, Status::Skipped);
}

#[test]
fn what_the_device_did_not_take_is_told_after_the_file_was_done() {
    let sim = Simulated::new();
    let plans = ["a", "b", "c"].map(|name| sim.file(name, 8, BLOCK));
    sim.state.lock().unwrap().unwritten = ["b", "c"].map(|name| sim.path(name)).into();
    let (done, told) = (Mutex::new(0), Mutex::new(BTreeMap::new()));
    let observer = |event: RunEvent<'_>| match event {
        RunEvent::FileDone(file) => {
            assert_eq!(file.status, Status::Moved);
            *lock(&done) += 1;
        }
        RunEvent::Result(file) => {
            assert_eq!(*lock(&done), 3, "a result comes when all is written back");
            let reason = file.reason.as_ref().map(ToString::to_string);
            let told_of = (file.status, file.is_unwritten(), reason);
            lock(&told).insert(file.path.clone(), told_of);
        }
        _ => {}
    };
    let result = sim.run_until(plans.to_vec(), &options(), &Cancel::new(), &observer);
    let totals = result.totals;
    assert_eq!((totals.files_moved, totals.files_failed), (1, 2));
    assert_eq!(totals.files_unwritten, 2);
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), 3);
    assert_eq!(told[&sim.path("a")], (Status::Moved, false, None));
    for path in ["b", "c"].map(|name| sim.path(name)) {
        let (status, is_unwritten, reason) = &told[&path];
        assert_eq!((*status, *is_unwritten), (Status::Failed, true));
        let reason = reason.as_deref().unwrap();
        let what = format!("{}: write back moved data failed", path.display());
        assert!(reason.starts_with(&what), "{reason}");
        assert!(reason.contains("copy the file elsewhere"), "{reason}");
    }
}

#[test]
fn what_is_not_durable_is_told_after_the_file_was_done() {
    let sim = Simulated::new();
    let failing = [
        ("checkpoints-off", "checkpoint=disable"),
        ("no-checkpoint", "back at its old place"),
    ];
    let names = ["a", failing[0].0, failing[1].0];
    let plans = names.map(|name| sim.file(name, 8, BLOCK));
    sim.state.lock().unwrap().unwritten = failing.map(|(name, _)| sim.path(name)).into();
    let late = Mutex::new(0);
    let observer = |event: RunEvent<'_>| match event {
        RunEvent::Result(file) if file.has_failed_late() => *lock(&late) += 1,
        _ => {}
    };
    let result = sim.run_until(plans.to_vec(), &options(), &Cancel::new(), &observer);
    let totals = result.totals;
    assert_eq!((totals.files_moved, totals.files_failed), (1, 2));
    // Their contents are on the device, wherever.
    assert_eq!((totals.files_unwritten, *lock(&late)), (0, 2));
    for (name, said) in failing {
        let failed = result.files.iter().find(|it| it.path == sim.path(name));
        let reason = failed.unwrap().reason.as_ref().unwrap().to_string();
        assert!(reason.contains(said), "{reason}");
        assert!(!reason.contains("copy the file elsewhere"), "{reason}");
    }
}

#[test]
fn what_is_reserved_is_settled() {
    let sim = Simulated::new();
    let mut plans = vec![
        sim.file("fails-in-step", 1024, BLOCK),
        sim.file("panics-in-step", 16, BLOCK),
        sim.file("no-better-place", 16, BLOCK),
    ];
    plans.push(sim.file("good", 16, BLOCK));
    let open = Mutex::new(std::collections::HashMap::new());
    let spent = Mutex::new(Bytes::ZERO);
    let observer = |event: RunEvent<'_>| match event {
        RunEvent::Reserved { id, bytes } => {
            open.lock().unwrap().insert(id.inode, bytes);
        }
        RunEvent::Settled {
            id,
            reserved,
            spent: now,
        } => {
            assert_eq!(open.lock().unwrap().remove(&id.inode), Some(reserved));
            assert!(now <= reserved);
            *spent.lock().unwrap() += now;
        }
        _ => {}
    };
    sim.run_until(plans, &options(), &Cancel::new(), &observer);
    assert!(open.into_inner().unwrap().is_empty());
    // Everything that failed counts in full, everything that was refused not at all.
    assert_eq!(spent.into_inner().unwrap(), Bytes((1024 + 16 + 16) * BLOCK));
}

#[test]
fn a_file_that_moved_along_says_so() {
    let sim = Simulated::new();
    let plans = [
        ("leader", 16, BLOCK),
        ("follower", 8, 2 * BLOCK),
        ("in-part", 16, 2 * BLOCK),
        ("contiguous", 8, 2 * BLOCK),
    ]
    .map(|(name, fragments, fragment)| sim.file(name, fragments, fragment));
    let id = |plan: &FilePlan| indef_fs::TargetId {
        dev: plan.dev,
        inode: plan.inode,
    };
    sim.contiguous("contiguous", FileRange::new(0, 16 * BLOCK));
    let sharers = plans[1..3].iter().map(id).collect();
    let leader = plans[0].inode;
    sim.state.lock().unwrap().sharers.insert(leader, sharers);
    let alone = RunOptions {
        jobs: 1,
        ..options()
    };
    let result = sim.run(plans.to_vec(), &alone);
    let told = |name| {
        let file = find(&result, name);
        (file.status, file.reason.clone())
    };
    assert_eq!(told("leader"), (Status::Moved, None));
    let along = (Status::Skipped, skip(SkipReason::MovedAlong));
    assert_eq!(told("follower"), along);
    assert_eq!(told("in-part"), (Status::Moved, None));
    let contiguous = (Status::Skipped, skip(SkipReason::Contiguous));
    assert_eq!(told("contiguous"), contiguous);
    assert_eq!(
        (result.totals.files_moved, result.totals.files_failed),
        (2, 0)
    );
}

#[test]
fn what_is_read_to_go_back_counts_in_the_budget_and_the_rate() {
    let sim = Simulated::new();
    let plans = || {
        [("goes-back", BLOCK), ("good", 2 * BLOCK)]
            .map(|(name, fragment)| sim.file(name, 16, fragment))
            .to_vec()
    };
    let run = |budget, rate| {
        let options = RunOptions {
            jobs: 1,
            budget: Some(budget),
            rate,
            ..options()
        };
        let begun = Instant::now();
        let result = sim.run(plans(), &options);
        let back = &find(&result, "goes-back").reason;
        assert_eq!(*back, skip(SkipReason::HoldersUnknown));
        (find(&result, "good").reason.clone(), begun.elapsed())
    };
    assert_eq!(run(Bytes::mib(16), None).0, None);
    assert_eq!(run(Bytes::mib(4), None).0, skip(SkipReason::OverBudget));
    // 8 MiB at 20 MiB/s, less the burst.
    let (good, time) = run(Bytes::mib(16), Some(Bytes::mib(20)));
    assert_eq!(good, None);
    assert!(time >= Duration::from_millis(290), "{time:?}");
}

#[test]
fn an_observer_that_panics_ends_the_run_instead_of_hanging_it() {
    let sim = Simulated::new();
    let plans: Vec<_> = (0..20)
        .map(|n| sim.file(&format!("{n}"), 4, BLOCK))
        .collect();
    let observer = |event: RunEvent<'_>| {
        assert!(
            !matches!(event, RunEvent::FileStarted { .. }),
            "as it was told"
        );
    };
    let ended = catch_unwind(AssertUnwindSafe(|| {
        sim.run_until(plans, &options(), &Cancel::new(), &observer)
    }));
    // Panics while a file is opened are that file's failure, whoever panics.
    assert_eq!(ended.unwrap().totals.files_failed, 20);
    let plans: Vec<_> = (0..20)
        .map(|n| sim.file(&format!("{n}"), 4, BLOCK))
        .collect();
    let observer = |event: RunEvent<'_>| {
        assert!(!matches!(event, RunEvent::FileDone(_)), "as it was told");
    };
    let ended = catch_unwind(AssertUnwindSafe(|| {
        sim.run_until(plans, &options(), &Cancel::new(), &observer)
    }));
    assert!(ended.is_err());
}

#[test]
fn an_observer_that_stops_the_run_has_nothing_more_begun() {
    let sim = Simulated::new();
    let plans: Vec<_> = (0..20)
        .map(|n| sim.file(&n.to_string(), 8, BLOCK))
        .collect();
    let cancel = Cancel::new();
    let observer = |event: RunEvent<'_>| {
        if let RunEvent::Reserved { .. } = event {
            cancel.cancel();
        }
    };
    let result = sim.run_until(plans, &options(), &cancel, &observer);
    assert!(sim.state.lock().unwrap().begun.is_empty());
    assert_eq!(result.stopped, Some(StopCause::Cancelled));
    assert!(result.files.iter().all(FileResult::is_unfinished));
}

#[test]
fn what_is_left_of_a_file_that_cannot_be_written_back_is_left_to_do() {
    let sim = Simulated::new();
    let plans = vec![sim.file("a", 8, BLOCK)];
    sim.state.lock().unwrap().unwritten = vec![sim.path("a")];
    let (cancel, told) = (Cancel::new(), Mutex::new(0));
    let observer = |event: RunEvent<'_>| match event {
        RunEvent::Reserved { .. } => cancel.cancel(),
        RunEvent::Result(file) => {
            assert!(file.is_unwritten());
            *lock(&told) += 1;
        }
        _ => {}
    };
    let result = sim.run_until(plans, &options(), &cancel, &observer);
    assert_eq!(*lock(&told), 1);
    assert_eq!(result.stopped, Some(StopCause::Cancelled));
}
