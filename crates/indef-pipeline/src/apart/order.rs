//! What is ordered and what is told, and their form on a connection: JSON documents, one a line.

use std::{ffi::OsString, io, os::unix::net::UnixStream, time::Duration};

use indef_trace::{FileKey, collect::Sampling};
use linux_abi::peer;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::geteuid,
};
use serde::{Deserialize, Serialize};
use units::Nanos;

/// Asked while a trace is made, at least once a second; true: end it.
pub(super) type Halt<'a> = &'a mut (dyn FnMut() -> bool + Send);

/// So long the other side may let a line wait that is due at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A trace of reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// How long.
    pub time: Duration,
    /// Only where nobody else wants a processor.
    pub aside: bool,
    /// The cost of it.
    #[serde(with = "SamplingForm")]
    pub sampling: Sampling,
    /// Only these files, or files in these trees; none: all.
    pub paths: Vec<OsString>,
    /// The store that the counts are added to, made if it is missing.
    pub profile: OsString,
}

/// [`Sampling`] as it is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Sampling")]
enum SamplingForm {
    All,
    OneIn(u32),
    Paused { one_in: u32, pauses: u32 },
    AtMost(u32),
}

/// What a trace has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// Reads that it counted.
    pub reads: u64,
    /// Mean device time of a read, where some were timed.
    pub read_time: Option<Nanos>,
    /// Requests for a read, where they were counted.
    pub requests_per_read: Option<f64>,
    /// Device, inode, generation, subvolume, reads.
    pub(super) files: Vec<(u64, u64, u32, u64, u64)>,
}

impl Findings {
    /// With the reads of each file.
    pub(super) fn with_files(self, files: impl IntoIterator<Item = (FileKey, u64)>) -> Self {
        let of = |(key, reads): (FileKey, u64)| {
            (key.dev, key.inode, key.generation, key.subvolume, reads)
        };
        Self {
            files: files.into_iter().map(of).collect(),
            ..self
        }
    }

    /// The reads of each file that was counted separately.
    pub fn files(&self) -> impl Iterator<Item = (FileKey, u64)> + '_ {
        self.files.iter().map(|of| {
            let (dev, inode, generation, subvolume, reads) = *of;
            let key = FileKey {
                dev,
                inode,
                generation,
                subvolume,
            };
            (key, reads)
        })
    }
}

/// What the side that traces says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The order is understood.
    Begins,
    /// It is over. The counts are in the profile.
    Traced(Findings),
    /// It was not possible, or what was counted was not kept.
    Failed(String),
    /// The same, and the next trace may do better.
    FailedForNow(String),
}

/// Why a trace tells nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTraced {
    /// The reason, for people.
    pub why: String,
    /// The next one may tell something: it is no matter of rights, of the kernel or of a profile that is none.
    pub may_pass: bool,
}

impl NotTraced {
    pub(super) fn for_now(why: String) -> Self {
        Self {
            why,
            may_pass: true,
        }
    }
}

/// What lasts.
impl From<String> for NotTraced {
    fn from(why: String) -> Self {
        Self {
            why,
            may_pass: false,
        }
    }
}

/// The user at the other end, if that is neither root nor who we are.
pub(super) fn stranger(connection: &UnixStream) -> io::Result<Option<u32>> {
    let user = peer::user(connection)?;
    Ok((user != 0 && user != geteuid().as_raw()).then_some(user))
}

/// Wait until there is something to read, or the other end is gone; at most so long, or until a signal. Returns whether
/// there is.
pub(super) fn is_readable(connection: &UnixStream, within: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::new(connection, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: i64::try_from(within.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: within.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// A message as a line.
pub(super) fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
