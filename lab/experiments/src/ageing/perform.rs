//! The flows on a file system: a thread for each; or another program's threads.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use units::Bytes;
use workloads::filebench::{Ageing, FLOWS, FileId, Fileset, Flow, IO_BYTES, Op, preallocate};

use super::writes::Writes;

const BLOCK: u64 = 4096;
/// How long a flow waits until it looks for a file again.
const WAIT: Duration = Duration::from_millis(20);

/// The files, and what was done to them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Aged {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Of these, in files that were there before the flows began.
    pub(crate) first_bytes: u64,
    pub(crate) created: u64,
    pub(crate) deleted: u64,
    pub(crate) writes: u64,
}

impl Aged {
    /// The percentage of the data in files that were there before the flows began.
    pub(crate) fn first_pct(&self) -> f64 {
        100.0 * self.first_bytes as f64 / (self.bytes as f64).max(1.0)
    }
}

/// Age this directory.
pub(crate) fn age(ageing: Ageing, carrying: Carrying, dir: &Path) -> Result<Aged> {
    fs::create_dir_all(dir)?;
    let mut files = Fileset::new(ageing);
    let mut buffer = Vec::new();
    let cached = Carrying {
        writes: Writes::Cached,
        ..carrying
    };
    let maker = Worker::new(dir, cached);
    for op in preallocate(ageing, &mut files) {
        maker.perform(op, &mut buffer)?;
    }
    rustix::fs::syncfs(&File::open(dir)?)?;
    let first: Vec<FileId> = files.files().map(|(id, _)| id).collect();
    let files = Mutex::new(files);
    let flow = |number| Mutex::new(Flow::new(ageing, number as u64));
    let flows: Vec<Mutex<Flow>> = (0..FLOWS).map(flow).collect();
    let next = |thread: usize| lock(&flows[thread]).next(&mut lock(&files));
    age_by(FLOWS, next, carrying, dir)?;
    let files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
    let of_first = |id: &&FileId| files.generation(**id) == 1;
    Ok(Aged {
        files: files.files().count() as u64,
        bytes: files.live_bytes(),
        first_bytes: first
            .iter()
            .filter(of_first)
            .map(|id| files.bytes(*id))
            .sum(),
        created: files.created,
        deleted: files.deleted,
        writes: files.appends,
    })
}

/// Age this directory by a program that says for each of so many threads what it does next; `None`: nothing more.
pub(crate) fn age_by(
    threads: usize,
    next: impl Fn(usize) -> Option<Op> + Sync,
    carrying: Carrying,
    dir: &Path,
) -> Result<()> {
    fs::create_dir_all(dir)?;
    let worker = Worker::new(dir, carrying);
    thread::scope(|scope| {
        let thread = |number| {
            let (next, worker) = (&next, &worker);
            scope.spawn(move || {
                let mut buffer = Vec::new();
                while let Some(op) = next(number) {
                    worker.perform(op, &mut buffer)?;
                }
                anyhow::Ok(())
            })
        };
        let threads: Vec<_> = (0..threads).map(thread).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| anyhow::bail!("a flow panicked"))
        })
    })?;
    rustix::fs::syncfs(&File::open(dir)?)?;
    Ok(())
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of a file.
pub(super) fn path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id:05}"))
}

/// How operations are carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carrying {
    pub(crate) writes: Writes,
    /// Everything is written back whenever so many more bytes were written, as a kernel does that has little memory.
    /// `None`: this machine's own time for that.
    pub(crate) write_back: Option<Bytes>,
}

struct Worker<'a> {
    dir: &'a Path,
    carrying: Carrying,
    /// Bytes that were written.
    written: AtomicU64,
}

impl<'a> Worker<'a> {
    fn new(dir: &'a Path, carrying: Carrying) -> Self {
        Self {
            dir,
            carrying,
            written: AtomicU64::new(0),
        }
    }

    /// So many bytes more were written.
    fn write_back(&self, bytes: u64) -> std::io::Result<()> {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        let Some(step) = self.carrying.write_back else {
            return Ok(());
        };
        if before / step.0 < (before + bytes) / step.0 {
            rustix::fs::syncfs(&File::open(self.dir)?)?;
        }
        Ok(())
    }

    fn perform(&self, op: Op, buffer: &mut Vec<u8>) -> Result<()> {
        let of = |id| path(self.dir, id);
        self.try_perform(op, buffer).with_context(|| match op {
            Op::Create(id)
            | Op::Sync(id)
            | Op::Read(id)
            | Op::Delete(id)
            | Op::Append { id, .. } => {
                format!("{op:?} of {}", of(id).display())
            }
            Op::Wait => "waiting".into(),
        })
    }

    /// A file to append to. (F2FS on zones asks direct writes for no alignment.)
    fn to_write(&self, id: FileId) -> std::io::Result<File> {
        let mut options = File::options();
        options.append(true);
        if self.carrying.writes == Writes::Direct {
            options.custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
        }
        options.open(path(self.dir, id))
    }

    fn try_perform(&self, op: Op, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        match op {
            Op::Create(id) => drop(File::create_new(path(self.dir, id))?),
            Op::Append {
                id,
                generation,
                at,
                bytes,
            } => {
                let from = fill(buffer, id, generation, at, bytes);
                self.to_write(id)?
                    .write_all(&buffer[from..from + bytes as usize])?;
                self.write_back(bytes)?;
            }
            Op::Sync(id) => self.to_write(id)?.sync_all()?,
            Op::Read(id) => {
                let mut file = File::open(path(self.dir, id))?;
                buffer.resize(IO_BYTES as usize, 0);
                while file.read(buffer)? > 0 {}
            }
            Op::Delete(id) => fs::remove_file(path(self.dir, id))?,
            Op::Wait => thread::sleep(WAIT),
        }
        Ok(())
    }
}

/// Put the content of a file's blocks there: each block says whose it is, so that no two are equal.
/// Returns the place of the byte `at`.
fn fill(buffer: &mut Vec<u8>, id: FileId, generation: u32, at: u64, bytes: u64) -> usize {
    let blocks = at / BLOCK..(at + bytes).div_ceil(BLOCK);
    buffer.resize(((blocks.end - blocks.start) * BLOCK) as usize, 0x5A);
    for (block, into) in blocks.zip(buffer.chunks_exact_mut(BLOCK as usize)) {
        into[..4].copy_from_slice(&(id as u32).to_le_bytes());
        into[4..8].copy_from_slice(&generation.to_le_bytes());
        into[8..16].copy_from_slice(&block.to_le_bytes());
    }
    (at % BLOCK) as usize
}
