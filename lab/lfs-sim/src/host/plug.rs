//! Requests in the making.

use flash_model::{Command, Placement};

use crate::{
    block::{BLOCK, Run},
    disk::{Batch, Disk, Failure},
};

/// Bounds of a request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most blocks.
    pub blocks: u32,
    /// No request crosses a multiple of so many blocks: a zone.
    pub boundary: u32,
}

impl Limits {
    /// Cuts a run into requests.
    pub fn cut(self, run: Run) -> impl Iterator<Item = Run> {
        let mut left = run;
        std::iter::from_fn(move || {
            let len = left.len.min(self.most_at(left.start.0));
            let first = Run {
                start: left.start,
                len,
            };
            left = Run {
                start: first.end(),
                len: left.len - len,
            };
            (len > 0).then_some(first)
        })
    }

    const fn most_at(self, start: u32) -> u32 {
        let to_boundary = self.boundary - start % self.boundary;
        if to_boundary < self.blocks {
            to_boundary
        } else {
            self.blocks
        }
    }
}

/// A write request that grows as long as blocks follow each other (the kernel: a plug; F2FS: the bio of a log).
///
/// Blocks of several threads can be in it; each of their batches waits for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Plug {
    open: Option<Run>,
    batches: Vec<Batch>,
}

impl Plug {
    /// Adds blocks; submits a request that is complete.
    ///
    /// # Errors
    ///
    /// The device refused it.
    pub(super) fn add(
        &mut self,
        run: Run,
        batch: Batch,
        limits: Limits,
        disk: &mut Disk,
    ) -> Result<(), Failure> {
        let mut left = run;
        while left.len > 0 {
            if self.open.is_some_and(|open| open.end() != left.start) {
                self.submit(disk)?;
            }
            let open = self.open.get_or_insert(Run {
                start: left.start,
                len: 0,
            });
            let most = limits.most_at(open.start.0);
            let len = left.len.min(most - open.len);
            open.len += len;
            if !self.batches.contains(&batch) {
                self.batches.push(batch);
            }
            left = Run {
                start: left.start.after(len),
                len: left.len - len,
            };
            if open.len == most {
                self.submit(disk)?;
            }
        }
        Ok(())
    }

    /// Submits the request if it holds blocks of this batch.
    ///
    /// # Errors
    ///
    /// The device refused it.
    pub(super) fn submit_for(&mut self, batch: Batch, disk: &mut Disk) -> Result<(), Failure> {
        match self.batches.contains(&batch) {
            true => self.submit(disk),
            false => Ok(()),
        }
    }

    /// Submits the request, whoever it is of; this batch waits for it, too.
    ///
    /// # Errors
    ///
    /// The device refused it.
    pub(super) fn submit_with(&mut self, batch: Batch, disk: &mut Disk) -> Result<(), Failure> {
        if self.open.is_some() && !self.batches.contains(&batch) {
            self.batches.push(batch);
        }
        self.submit(disk)
    }

    fn submit(&mut self, disk: &mut Disk) -> Result<(), Failure> {
        let Some(run) = self.open.take() else {
            return Ok(());
        };
        let command = Command::Write {
            offset: run.start.offset(),
            len: u64::from(run.len) * BLOCK.0,
            fua: false,
            placement: Placement::RoundRobin,
        };
        disk.submit(&command, &self.batches)?;
        self.batches.clear();
        Ok(())
    }
}
