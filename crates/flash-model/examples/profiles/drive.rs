//! A device and the loads that go to it.

use std::{cmp::Reverse, collections::BinaryHeap};

use flash_model::{Command, Device, Done, NamespaceKind, NamespaceSpec, Placement, Profile};
use units::{Bytes, Nanos};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;

/// A device of a built-in profile with one namespace.
pub(crate) fn device(profile: &str, kind: NamespaceKind, size: u64) -> Device {
    let profile = Profile::builtin(profile).expect("it is built in");
    with_namespace(&profile, kind, size)
}

pub(crate) fn zoned(profile: &str, size: u64) -> Device {
    device(profile, NamespaceKind::Zoned, size)
}

pub(crate) fn zoned_as(profile: &Profile, size: u64) -> Device {
    with_namespace(profile, NamespaceKind::Zoned, size)
}

fn with_namespace(profile: &Profile, kind: NamespaceKind, size: u64) -> Device {
    let size = Bytes(size);
    let spec = NamespaceSpec { kind, size };
    Device::new(profile, &[spec]).expect("the profile has room for the namespace")
}

/// Runs until the command is done; returns when.
pub(crate) fn run(device: &mut Device, now: u64, command: &Command<'_>) -> u64 {
    let accepted = device.submit(Nanos(now), 0, command);
    let done = accepted.expect("the command can be done").done;
    device.finish(done).expect("the command ends").0
}

pub(crate) fn write(offset: u64, len: u64) -> Command<'static> {
    Command::Write {
        offset,
        len,
        fua: false,
        placement: Placement::RoundRobin,
    }
}

/// Keeps `depth` commands in flight; returns when the last one is done.
pub(crate) fn closed_loop<'a>(
    device: &mut Device,
    now: u64,
    depth: usize,
    mut commands: impl Iterator<Item = Command<'a>>,
) -> u64 {
    let (mut time, mut last) = (now, now);
    let mut known = BinaryHeap::new();
    let (mut tickets, mut finished) = (0, Vec::new());
    loop {
        let room = known.len() + tickets < depth;
        if let Some(command) = room.then(|| commands.next()).flatten() {
            let accepted = device.submit(Nanos(time), 0, &command);
            match accepted.expect("the command can be done").done {
                Done::At(end) => {
                    known.push(Reverse(end.0));
                    last = last.max(end.0);
                }
                Done::Later(_) => tickets += 1,
            }
            continue;
        }
        let next_known = known.peek().map_or(u64::MAX, |end| end.0);
        let event = device.next_event().filter(|_| tickets > 0);
        match event.filter(|next| next.0 < next_known) {
            Some(next) => {
                device.advance(next, &mut finished);
                for (_, end) in finished.drain(..) {
                    tickets -= 1;
                    last = last.max(end.0);
                    known.push(Reverse(end.0));
                }
            }
            None if known.pop().is_some() => time = time.max(next_known),
            None => return last,
        }
    }
}

/// Writes from the start on, and waits until everything is on flash.
pub(crate) fn fill(device: &mut Device, bytes: u64) -> u64 {
    let writes = (0..bytes / MIB).map(|at| write(at * MIB, MIB));
    let written = closed_loop(device, 0, 4, writes);
    run(device, written, &Command::Flush)
}
