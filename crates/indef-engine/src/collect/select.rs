//! Which of the entries that a walk meets it looks at.
//!
//! Globs are those of ripgrep's `globset`, on bytes: a name need not be UTF-8 to be matched. What one is matched
//! against follows from its slashes:
//!
//! | glob | is matched against |
//! |---|---|
//! | `*.iso` | the name of each file and folder |
//! | `cache/*.tmp` | the last parts of each path |
//! | `/srv/tmp` | each whole path, made absolute |
//! | `build/` | as above, folders only |
//!
//! A folder that matches is not entered. Of the paths that a walk is given, each part counts that is written there:
//! `node_modules` leaves out what is given as `a/node_modules/b`.

use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use units::Bytes;

/// A glob of entries to leave out, checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob(Box<str>);

/// A text is no glob, or one that can never match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// It has no name in it.
    #[error("a glob needs a name, like *.iso, cache/*.tmp or /srv/tmp")]
    NoName,
    /// Paths have no such parts once they are walked.
    #[error("a glob has no part '{0}': write a name, the end of a path, or a whole path from / on")]
    Part(String),
    /// Its brackets, braces or backslashes.
    #[error("{0}")]
    Syntax(String),
}

impl FromStr for Glob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        let parts = parts(text);
        if parts.clone().next().is_none_or(str::is_empty) {
            return Err(GlobError::NoName);
        }
        if let Some(part) = parts.clone().find(|part| matches!(*part, "" | "." | "..")) {
            return Err(GlobError::Part(part.to_owned()));
        }
        let glob = Self(text.into());
        match glob.compile() {
            Ok(_) => Ok(glob),
            Err(error) => Err(GlobError::Syntax(error.kind().to_string())),
        }
    }
}

/// The parts between the slashes, without the one that it begins or ends with.
fn parts(text: &str) -> impl Iterator<Item = &str> + Clone {
    let text = text.strip_suffix('/').unwrap_or(text);
    text.strip_prefix('/').unwrap_or(text).split('/')
}

impl Glob {
    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_of_folders(&self) -> bool {
        self.0.ends_with('/')
    }

    fn scope(&self) -> Scope {
        match parts(&self.0).count() {
            _ if self.0.starts_with('/') => Scope::Absolute,
            1 => Scope::Name,
            _ => Scope::End,
        }
    }

    fn compile(&self) -> Result<globset::Glob, globset::Error> {
        let text = self.0.strip_suffix('/').unwrap_or(&self.0);
        let text = match self.scope() {
            Scope::Name | Scope::Absolute => text.to_owned(),
            Scope::End => format!("**/{text}"),
        };
        GlobBuilder::new(&text)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What a glob is matched against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// A name.
    Name,
    /// The end of a path as it was given and met.
    End,
    /// An absolute path.
    Absolute,
}

/// Entries that a walk leaves out.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// No globs: nothing to compare.
    rules: Option<Arc<Rules>>,
    min_size: Bytes,
    files_only: bool,
}

#[derive(Debug)]
struct Rules {
    globs: Vec<Glob>,
    names: Matcher,
    ends: Matcher,
    absolutes: Matcher,
}

/// The globs of one scope.
#[derive(Debug)]
struct Matcher {
    /// For files and folders.
    all: GlobSet,
    /// For folders only.
    folders: GlobSet,
}

impl Matcher {
    fn new(globs: &[Glob], scope: Scope) -> Result<Self, globset::Error> {
        let set = |of_folders: bool| {
            let mut set = GlobSetBuilder::new();
            let of_it = globs
                .iter()
                .filter(|glob| glob.scope() == scope && glob.is_of_folders() == of_folders);
            for glob in of_it {
                set.add(glob.compile()?);
            }
            set.build()
        };
        Ok(Self {
            all: set(false)?,
            folders: set(true)?,
        })
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.folders.is_empty()
    }

    fn matches(&self, text: &[u8], is_folder: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let candidate = Candidate::from_bytes(text);
        self.all.is_match_candidate(&candidate)
            || (is_folder && self.folders.is_match_candidate(&candidate))
    }
}

impl Select {
    /// Whether it leaves nothing out.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.rules.is_none() && self.min_size.is_zero() && !self.files_only
    }

    /// Leave out what a glob matches, and files smaller than `min_size`.
    ///
    /// # Errors
    ///
    /// The globs are too many to be compiled together.
    pub fn new(globs: impl IntoIterator<Item = Glob>, min_size: Bytes) -> Result<Self, GlobError> {
        let globs: Vec<Glob> = globs.into_iter().collect();
        let rules = match globs.is_empty() {
            true => None,
            false => Some(Arc::new(
                Rules::new(globs).map_err(|error| GlobError::Syntax(error.to_string()))?,
            )),
        };
        Ok(Self {
            rules,
            min_size,
            files_only: false,
        })
    }

    /// The same, where given paths stand for files: a folder among them is left alone, not walked.
    #[must_use]
    pub fn of_files(self) -> Self {
        Self {
            files_only: true,
            ..self
        }
    }

    /// Whether given paths stand for files.
    #[must_use]
    pub fn is_of_files(&self) -> bool {
        self.files_only
    }

    /// Whether all that is below a given path is looked at.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.rules.is_none() && self.min_size.is_zero() && !self.files_only
    }

    /// The globs.
    pub fn globs(&self) -> impl Iterator<Item = &Glob> {
        self.rules.iter().flat_map(|rules| &rules.globs)
    }

    /// Smaller files are left out.
    #[must_use]
    pub fn min_size(&self) -> Bytes {
        self.min_size
    }

    pub(super) fn is_too_small(&self, size: Bytes) -> bool {
        size < self.min_size
    }

    /// The absolute paths of a given one: as it was typed, and as the kernel tells of what was `opened`. None where
    /// no glob asks for them.
    pub(super) fn absolute(
        &self,
        given: &Path,
        opened: impl FnOnce() -> Option<PathBuf>,
    ) -> Vec<PathBuf> {
        let asked = (self.rules.as_ref()).is_some_and(|rules| !rules.absolutes.is_empty());
        if !asked {
            return Vec::new();
        }
        let typed = std::path::absolute(given).ok();
        let mut paths: Vec<PathBuf> = typed.into_iter().chain(opened()).collect();
        paths.dedup();
        paths
    }

    /// Whether a given path is left out. `absolute` are its absolute paths.
    pub(super) fn leaves_given(&self, given: &Path, absolute: &[PathBuf], is_folder: bool) -> bool {
        let Some(rules) = &self.rules else {
            return false;
        };
        let above = |path: &Path, matcher: &Matcher| {
            let mut is_folder = is_folder;
            path.ancestors().any(|part| {
                let matches = matcher.matches(part.as_os_str().as_bytes(), is_folder);
                is_folder = true;
                matches
            })
        };
        let named = || {
            let mut names = given.components().rev().filter_map(|part| match part {
                Component::Normal(name) => Some(name),
                _ => None,
            });
            let mut is_folder = is_folder;
            names.any(|name: &OsStr| {
                let matches = rules.names.matches(name.as_bytes(), is_folder);
                is_folder = true;
                matches
            })
        };
        named()
            || above(given, &rules.ends)
            || absolute.iter().any(|path| above(path, &rules.absolutes))
    }

    /// Whether an entry of a directory is left out.
    pub(super) fn leaves(&self, directory: &Beneath<'_>, name: &[u8], is_folder: bool) -> bool {
        let Some(rules) = &self.rules else {
            return false;
        };
        if rules.names.matches(name, is_folder) {
            return true;
        }
        let mut path = Vec::new();
        let mut is_matched = |matcher: &Matcher, parts: [&[u8]; 2]| {
            path.clear();
            for part in parts.into_iter().chain([name]) {
                if !part.is_empty() {
                    push_part(&mut path, part);
                }
            }
            matcher.matches(&path, is_folder)
        };
        if !rules.ends.is_empty() && is_matched(&rules.ends, [directory.path, b""]) {
            return true;
        }
        let below = directory.path.get(directory.given_len..);
        let below = below.unwrap_or_default();
        let below = below.strip_prefix(b"/").unwrap_or(below);
        !rules.absolutes.is_empty()
            && (directory.absolute.iter())
                .any(|given| is_matched(&rules.absolutes, [given.as_os_str().as_bytes(), below]))
    }
}

impl Rules {
    fn new(globs: Vec<Glob>) -> Result<Self, globset::Error> {
        Ok(Self {
            names: Matcher::new(&globs, Scope::Name)?,
            ends: Matcher::new(&globs, Scope::End)?,
            absolutes: Matcher::new(&globs, Scope::Absolute)?,
            globs,
        })
    }
}

fn push_part(path: &mut Vec<u8>, part: &[u8]) {
    if path.last().is_some_and(|last| *last != b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(part);
}

/// A directory of a walk.
pub(super) struct Beneath<'a> {
    /// Its path, which begins with the given one.
    pub(super) path: &'a [u8],
    /// How much of it is the given one.
    pub(super) given_len: usize,
    /// The absolute paths of the given one.
    pub(super) absolute: &'a [PathBuf],
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(globs: &[&str]) -> Select {
        let globs = globs.iter().map(|glob| glob.parse().unwrap());
        Select::new(globs, Bytes::ZERO).unwrap()
    }

    /// Whether an entry of the directory `path` below the given `/srv/data` (a link to `/mnt/data`) is left out.
    fn leaves(glob: &str, path: &str, name: &[u8], is_folder: bool) -> bool {
        let absolute = ["/srv/data".into(), "/mnt/data".into()];
        let beneath = Beneath {
            path: path.as_bytes(),
            given_len: "/srv/data".len(),
            absolute: &absolute,
        };
        select(&[glob]).leaves(&beneath, name, is_folder)
    }

    #[test]
    fn slashes_say_what_a_glob_is_matched_against() {
        let file = |glob: &str, path: &str, name: &str| leaves(glob, path, name.as_bytes(), false);
        assert!(file("*.iso", "/srv/data/a/b", "x.iso"));
        assert!(!file("*.iso", "/srv/data/a.iso", "x"));
        assert!(file("cache/*.tmp", "/srv/data/a/cache", "x.tmp"));
        assert!(!file("cache/*.tmp", "/srv/data/cache/a", "x.tmp"));
        assert!(!file("cache/*.tmp", "/srv/data/mycache", "x.tmp"));
        assert!(file("cache/**/*.tmp", "/srv/data/cache/a/b", "x.tmp"));
        // Also what the given path itself adds.
        assert!(file("data/x", "/srv/data", "x"));
        assert!(file("/srv/data/a/x", "/srv/data/a", "x"));
        assert!(file("/mnt/data/a/x", "/srv/data/a", "x"));
        assert!(!file("/data/a/x", "/srv/data/a", "x"));
        assert!(!file("/srv/*", "/srv/data", "x"));
        assert!(file("/srv/**", "/srv/data", "x"));
    }

    #[test]
    fn a_slash_at_the_end_means_folders() {
        for glob in ["build/", "a/build/", "/srv/data/a/build/"] {
            assert!(leaves(glob, "/srv/data/a", b"build", true), "{glob}");
            assert!(!leaves(glob, "/srv/data/a", b"build", false), "{glob}");
        }
    }

    #[test]
    fn names_are_bytes() {
        for glob in ["caf?", "caf*", "*[!e]", "{caf?,x}"] {
            assert!(leaves(glob, "/srv/data", b"caf\xe9", false), "{glob}");
        }
        assert!(leaves("a/caf?", "/srv/data/a", b"caf\xe9", false));
        assert!(!leaves("cafe", "/srv/data", b"caf\xe9", false));
        assert!(leaves("line*", "/srv/data", b"line\nbreak", false));
    }

    #[test]
    fn given_paths_are_left_out_by_any_part_that_is_written() {
        let leaves = |glob: &str, given: &str, is_folder: bool| {
            let given = Path::new(given);
            let absolute = [std::path::absolute(given).unwrap()];
            select(&[glob]).leaves_given(given, &absolute, is_folder)
        };
        assert!(leaves("node_modules", "/a/node_modules/b", true));
        assert!(leaves("b/", "/a/b", true) && !leaves("b/", "/a/b", false));
        assert!(leaves("a/", "/a/b", false));
        assert!(leaves("a/b", "x/a/b/c", false));
        assert!(leaves("/a", "/a/b/c", false) && !leaves("/b", "/a/b/c", false));
        let here = std::env::current_dir().unwrap();
        let name = here.file_name().unwrap().to_str().unwrap();
        // The name of the working directory is not written, its path is meant.
        assert!(!leaves(name, ".", true));
        assert!(leaves(here.to_str().unwrap(), ".", true));
    }

    #[test]
    fn what_cannot_match_is_refused() {
        for text in ["", "/", "//"] {
            assert_eq!(Glob::from_str(text), Err(GlobError::NoName), "{text}");
        }
        for text in ["./a", "a/../b", "a//b", "/./"] {
            assert!(
                matches!(Glob::from_str(text), Err(GlobError::Part(_))),
                "{text}"
            );
        }
        for text in ["[a", "{a", "a\\"] {
            assert!(
                matches!(Glob::from_str(text), Err(GlobError::Syntax(_))),
                "{text}"
            );
        }
        for text in ["*", "a b", ".git", "...", "-x", "{a,b/c}", "\\*"] {
            assert_eq!(Glob::from_str(text).unwrap().to_string(), text);
        }
    }
}
