//! Where this machine gets Debian's packages from: its own apt configuration, read.
//!
//! Both forms of sources.list(5) are understood, one line each (`*.list`) and deb822 (`*.sources`).
//! It looks for the archive itself, not for a suite: the place from which a machine takes
//! bookworm has trixie, too. Keys and the other options of the entry go with it.

#![forbid(unsafe_code)]

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

/// The archive is not known.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// apt's configuration (sources.list) has no archive of Debian.
    #[error("apt's configuration (sources.list) has no archive of Debian")]
    NoArchive,
    /// apt-config did not start: this is no system of Debian's kind.
    #[error("apt-config cannot be run: {0}")]
    NoApt(io::Error),
    /// apt-config has failed.
    #[error("apt-config: {status}: {output}")]
    Apt {
        /// How it ended.
        status: ExitStatus,
        /// Its output.
        output: String,
    },
}

/// Debian's suites by all names, without their `-updates`, `-backports` and the like.
const SUITES: [&str; 13] = [
    "buster",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
    "experimental",
];

/// Fields of an entry that do not apply to other suites, or have a place of their own in [`Source`].
const OWN_FIELDS: [&str; 11] = [
    "types",
    "uris",
    "suites",
    "components",
    "enabled",
    "arch",
    "architectures",
    "lang",
    "languages",
    "target",
    "targets",
];

/// One entry of apt's configuration that is on and has binary packages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Source {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    /// The options, by the names of deb822 in lower case.
    options: Vec<(String, String)>,
}

/// The archive of Debian that this machine's apt uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    uris: Vec<String>,
    options: Vec<(String, String)>,
}

impl Mirror {
    /// The archive that apt is configured to use.
    ///
    /// # Errors
    ///
    /// There is no apt, or none of its sources is Debian's archive.
    pub fn of_machine() -> Result<Self, MirrorError> {
        let shown = Command::new("apt-config")
            .args(["shell", "LIST", "Dir::Etc::sourcelist/f"])
            .args(["PARTS", "Dir::Etc::sourceparts/d"])
            .output()
            .map_err(MirrorError::NoApt)?;
        if !shown.status.success() {
            return Err(MirrorError::Apt {
                status: shown.status,
                output: String::from_utf8_lossy(&shown.stderr).trim().to_owned(),
            });
        }
        let shown = String::from_utf8_lossy(&shown.stdout);
        let path = |name: &str| {
            let line = shown.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| PathBuf::from(value.trim_matches('\'')))
        };
        Self::configured(path("LIST=").as_deref(), path("PARTS=").as_deref())
    }

    /// The archive that this sources.list and the files of this folder name.
    fn configured(list: Option<&Path>, parts: Option<&Path>) -> Result<Self, MirrorError> {
        let mut files: Vec<PathBuf> = parts
            .and_then(|folder| fs::read_dir(folder).ok())
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        files.sort();
        files.splice(0..0, list.map(Path::to_owned));

        let mut sources = Vec::new();
        for file in files {
            let parse = match file.extension().and_then(|ending| ending.to_str()) {
                Some("list") => one_line_form,
                Some("sources") => deb822_form,
                _ => continue,
            };
            // A file that is not there, or not for us, is one less to choose from.
            if let Ok(text) = fs::read(&file) {
                sources.extend(parse(&String::from_utf8_lossy(&text)));
            }
        }
        for source in &mut sources {
            source.uris = source.uris.iter().flat_map(|uri| places(uri)).collect();
        }
        Self::among(&sources).ok_or(MirrorError::NoArchive)
    }

    /// The entry that is most likely Debian's archive: others have suites of the same names.
    fn among(sources: &[Source]) -> Option<Self> {
        let score = |source: &Source| {
            let signed = source
                .option("signed-by")
                .is_some_and(|keys| keys.contains("debian-archive"));
            let updates = source.uris.iter().any(|uri| {
                let same = |other: &&Source| other.uris.contains(uri);
                let mut suites = sources.iter().filter(same).flat_map(|s| &s.suites);
                suites.any(|suite| base(suite).is_some() && suite.ends_with("-updates"))
            });
            let named = source
                .uris
                .iter()
                .any(|uri| uri.trim_end_matches('/').ends_with("/debian"));
            (signed, updates, named)
        };
        // Of equal ones the first, as in apt.
        let best = sources
            .iter()
            .filter(|source| source.could_be_debian())
            .rev()
            .max_by_key(|source| score(source))?;
        Some(Self {
            uris: best.uris.clone(),
            options: best.options.clone(),
        })
    }

    /// A deb822 entry for these suites of the archive.
    #[must_use]
    pub fn entry(&self, suites: &[&str], architecture: &str) -> String {
        self.stanza("deb", suites, &format!("Architectures: {architecture}\n"))
    }

    /// The same for the sources of the packages.
    #[must_use]
    pub fn source_entry(&self, suites: &[&str]) -> String {
        self.stanza("deb-src", suites, "")
    }

    fn stanza(&self, kind: &str, suites: &[&str], more: &str) -> String {
        let mut entry = format!(
            "Types: {kind}\nURIs: {}\nSuites: {}\nComponents: main\n{more}",
            self.uris.join(" "),
            suites.join(" "),
        );
        for (name, value) in &self.options {
            entry += &format!("{name}: {value}\n");
        }
        entry
    }

    /// The places that it can be fetched from, the preferred first.
    #[must_use]
    pub fn uris(&self) -> &[String] {
        &self.uris
    }

    /// The file with the keys, where the entry names one.
    #[must_use]
    pub fn keyring(&self) -> Option<&Path> {
        let (_, keys) = self.options.iter().find(|(name, _)| name == "signed-by")?;
        keys.starts_with('/').then(|| Path::new(keys))
    }
}

impl Source {
    fn option(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().find(|(option, _)| option == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The security archive has suites of its own, and a CD has one suite only.
    fn could_be_debian(&self) -> bool {
        !self.uris.is_empty()
            && !self.uris.iter().any(|uri| uri.starts_with("cdrom:"))
            && self.components.iter().any(|component| component == "main")
            && self
                .suites
                .iter()
                .any(|suite| base(suite).is_some() && !suite.contains("security"))
    }
}

/// The suite without its addition, if it is one of Debian's.
fn base(suite: &str) -> Option<&'static str> {
    SUITES.into_iter().find(|base| {
        let rest = suite.strip_prefix(base);
        rest.is_some_and(|rest| {
            ["", "/", "-updates", "-backports", "-proposed-updates"].contains(&rest)
                || rest.contains("security")
        })
    })
}

/// `deb [ option=value … ] uri suite component …`
fn one_line_form(text: &str) -> Vec<Source> {
    text.lines().filter_map(one_line).collect()
}

fn one_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    if !rest.starts_with([' ', '\t', '[']) {
        return None;
    }
    let rest = rest.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let options = options.split_whitespace().filter_map(|option| {
        let (name, value) = option.split_once('=')?;
        let name = name.trim_end_matches(['+', '-']);
        Some((name.to_lowercase(), value.to_owned()))
    });
    let mut words = rest.split_whitespace().map(str::to_owned);
    let source = Source {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        options: kept(options),
    };
    Some(source)
}

/// Stanzas of `Field: value`, which go on in lines that begin with a blank.
fn deb822_form(text: &str) -> Vec<Source> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines
        .split(|line| line.trim().is_empty())
        .filter_map(stanza)
        .collect()
}

fn stanza(lines: &[&str]) -> Option<Source> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            // As it stands: a key can be in the entry itself.
            let (_, value) = fields.last_mut()?;
            *value += &format!("\n{line}");
        } else {
            let (name, value) = line.split_once(':')?;
            fields.push((name.trim().to_lowercase(), value.trim().to_owned()));
        }
    }
    let words = |name: &str| -> Vec<String> {
        let value = fields.iter().find(|(field, _)| field == name);
        let words = value.map_or("", |(_, value)| value).split_whitespace();
        words.map(str::to_owned).collect()
    };
    // apt's words for no (StringToBool in apt-pkg/contrib/strutl.cc, 2.6).
    let off = ["no", "false", "without", "off", "disable", "0"];
    let enabled = words("enabled");
    if enabled.first().is_some_and(|word| off.contains(&&**word))
        || !words("types").iter().any(|kind| kind == "deb")
    {
        return None;
    }
    Some(Source {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        options: kept(fields.into_iter()),
    })
}

fn kept(options: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    options
        .filter(|(name, _)| !OWN_FIELDS.contains(&&**name) && !name.starts_with("x-"))
        .collect()
}

/// A list of mirrors in a file (apt-transport-mirror(1)) stands for what is in it: elsewhere, the
/// file is not there.
fn places(uri: &str) -> Vec<String> {
    let Some(list) = uri.strip_prefix("mirror+file:") else {
        return vec![uri.to_owned()];
    };
    let path = Path::new("/").join(list.trim_start_matches('/'));
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split('#').next()?.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests;
