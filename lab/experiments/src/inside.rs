//! The steps of an experiment in the guest: this program again, copied there.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use units::{Bytes, FileRange};
use workloads::filebench::{Ageing, Personality};

use super::{
    ageing::{self, Carrying, Writes},
    calls,
    layout::Layout,
    pieces,
};

/// Interval of the samples of the guest's memory.
const SAMPLE: Duration = Duration::from_millis(50);

/// A step of an experiment.
#[derive(Subcommand)]
pub enum Inside {
    /// Make aged files; prints what was done as JSON
    Age(AgeArgs),
    /// Make a file in pieces, in turn with another file
    Lay {
        /// JSON: bytes of the other file, and of the file after them, again and again
        pieces: PathBuf,
        /// The file
        file: PathBuf,
        /// The other file
        others: PathBuf,
    },
    /// Read a file past the page cache, call by call
    Read {
        /// JSON: the start and the length of each call
        ranges: PathBuf,
        /// The file
        file: PathBuf,
    },
    /// Compare a file with what `lay` has written
    Verify {
        /// The file
        file: PathBuf,
    },
    /// Write the places of a directory's files to a file, as JSON
    Layout {
        /// Where the files are
        dir: PathBuf,
        /// The file to write
        to: PathBuf,
    },
    /// Run a command and watch the memory meanwhile; as JSON
    Watch {
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// How to age.
#[derive(Args)]
pub struct AgeArgs {
    /// The personality of filebench
    personality: Personality,
    /// Where
    dir: PathBuf,
    /// How the flows write
    #[arg(long, value_enum, default_value_t)]
    writes: Writes,
    /// Files that are there on average
    #[arg(long)]
    files: usize,
    /// Bytes of a file on average
    #[arg(long)]
    mean: u64,
    /// End when this many times the data has been written
    #[arg(long, default_value_t = 2.0)]
    rounds: f64,
    /// Percentage of whole-file reads that are done
    #[arg(long, default_value_t = 100)]
    reads: u32,
    /// Seed of the flows' choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The output of [`Inside::Watch`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WatchResult {
    pub(crate) status: i32,
    /// By the guest's clock: no measure of the device.
    pub(crate) wall_ns: u64,
    /// Largest growth of memory meanwhile.
    pub(crate) memory: Memory,
    /// The output of the command.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Memory in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Of the command itself (VmHWM).
    pub(crate) process_kib: u64,
    /// The page cache.
    pub(crate) page_cache_kib: u64,
    /// The kernel's own: slabs, and what vmalloc has.
    pub(crate) kernel_kib: u64,
    /// All that is not free, whoever has it: the three above, and the network's buffers.
    pub(crate) used_kib: u64,
}

/// Run one step.
///
/// # Errors
///
/// The step failed.
pub fn run(inside: &Inside) -> Result<()> {
    match inside {
        Inside::Age(args) => {
            let ageing = Ageing {
                personality: args.personality,
                files: args.files,
                mean_bytes: args.mean,
                rounds: args.rounds,
                reads_percent: args.reads,
                seed: args.seed,
            };
            let carrying = Carrying {
                writes: args.writes,
                write_back: None,
            };
            print(&ageing::age(ageing, carrying, &args.dir)?)
        }
        Inside::Lay {
            pieces,
            file,
            others,
        } => lay(pieces, file, others),
        Inside::Read { ranges, file } => {
            let ranges: Vec<(u64, u64)> = json(ranges)?;
            let ranges = ranges.into_iter();
            let ranges: Vec<FileRange> = ranges.map(|it| FileRange::new(it.0, it.1)).collect();
            let opened = pieces::open(file).with_context(|| file.display().to_string())?;
            calls::read(&opened, &ranges, 1)?;
            Ok(())
        }
        Inside::Verify { file } => pieces::verify(file).with_context(|| file.display().to_string()),
        Inside::Layout { dir, to } => {
            let layout = serde_json::to_vec(&Layout::of(dir)?)?;
            fs::write(to, layout).with_context(|| to.display().to_string())
        }
        Inside::Watch { command } => print(&watch(command)?),
    }
}

fn json<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text = fs::read(file).with_context(|| file.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| file.display().to_string())
}

fn lay(pieces: &Path, path: &Path, others: &Path) -> Result<()> {
    let pieces: Vec<(u64, u64)> = json(pieces)?;
    let pieces = pieces.into_iter();
    let pieces: Vec<(Bytes, Bytes)> = pieces.map(|it| (Bytes(it.0), Bytes(it.1))).collect();
    let create = |path: &Path| -> Result<File> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        pieces::create(path).with_context(|| path.display().to_string())
    };
    let (file, others) = (create(path)?, create(others)?);
    let mut contents = pieces::contents(pieces.iter().map(|it| it.1).sum());
    pieces::write_in_turn(&file, &others, &pieces, contents.slice())
        .with_context(|| path.display().to_string())?;
    file.sync_all()?;
    others.sync_all()?;
    Ok(())
}

fn print(value: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}

fn watch(command: &[String]) -> Result<WatchResult> {
    let before = memory()?;
    let mut most = Memory::default();
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
        let now = memory()?;
        most = Memory {
            process_kib: most.process_kib.max(high_water_kib(child.id())),
            page_cache_kib: most
                .page_cache_kib
                .max(now.page_cache_kib.saturating_sub(before.page_cache_kib)),
            kernel_kib: most
                .kernel_kib
                .max(now.kernel_kib.saturating_sub(before.kernel_kib)),
            used_kib: most
                .used_kib
                .max(now.used_kib.saturating_sub(before.used_kib)),
        };
        std::thread::sleep(SAMPLE);
    };
    Ok(WatchResult {
        status: status.code().unwrap_or(-1),
        wall_ns: begun.elapsed().as_nanos() as u64,
        memory: most,
        stdout: text(out)?,
        stderr: text(err)?,
    })
}

fn text(mut file: File) -> Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The memory in use now; of the process, nothing.
fn memory() -> Result<Memory> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let field = |name: &str| -> Result<u64> {
        let line = text.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        match number {
            Some(number) => Ok(number),
            None => bail!("/proc/meminfo has no {name}"),
        }
    };
    Ok(Memory {
        process_kib: 0,
        page_cache_kib: field("Cached:")? + field("Buffers:")?,
        kernel_kib: field("Slab:")? + field("VmallocUsed:")?,
        used_kib: field("MemTotal:")? - field("MemFree:")?,
    })
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
    use scratch_fs::{ScratchFs, require};

    use super::*;

    #[test]
    fn loop_a_file_is_laid_read_and_verified() {
        let scratch = ScratchFs::builder("ext4", Bytes::mib(64)).build();
        let Some(scratch) = require(scratch) else {
            return;
        };
        let share = tempfile::tempdir().unwrap();
        let [pieces, ranges] = ["pieces", "ranges"].map(|name| share.path().join(name));
        fs::write(&pieces, "[[4096,4096],[4096,131072]]").unwrap();
        fs::write(&ranges, "[[4096,131072],[0,4096]]").unwrap();
        let [file, others] = ["a/file", "b/others"].map(|name| scratch.path().join(name));
        let lay = Inside::Lay {
            pieces,
            file: file.clone(),
            others: others.clone(),
        };
        run(&lay).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 135_168);
        assert_eq!(others.metadata().unwrap().len(), 8192);
        run(&Inside::Read {
            ranges,
            file: file.clone(),
        })
        .unwrap();
        let verify = Inside::Verify { file: file.clone() };
        run(&verify).unwrap();
        // What is there is not written over.
        assert!(run(&lay).is_err());
        fs::write(&file, [0; 4096]).unwrap();
        assert!(run(&verify).is_err());
    }

    #[test]
    fn a_command_is_watched() {
        let command = ["sh", "-c", "sleep 0.3; echo done; exit 3"].map(str::to_owned);
        let watched = watch(&command).unwrap();
        assert_eq!((watched.status, watched.stdout.as_str()), (3, "done\n"));
        assert!(watched.wall_ns > 250_000_000 && watched.memory.process_kib > 0);
    }
}
