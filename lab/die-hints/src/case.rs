//! The ways of FAST'24 to write and to read files (§3, §5).

use std::fmt;

use crate::{inside::GRANULE, read::Reading};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Dies of the device.
const DIES: u64 = 8;
/// The target file (FAST'24 §3, §5.1).
const FILE: u64 = 8 * MIB;
/// Seed of the random dummy sizes.
const SEED: u64 = 1;
/// Where the paper has 10,000 rows: a tenth.
const ROWS: u64 = 1000;
/// Bytes that are written to another file after each row.
const AFTER_ROW: u64 = 100 * KIB;
/// Where the paper has 10,000 files: a fiftieth.
const FILES: u64 = 200;
/// Appends to each file in the mean: 128 KiB become the 600 KB of the paper with 32 KiB each.
const APPENDS: u64 = 15;

/// The share of the contiguous speed that is wanted where every write is of whole granules.
const AS_FAST: f64 = 0.98;

/// Figure 7's readings: name, unit, depth.
const UNITS: [(&str, u64, usize); 8] = [
    ("32 KiB, depth 1", 32 * KIB, 1),
    ("64 KiB, depth 1", 64 * KIB, 1),
    ("128 KiB, depth 1", 128 * KIB, 1),
    ("256 KiB, depth 1", 256 * KIB, 1),
    ("32 KiB, depth 32", 32 * KIB, 32),
    ("64 KiB, depth 32", 64 * KIB, 32),
    ("128 KiB, depth 32", 128 * KIB, 32),
    ("256 KiB, depth 32", 256 * KIB, 32),
];

/// One way to write, and the same data written at once.
#[derive(Clone, Debug)]
pub struct Case {
    name: String,
    /// The words for [`crate::inside::run`].
    pub words: Vec<String>,
    /// The same for the data written at once.
    pub contiguous: Vec<String>,
    /// Ways to read the files, each with its name.
    pub readings: Vec<(&'static str, Reading)>,
    /// Shares of the contiguous speed in the paper, without and with hints (Figure 12, from the labels).
    pub published: Option<[f64; 2]>,
    /// The share that is wanted with hints.
    pub wanted: f64,
}

impl Case {
    /// Figure 12: appends and overwrites in pieces of a granule, worst and random.
    #[must_use]
    pub fn pieces(way: &str) -> Vec<Self> {
        let worst = format!("fixed:{}", (DIES - 1) * GRANULE);
        let random = format!("drawn:{SEED}");
        let of = |change: &str, name: &str, dummy: &str, published: [f64; 2]| Self {
            name: format!("{change}, {name}, {way}"),
            words: words(&format!("pieces {change} {GRANULE} {dummy} {way}")),
            contiguous: words(&format!("pieces whole {FILE} none {way}")),
            readings: vec![("calls of 1 MiB", Reading::FIGURE_12)],
            published: Some(published.map(|speed| speed / 2175.0)),
            wanted: AS_FAST,
        };
        vec![
            of("append", "worst", &worst, [397.0, 2127.0]),
            of("append", "random", &random, [1470.0, 2064.0]),
            of("overwrite", "worst", &worst, [399.0, 2058.0]),
            of("overwrite", "random", &random, [1487.0, 2069.0]),
        ]
    }

    /// Figure 3: a file in so many fragments, 8 MiB from one's beginning to the next.
    #[must_use]
    pub fn fragments() -> Vec<Self> {
        let at_once = |depth| Reading {
            call: FILE,
            depth,
            ..Reading::FIGURE_12
        };
        let of = |count: u64| Self {
            name: format!("{count} fragments"),
            words: words(&format!(
                "pieces append {} fixed:{} direct",
                FILE / count,
                FILE - FILE / count
            )),
            contiguous: words(&format!("pieces whole {FILE} none direct")),
            readings: vec![("depth 1", at_once(1)), ("depth 1023", at_once(1023))],
            published: None,
            wanted: AS_FAST,
        };
        (1..=8).map(|power| of(1 << power)).collect()
    }

    /// Figure 7: a file read in units of a granule up to the longest command, one after the other and 32 at a
    /// time; contiguous, and in pieces.
    #[must_use]
    pub fn units() -> Vec<Self> {
        let readings = UNITS.map(|(name, unit, depth)| {
            let call = if depth == 1 { unit } else { FILE };
            let reading = Reading {
                call,
                threads: 1,
                depth,
                command: unit,
            };
            (name, reading)
        });
        let append = Self::pieces("fdatasync").into_iter().next();
        let units = append.map(|case| Self {
            readings: readings.into(),
            published: None,
            ..case
        });
        units.into_iter().collect()
    }

    /// A SQLite database and two file servers. Of them the paper's own share is wanted: appends of half a granule share
    /// their flash pages with other files' (§5.2), and hints cannot help that.
    #[must_use]
    pub fn programs() -> Vec<Self> {
        // How much the kernel reads ahead decides how many dies are read at the same time, and the
        // paper does not say: its default, and the unit in which filebench reads.
        let reading = |call, threads| Reading {
            call,
            threads,
            ..Reading::FIGURE_12
        };
        let readings = |threads| {
            vec![
                ("calls of 128 KiB", reading(128 * KIB, threads)),
                ("calls of 1 MiB", reading(MIB, threads)),
            ]
        };
        let server = |name: &str, bytes: u64, published: [f64; 2]| {
            let of = |how| words(&format!("fileserver {FILES} {bytes} {APPENDS} {how}"));
            Self {
                name: name.into(),
                words: of("appended"),
                contiguous: of("whole"),
                readings: readings(10),
                published: Some(published),
                wanted: published[1],
            }
        };
        let sqlite = [531.0, 850.0].map(|speed| speed / 870.0);
        vec![
            Self {
                name: "SQLite".into(),
                words: words(&format!("sqlite {ROWS} {AFTER_ROW}")),
                contiguous: words(&format!("sqlite {ROWS} 0")),
                readings: readings(1),
                published: Some(sqlite),
                wanted: sqlite[1],
            },
            server(
                "fileserver",
                32 * KIB,
                [2149.0, 2612.0].map(|speed| speed / 2740.0),
            ),
            server(
                "fileserver small",
                16 * KIB,
                [1721.0, 2099.0].map(|speed| speed / 2776.0),
            ),
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
