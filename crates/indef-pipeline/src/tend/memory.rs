//! The experience of each file system, kept across restarts in one file beside the profile.
//!
//! It is worth little for a day and much for a season, and never needed: without it, the service begins with what it believes of any
//! file system. So a file that cannot be understood is replaced, and said so. One of an earlier schema is
//! to be read by its own type and converted here, as is done nowhere yet: this is the first.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use indef_core::plan::{BirthTime, FilePlan};
use indef_fs::TargetId;
use serde::{Deserialize, Serialize};

use super::experience::Experience;
use crate::stored::{Found, read, write};

const SCHEMA: u64 = 1;
/// A longer file is none of ours. A file system takes a few MiB at most.
const LONGEST: u64 = 64 << 20;
/// File systems that are kept. Of drives that come and go there is no end.
const MOST: usize = 64;

/// A file of a file system. One that gets the inode number of a deleted one was born later, where that is known.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub(super) struct FileKey(u64, i64, u32);

impl FileKey {
    pub(super) fn of(id: TargetId, born: Option<BirthTime>) -> Self {
        let (seconds, nanos) = born.map_or((0, 0), |born| (born.seconds, born.nanos));
        Self(id.inode, seconds, nanos)
    }

    pub(super) fn of_plan(plan: &FilePlan) -> Self {
        let id = TargetId {
            dev: plan.dev,
            inode: plan.inode,
        };
        Self::of(id, plan.born)
    }
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    schema: u64,
    /// By UUID.
    file_systems: BTreeMap<String, OfPlace>,
}

/// As it is written.
#[derive(Serialize)]
struct Kept<'a> {
    schema: u64,
    file_systems: BTreeMap<&'a str, &'a OfPlace>,
}

impl Kept<'_> {
    /// Its text, of so many file systems and bytes: who was looked at longest ago is forgotten first.
    fn within(&mut self, most: usize, longest: u64) -> io::Result<Vec<u8>> {
        loop {
            if self.file_systems.len() <= most {
                let text = serde_json::to_vec(self)?;
                if text.len() as u64 <= longest || self.file_systems.is_empty() {
                    return Ok(text);
                }
            }
            let all = self.file_systems.iter();
            let oldest = all.min_by_key(|(_, of)| of.experience.looked_at());
            if let Some(oldest) = oldest.map(|(uuid, _)| *uuid) {
                self.file_systems.remove(oldest);
            }
        }
    }
}

/// What is known of a file system.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfPlace {
    /// The paths and the selection of files with which it was looked at. With others, a file that is not met is not gone.
    scope: String,
    pub(super) experience: Experience<FileKey>,
}

impl OfPlace {
    /// What holds whatever the files are, where they are others than before.
    pub(super) fn within(mut self, scope: &str) -> Self {
        if self.scope != scope {
            self.experience.forget_files();
            scope.clone_into(&mut self.scope);
        }
        self
    }
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    path: Option<PathBuf>,
    stored: Stored,
}

impl Memory {
    /// What is kept in this file; the error if there is something that is not understood. Without a path nothing is kept.
    pub(super) fn open(path: Option<PathBuf>) -> (Self, Option<io::Error>) {
        let (stored, error) = match path.as_deref().map(load) {
            None => (Stored::default(), None),
            Some(Ok(stored)) => (stored, None),
            Some(Err(error)) => (Stored::default(), Some(error)),
        };
        (Self { path, stored }, error)
    }

    /// Take out what is known of a file system.
    pub(super) fn take(&mut self, uuid: &str) -> OfPlace {
        self.stored.file_systems.remove(uuid).unwrap_or_default()
    }

    /// What was taken out is not needed now.
    pub(super) fn put_back(&mut self, uuid: String, known: OfPlace) {
        self.stored.file_systems.insert(uuid, known);
    }

    /// Keep what is known of these file systems, and what is there of others, as far as it is not too much.
    pub(super) fn keep<'a>(
        &'a self,
        places: impl Iterator<Item = (&'a str, &'a OfPlace)>,
    ) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let others = { self.stored.file_systems.iter() }.map(|(uuid, of)| (uuid.as_str(), of));
        let mut kept = Kept {
            schema: SCHEMA,
            file_systems: others.chain(places).collect(),
        };
        write(path, &kept.within(MOST, LONGEST)?)
    }
}

fn load(path: &Path) -> io::Result<Stored> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    match read(path, LONGEST)? {
        Found::None => Ok(Stored::default()),
        Found::Foreign => Err(wrong("it is not ours alone, or too long")),
        Found::Bytes(bytes) => {
            let stored: Stored = serde_json::from_slice(&bytes)?;
            match stored.schema {
                SCHEMA => Ok(stored),
                _ => Err(wrong("it is of another version")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, time::Duration};

    use indef_core::layout::{Extent, ExtentFlags, Layout};
    use units::{Bytes, FileOffset, Nanos, PhysOffset};

    use super::*;

    fn known() -> OfPlace {
        let mut of = OfPlace::default().within("all");
        of.experience.took(Bytes::mib(1), Nanos(1 << 30));
        let layout = Layout::new(vec![Extent {
            file: FileOffset(0),
            phys: PhysOffset(1 << 20),
            len: Bytes::kib(64),
            flags: ExtentFlags::empty(),
        }]);
        let read = indef_core::access::AccessRange {
            range: units::FileRange::new(0, 64 << 10),
            reads: 1,
            ..Default::default()
        };
        let mut look = of.experience.look(Duration::from_secs(9), 30.0, &|_| 1.0);
        look.see(FileKey(7, -1, 5), &layout, &[read]);
        look.end();
        of
    }

    #[test]
    fn what_was_learned_outlives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("experience.json");
        let (memory, error) = Memory::open(Some(path.clone()));
        assert!(error.is_none());
        memory.keep([("a", &known())].into_iter()).unwrap();
        let (mut memory, error) = Memory::open(Some(path.clone()));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(memory.take("a"), known());
        assert_eq!(memory.take("b"), OfPlace::default());
        // What is known of others stays.
        let (memory, _) = Memory::open(Some(path.clone()));
        memory.keep([("b", &known())].into_iter()).unwrap();
        let (mut memory, _) = Memory::open(Some(path));
        assert_eq!((memory.take("a"), memory.take("b")), (known(), known()));
        // With other files in view, what was lasting is not.
        let other = known().within("some");
        assert!(!other.experience.knows(&FileKey(7, -1, 5)));
        assert_ne!(other.experience, Experience::default());
    }

    #[test]
    fn what_is_kept_is_bounded_by_forgetting_who_was_looked_at_longest_ago() {
        let names = ["a", "b", "c"];
        let places = [20, 40, 30].map(|seconds| {
            let mut of = known();
            let now = Duration::from_secs(seconds);
            of.experience.look(now, 30.0, &|_| 1.0).end();
            of
        });
        let all = || Kept {
            schema: SCHEMA,
            file_systems: names.into_iter().zip(&places).collect(),
        };
        let left = |most: usize, longest: u64| {
            let text = all().within(most, longest).unwrap();
            let stored: Stored = serde_json::from_slice(&text).unwrap();
            stored.file_systems.into_keys().collect::<String>()
        };
        let len = |names: &[&str]| {
            let mut some = all();
            some.file_systems.retain(|name, _| names.contains(name));
            serde_json::to_vec(&some).unwrap().len() as u64
        };
        assert_eq!(
            [3, 2, 1, 0].map(|most| left(most, LONGEST)),
            ["abc", "bc", "b", ""]
        );
        assert_eq!(left(9, len(&names)), "abc");
        assert_eq!(left(9, len(&names) - 1), "bc");
        assert_eq!(left(9, len(&["b"])), "b");
        assert_eq!(left(9, len(&["b"]) - 1), "");
    }

    #[test]
    fn what_is_not_understood_is_no_experience() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("experience.json");
        for text in ["", "{}", r#"{"schema":2,"file_systems":{}}"#, "no JSON"] {
            std::fs::write(&path, text).unwrap();
            let (memory, error) = Memory::open(Some(path.clone()));
            assert!(error.is_some(), "{text}");
            memory.keep(std::iter::empty()).unwrap();
            assert!(Memory::open(Some(path.clone())).1.is_none());
        }
        // A link is neither read nor written through.
        let elsewhere = folder.path().join("elsewhere");
        std::fs::write(&elsewhere, "{}").unwrap();
        std::fs::remove_file(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let (memory, error) = Memory::open(Some(path));
        assert!(error.is_some());
        memory.keep(std::iter::empty()).unwrap();
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "{}");
    }
}
