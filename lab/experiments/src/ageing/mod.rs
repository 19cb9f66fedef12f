//! Ageing of a file system, in a guest or here, by filebench's personalities ([`workloads::filebench`]) and by other
//! programs: [`perform`] has a thread for each flow, as filebench does, so the order of the flows among each other, and with it
//! the places of the data, are the kernel's.

mod perform;
mod writes;

use workloads::filebench::{Ageing, Personality};

pub(crate) use self::{
    perform::{Aged, Carrying, age, age_by},
    writes::Writes,
};

/// Zones of the paper's device: 16 GiB of 32 MiB.
const ZONES: u64 = 512;
/// Zones and files of a small trial: enough for F2FS, and too few for a figure.
const ZONES_OF_TRIAL: u64 = 128;
const FILES_OF_TRIAL: usize = 32;

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

    /// Zones of the device.
    pub(crate) const fn zones(self) -> u64 {
        if self.is_trial { ZONES_OF_TRIAL } else { ZONES }
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

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
            // Zones of the paper's 32 MiB, divided as well.
            let device = Bytes::mib(32 / 16) * plan.zones();
            let fill = 100.0 * filled as f64 / device.get() as f64;
            assert!((fill - percent).abs() < 0.1, "{personality}: {fill} %");
            assert_eq!(device * 16, Bytes::mib(16 << 10));
        }
    }

    #[test]
    fn threads_make_the_files() {
        for personality in [Personality::Fileserver, Personality::Varmail] {
            let dir = tempfile::tempdir().unwrap();
            let ageing = plan(personality, 2048).ageing();
            let aged = age(ageing, Carrying::default(), dir.path()).unwrap();
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
