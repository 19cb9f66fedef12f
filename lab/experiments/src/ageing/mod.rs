//! Ageing of a file system in a guest by filebench's personalities ([`workloads::filebench`]): [`perform`] has a
//! thread for each flow, as filebench does, so the order of the flows among each other, and with it the places
//! of the data, are the kernel's.

mod perform;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use workloads::filebench::{Ageing, Personality};

pub(crate) use self::perform::{Aged, age};

/// Zones of the paper's device: 16 GiB of 32 MiB.
const ZONES: u64 = 512;
/// Zones and files of a small trial: enough for F2FS, and too few for a figure.
const ZONES_OF_TRIAL: u64 = 128;
const FILES_OF_TRIAL: usize = 32;
/// Bytes of a zone of it.
const ZONE_BYTES: u64 = 32 << 20;

/// How the flows write: filebench's attribute `directio`, or without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Writes {
    /// Into the page cache, from which the kernel's one thread for a file system writes file by file.
    #[default]
    Cached,
    /// `O_DIRECT`. On zones, F2FS has each flow write its pages to the log by itself and wait for them.
    Direct,
}

impl Writes {
    /// Its name, as in options.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::Direct => "direct",
        }
    }
}

/// How much ageing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) personality: Personality,
    pub(crate) writes: Writes,
    /// The paper's device, its zones and the number of files are divided by this.
    pub(crate) factor: u64,
    /// The flows end when they have written this many times the data.
    pub(crate) rounds: f64,
    /// Percentage of whole-file reads that are done.
    pub(crate) reads_percent: u32,
    pub(crate) seed: u64,
    /// Only a trial: fewer zones, and far fewer files.
    pub(crate) is_trial: bool,
}

impl Plan {
    /// The ageing, as the flows see it: 75 % (fileserver) and 79 % (varmail) of the device are filled.
    pub(crate) fn ageing(self) -> Ageing {
        let (files, mean_bytes) = self.personality.files_of_indef();
        let files = (files / self.factor as usize).max(1);
        Ageing {
            personality: self.personality,
            files: if self.is_trial {
                files.min(FILES_OF_TRIAL)
            } else {
                files
            },
            mean_bytes,
            rounds: self.rounds,
            reads_percent: self.reads_percent,
            seed: self.seed,
        }
    }

    /// Bytes of the device.
    pub(crate) const fn device_bytes(self) -> u64 {
        let zones = if self.is_trial { ZONES_OF_TRIAL } else { ZONES };
        zones * self.zone_bytes()
    }

    /// Bytes of a zone.
    pub(crate) const fn zone_bytes(self) -> u64 {
        ZONE_BYTES / self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(personality: Personality, factor: u64) -> Plan {
        Plan {
            personality,
            writes: Writes::Cached,
            factor,
            rounds: 1.5,
            reads_percent: 100,
            seed: 7,
            is_trial: false,
        }
    }

    #[test]
    fn files_fill_the_device_as_the_papers_do() {
        for (personality, percent) in [
            (Personality::Fileserver, 75.0),
            (Personality::Varmail, 79.3),
        ] {
            let plan = plan(personality, 16);
            let filled = plan.ageing().fill_bytes();
            let fill = 100.0 * filled as f64 / plan.device_bytes() as f64;
            assert!((fill - percent).abs() < 0.1, "{personality}: {fill} %");
            assert_eq!(plan.device_bytes() * 16, 16 << 30);
        }
    }

    #[test]
    fn threads_make_the_files() {
        for personality in [Personality::Fileserver, Personality::Varmail] {
            let dir = tempfile::tempdir().unwrap();
            let aged = age(plan(personality, 2048), dir.path()).unwrap();
            let files = std::fs::read_dir(dir.path()).unwrap();
            let lengths: Vec<u64> = files
                .map(|file| file.unwrap().metadata().unwrap().len())
                .collect();
            assert_eq!(lengths.len() as u64, aged.files);
            assert_eq!(lengths.iter().sum::<u64>(), aged.bytes);
            assert!(aged.deleted > 0);
        }
    }
}
