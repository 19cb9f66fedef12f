//! A database that grows row by row, with writes to another file between the rows (FAST'24 §5.2: 10,000
//! rows of 16 KB, 100 KB after each, no journal).

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{
    extents::{Written, extents},
    writer::{Way, Writer},
};

pub(super) fn run(folder: &Path, rows: u64, dummy: u64) -> Result<Vec<Written>> {
    let (path, other) = (folder.join("database"), folder.join("dummy"));
    for left in [&path, &other] {
        let _ = fs::remove_file(left);
    }
    let mut other = Writer::create(&other, Way::Fdatasync)?;
    let mut sqlite = Command::new("sqlite3")
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("sqlite3")?;
    let mut say = sqlite.stdin.take().context("a pipe")?;
    let mut said = BufReader::new(sqlite.stdout.take().context("a pipe")?).lines();
    // The journal mode is the first thing that it says.
    say.write_all(b"PRAGMA journal_mode = OFF;\nCREATE TABLE rows (data BLOB);\n")?;
    let mode = said.next().context("sqlite3 ended")??;
    ensure!(mode == "off", "the journal mode is {mode}");
    for row in 0..rows {
        say.write_all(b"INSERT INTO rows VALUES (randomblob(16384)); SELECT 'done';\n")?;
        let answer = said.next().context("sqlite3 ended")??;
        ensure!(answer == "done", "{answer}");
        if dummy > 0 {
            other.write(row * dummy, dummy, 0)?;
        }
    }
    say.write_all(b"PRAGMA integrity_check; SELECT count(*) FROM rows;\n")?;
    let answers = [said.next(), said.next()].map(|line| line.context("sqlite3 ended"));
    let [checked, count] = answers;
    ensure!(checked?? == "ok", "the database is damaged");
    ensure!(count??.parse::<u64>()? == rows, "rows are missing");
    drop(say);
    ensure!(sqlite.wait()?.success(), "sqlite3 failed");
    rustix::fs::sync();
    Ok(vec![extents(&path)?])
}
