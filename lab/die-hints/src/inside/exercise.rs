//! One file that changes in every way that a file can, and is compared with a copy in memory after each
//! step that reads: as fsx does for file systems.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use linux_abi::mapping::SharedBytes;
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, ftruncate};
use workloads::Numbers;

use super::extents::Written;

const BLOCK: u64 = 4096;
/// The longest that the file gets.
const MOST: u64 = 2 << 20;
/// The longest change.
const LONGEST: u64 = 128 << 10;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Write,
    WriteDirect,
    WriteMapped,
    Append,
    Read,
    ReadDirect,
    Truncate,
    Allocate,
    Punch,
    Zero,
    Collapse,
    Insert,
    Sync,
    /// The next read comes from the device.
    Drop,
}

/// How often each is done, in proportion.
const OPERATIONS: [(u32, Operation); 14] = [
    (15, Operation::Write),
    (10, Operation::WriteDirect),
    (5, Operation::WriteMapped),
    (15, Operation::Append),
    (8, Operation::Read),
    (5, Operation::ReadDirect),
    (5, Operation::Truncate),
    (5, Operation::Allocate),
    (5, Operation::Punch),
    (5, Operation::Zero),
    (3, Operation::Collapse),
    (3, Operation::Insert),
    (12, Operation::Sync),
    (4, Operation::Drop),
];

/// Does so many operations, the same ones for each seed.
pub(super) fn run(folder: &Path, operations: u64, seed: u64) -> Result<Vec<Written>> {
    let path = folder.join("exercise");
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let cached = options.clone().create(true).truncate(true).open(&path)?;
    let direct = options
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(&path)?;
    let mut subject = Subject {
        cached,
        direct,
        wanted: Vec::new(),
        numbers: Numbers::new(seed),
    };
    for number in 0..operations {
        let operation = subject.numbers.weighted(&OPERATIONS);
        subject
            .apply(operation)
            .with_context(|| format!("operation {number}, {operation:?}"))?;
    }
    subject.apply(Operation::Sync)?;
    subject.apply(Operation::Drop)?;
    subject.compare_all()?;
    println!(
        "{operations} operations, {} bytes left",
        subject.wanted.len()
    );
    Ok(Vec::new())
}

struct Subject {
    cached: File,
    direct: File,
    /// The file's content.
    wanted: Vec<u8>,
    numbers: Numbers,
}

impl Subject {
    fn apply(&mut self, operation: Operation) -> Result<()> {
        let end = self.wanted.len() as u64;
        match operation {
            Operation::Write => {
                let (start, len) = self.range(1);
                let bytes = self.content(start, len);
                self.cached.write_all_at(&bytes, start)?;
            }
            Operation::WriteDirect => {
                let (start, len) = self.range(BLOCK);
                let bytes = self.content(start, len);
                let mut memory = Aligned::of(len);
                memory.bytes().copy_from_slice(&bytes);
                self.direct.write_all_at(memory.bytes(), start)?;
            }
            Operation::WriteMapped if end > 0 => {
                let start = self.numbers.below(end);
                let len = (self.numbers.below(LONGEST) + 1).min(end - start);
                let bytes = self.content(start, len);
                let map = SharedBytes::map(&self.cached, end as usize)?;
                for (at, byte) in (start as usize..).zip(bytes) {
                    map.store(at, byte);
                }
            }
            Operation::Append => {
                let len = (self.numbers.below(LONGEST) + 1).min(MOST - end);
                let bytes = self.content(end, len);
                self.cached.write_all_at(&bytes, end)?;
            }
            Operation::Read => {
                let (start, len) = self.range(1);
                let mut found = vec![0; len as usize];
                self.compare(start, &mut found, false)?;
            }
            Operation::ReadDirect => {
                let (start, len) = self.range(BLOCK);
                let mut memory = Aligned::of(len);
                self.compare(start, memory.bytes(), true)?;
            }
            Operation::Truncate => {
                let len = self.numbers.below(MOST);
                ftruncate(&self.cached, len)?;
                self.wanted.resize(len as usize, 0);
            }
            Operation::Allocate => {
                let (start, len) = self.range(1);
                fallocate(&self.cached, FallocateFlags::empty(), start, len)?;
                self.reach(start + len);
            }
            Operation::Punch if end > 0 => {
                let (start, len) = self.range(1);
                let keep = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.cached, keep, start, len)?;
                self.zero(start, len.min(end.saturating_sub(start)));
            }
            Operation::Zero => {
                let (start, len) = self.range(1);
                fallocate(&self.cached, FallocateFlags::ZERO_RANGE, start, len)?;
                self.reach(start + len);
                self.zero(start, len);
            }
            // It has to end before the file does.
            Operation::Collapse if end > 2 * BLOCK => {
                let start = self.numbers.below((end - 1) / BLOCK - 1) * BLOCK;
                let most = (LONGEST / BLOCK).min((end - 1 - start) / BLOCK);
                let len = (self.numbers.below(most) + 1) * BLOCK;
                fallocate(&self.cached, FallocateFlags::COLLAPSE_RANGE, start, len)?;
                self.wanted.drain(start as usize..(start + len) as usize);
            }
            // Within the file.
            Operation::Insert if end > BLOCK && end + LONGEST <= MOST => {
                let start = self.numbers.below((end - 1) / BLOCK) * BLOCK;
                let len = (self.numbers.below(LONGEST / BLOCK) + 1) * BLOCK;
                fallocate(&self.cached, FallocateFlags::INSERT_RANGE, start, len)?;
                let zeroes = vec![0; len as usize];
                let at = start as usize;
                self.wanted.splice(at..at, zeroes);
            }
            Operation::Sync => self.cached.sync_data()?,
            Operation::Drop => fadvise(&self.cached, 0, None, Advice::DontNeed)?,
            Operation::WriteMapped | Operation::Punch | Operation::Collapse | Operation::Insert => {
            }
        }
        let found = self.cached.metadata()?.len();
        ensure!(
            found == self.wanted.len() as u64,
            "it has {found} bytes, and should have {}",
            self.wanted.len()
        );
        Ok(())
    }

    /// A range of the file, or past its end, in multiples of `unit`.
    fn range(&mut self, unit: u64) -> (u64, u64) {
        let start = self.numbers.below(MOST / unit) * unit;
        let most = LONGEST.min(MOST - start) / unit;
        (start, (self.numbers.below(most) + 1) * unit)
    }

    /// New content for a range, which the file has to have afterwards.
    fn content(&mut self, start: u64, len: u64) -> Vec<u8> {
        self.reach(start + len);
        let bytes = &mut self.wanted[start as usize..(start + len) as usize];
        self.numbers.fill(bytes);
        bytes.to_vec()
    }

    fn reach(&mut self, end: u64) {
        let end = self.wanted.len().max(end as usize);
        self.wanted.resize(end, 0);
    }

    fn zero(&mut self, start: u64, len: u64) {
        let end = (start + len) as usize;
        if let Some(bytes) = self.wanted.get_mut(start as usize..end) {
            bytes.fill(0);
        }
    }

    /// Compares what the file has at `start`, and how much of it, with what it should have.
    fn compare(&self, start: u64, memory: &mut [u8], around_cache: bool) -> Result<()> {
        let file = if around_cache {
            &self.direct
        } else {
            &self.cached
        };
        let mut count = 0;
        while count < memory.len() {
            match file.read_at(&mut memory[count..], start + count as u64)? {
                0 => break,
                more => count += more,
            }
            // A direct read that ends within a block has met the end.
            if around_cache && !count.is_multiple_of(BLOCK as usize) {
                break;
            }
        }
        let from = (start as usize).min(self.wanted.len());
        let to = (start as usize + memory.len()).min(self.wanted.len());
        let (found, wanted) = (&memory[..count], &self.wanted[from..to]);
        if found != wanted {
            let mut pairs = found.iter().zip(wanted);
            let at = pairs.position(|(found, wanted)| found != wanted);
            let at = at.unwrap_or(found.len().min(wanted.len()));
            bail!(
                "other content than was written at {}: {} bytes were read, {} wanted",
                start + at as u64,
                found.len(),
                wanted.len()
            );
        }
        Ok(())
    }

    fn compare_all(&self) -> Result<()> {
        let mut found = vec![0; self.wanted.len() + 1];
        self.compare(0, &mut found, false)
    }
}

/// Memory for direct I/O.
struct Aligned {
    memory: Vec<u8>,
    len: usize,
}

impl Aligned {
    fn of(len: u64) -> Self {
        Self {
            memory: vec![0; (len + BLOCK) as usize],
            len: len as usize,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let at = self.memory.as_ptr().align_offset(BLOCK as usize);
        &mut self.memory[at..][..self.len]
    }
}
