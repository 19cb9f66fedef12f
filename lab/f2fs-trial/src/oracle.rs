//! The allowed content of a block after a power cut: the newest version that was durable before it,
//! or a newer one whose write had begun. Nothing older, nothing of another block, no zeroes.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context, Result, bail, ensure};

use crate::file::content;

/// Blocks of a file that are treated alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Written once.
    Still,
    /// Dirty when they are moved.
    Moved,
    /// Written by F2FS itself, after the move.
    Beside,
}

impl Part {
    /// The part of a block in the files that are moved.
    pub(crate) const fn of(block: u64) -> Self {
        match block % 9 {
            4 => Self::Moved,
            6 | 7 => Self::Beside,
            _ => Self::Still,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Still => "still",
            Self::Moved => "moved",
            Self::Beside => "beside",
        })
    }
}

/// The versions that a block may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The newest version that was durable; 0: none was.
    pub(crate) durable: u64,
    /// The newest version that may have been written.
    pub(crate) written: u64,
}

impl Bounds {
    /// Check that the block's content is one of these versions.
    pub(crate) fn judge(self, file: u64, block: u64, bytes: &[u8]) -> Result<()> {
        let is = |version: u64| bytes == content(file, block, version);
        if (self.durable..=self.written).any(is) {
            return Ok(());
        }
        let begins = &bytes[..bytes.len().min(16)];
        let Bounds { durable, written } = self;
        if let Some(version) = (1..durable).rev().find(|&version| is(version)) {
            bail!("file {file} block {block}: version {version}, but {durable} was durable");
        }
        if bytes.iter().all(|&byte| byte == 0) {
            bail!(
                "file {file} block {block}: zeroes, but versions {durable} to {written} were written"
            );
        }
        bail!("file {file} block {block}: none of versions {durable} to {written}, but {begins:?}")
    }
}

/// The bounds at a cut: by file and part.
pub(crate) struct Expectation(BTreeMap<(u64, Part), Bounds>);

impl Expectation {
    /// The bounds from marks like `written-FILE-PART-VERSION`, separated by commas; others are
    /// ignored.
    pub(crate) fn read(marks: &str) -> Result<Self> {
        let mut known = BTreeMap::new();
        for mark in marks.split(',') {
            let words: Vec<&str> = mark.split('-').collect();
            let [what @ ("written" | "durable"), file, part, version] = words[..] else {
                continue;
            };
            let part = [Part::Still, Part::Moved, Part::Beside]
                .into_iter()
                .find(|known| known.to_string() == part)
                .with_context(|| mark.to_owned())?;
            let (file, version): (u64, u64) = (file.parse()?, version.parse()?);
            let bounds = known.entry((file, part)).or_insert(first(file));
            let bound = match what {
                "written" => &mut bounds.written,
                _ => &mut bounds.durable,
            };
            ensure!(*bound <= version, "{mark}: {version} after {bound}");
            *bound = version;
        }
        Ok(Self(known))
    }

    /// All files with a mark.
    pub(crate) fn files(&self) -> impl Iterator<Item = u64> {
        let mut files: Vec<u64> = self.0.keys().map(|(file, _)| *file).collect();
        files.dedup();
        files.into_iter()
    }

    pub(crate) fn of(&self, file: u64, part: Part) -> Bounds {
        self.0.get(&(file, part)).copied().unwrap_or(first(file))
    }
}

/// The bounds before any mark: the files that were made beforehand are durable in their first
/// version, others do not exist.
const fn first(file: u64) -> Bounds {
    let version = if file < 100 { 1 } else { 0 };
    Bounds {
        durable: version,
        written: version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: &str =
        "written-1-moved-2,durable-1-moved-2,early-1-2,written-1-moved-3,written-201-still-1";

    #[test]
    fn only_what_was_durable_or_newer_is_right() {
        let known = Expectation::read(MARKS).unwrap();
        let (file, block) = (1, 4);
        let bounds = known.of(file, Part::of(block));
        assert_eq!(
            bounds,
            Bounds {
                durable: 2,
                written: 3
            }
        );
        let judge = |bytes: Vec<u8>| bounds.judge(file, block, &bytes);
        judge(content(file, block, 2)).unwrap();
        judge(content(file, block, 3)).unwrap();
        let refused = |bytes, why: &str| {
            let said = judge(bytes).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        };
        refused(content(file, block, 1), "version 1, but 2 was durable");
        refused(content(file, block, 4), "none of versions 2 to 3");
        refused(content(2, block, 2), "none of versions");
        refused(content(file, block + 9, 2), "none of versions");
        refused(vec![0; 4096], "zeroes");
        let mut torn = content(file, block, 2);
        torn[4095] ^= 1;
        refused(torn, "none of versions");
        refused(Vec::new(), "zeroes");
    }

    #[test]
    fn without_marks_files_are_as_they_were_made() {
        let known = Expectation::read(MARKS).unwrap();
        let first = |version| Bounds {
            durable: version,
            written: version,
        };
        assert_eq!(known.of(1, Part::Still), first(1));
        assert_eq!(known.of(2, Part::Moved), first(1));
        assert_eq!(known.of(202, Part::Still), first(0));
        assert_eq!(
            known.of(201, Part::Still),
            Bounds {
                durable: 0,
                written: 1
            }
        );
        assert!(known.files().eq([1, 201]));
    }

    #[test]
    fn marks_that_go_back_are_no_marks() {
        assert!(Expectation::read("written-1-moved-3,written-1-moved-2").is_err());
        assert!(Expectation::read("durable-1-gone-3").is_err());
    }
}
