//! Where files lie: dumped in the guest, and looked at here.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use linux_abi::fiemap::{ExtentFlags, FLAG_SYNC, Mapper};
use serde::{Deserialize, Serialize};

pub(crate) const BLOCK: u64 = 4096;

/// A piece of a file that lies in one piece on the device. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// The place in the file.
    pub(crate) at: u64,
    /// The place on the device; as F2FS counts it in a dump, in the namespace with zones afterwards.
    pub(crate) place: u64,
    pub(crate) bytes: u64,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileLayout {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) extents: Vec<Extent>,
}

/// The files of a directory, in order of their names, in which a reader takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    pub(crate) files: Vec<FileLayout>,
}

impl Layout {
    /// Look at a directory, in the guest.
    pub(crate) fn of(dir: &Path) -> Result<Self> {
        let mut found = Vec::new();
        for path in files(dir)? {
            let file = File::open(&path)?;
            found.push(FileLayout {
                name: path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                bytes: file.metadata()?.len(),
                extents: extents(&file)?,
            });
        }
        Ok(Self { files: found })
    }

    /// The same with places in the namespace that begins where F2FS counts `first_byte`.
    pub(crate) fn in_namespace(mut self, first_byte: u64) -> Result<Self> {
        for file in &mut self.files {
            for extent in &mut file.extents {
                ensure!(
                    extent.place >= first_byte,
                    "{}: F2FS has put data beside the zones",
                    file.name
                );
                extent.place -= first_byte;
            }
        }
        Ok(self)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(crate) fn extents(&self) -> usize {
        self.files.iter().map(|file| file.extents.len()).sum()
    }

    /// The reads of a program that reads all files from their beginning to their end: for each request of
    /// `io_bytes`, the pieces on the device.
    pub(crate) fn reads(&self, io_bytes: u64) -> impl Iterator<Item = Vec<Extent>> {
        self.files.iter().flat_map(move |file| file.reads(io_bytes))
    }

    /// The percentage of the data that lies in requests of one piece: those are what FragPicker leaves
    /// alone.
    pub(crate) fn contiguous_percent(&self, io_bytes: u64) -> f64 {
        let (mut whole, mut all) = (0, 0);
        for pieces in self.reads(io_bytes) {
            let bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
            all += bytes;
            whole += if pieces.len() == 1 { bytes } else { 0 };
        }
        100.0 * whole as f64 / (all as f64).max(1.0)
    }

    /// The mean number of pieces of a request.
    pub(crate) fn dolf_mean(&self, io_bytes: u64) -> f64 {
        let (mut pieces, mut requests) = (0, 0);
        for read in self.reads(io_bytes) {
            pieces += read.len();
            requests += 1;
        }
        pieces as f64 / f64::from(requests).max(1.0)
    }
}

impl FileLayout {
    fn reads(&self, io_bytes: u64) -> impl Iterator<Item = Vec<Extent>> {
        let mut requests: Vec<Vec<Extent>> = Vec::new();
        let mut last = None;
        for extent in &self.extents {
            let end = extent.at + extent.bytes;
            let mut at = extent.at;
            while at < end {
                let request = at / io_bytes;
                let to = end.min((request + 1) * io_bytes);
                if last != Some(request) {
                    requests.push(Vec::new());
                    last = Some(request);
                }
                if let Some(pieces) = requests.last_mut() {
                    pieces.push(Extent {
                        at,
                        place: extent.place + (at - extent.at),
                        bytes: to - at,
                    });
                }
                at = to;
            }
        }
        requests.into_iter()
    }
}

/// The files of a directory, in order of their names.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// The extents of a file, with those that touch as one.
fn extents(file: &File) -> Result<Vec<Extent>> {
    let mut mapper = Mapper::default();
    let mut extents: Vec<Extent> = Vec::new();
    let mut start = 0;
    loop {
        let batch = mapper.batch(file, start, u64::MAX - start, FLAG_SYNC)?;
        for raw in batch {
            let flags = ExtentFlags::from_bits_retain(raw.flags);
            let unknown = ExtentFlags::UNKNOWN | ExtentFlags::DATA_INLINE | ExtentFlags::ENCODED;
            ensure!(
                !flags.intersects(unknown),
                "an extent without a place: {flags:?}"
            );
            start = raw.logical + raw.length;
            match extents.last_mut() {
                Some(last)
                    if last.at + last.bytes == raw.logical
                        && last.place + last.bytes == raw.physical =>
                {
                    last.bytes += raw.length;
                }
                _ => extents.push(Extent {
                    at: raw.logical,
                    place: raw.physical,
                    bytes: raw.length,
                }),
            }
            if flags.contains(ExtentFlags::LAST) {
                return Ok(extents);
            }
        }
        if batch.is_empty() {
            return Ok(extents);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(extents: &[(u64, u64, u64)]) -> FileLayout {
        let extent = |&(at, place, bytes): &(u64, u64, u64)| Extent {
            at: at * BLOCK,
            place: place * BLOCK,
            bytes: bytes * BLOCK,
        };
        FileLayout {
            name: "file".into(),
            bytes: extents.iter().map(|extent| extent.2 * BLOCK).sum(),
            extents: extents.iter().map(extent).collect(),
        }
    }

    #[test]
    fn requests_are_cut_where_reads_and_extents_end() {
        // 64 blocks a request: 96 in one piece, then 16 and 16 elsewhere, then a last block.
        let layout = Layout {
            files: vec![file(&[
                (0, 1000, 96),
                (96, 10, 16),
                (112, 5000, 16),
                (128, 7, 1),
            ])],
        };
        let reads: Vec<Vec<(u64, u64)>> = layout
            .reads(64 * BLOCK)
            .map(|pieces| {
                pieces
                    .iter()
                    .map(|it| (it.place / BLOCK, it.bytes / BLOCK))
                    .collect()
            })
            .collect();
        let expected = [
            vec![(1000, 64)],
            vec![(1064, 32), (10, 16), (5000, 16)],
            vec![(7, 1)],
        ];
        assert_eq!(reads, expected);
        assert!((layout.contiguous_percent(64 * BLOCK) - 100.0 * 65.0 / 129.0).abs() < 1e-9);
        assert!((layout.dolf_mean(64 * BLOCK) - 5.0 / 3.0).abs() < 1e-9);
        assert!(layout.clone().in_namespace(8 * BLOCK).is_err());
        let moved = layout.in_namespace(7 * BLOCK).unwrap();
        assert_eq!(moved.files[0].extents[3].place, 0);
    }
}
