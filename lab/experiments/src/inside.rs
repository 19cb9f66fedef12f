//! The steps of an experiment in the guest: this program again, copied there.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use workloads::Numbers;

use super::Ageing;

/// Interval of the samples of the guest's memory.
const SAMPLE: Duration = Duration::from_millis(50);
/// Number of reads of everything, for the median.
const READS: usize = 3;
/// Size of a piece that a co-running writer overwrites and reads at once.
const PIECE: usize = 64 << 10;

/// A step of an experiment.
#[derive(Subcommand)]
pub enum Inside {
    /// Make aged files
    Age {
        /// How
        ageing: Ageing,
        /// Where
        dir: PathBuf,
        /// Bytes of all files together
        bytes: u64,
    },
    /// Read all files cold, three times; as JSON
    Read {
        /// Where
        dir: PathBuf,
    },
    /// Print a hash of all files' contents, and drop them from the page cache
    Hash {
        /// Where
        dir: PathBuf,
    },
    /// Run a command and watch the memory meanwhile; as JSON
    Watch {
        /// Meanwhile overwrite and read these files at random, and count
        #[arg(long)]
        beside: Option<PathBuf>,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// The output of [`Inside::Read`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadResult {
    /// Median time of a cold read of all files, one after the other, by the guest's clock.
    pub(crate) wall_ns: u64,
    pub(crate) bytes: u64,
}

/// The output of [`Inside::Watch`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WatchResult {
    pub(crate) status: i32,
    pub(crate) wall_ns: u64,
    /// Peak of the command's own memory (VmHWM), in KiB.
    pub(crate) process_kib: u64,
    /// Largest growth of the page cache, in KiB.
    pub(crate) page_cache_kib: u64,
    /// Growth of the page cache at the end, in KiB.
    pub(crate) page_cache_end_kib: u64,
    /// Bytes that the co-running load read and wrote meanwhile.
    pub(crate) beside_bytes: u64,
    /// The output of the command.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Run one step.
///
/// # Errors
///
/// The step failed.
pub fn run(inside: &Inside) -> Result<()> {
    match inside {
        Inside::Age { ageing, dir, bytes } => age(*ageing, dir, *bytes),
        Inside::Read { dir } => print(&read_all(dir)?),
        Inside::Hash { dir } => {
            println!("{}", hash(dir)?);
            Ok(())
        }
        Inside::Watch { beside, command } => print(&watch(beside.as_deref(), command)?),
    }
}

fn print(value: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}

/// Make files that grow at the same time: each piece of one follows pieces of others. One thread
/// does it all in turn, so that every run ages alike.
fn age(ageing: Ageing, dir: &Path, bytes: u64) -> Result<()> {
    fs::create_dir_all(dir)?;
    let size = ageing.file_bytes();
    let count = (bytes / size).max(1);
    let mut numbers = Numbers::new(ageing as u64 + 1);
    let mut growing: Vec<(File, u64)> = Vec::new();
    let mut made = 0;
    loop {
        while growing.len() < ageing.threads() && made < count {
            let mut file = File::create_new(dir.join(format!("{made:05}")))?;
            // A file begins with a part that is written at once.
            let whole = size * ageing.whole_percent() / 100 / 4096 * 4096;
            append(&mut file, 0, whole, &mut numbers)?;
            growing.push((file, whole));
            made += 1;
        }
        if growing.is_empty() {
            break;
        }
        let chosen = numbers.below(growing.len());
        let (file, length) = &mut growing[chosen];
        let piece = ageing.piece(&mut numbers).min(size - *length);
        append(file, *length, piece, &mut numbers)?;
        *length += piece;
        if *length >= size {
            growing.swap_remove(chosen);
        }
    }
    rustix::fs::syncfs(&File::open(dir)?)?;
    Ok(())
}

/// Write it back at once: F2FS decides about places when data is written back.
fn append(file: &mut File, at: u64, bytes: u64, numbers: &mut Numbers) -> Result<()> {
    let mut content = vec![0; bytes as usize];
    numbers.fill(&mut content);
    file.write_all(&content)?;
    linux_abi::cache::write_and_wait(&*file, at, bytes)?;
    Ok(())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

fn forget(files: &[PathBuf]) -> Result<()> {
    for path in files {
        let file = File::open(path)?;
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Read one file after the other, in order of their names.
fn read_files(files: &[PathBuf], mut each: impl FnMut(&[u8])) -> Result<()> {
    let mut buffer = vec![0; 256 << 10];
    for path in files {
        let mut file = File::open(path)?;
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            each(&buffer[..n]);
        }
    }
    Ok(())
}

fn read_all(dir: &Path) -> Result<ReadResult> {
    let files = files(dir)?;
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..READS {
        forget(&files)?;
        bytes = 0;
        let begun = Instant::now();
        read_files(&files, |read| bytes += read.len() as u64)?;
        times.push(begun.elapsed().as_nanos() as u64);
    }
    forget(&files)?;
    times.sort_unstable();
    Ok(ReadResult {
        wall_ns: times[READS / 2],
        bytes,
    })
}

fn hash(dir: &Path) -> Result<String> {
    let files = files(dir)?;
    let mut hasher = Sha256::new();
    forget(&files)?;
    read_files(&files, |read| hasher.update(read))?;
    forget(&files)?;
    let bytes = hasher.finalize();
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn watch(beside: Option<&Path>, command: &[String]) -> Result<WatchResult> {
    let before = page_cache_kib()?;
    let (mut process_kib, mut most) = (0, before);
    let over = AtomicBool::new(false);
    let moved = AtomicU64::new(0);
    std::thread::scope(|scope| {
        if let Some(dir) = beside {
            let (over, moved) = (&over, &moved);
            scope.spawn(move || load(dir, over, moved));
        }
        let result = (|| {
            let begun = Instant::now();
            let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
            let mut child = Command::new(&command[0])
                .args(&command[1..])
                .stdin(Stdio::null())
                .stdout(out.try_clone()?)
                .stderr(err.try_clone()?)
                .spawn()
                .with_context(|| command[0].clone())?;
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                process_kib = process_kib.max(high_water_kib(child.id()));
                most = most.max(page_cache_kib()?);
                std::thread::sleep(SAMPLE);
            };
            let wall_ns = begun.elapsed().as_nanos() as u64;
            let end = page_cache_kib()?;
            Ok(WatchResult {
                status: status.code().unwrap_or(-1),
                wall_ns,
                process_kib,
                page_cache_kib: most.saturating_sub(before),
                page_cache_end_kib: end.saturating_sub(before),
                beside_bytes: moved.load(Ordering::Relaxed),
                stdout: text(out)?,
                stderr: text(err)?,
            })
        })();
        over.store(true, Ordering::Relaxed);
        result
    })
}

fn text(mut file: File) -> Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Simulate an application: read a piece from the device, and overwrite one, again and again.
fn load(dir: &Path, over: &AtomicBool, moved: &AtomicU64) {
    let mut numbers = Numbers::new(99);
    let mut piece = vec![7; PIECE];
    let Ok(files) = files(dir) else { return };
    let open = |path: &PathBuf| File::options().read(true).write(true).open(path).ok();
    let files: Vec<File> = files.iter().filter_map(open).collect();
    while !over.load(Ordering::Relaxed) && !files.is_empty() {
        let file = &files[numbers.below(files.len())];
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        let place = numbers.below(size / PIECE as u64) * PIECE as u64;
        let length = std::num::NonZeroU64::new(PIECE as u64);
        let done = if numbers.percent(50) {
            let _ = fadvise(file, place, length, Advice::DontNeed);
            file.read_at(&mut piece, place)
        } else {
            file.write_at(&piece, place).inspect(|_| {
                let _ = linux_abi::cache::write_and_wait(file, place, PIECE as u64);
            })
        };
        moved.fetch_add(done.unwrap_or(0) as u64, Ordering::Relaxed);
    }
}

fn page_cache_kib() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    match (field("Cached:"), field("Buffers:")) {
        (Some(cached), Some(buffers)) => Ok(cached + buffers),
        _ => bail!("/proc/meminfo is not as it was"),
    }
}

fn high_water_kib(pid: u32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aged_files_have_their_size_and_are_the_same_every_time() {
        for ageing in [Ageing::Fileserver, Ageing::Varmail] {
            let sums: Vec<_> = (0..2)
                .map(|_| {
                    let dir = tempfile::tempdir().unwrap();
                    age(ageing, dir.path(), 8 << 20).unwrap();
                    assert_eq!(read_all(dir.path()).unwrap().bytes, 8 << 20);
                    hash(dir.path()).unwrap()
                })
                .collect();
            assert_eq!(sums[0], sums[1]);
        }
    }

    #[test]
    fn a_command_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), vec![0; 1 << 20]).unwrap();
        let command = ["sh", "-c", "sleep 0.3; echo done; exit 3"].map(str::to_owned);
        let watched = watch(Some(dir.path()), &command).unwrap();
        assert_eq!((watched.status, watched.stdout.as_str()), (3, "done\n"));
        assert!(watched.wall_ns > 250_000_000 && watched.process_kib > 0);
        assert!(watched.beside_bytes > 0);
    }
}
