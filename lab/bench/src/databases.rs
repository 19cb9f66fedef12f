//! SQLite and RocksDB on an aged file system: the part of a database that has to move for it to
//! read as fast as if all of it had moved.
//!
//! Free space lies in holes of 16 KiB when the database is made, as on a disk that has been nearly
//! full for long; then room appears. The real programs (`sqlite3`, `db_bench`) read it by skewed
//! keys; they are traced once, and then timed with cold caches on copies of the same state:
//! unchanged, moved as a whole, the hottest half by FragPicker's rule, and by IODP with the lowest
//! fifth truncated. Published, for other devices and workloads: FragPicker §5.4 (YCSB-C, hot half)
//! writes 66 % less than e4defrag; InDeF §IV (RocksDB, truncate 20 %) migrates 66.7 % less, at an
//! equal gain.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use scratch_fs::{AlignedBuffer, ScratchFs};
use units::Bytes;
use workloads::zipf::Zipf;

use super::{
    common::Common,
    measure,
    report::{Report, Verdict},
};

const SIZE: Bytes = Bytes::gib(3);
/// The size of the file that makes the holes.
const DUMMY: Bytes = Bytes::mib(2048);
const HOLE: u64 = 16 << 10;

/// The states by the options that produce them; the first is left unchanged.
const STATES: [(&str, &[&str]); 5] = [
    ("before", &[]),
    ("whole", &["--policy", "whole"]),
    ("fragpicker", &["--policy", "fragpicker", "--hot", "50"]),
    ("indef", &["--policy", "indef", "--truncate", "20"]),
    // All ranges that were read: the cause of the rest of `whole`'s gain is not in the file's
    // reads.
    ("indef-all", &["--policy", "indef", "--truncate", "0"]),
];
/// Published savings of bytes against moving all, in percent.
const PUBLISHED: [(&str, f64); 2] = [("fragpicker", 66.0), ("indef", 66.7)];

/// Measure both databases on both file systems.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    for database in [Database::Sqlite, Database::RocksDb] {
        for fs in ["ext4", "btrfs"] {
            one(database, fs, common, report)?;
        }
    }
    Ok(())
}

/// The cost and the effect of a state.
struct DatabaseCost {
    written: u64,
    time: Duration,
}

fn one(database: Database, fs: &str, common: &Common, report: &mut Report) -> Result<()> {
    let indef = common.indef()?;
    let images = common.images()?;
    let case = format!("{} on {fs}", database.name());
    eprintln!("{case}: making it");
    let image = images.join(format!("{}-{fs}.img", database.name()));
    make(database, fs, &images, &image)?;
    let profile = tempfile::tempdir()?;
    let profile = profile.path().join("profile");
    let mut all = Vec::new();
    for (state, options) in STATES {
        measure::ensure_not_stopped()?;
        eprintln!("{case}: {state}");
        let scratch = ScratchFs::builder(fs, SIZE)
            .folder(&images)
            .copy_of(&image)
            .build()?;
        let folder = scratch.path().join("db");
        if state == "before" {
            measure::drop_caches(&scratch)?;
            let mut traced: Vec<OsString> =
                vec!["trace".into(), "-o".into(), profile.clone().into()];
            traced.extend([
                "--quiet".into(),
                "--max-overhead".into(),
                "off".into(),
                "--path".into(),
                folder.clone().into(),
                "--".into(),
            ]);
            traced.extend(database.read(&folder));
            output(&indef, &traced)?;
        }
        let written = moved(&indef, &folder, options, &profile)?;
        let mut times = Vec::new();
        for _ in 0..common.runs {
            measure::drop_caches(&scratch)?;
            let command = database.read(&folder);
            let began = Instant::now();
            output(Path::new(&command[0]), &command[1..])?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let time = times[(times.len() - 1) / 2];
        eprintln!(
            "{case}: {state}: {} moved, read in {time:.2?}",
            Bytes(written)
        );
        all.push(DatabaseCost { written, time });
    }
    fs::remove_file(&image)?;
    let (before, whole) = (&all[0], &all[1]);
    for ((state, _), measured) in STATES.iter().zip(&all).skip(2) {
        let saved = 100.0 - measured.written as f64 / whole.written.max(1) as f64 * 100.0;
        let published = PUBLISHED.iter().find(|(name, _)| name == state);
        report.verdicts.push(Verdict::at_least(
            format!(
                "{case}: {state} writes less than whole ({}); published elsewhere",
                Bytes(whole.written)
            ),
            saved,
            published.map_or(0.0, |(_, percent)| *percent),
            " %",
        ));
        let gain = |m: &DatabaseCost| before.time.as_secs_f64() - m.time.as_secs_f64();
        report.verdicts.push(Verdict::at_least(
            format!(
                "{case}: {state} gives of the time that whole saves ({:.2?} to {:.2?})",
                before.time, whole.time
            ),
            gain(measured) / gain(whole) * 100.0,
            97.0,
            " %",
        ));
    }
    Ok(())
}

/// Move the ranges that the policy chooses. Returns the number of bytes written.
fn moved(indef: &Path, folder: &Path, options: &[&str], profile: &Path) -> Result<u64> {
    if options.is_empty() {
        return Ok(0);
    }
    let mut command: Vec<OsString> = vec!["run".into(), "--json".into(), folder.into()];
    command.extend(options.iter().map(OsString::from));
    if !options.contains(&"whole") {
        command.extend(["--profile".into(), profile.into(), "--ignore-times".into()]);
    }
    let document: serde_json::Value = serde_json::from_slice(&output(indef, &command)?)?;
    let moved = document["totals"]["bytes_relocated"].as_u64();
    moved.context("a run tells what it moved")
}

fn output(program: &Path, arguments: &[OsString]) -> Result<Vec<u8>> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {}; is it installed?", program.display()))?;
    ensure!(
        output.status.success(),
        "{} {}: {}\n{}",
        program.display(),
        measure::describe(arguments),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

/// Make the file system with the database, and keep it as an image.
fn make(database: Database, fs: &str, images: &Path, image: &Path) -> Result<()> {
    let mut scratch = ScratchFs::builder(fs, SIZE).folder(images).build()?;
    let dummy = scratch.path().join("dummy");
    make_holes(&dummy)?;
    // All space except the holes is filled, so that the database finds nothing else.
    fill(&scratch.path().join("filler"))?;
    punch_holes(&dummy)?;
    scratch.sync()?;
    let folder = scratch.path().join("db");
    fs::create_dir(&folder)?;
    database.make(&folder)?;
    scratch.sync()?;
    fs::remove_file(&dummy)?;
    fs::remove_file(scratch.path().join("filler"))?;
    scratch.sync()?;
    scratch.unmount()?;
    let status = Command::new("cp")
        .args(["--sparse=always", "--reflink=auto"])
        .args([&scratch.image(), image])
        .status()?;
    ensure!(status.success(), "cannot keep {}", image.display());
    Ok(())
}

/// Take all free space.
fn fill(filler: &Path) -> Result<()> {
    let filler = File::create(filler)?;
    for piece in [
        Bytes::mib(64),
        Bytes::mib(4),
        Bytes::kib(256),
        Bytes::kib(32),
    ] {
        let mut at = filler.metadata()?.len();
        while fallocate(&filler, FallocateFlags::empty(), at, piece.0).is_ok() {
            at += piece.0;
        }
    }
    Ok(())
}

/// Extents of one hole each: Btrfs frees only whole extents.
fn make_holes(dummy: &Path) -> Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(dummy)?;
    let mut buffer = AlignedBuffer::new(HOLE as usize);
    for at in (0..DUMMY.0).step_by(HOLE as usize) {
        file.write_all_at(buffer.slice(), at)?;
    }
    file.sync_all()?;
    Ok(())
}

fn punch_holes(dummy: &Path) -> Result<()> {
    let file = OpenOptions::new().write(true).open(dummy)?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for at in (0..DUMMY.0).step_by(2 * HOLE as usize) {
        fallocate(&file, flags, at, HOLE)?;
    }
    file.sync_all()?;
    Ok(())
}

#[derive(Clone, Copy)]
enum Database {
    Sqlite,
    RocksDb,
}

/// Rows, or keys, of about 1,000 bytes.
const ROWS: u64 = 400_000;
/// Rows that one query reads.
const SPAN: u64 = 100;

impl Database {
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::RocksDb => "rocksdb",
        }
    }

    fn make(self, folder: &Path) -> Result<()> {
        match self {
            Self::Sqlite => {
                let sql = format!(
                    "pragma journal_mode=off; create table items(id integer primary key, payload blob); \
                     with recursive n(i) as (select 1 union all select i + 1 from n where i < {ROWS}) \
                     insert into items select i, randomblob(1000) from n;"
                );
                output(Path::new("sqlite3"), &[database(folder).into(), sql.into()])?;
                fs::write(folder.join("queries.sql"), queries())?;
            }
            Self::RocksDb => {
                let mut arguments = rocksdb(folder);
                arguments.push("--benchmarks=fillrandom,compact".into());
                output(Path::new("db_bench"), &arguments)?;
            }
        }
        Ok(())
    }

    /// The command that reads the database.
    fn read(self, folder: &Path) -> Vec<OsString> {
        match self {
            Self::Sqlite => {
                let mut script = OsString::from(".read ");
                script.push(folder.join("queries.sql"));
                vec![
                    "sqlite3".into(),
                    "-readonly".into(),
                    database(folder).into(),
                    script,
                ]
            }
            Self::RocksDb => {
                let mut command: Vec<OsString> = vec!["db_bench".into()];
                command.extend(rocksdb(folder));
                command.extend(
                    [
                        "--benchmarks=readrandom",
                        "--use_existing_db=1",
                        "--reads=4000",
                        "--read_random_exp_range=10",
                        "--seed=7",
                    ]
                    .map(OsString::from),
                );
                command
            }
        }
    }
}

fn database(folder: &Path) -> PathBuf {
    folder.join("items.sqlite")
}

fn rocksdb(folder: &Path) -> Vec<OsString> {
    let mut place = OsString::from("--db=");
    place.push(folder);
    let mut arguments: Vec<OsString> = [
        "--value_size=1000",
        "--block_size=131072",
        "--compression_type=none",
        "--cache_size=1048576",
        "--disable_wal=1",
    ]
    .map(OsString::from)
    .to_vec();
    arguments.push(format!("--num={ROWS}").into());
    arguments.push(place);
    arguments
}

/// 1,500 queries of 100 rows each, by Zipf's law with skew 0.99 (YCSB's) over the places.
fn queries() -> String {
    let workload = Zipf {
        skew: 0.99,
        ranges: ROWS / SPAN,
        reads: 1500,
        seed: 7,
    };
    let mut sql = String::new();
    for place in workload.sequence() {
        let first = u64::from(place) * SPAN + 1;
        let last = first + SPAN - 1;
        sql += &format!("select count(payload) from items where id between {first} and {last};\n");
    }
    sql
}
