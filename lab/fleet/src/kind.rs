//! What a host is: its workload, file system, drive, fill, and how busy it is. Drawn from a seed.

use workloads::Numbers;

/// The workloads, of the papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// filebench's fileserver with its own reads: a whole file, at random, for each that is made (InDeF §IV, FAST'24 §5).
    Fileserver,
    /// filebench's varmail with its own reads: two whole files for two appends that are made durable (InDeF §IV).
    Varmail,
    /// The files of fileserver, read by `grep -r` (InDeF §IV, FragPicker §5.4).
    Search,
    /// Tables whose pages are updated at random, ranges read by Zipf's law (YCSB-B; FragPicker §5.3, InDeF §IV-F).
    Database,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Fileserver,
        Self::Varmail,
        Self::Search,
        Self::Database,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fileserver => "fileserver",
            Self::Varmail => "varmail",
            Self::Search => "search",
            Self::Database => "database",
        }
    }
}

/// The file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// Block groups, written in place.
    Ext4,
    /// A log.
    F2fs,
}

impl FileSystem {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ext4, Self::F2fs];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::F2fs => "F2FS",
        }
    }
}

/// The drives: names of flash-model's profiles.
pub const DRIVES: [&str; 4] = ["sata-mx500", "tlc", "optane-905p", "microsd"];

/// The share of the volume that files fill.
const FILL: (f64, f64) = (0.4, 0.8);
/// The share of the data that is written in a day: each order of magnitude as likely as the other.
const TURNOVER: (f64, f64) = (0.002, 0.1);

/// A host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Who writes and reads.
    pub workload: Workload,
    /// Where files lie.
    pub file_system: FileSystem,
    /// A profile of flash-model.
    pub drive: &'static str,
    /// The share of the volume that files fill.
    pub fill: f64,
    /// The share of the data that is written in a day.
    pub turnover: f64,
    /// Of everything else that is drawn.
    pub seed: u64,
}

impl Kind {
    /// The host with this number. Workloads, file systems and drives take turns, so that every 32 hosts have each
    /// combination once; the rest is drawn.
    #[must_use]
    pub fn of(seed: u64, number: u32) -> Self {
        let mut numbers = Numbers::stream(seed, u64::from(number));
        let at = number as usize;
        let (least, most) = TURNOVER;
        Self {
            workload: Workload::ALL[at % 4],
            file_system: FileSystem::ALL[at / 4 % 2],
            drive: DRIVES[at / 8 % DRIVES.len()],
            fill: FILL.0 + (FILL.1 - FILL.0) * numbers.fraction(),
            turnover: least * (most / least).powf(numbers.fraction()),
            seed: numbers.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_two_hosts_have_every_combination_once() {
        let mut kinds: Vec<_> = (0..32)
            .map(|number| {
                let kind = Kind::of(1, number);
                assert!((FILL.0..FILL.1).contains(&kind.fill));
                assert!((TURNOVER.0..TURNOVER.1).contains(&kind.turnover));
                (kind.workload.name(), kind.file_system.name(), kind.drive)
            })
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), 32);
        assert_eq!(Kind::of(1, 7), Kind::of(1, 7));
        assert_ne!(Kind::of(1, 7).turnover, Kind::of(2, 7).turnover);
    }
}
