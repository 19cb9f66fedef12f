//! A file as it lay in a guest, and the commands of its reads: so that both can be looked at without a guest.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::super::workload::Pattern;
use crate::layout::{BLOCK, Extent};

/// In blocks of 4 KiB: a place in the file, the place in the namespace with zones, and a length.
type Blocks = [u64; 3];

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Dump {
    /// The version of the guest's kernel.
    kernel: String,
    /// Where the file lies, as FIEMAP tells.
    extents: Vec<Blocks>,
    /// By pattern: the commands of each call.
    calls: Vec<(String, Vec<Vec<Blocks>>)>,
}

impl Dump {
    /// Of a file that lies so.
    pub(super) fn new(kernel: &str, extents: &[Extent]) -> Self {
        Self {
            kernel: kernel.to_owned(),
            extents: extents.iter().map(blocks).collect(),
            calls: Vec::new(),
        }
    }

    /// Add the commands of the calls of a pattern.
    pub(super) fn add(&mut self, pattern: Pattern, calls: &[Vec<Extent>]) {
        let of_call = |call: &Vec<Extent>| call.iter().map(blocks).collect();
        let calls = calls.iter().map(of_call).collect();
        self.calls.push((pattern.name().to_owned(), calls));
    }

    /// Write it to a file.
    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)?;
        fs::write(file, text).with_context(|| file.display().to_string())
    }
}

fn blocks(extent: &Extent) -> Blocks {
    [extent.at, extent.place, extent.bytes].map(|bytes| bytes / BLOCK)
}

#[cfg(test)]
mod tests {
    use units::FileRange;

    use super::{
        super::{super::source::Figure, drives::Drives, times::Times},
        *,
    };

    /// What a guest with Linux 6.12 showed: `conventional-before.json` of a run of `fragpicker/fig08-guest` with
    /// file = 3.25 MiB.
    const SEEN: &str = include_str!("seen.json");

    fn extent([at, place, bytes]: Blocks) -> Extent {
        let [at, place, bytes] = [at, place, bytes].map(|blocks| blocks * BLOCK);
        Extent { at, place, bytes }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pieces = [[0, 7, 1], [1, 9, 2]].map(extent);
        let mut dump = Dump::new("6.12", &pieces);
        dump.add(Pattern::Stride, &[pieces.to_vec()]);
        dump.write(file.path()).unwrap();
        let read: Dump = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
        assert_eq!(read, dump);
        assert_eq!(
            read.calls,
            [("stride".into(), vec![vec![[0, 7, 1], [1, 9, 2]]])]
        );
    }

    /// V against G: the requests that `lfs-sim` makes of a layout are those of a real kernel, as far as a drive's time
    /// goes.
    #[test]
    fn lfs_sim_takes_as_long_as_the_commands_of_a_kernel() {
        let figure = Figure::load(source_tree::root(), "fragpicker/fig08-guest").unwrap();
        let drives = Drives::new(&figure.parameters).unwrap();
        let seen: Dump = serde_json::from_str(SEEN).unwrap();
        let extents: Vec<Extent> = seen.extents.into_iter().map(extent).collect();
        assert_eq!(seen.calls.len(), 2);
        for (pattern, calls) in seen.calls {
            let calls = calls.into_iter();
            let calls: Vec<Vec<Extent>> = calls
                .map(|call| call.into_iter().map(extent).collect())
                .collect();
            let range = |call: &Vec<Extent>| {
                let start = call.iter().map(|it| it.at).min().unwrap();
                FileRange::new(start, call.iter().map(|it| it.bytes).sum())
            };
            let ranges: Vec<FileRange> = calls.iter().map(range).collect();
            assert!(ranges.iter().all(|range| range.len.get() == 128 << 10));
            let times = Times::of(&drives, &extents, &ranges, &calls).unwrap();
            for alone in [times.alone, times.elsewhere] {
                let ratio = alone.simulated / alone.guest;
                assert!((0.9..1.1).contains(&ratio), "{pattern}: {alone:?}");
            }
        }
    }
}
