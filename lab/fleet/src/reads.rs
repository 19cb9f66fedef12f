//! What is read of a host in a day: windows of its files, each with its rate.

use std::ops::Range;

use lfs_sim::{BLOCK, FileId};
use units::Bytes;
use workloads::{Numbers, filebench::APPEND_BYTES};

use crate::{host::Host, kind::Workload, settings::Settings};

/// The window of a reader from end to end: what Linux reads ahead, 128 KiB.
const WINDOW: u32 = 32;
/// A range of a database that is read at once: 64 KiB, half a hundred records of 1 KB (YCSB).
const RANGE: u32 = 16;
/// YCSB's skew.
const SKEW: f64 = 0.99;

/// A range of a file that is read at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The file.
    pub file: FileId,
    /// Its blocks.
    pub blocks: Range<u32>,
    /// Reads a day that reach the drive.
    pub rate: f64,
}

/// The bytes that a host writes in a day.
#[must_use]
pub fn written(host: &Host, settings: &Settings) -> Bytes {
    Bytes((host.data.0 as f64 * host.kind.turnover * settings.activity) as u64)
}

/// All windows of a host as it is.
#[must_use]
pub fn windows(host: &Host, settings: &Settings) -> Vec<Window> {
    let files = host.files();
    let written = written(host, settings).0 as f64;
    let all: f64 = files.iter().map(|file| bytes(host, *file)).sum();
    let (count, mean) = (files.len().max(1) as f64, all / files.len().max(1) as f64);
    // As often as each file is read from end to end, by the flows themselves (`workloads::filebench::flow`).
    let appended = APPEND_BYTES as f64 / 2.0;
    let whole = match host.kind.workload {
        Workload::Fileserver => written / (mean + appended) / count,
        Workload::Varmail => 2.0 * written / (2.0 * appended) / count,
        Workload::Search => settings.searches * settings.activity,
        Workload::Database => {
            return of_database(host, &files, written, settings);
        }
    };
    // Of files that are all read alike, memory holds its share; a search reads all, and finds nothing of the last one.
    let missed = match host.kind.workload {
        Workload::Search => 1.0,
        _ => 1.0 - settings.memory,
    };
    let of_file = |file: &FileId| {
        let (file, end) = (*file, host.volume().files().blocks(*file));
        let starts = (0..end).step_by(WINDOW as usize);
        starts.map(move |start| Window {
            file,
            blocks: start..(start + WINDOW).min(end),
            rate: whole * missed,
        })
    };
    files.iter().flat_map(of_file).collect()
}

fn bytes(host: &Host, file: FileId) -> f64 {
    host.volume().files().bytes(file).0 as f64
}

/// Ranges by Zipf's law, scattered over the tables.
fn of_database(host: &Host, files: &[FileId], written: f64, settings: &Settings) -> Vec<Window> {
    let of_file = |file: &FileId| {
        let (file, end) = (*file, host.volume().files().blocks(*file));
        (0..end)
            .step_by(RANGE as usize)
            .map(move |start| (file, start..(start + RANGE).min(end)))
    };
    let mut ranges: Vec<_> = files.iter().flat_map(of_file).collect();
    Numbers::stream(host.kind.seed, u64::MAX).shuffle(&mut ranges);
    let reads = written / BLOCK.0 as f64 * settings.reads_per_update;
    let weights: Vec<f64> = (1..=ranges.len())
        .map(|rank| (rank as f64).powf(-SKEW))
        .collect();
    let sum: f64 = weights.iter().sum();
    let rates: Vec<f64> = weights.iter().map(|weight| reads * weight / sum).collect();
    let missed = misses(&rates, settings.memory);
    let mut windows: Vec<Window> = ranges
        .into_iter()
        .zip(rates.iter().zip(missed))
        .map(|((file, blocks), (rate, missed))| Window {
            file,
            blocks,
            rate: rate * missed,
        })
        .collect();
    windows.sort_by_key(|window| (window.file, window.blocks.start));
    windows
}

/// The part of the reads of each of equal ranges that a memory for a `share` of them does not have, if it forgets what was
/// used least recently: 1 − the chance of a read within the time that it keeps a range, which is as long as it is full (Che,
/// Tung, Wang 2002, "Hierarchical Web caching systems", IEEE JSAC 20:7).
fn misses(rates: &[f64], share: f64) -> Vec<f64> {
    let room = share * rates.len() as f64;
    let held = |time: f64| {
        rates
            .iter()
            .map(|rate| 1.0 - (-rate * time).exp())
            .sum::<f64>()
    };
    let (mut least, mut most) = (0.0, 1.0);
    while held(most) < room && most < 1e9 {
        most *= 2.0;
    }
    for _ in 0..60 {
        let middle = (least + most) / 2.0;
        match held(middle) < room {
            true => least = middle,
            false => most = middle,
        }
    }
    rates.iter().map(|rate| (-rate * least).exp()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_holds_its_share_and_the_hottest_most() {
        let even = misses(&[2.0; 40], 0.25);
        assert!(
            even.iter().all(|missed| (missed - 0.75).abs() < 1e-6),
            "{even:?}"
        );
        let skewed = misses(&[100.0, 1.0, 1.0, 1.0], 0.5);
        assert!(skewed[0] < 1e-9 && skewed[1] > 0.5, "{skewed:?}");
        let nothing = misses(&[3.0, 1.0], 0.0);
        assert!(nothing.iter().all(|missed| *missed == 1.0), "{nothing:?}");
    }
}
