//! The ways of migrating.

use std::fmt;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;
use units::Bytes;

/// The default of `run --max-stall`, in the device's time.
const STALL_MS: f64 = 50.0;

/// A way of migrating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// `f2fs_io defrag_file` of each file, as a whole.
    Conventional,
    /// FragPicker's policy, through the host.
    FragPicker,
    /// indef's, with the data inside of the device, by `In_Device_Defragment`.
    Indef {
        /// `--truncate`, in percent.
        truncate: u32,
    },
    /// The same on a device that has only the standard Copy.
    Copy {
        /// `--truncate`, in percent.
        truncate: u32,
    },
}

impl Way {
    /// Its name in options.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Conventional => "conventional",
            Self::FragPicker => "fragpicker",
            Self::Indef { .. } => "indef",
            Self::Copy { .. } => "copy",
        }
    }

    /// The engine that moves the data. (f2fs_io calls the ioctl of `f2fs-defragment`.)
    pub(crate) const fn engine(self) -> &'static str {
        match self {
            Self::Conventional | Self::FragPicker => "f2fs-defragment",
            Self::Indef { .. } | Self::Copy { .. } => "f2fs-offload",
        }
    }

    /// Check by what its command said that this engine has moved the data, and all of it. (f2fs_io fails where it cannot.)
    pub(crate) fn check(self, said: &str) -> Result<()> {
        if self == Self::Conventional {
            return Ok(());
        }
        let document: Value =
            serde_json::from_str(said).context("indef's result is not as written")?;
        let files = document["files"].as_array();
        let files = files.context("indef's result has no files")?;
        let moved = files.iter().find(|file| file["status"] == "moved");
        let engine = moved.and_then(|file| file["engine"].as_str());
        let (engine, wanted) = (engine.unwrap_or("none"), self.engine());
        ensure!(engine == wanted, "{engine} has moved it, not {wanted}");
        let is_left = |file: &&Value| file["reason"] == "no-space";
        let left = files.iter().filter(is_left).count();
        ensure!(
            left == 0,
            "the device is too full: of {} files {left} were not moved, or not as a whole, for want of free space",
            files.len()
        );
        Ok(())
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conventional => f.write_str("conventional"),
            Self::FragPicker => f.write_str("FragPicker"),
            Self::Indef { truncate } => write!(f, "indef {truncate} %"),
            Self::Copy { truncate } => write!(f, "indef {truncate} % by Copy"),
        }
    }
}

/// The commands of the ways in the guest.
pub(crate) struct Commands<'a> {
    pub(crate) indef: &'a str,
    /// The directory with the files.
    pub(crate) dir: &'a str,
    pub(crate) profile: &'a str,
    pub(crate) io_size: Bytes,
    /// How many times slower than its model the device goes.
    pub(crate) time_scale: f64,
}

impl Commands<'_> {
    /// The command that migrates.
    pub(crate) fn of(&self, way: Way) -> Vec<String> {
        match way {
            Way::Conventional => self.conventional(),
            Way::FragPicker => self.run(way, ["fragpicker", "--hot", "100"]),
            Way::Indef { truncate } | Way::Copy { truncate } => {
                self.run(way, ["indef", "--truncate", &truncate.to_string()])
            }
        }
    }

    /// As an administrator does: whole files, one after the other. F2FS refuses a file (EAGAIN) when free
    /// sections are short, until a checkpoint has freed those that the files before have left.
    fn conventional(&self) -> Vec<String> {
        let dir = self.dir;
        let script = format!(
            "for file in {dir}/*; do \
             bytes=$((($(stat -c %s $file) + 4095) / 4096 * 4096)); \
             move() {{ f2fs_io defrag_file 0 $bytes $file >/dev/null; }}; \
             move 2>/dev/null || {{ sync; move; }} || exit; \
             done; sync"
        );
        vec!["sh".into(), "-c".into(), script]
    }

    /// `indef run` by a policy with an option.
    fn run(&self, way: Way, policy: [&str; 3]) -> Vec<String> {
        let size = self.io_size.get().to_string();
        let stall = ((STALL_MS * self.time_scale) as u64)
            .clamp(1, 60_000)
            .to_string();
        let words = [
            self.indef,
            "run",
            "--json",
            "--max-stall",
            &stall,
            "--profile",
            self.profile,
            "--ignore-times",
            "--min-free",
            "0",
            "--io-size",
            &size,
            "--readahead",
            &size,
            "--engine",
            way.engine(),
            "--policy",
        ];
        let words = words.into_iter().chain(policy).chain([self.dir]);
        words.map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_moves_a_part_is_none() {
        let said = |engine: &str, reason: &str| {
            format!(
                r#"{{"files":[{{"status":"skipped","engine":"{engine}","reason":"contiguous"}},
                {{"status":"moved","engine":"{engine}","reason":{reason}}}]}}"#
            )
        };
        let indef = Way::Indef { truncate: 20 };
        indef.check(&said("f2fs-offload", "null")).unwrap();
        Way::FragPicker
            .check(&said("f2fs-defragment", "null"))
            .unwrap();
        for (engine, reason, wanted) in [
            ("f2fs-defragment", "null", "f2fs-defragment has moved it"),
            (
                "f2fs-offload",
                r#""no-space""#,
                "of 2 files 1 were not moved",
            ),
        ] {
            let error = indef.check(&said(engine, reason)).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        for said in ["", "{}", r#"{"files":[]}"#] {
            assert!(indef.check(said).is_err(), "{said}");
        }
        Way::Conventional.check("").unwrap();
    }
}
