//! Programs that read files from end to end, as `grep -r` does.

use std::collections::VecDeque;

use indef_core::layout::Layout;
use units::Bytes;

use crate::{
    block::BLOCK,
    disk::{Disk, Elapsed, Failure, Next, Program},
    host::{Access, Cpus, Limits, Reading},
    parameters::Parameters,
};

/// Bytes read, and the time that it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// Bytes of all files.
    pub bytes: Bytes,
    /// Time and counters.
    pub elapsed: Elapsed,
}

impl Read {
    /// MB/s (10⁶ bytes).
    #[must_use]
    pub fn megabytes_per_second(&self) -> f64 {
        self.elapsed.megabytes_per_second(self.bytes.0)
    }
}

/// Reads files that lie like this, one after the other, with so many threads; the cache is empty. Files have no holes.
///
/// # Errors
///
/// A place that the device does not have.
pub fn read(
    parameters: &Parameters,
    disk: &mut Disk,
    files: impl IntoIterator<Item = Layout>,
    access: Access,
    threads: usize,
) -> Result<Read, Failure> {
    let files: VecDeque<Layout> = files.into_iter().collect();
    let bytes = files.iter().map(Layout::allocated).sum();
    let threads = threads.max(1);
    let mut program = Readers {
        parameters,
        limits: Limits {
            blocks: parameters.host.max_request.div_ceil(BLOCK) as u32,
            boundary: u32::MAX,
        },
        access,
        cpus: Cpus::new(parameters.host.cpus),
        files,
        readings: (0..threads).map(|_| None).collect(),
        running: threads,
    };
    let elapsed = disk.run(&mut program, threads)?;
    Ok(Read { bytes, elapsed })
}

struct Readers<'a> {
    parameters: &'a Parameters,
    limits: Limits,
    access: Access,
    cpus: Cpus,
    files: VecDeque<Layout>,
    readings: Vec<Option<Reading>>,
    running: usize,
}

impl Program for Readers<'_> {
    fn step(&mut self, thread: usize, disk: &mut Disk) -> Result<Next, Failure> {
        loop {
            if let Some(reading) = &mut self.readings[thread] {
                let host = &self.parameters.host;
                let all = |window| vec![window];
                if let Some(next) = reading.step(host, self.limits, &mut self.cpus, disk, all)? {
                    return Ok(next);
                }
            }
            let Some(layout) = self.files.pop_front() else {
                self.running -= 1;
                return Ok(Next::Parked);
            };
            let end = layout.extents().last().map_or(0, |last| last.file_end().0);
            let blocks = 0..end.div_ceil(BLOCK.0) as u32;
            self.readings[thread] = Some(Reading::new(layout, blocks, self.access));
        }
    }

    fn is_over(&self) -> bool {
        self.running == 0
    }
}

#[cfg(test)]
mod tests;
