//! The image of a virtual disk, with a database on it.
//!
//! The image is thin: a hole where nothing was written. A loop device with direct I/O stands for the hypervisor, and this
//! machine's own ext4 for the guest's. Other images, which do not change, fill most of the file system.

use std::{
    fmt::Write as _,
    fs::File,
    io::{Seek, SeekFrom, Write as _},
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use scratch_fs::ScratchFs;
use units::Bytes;
use workloads::Numbers;

use super::life::{Life, Setting};

/// The virtual disk, and the images beside it.
const DISK: Bytes = Bytes::mib(384);
const OTHERS: Bytes = Bytes::mib(384);
/// Transactions in a day, each durable: so many new rows, and as many that change.
const TRANSACTIONS: u32 = 40;
const ROWS: u64 = 8;
/// Bytes of a row's payload, at most.
const PAYLOAD: u64 = 900;

pub(super) struct Machine {
    guest: ScratchFs,
    numbers: Numbers,
    rows: u64,
}

impl Machine {
    pub(super) fn begin(setting: &Setting<'_>) -> Result<Self> {
        let &Setting { folder, seed, .. } = setting;
        let mut numbers = Numbers::new(seed);
        // Beside the folder: what does not change is no part of the result.
        let mut others = File::create(folder.with_file_name("others"))?;
        let mut content = vec![0; 1 << 20];
        for _ in 0..OTHERS.get() >> 20 {
            numbers.fill(&mut content);
            others.write_all(&content)?;
        }
        others.sync_all()?;
        let machine = Self {
            guest: ScratchFs::builder("ext4", DISK).folder(folder).build()?,
            numbers,
            rows: 0,
        };
        machine.sql(
            "pragma journal_mode=wal; \
             create table items(id integer primary key, name text, payload blob); \
             create index names on items(name);\n",
        )?;
        Ok(machine)
    }

    fn database(&self) -> PathBuf {
        self.guest.path().join("items.sqlite")
    }

    fn sql(&self, script: &str) -> Result<()> {
        let mut input = tempfile::tempfile()?;
        input.write_all(script.as_bytes())?;
        input.seek(SeekFrom::Start(0))?;
        let output = Command::new("sqlite3")
            .arg(self.database())
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .context("cannot run sqlite3; is it installed?")?;
        ensure!(
            output.status.success(),
            "sqlite3: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

impl Life for Machine {
    fn day(&mut self) -> Result<()> {
        let mut script = String::from("pragma synchronous=full;\n");
        for _ in 0..TRANSACTIONS {
            script.push_str("begin;\n");
            for _ in 0..ROWS {
                self.rows += 1;
                let (id, name) = (self.rows, self.numbers.next());
                let bytes = 1 + self.numbers.below(PAYLOAD);
                writeln!(
                    script,
                    "insert into items values({id}, '{name:x}', randomblob({bytes}));"
                )?;
                let (id, name) = (1 + self.numbers.below(self.rows), self.numbers.next());
                let bytes = 1 + self.numbers.below(PAYLOAD);
                writeln!(
                    script,
                    "update items set name='{name:x}', payload=randomblob({bytes}) where id={id};"
                )?;
            }
            script.push_str("commit;\n");
        }
        self.sql(&script)?;
        self.guest.sync()?;
        Ok(())
    }
}
