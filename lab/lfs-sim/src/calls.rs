//! A program that reads or overwrites data where it lies, past the cache: call by call, each waiting for all of its
//! requests.
//!
//! Overwriting is what ext4 does with data that has a place, and F2FS where it updates in place: no block gets another
//! place. The kernel collects some requests of a call before the device gets the first of them (a *plug*), so
//! what a processor does for these and what the device does come one after the other.

use std::collections::VecDeque;

use flash_model::{Command, Placement};
use indef_core::layout::{Extent, Layout};
use units::Nanos;

use crate::{
    block::{BLOCK, Block, Run},
    disk::{Batch, Disk, Elapsed, Failure, Next, Program},
    host::{Cpus, Limits},
    parameters::{HostParameters, Parameters},
};

/// The direction of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Update,
}

/// Reads or overwrites, with one call for each layout, the data that lies so; `plug`: requests of a call that
/// are collected before they are submitted.
///
/// # Errors
///
/// A place that the device does not have.
pub fn perform(
    parameters: &Parameters,
    disk: &mut Disk,
    calls: impl IntoIterator<Item = Layout>,
    direction: Direction,
    plug: usize,
) -> Result<Elapsed, Failure> {
    let mut program = Calls {
        kernel: Kernel::new(parameters, plug),
        caller: Caller::default(),
        direction,
        calls: calls.into_iter(),
        is_over: false,
    };
    disk.run(&mut program, 1)
}

/// Resources that callers share: processors, and how the kernel makes requests.
pub(crate) struct Kernel<'a> {
    host: &'a HostParameters,
    limits: Limits,
    cpus: Cpus,
    plug: usize,
}

impl<'a> Kernel<'a> {
    /// The kernel of a host that is idle.
    pub(crate) fn new(parameters: &'a Parameters, plug: usize) -> Self {
        let host = &parameters.host;
        Self {
            host,
            limits: Limits {
                blocks: host.max_request.div_ceil(BLOCK) as u32,
                boundary: u32::MAX,
            },
            cpus: Cpus::new(host.cpus),
            plug: plug.max(1),
        }
    }
}

/// A thread that makes calls, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    /// Of the call that is under way, those that are not submitted.
    requests: VecDeque<Command<'static>>,
    /// The first ones, which a processor has dealt with.
    collected: usize,
    batch: Option<Batch>,
}

impl Caller {
    /// Begins a call for the data that lies so. None may be under way.
    pub(crate) fn begin(
        &mut self,
        call: &Layout,
        direction: Direction,
        kernel: &mut Kernel<'_>,
        disk: &mut Disk,
    ) -> Next {
        let runs = call.extents().iter().map(run_of);
        let requests = runs.flat_map(|run| kernel.limits.cut(run));
        self.requests = requests.map(|run| command(run, direction)).collect();
        self.batch = Some(disk.begin());
        Next::At(kernel.cpus.work(disk.now(), kernel.host.call))
    }

    /// Goes on with the call that is under way; `None` if none is.
    ///
    /// # Errors
    ///
    /// A place that the device does not have.
    pub(crate) fn step(
        &mut self,
        kernel: &mut Kernel<'_>,
        disk: &mut Disk,
    ) -> Result<Option<Next>, Failure> {
        let Some(batch) = self.batch else {
            return Ok(None);
        };
        for request in self.requests.drain(..self.collected) {
            disk.submit(&request, &[batch])?;
        }
        self.collected = kernel.plug.min(self.requests.len());
        if self.collected == 0 {
            self.batch = None;
            return Ok(Some(Next::Done(batch)));
        }
        let time = Nanos(kernel.host.request.0 * self.collected as u64);
        Ok(Some(Next::At(kernel.cpus.work(disk.now(), time))))
    }
}

struct Calls<'a, I> {
    kernel: Kernel<'a>,
    caller: Caller,
    direction: Direction,
    calls: I,
    is_over: bool,
}

impl<I: Iterator<Item = Layout>> Program for Calls<'_, I> {
    fn step(&mut self, _: usize, disk: &mut Disk) -> Result<Next, Failure> {
        if let Some(next) = self.caller.step(&mut self.kernel, disk)? {
            return Ok(next);
        }
        let Some(call) = self.calls.next() else {
            self.is_over = true;
            return Ok(Next::Parked);
        };
        let (kernel, direction) = (&mut self.kernel, self.direction);
        Ok(self.caller.begin(&call, direction, kernel, disk))
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

fn run_of(extent: &Extent) -> Run {
    Run {
        start: Block((extent.phys.0 / BLOCK.0) as u32),
        len: extent.len.div_ceil(BLOCK) as u32,
    }
}

const fn command(run: Run, direction: Direction) -> Command<'static> {
    let span = run.span();
    let (offset, len) = (span.offset, span.len);
    match direction {
        Direction::Read => Command::Read { offset, len },
        Direction::Update => Command::Write {
            offset,
            len,
            fua: false,
            placement: Placement::RoundRobin,
        },
    }
}

#[cfg(test)]
mod tests {
    use flash_model::Profile;
    use units::Bytes;

    use super::*;
    use crate::{device, synthetic};

    fn time_of(pieces: u64, direction: Direction, plug: usize) -> u64 {
        let profile = Profile::builtin("optane-905p").unwrap();
        let mut disk = Disk::new(device::written(&profile, Bytes::mib(8)).unwrap(), 32);
        let mut parameters = Parameters::default();
        // So slow that the device is done with each request before the next one.
        parameters.host.request = Nanos(500_000);
        parameters.host.call = Nanos(3_000);
        let piece = Bytes::kib(128 / pieces);
        let call = synthetic::pieces(&[piece], Bytes::kib(4), Bytes::kib(128));
        let elapsed = perform(&parameters, &mut disk, [call], direction, plug).unwrap();
        assert_eq!(elapsed.commands, pieces);
        let stats = &elapsed.stats;
        let bytes = match direction {
            Direction::Read => stats.host_read_bytes,
            Direction::Update => stats.host_written_bytes,
        };
        assert_eq!(bytes, 128 << 10);
        elapsed.time.0
    }

    #[test]
    fn a_call_takes_the_time_of_its_requests_and_that_of_the_last_ones_on_the_device() {
        for direction in [Direction::Read, Direction::Update] {
            for (pieces, plug) in [(1, 1), (4, 1), (32, 16), (32, 64)] {
                let host = 3_000 + pieces * 500_000;
                let device = time_of(pieces, direction, plug) - host;
                assert!(
                    (1_000..200_000).contains(&device),
                    "{pieces} {plug}: {device}"
                );
            }
            // What the device does for 31 of 32 is hidden behind the host, or that for 16 is, or none.
            let times = [1, 16, 32].map(|plug| time_of(32, direction, plug));
            assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
        }
    }
}
