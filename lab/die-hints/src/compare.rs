//! The cases of Figure 12 of FAST'24 (§5.2), each without and with hints.

use std::fmt;

use anyhow::Result;

use crate::{FileSystem, Lab, Outcome, inside::GRANULE, read::Reading};

/// Dies of the device.
const DIES: u64 = 8;
/// Seeds of the random dummy sizes.
const SEEDS: [u64; 1] = [1];
/// Rows of the database; the paper has 10,000.
const ROWS: u64 = 1000;
/// Bytes that are written to another file after each row.
const AFTER_ROW: u64 = 100 << 10;
/// Files of the file server; the paper has 10,000.
const FILES: u64 = 200;
/// Appends to each in the mean: 128 KiB become the 600 KB of the paper.
const APPENDS: u64 = 15;

/// One way to write, and the same data written at once.
#[derive(Clone, Debug)]
pub struct Case {
    name: String,
    /// The words for [`crate::inside::run`].
    words: Vec<String>,
    contiguous: Vec<String>,
    reading: Reading,
}

/// A case without and with hints.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The same data written at once, without hints.
    pub contiguous: Outcome,
    /// Without hints, and with them.
    pub written: [Outcome; 2],
}

impl Comparison {
    /// The share of the contiguous files' speed.
    #[must_use]
    pub fn share(&self, of: &Outcome) -> f64 {
        of.speed() / self.contiguous.speed()
    }
}

impl Case {
    /// Appends and overwrites in pieces of a granule, worst and random.
    #[must_use]
    pub fn pieces(way: &str) -> Vec<Self> {
        let worst = (
            "worst".to_owned(),
            format!("fixed:{}", (DIES - 1) * GRANULE),
        );
        let drawn = SEEDS.map(|seed| (format!("random {seed}"), format!("drawn:{seed}")));
        let dummies: Vec<_> = [worst].into_iter().chain(drawn).collect();
        let changes = ["append", "overwrite"].into_iter();
        changes
            .flat_map(|change| {
                dummies.iter().map(move |(name, dummy)| Self {
                    name: format!("{change}, {name}, {way}"),
                    words: words(&format!("pieces {change} {dummy} {way}")),
                    contiguous: words(&format!("pieces whole none {way}")),
                    reading: Reading::FIGURE_12,
                })
            })
            .collect()
    }

    /// A SQLite database and two file servers.
    #[must_use]
    pub fn programs() -> Vec<Self> {
        let sqlite = Self {
            name: "SQLite".into(),
            words: words(&format!("sqlite {ROWS} {AFTER_ROW}")),
            contiguous: words(&format!("sqlite {ROWS} 0")),
            // The kernel's read-ahead.
            reading: Reading {
                call: 128 << 10,
                threads: 1,
            },
        };
        let server = |name: &str, bytes: u64| Self {
            name: name.into(),
            words: words(&format!("fileserver {FILES} {bytes} {APPENDS}")),
            contiguous: words(&format!("fileserver {FILES} 0 {APPENDS}")),
            reading: Reading {
                call: 1 << 20,
                threads: 10,
            },
        };
        vec![
            sqlite,
            server("fileserver", 32 << 10),
            server("fileserver small", 16 << 10),
        ]
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The words for [`crate::inside::run`] in this text.
#[must_use]
pub fn words(of: &str) -> Vec<String> {
    of.split(' ').map(str::to_owned).collect()
}

impl Lab {
    /// Write a case on a new file system without the option `die_hints`, and on one with it.
    ///
    /// # Errors
    ///
    /// The guest failed, or a file system is not clean afterwards.
    pub fn compare(&self, system: FileSystem, case: &Case) -> Result<Comparison> {
        self.make(system, "nodie_hints")?;
        let contiguous = self.write(&case.contiguous, case.reading)?;
        let without = self.write(&case.words, case.reading)?;
        self.unmount(system)?;
        self.make(system, "die_hints")?;
        let with = self.write(&case.words, case.reading)?;
        self.unmount(system)?;
        Ok(Comparison {
            contiguous,
            written: [without, with],
        })
    }
}
