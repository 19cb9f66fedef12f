//! All hosts of which documents tell, and the documents that cannot be read.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use super::{
    host::{Host, Work},
    reasons::Reasons,
    told::Told,
};
use crate::{
    output::Name,
    refusal::{advice, plain},
};

/// Who a document is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Host(String),
    /// The document is of a version that did not tell of its host: its file stands for it.
    Untold(PathBuf),
}

impl Who {
    /// For people.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Host(name) => Name(Path::new(name)).to_string(),
            Self::Untold(file) => format!("({})", Name(file)),
        }
    }
}

/// All hosts.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    hosts: BTreeMap<Who, Host>,
    pub(super) bad: Vec<Bad>,
}

/// A file of which something could not be read.
#[derive(Clone, Debug)]
pub(super) struct Bad {
    pub(super) source: PathBuf,
    pub(super) error: String,
}

/// Sums over all hosts.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) hosts: u64,
    pub(super) documents: u64,
    /// Hosts whose newest run failed.
    pub(super) hosts_failed: u64,
    /// Hosts by their verdict; those without one have none.
    pub(super) verdicts: BTreeMap<String, u64>,
    pub(super) worth_bytes: u64,
    pub(super) extents: u64,
    pub(super) ideal_extents: u64,
    pub(super) extents_first: u64,
    pub(super) work: Work,
    pub(super) left_alone: Reasons,
    /// Hosts by the version of indef.
    pub(super) versions: BTreeMap<String, u64>,
}

impl Fleet {
    /// Read a file: one document, or any number of them one after the other.
    pub(super) fn read(&mut self, path: &Path) {
        if let Err(error) = self.try_read(path) {
            self.bad.push(Bad {
                source: path.to_owned(),
                error,
            });
        }
    }

    fn try_read(&mut self, path: &Path) -> Result<(), String> {
        let unread = |error: &std::io::Error| format!("{}: {}", plain(error), advice(error));
        let file = File::open(path).map_err(|error| unread(&error))?;
        if file.metadata().is_ok_and(|status| status.is_dir()) {
            return Err("a folder: give the files in it".to_owned());
        }
        let mut count: u64 = 0;
        let mut faults = Vec::new();
        let documents = serde_json::Deserializer::from_reader(BufReader::new(file));
        for told in documents.into_iter::<Told>() {
            count += 1;
            let told = match told {
                Ok(told) => told,
                Err(error) => {
                    // What comes after it cannot be told from its rest.
                    faults.push(match error.is_io() {
                        true => format!("cannot be read: {error}"),
                        false => format!("document {count}: {error}"),
                    });
                    break;
                }
            };
            let is_ours = told.schema.is_some();
            if let Err(why) = self.add(path, told) {
                faults.push(format!("document {count}: {why}"));
                // The next ones of such a file are none, either.
                if !is_ours {
                    break;
                }
            }
        }
        match (count, faults.len()) {
            (0, _) => Err("empty: it has no document".to_owned()),
            (_, 0) => Ok(()),
            (_, 1..=3) => Err(faults.join("; ")),
            (_, many) => Err(format!("{}; and {} more", faults[..3].join("; "), many - 3)),
        }
    }

    fn add(&mut self, path: &Path, told: Told) -> Result<(), String> {
        let kind = told.kind()?;
        let who = match told.made.as_ref().map(|made| made.host.as_str()) {
            Some(host) if !host.is_empty() => Who::Host(host.to_owned()),
            _ => Who::Untold(path.to_owned()),
        };
        self.hosts.entry(who).or_default().add(kind, told);
        Ok(())
    }

    /// All files are read.
    pub(super) fn finish(&mut self) {
        self.hosts.values_mut().for_each(Host::finish);
    }

    /// The hosts: those that need somebody first, then those with the most to move, then by name.
    pub(super) fn hosts(&self) -> Vec<(&Who, &Host)> {
        let mut hosts: Vec<_> = self.hosts.iter().collect();
        hosts.sort_by_key(|(_, host)| (!host.has_failed(), Reverse(host.worth_bytes())));
        hosts
    }

    /// The sums.
    pub(super) fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for host in self.hosts.values() {
            sums.hosts += 1;
            sums.documents += host.documents;
            sums.hosts_failed += u64::from(host.has_failed());
            if let Some(verdict) = &host.verdict {
                *sums.verdicts.entry(verdict.kind.clone()).or_default() += 1;
            }
            sums.worth_bytes = sums.worth_bytes.saturating_add(host.worth_bytes());
            if let Some(fragments) = host.fragments() {
                sums.extents = sums.extents.saturating_add(fragments.extents);
                sums.ideal_extents = sums.ideal_extents.saturating_add(fragments.ideal_extents);
                sums.extents_first = sums.extents_first.saturating_add(fragments.extents_first);
            }
            sums.work.join(&host.work);
            sums.work.last_success_ns = sums.work.last_success_ns.max(host.work.last_success_ns);
            if let Some(reasons) = host.left_alone() {
                sums.left_alone.join(reasons);
            }
            if !host.newest.version.is_empty() {
                *sums
                    .versions
                    .entry(host.newest.version.clone())
                    .or_default() += 1;
            }
        }
        sums
    }
}
