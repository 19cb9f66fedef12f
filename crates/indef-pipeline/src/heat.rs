//! Heat: a profile, joined to the files that it describes.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufReader},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use indef_core::{
    access::{
        AccessOptions, AccessRange, AccessRecord, FileAccesses, ReadAhead, Unseen, join_with,
    },
    profile::{Profile, ProfileFile},
};
use indef_fs::TargetId;
use indef_trace::{
    TracedFile, readahead,
    resolve::{Located, Resolver},
    store::{Session, Store},
};
use units::Bytes;

use crate::{
    decay::Decay,
    error::Error,
    note::{LeftOut, Note, Notes},
};

/// The accesses of a profile, file by file.
#[derive(Debug)]
pub(crate) struct Accesses {
    ranges: FileAccesses,
    files: HashMap<TargetId, KnownFile>,
    /// The part of the accesses that were not counted.
    uncounted: f64,
}

/// A file of the profile that still exists.
#[derive(Debug)]
struct KnownFile {
    /// Its index in the ranges.
    index: u32,
    /// Its path, if that is known.
    path: Option<PathBuf>,
}

/// The present state of a file of a profile.
enum Now {
    Here(TargetId, Option<PathBuf>),
    /// Another file has its name.
    Replaced,
    Gone,
}

/// Files of a profile, sorted by whether they are found.
#[derive(Default)]
struct Finding {
    files: HashMap<TargetId, KnownFile>,
    /// From the index in the profile to that of the same file's first entry: a file may stand in a
    /// profile under several names.
    canonical: Vec<u32>,
    replaced: Vec<PathBuf>,
    gone: Vec<PathBuf>,
}

impl Finding {
    fn add(&mut self, path: Option<&Path>, now: Now) {
        let index = self.canonical.len() as u32;
        let shown = || path.map_or_else(|| "(a file without a name)".into(), Path::to_owned);
        let canonical = match now {
            Now::Here(id, path) => {
                self.files
                    .entry(id)
                    .or_insert(KnownFile { index, path })
                    .index
            }
            Now::Replaced => {
                self.replaced.push(shown());
                index
            }
            Now::Gone => {
                self.gone.push(shown());
                index
            }
        };
        self.canonical.push(canonical);
    }

    /// Report the files that are left out.
    fn tell(&self, notes: &dyn Notes) {
        for (paths, why) in [
            (&self.replaced, LeftOut::Replaced),
            (&self.gone, LeftOut::Gone),
        ] {
            if !paths.is_empty() {
                notes.note(Note::LeftOut { paths, why });
            }
        }
    }

    fn joined(
        self,
        mut records: Vec<AccessRecord>,
        mut counted: Vec<(u32, AccessRange)>,
        readahead: &ReadAheadOf<'_>,
    ) -> Accesses {
        let of_records = records.iter_mut().map(|record| &mut record.file);
        for file in of_records.chain(counted.iter_mut().map(|(file, _)| file)) {
            if let Some(index) = self.canonical.get(*file as usize) {
                *file = *index;
            }
        }
        let model = readahead.model(|file| self.canonical.get(file).copied());
        Accesses {
            ranges: join_with(records, counted, &AccessOptions::default(), model),
            files: self.files,
            uncounted: 0.0,
        }
    }
}

/// The read-ahead that is modelled for the accesses of a profile of lines.
pub(crate) struct ReadAheadOf<'a> {
    /// As given; without it, each file's device tells.
    pub(crate) given: Option<Bytes>,
    pub(crate) files: &'a [ProfileFile],
}

impl ReadAheadOf<'_> {
    /// The model, in which `number` gives the number of each file of the profile.
    pub(crate) fn model(&self, number: impl Fn(usize) -> Option<u32>) -> ReadAhead {
        let usual = AccessOptions::default();
        let mut model = ReadAhead::new(&AccessOptions {
            readahead: self.given.unwrap_or(usual.readahead),
            ..usual
        });
        if self.given.is_none() {
            let mut devices = readahead::ReadAhead::default();
            for (at, file) in self.files.iter().enumerate() {
                if let Some(number) = number(at) {
                    model.set_window(number, devices.of_path(&file.path));
                }
            }
        }
        model
    }
}

impl Accesses {
    /// Read a profile and find its files. Files that were replaced or are gone since are noted and
    /// left out: their ranges would be those of other contents.
    ///
    /// The counts of a store come from below the page cache; `readahead` is not applied to them.
    pub(crate) fn load(
        path: &Path,
        readahead: Option<Bytes>,
        notes: &dyn Notes,
    ) -> Result<Self, Error> {
        Self::load_in_parts(path, readahead, 1, notes)
    }

    /// The same; reads of a store are counted in so many parts each.
    pub(crate) fn load_in_parts(
        path: &Path,
        readahead: Option<Bytes>,
        parts: u64,
        notes: &dyn Notes,
    ) -> Result<Self, Error> {
        if Store::is_store(path).map_err(|error| unreadable(path, error))? {
            return Self::load_store(path, parts, notes);
        }
        let profile = read_lines(path)?;
        let mut finding = Finding::default();
        for file in &profile.files {
            finding.add(Some(&file.path), find(file));
        }
        finding.tell(notes);
        let readahead = ReadAheadOf {
            given: readahead,
            files: &profile.files,
        };
        Ok(finding.joined(profile.records, profile.ranges, &readahead))
    }

    fn load_store(path: &Path, parts: u64, notes: &dyn Notes) -> Result<Self, Error> {
        let (store, now) = (Store::open(path)?, SystemTime::now());
        let heat = match parts {
            0 | 1 => store.load(now)?,
            parts => store.load_in_parts(now, parts)?,
        };
        let noise = noise(&store.sessions()?, store.settings()?.half_life, now);
        let resolver = Resolver::new();
        let mut finding = Finding::default();
        for file in &heat.files {
            finding.add(file.path.as_deref(), find_traced(&resolver, file));
        }
        finding.tell(notes);
        let readahead = ReadAheadOf {
            given: Some(Bytes::ZERO),
            files: &[],
        };
        let mut accesses = finding.joined(Vec::new(), heat.ranges, &readahead);
        accesses.uncounted = noise / (1.0 + noise);
        // So many times the count is its variance, in whatever parts it is counted.
        accesses.ranges.estimate_reads(noise * parts.max(1) as f64);
        Ok(accesses)
    }

    /// The ranges of a file, if the profile knows it.
    pub(crate) fn of(&self, id: &TargetId) -> Option<&[AccessRange]> {
        self.files.get(id).map(|known| self.ranges.of(known.index))
    }

    /// The part of a file's reads that go to ranges that the profile does not know, as the trace counted one access in
    /// some.
    pub(crate) fn unseen(&self, id: &TargetId) -> Unseen {
        let unseen = self.of(id).map(|ranges| Unseen::of(ranges, self.uncounted));
        unseen.unwrap_or_default()
    }

    /// Reads of all files that still exist.
    pub(crate) fn reads(&self) -> u64 {
        let ranges = self.files.values().flat_map(|f| self.ranges.of(f.index));
        ranges.fold(0, |sum, range| sum.saturating_add(range.reads))
    }

    /// Files with reads that were timed, where their place is known.
    pub(crate) fn timed(&self) -> impl Iterator<Item = (&TargetId, &Path)> {
        self.files.iter().filter_map(|(id, known)| {
            let ranges = self.ranges.of(known.index);
            let timed = ranges.iter().any(|range| range.observed.timed > 0);
            timed.then_some((id, known.path.as_deref()?))
        })
    }
}

/// The variance of a count of a store ÷ the count: `k` − 1 where one access in `k` was counted, as a mean over all
/// that is left of the sessions. A count that is worth half has a quarter of the variance.
fn noise(sessions: &[Session], half_life: Duration, now: SystemTime) -> f64 {
    let decay = Decay::of(half_life);
    let (mut variance, mut counts) = (0.0, 0.0);
    for session in sessions {
        let left = decay.factor(now.duration_since(session.latest).unwrap_or_default());
        let count = session.reads as f64 * left;
        counts += count;
        variance += count * left * (session.one_in - 1.0);
    }
    if counts > 0.0 { variance / counts } else { 0.0 }
}

/// A profile of lines.
pub(crate) fn read_lines(path: &Path) -> Result<Profile, Error> {
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    Profile::read(BufReader::new(file)).map_err(|source| Error::Profile {
        path: path.to_owned(),
        source,
    })
}

fn unreadable(path: &Path, source: io::Error) -> Error {
    Error::Open {
        path: path.to_owned(),
        source,
    }
}

/// A file of a text profile, by its name and, if they are given, its device and inode.
fn find(file: &ProfileFile) -> Now {
    let now = fs::metadata(&file.path).ok().map(|status| TargetId {
        dev: status.dev(),
        inode: status.ino(),
    });
    let then = file
        .dev
        .zip(file.inode)
        .map(|(dev, inode)| TargetId { dev, inode });
    match (then, now) {
        (Some(then), Some(now)) if then != now => Now::Replaced,
        (None, None) => Now::Gone,
        (_, Some(now)) => Now::Here(now, Some(file.path.clone())),
        // Renamed, maybe: the walk may meet it under its new name.
        (Some(then), None) => Now::Here(then, None),
    }
}

/// A file of a store, by the identity that the kernel gave it.
fn find_traced(resolver: &Resolver, file: &TracedFile) -> Now {
    match resolver.find(file) {
        Some(Located { dev, inode, path }) => Now::Here(TargetId { dev, inode }, path),
        None if file.path.as_ref().is_some_and(|path| path.exists()) => Now::Replaced,
        None => Now::Gone,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use scratch_fs::{ScratchFs, require};

    use indef_trace::store::{SessionId, SessionInfo};

    use super::*;

    #[test]
    fn the_noise_is_that_of_what_is_left() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let session = |reads, one_in, age| Session {
            id: SessionId(1),
            info: SessionInfo::default(),
            began: now - age,
            latest: now - age,
            ended: None,
            reads,
            writes: 0,
            lost: 0,
            one_in,
            common_error: None,
        };
        let (day, fresh) = (Duration::from_secs(86_400), Duration::ZERO);
        let noise = |sessions: &[Session]| noise(sessions, day, now);
        assert_eq!(noise(&[]), 0.0);
        assert_eq!(noise(&[session(1000, 1.0, fresh)]), 0.0);
        assert_eq!(noise(&[session(1000, 9.0, fresh)]), 8.0);
        // Half of the reads were all counted.
        let mixed = [session(500, 9.0, fresh), session(500, 1.0, fresh)];
        assert_eq!(noise(&mixed), 4.0);
        assert_eq!(noise(&[session(1000, 9.0, day)]), 4.0);
    }

    /// The windows of a sequential reader are as long as the file's device says.
    #[test]
    fn loop_read_ahead_is_that_of_the_device() {
        for (kind, window) in [("ext4", 512 << 10), ("btrfs", 4 << 20)] {
            let Some(scratch) = require(ScratchFs::builder(kind, Bytes::mib(512)).build()) else {
                return;
            };
            if kind == "ext4" {
                let number =
                    std::os::unix::fs::MetadataExt::rdev(&fs::metadata(scratch.device()).unwrap());
                let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
                let place = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
                fs::write(place, "512").unwrap();
            }
            let path = scratch.path().join("file");
            fs::write(&path, vec![1; 8 << 20]).unwrap();
            let mut text = format!("indef-profile 1\nfile 1 - - {}\n", path.display());
            for at in (0..8 << 20).step_by(64 << 10) {
                writeln!(text, "read 1 {at} 64KiB").unwrap();
            }
            let profile = scratch.path().join("profile");
            fs::write(&profile, text).unwrap();
            let lengths = |given| -> Vec<u64> {
                let accesses = Accesses::load(&profile, given, &()).unwrap();
                let status = fs::metadata(&path).unwrap();
                let id = TargetId {
                    dev: status.dev(),
                    inode: status.ino(),
                };
                let ranges = accesses.of(&id).unwrap().iter();
                ranges.map(|range| range.range.len.0).collect()
            };
            assert_eq!(
                lengths(None),
                vec![window; (8 << 20) / window as usize],
                "{kind}"
            );
            assert_eq!(lengths(Some(Bytes::mib(1))), [1 << 20; 8], "{kind}");
        }
    }
}
