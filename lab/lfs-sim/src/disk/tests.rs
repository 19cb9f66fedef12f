use flash_model::{NamespaceKind, NamespaceSpec, Placement, Profile, ZoneState};
use units::Bytes;

use super::*;

const ZONE: u64 = 32 << 20;

/// Its first zone is full, the others are empty.
fn disk(queue_depth: usize) -> Disk {
    let spec = NamespaceSpec {
        kind: NamespaceKind::Zoned,
        size: Bytes::mib(128),
    };
    let profile = Profile::builtin("indef-femu").unwrap();
    let mut device = Device::new(&profile, &[spec]).unwrap();
    device.restore_zone(0, 0, ZoneState::Full, ZONE);
    Disk::new(device, queue_depth)
}

const fn write(offset: u64) -> Command<'static> {
    Command::Write {
        offset,
        len: 1 << 20,
        fua: false,
        placement: Placement::RoundRobin,
    }
}

/// Threads that each do a list of steps, and note when.
struct Script {
    steps: Vec<Vec<Step>>,
    log: Vec<(usize, u64)>,
    running: usize,
}

#[derive(Clone, Copy)]
enum Step {
    Sleep(u64),
    Write(u64),
    Read(u64),
    Slot,
    Park,
    Wake(usize),
}

impl Script {
    fn new(steps: &[&[Step]]) -> Self {
        Self {
            steps: steps
                .iter()
                .map(|steps| steps.iter().rev().copied().collect())
                .collect(),
            log: Vec::new(),
            running: steps.len(),
        }
    }
}

impl Program for Script {
    fn step(&mut self, thread: usize, disk: &mut Disk) -> Result<Next, Failure> {
        self.log.push((thread, disk.now().0));
        loop {
            return Ok(match self.steps[thread].pop() {
                None => {
                    self.running -= 1;
                    Next::Parked
                }
                Some(Step::Sleep(time)) => Next::At(Nanos(disk.now().0 + time)),
                Some(Step::Write(offset)) => {
                    let batch = disk.begin();
                    disk.submit(&write(offset), &[batch])?;
                    Next::Done(batch)
                }
                Some(Step::Read(offset)) => {
                    let batch = disk.begin();
                    let len = 1 << 20;
                    disk.submit(&Command::Read { offset, len }, &[batch])?;
                    Next::Done(batch)
                }
                Some(Step::Slot) => Next::Slot,
                Some(Step::Park) => Next::Parked,
                Some(Step::Wake(other)) => {
                    disk.wake(other);
                    continue;
                }
            });
        }
    }

    fn is_over(&self) -> bool {
        self.running == 0
    }
}

#[test]
fn threads_run_in_order_of_time_and_then_of_arrangement() {
    use Step::{Park, Sleep, Wake};
    let mut script = Script::new(&[
        &[Sleep(10), Sleep(5)],
        &[Sleep(10)],
        &[Park],
        &[Sleep(12), Wake(2)],
    ]);
    let elapsed = disk(1).run(&mut script, 4).unwrap();
    let expected = [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0),
        (0, 10),
        (1, 10),
        (3, 12),
        (2, 12),
        (0, 15),
    ];
    assert_eq!(script.log, expected);
    assert_eq!((elapsed.time, elapsed.steps), (Nanos(15), 9));
}

#[test]
fn a_thread_waits_for_its_commands_and_for_a_slot() {
    let mut script = Script::new(&[&[Step::Read(0)], &[Step::Slot]]);
    let mut disk = disk(1);
    let elapsed = disk.run(&mut script, 2).unwrap();
    let [.., (first, done), (second, slot)] = script.log[..] else {
        panic!("{:?}", script.log);
    };
    assert!(done > 0 && done == slot && first != second);
    assert_eq!(elapsed.commands, 1);
    assert_eq!(elapsed.stats.host_read_bytes, 1 << 20);
}

/// More than the device's buffer takes: the device knows the ends only later.
#[test]
fn time_never_goes_back_and_a_second_run_begins_when_all_is_done() {
    let offsets: Vec<Step> = (0..30).map(|mib| Step::Write(ZONE + (mib << 20))).collect();
    let mut script = Script::new(&[&offsets]);
    let mut disk = disk(64);
    let first = disk.run(&mut script, 1).unwrap();
    assert!(script.log.is_sorted_by_key(|(_, time)| *time));
    assert!(first.time.0 > 40_000_000, "{first:?}");
    assert!(first.busy_percent() > 50.0 && first.busy_percent() <= 100.0);
    let begun = disk.now();
    let mut script = Script::new(&[&[Step::Sleep(7)]]);
    assert_eq!(disk.run(&mut script, 1).unwrap().time, Nanos(7));
    assert!(disk.now() >= begun);
}

#[test]
fn threads_that_wait_for_each_other_are_told() {
    let mut script = Script::new(&[&[Step::Park]]);
    assert!(matches!(disk(1).run(&mut script, 1), Err(Failure::Stuck)));
    let mut script = Script::new(&[&[Step::Write(ZONE + 4096)]]);
    let failure = disk(1).run(&mut script, 1).unwrap_err().to_string();
    assert!(failure.contains("write pointer"), "{failure}");
}
