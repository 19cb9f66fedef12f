//! A list of names of files, as `find` writes it.

use std::{ffi::OsStr, fmt, os::unix::ffi::OsStrExt, path::PathBuf};

use anyhow::{Result, bail};

/// `PATH_MAX` (linux/limits.h, v6.1), which counts the NUL.
const LONGEST: usize = 4096 - 1;

/// How a name ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// With a line feed.
    Newline,
    /// With a NUL byte.
    Nul,
}

impl Ends {
    fn byte(self) -> u8 {
        match self {
            Self::Newline => b'\n',
            Self::Nul => 0,
        }
    }
}

/// The number of a name, from 1.
struct Place(Ends, usize);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ends::Newline => write!(f, "line {}", self.1),
            Ends::Nul => write!(f, "name {}", self.1),
        }
    }
}

/// The names; the last one need not have its end.
pub(super) fn names(list: &[u8], ends: Ends) -> Result<Vec<PathBuf>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let end = ends.byte();
    let list = list.strip_suffix(&[end]).unwrap_or(list);
    let name = |(number, name): (usize, &[u8])| {
        let place = Place(ends, number + 1);
        if name.is_empty() {
            bail!("{place} is empty, where the name of a file should be");
        }
        if name.contains(&0) {
            bail!("{place} has a NUL byte: names that end with one, as of find -print0, need -0");
        }
        if name.len() > LONGEST {
            let hint = match ends {
                Ends::Nul if name.contains(&b'\n') => "; without -0 each line is a name",
                _ => "",
            };
            let len = name.len();
            bail!("{place} is longer than the path of a file can be ({len} bytes){hint}");
        }
        Ok(PathBuf::from(OsStr::from_bytes(name)))
    };
    list.split(|byte| *byte == end)
        .enumerate()
        .map(name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bytes_between_ends() {
        let of = |list: &[u8], ends| names(list, ends).unwrap();
        let odd = PathBuf::from(OsStr::from_bytes(b"b \xff\t"));
        assert_eq!(
            of(b"a\nb \xff\t\n", Ends::Newline),
            ["a".into(), odd.clone()]
        );
        assert_eq!(of(b"a\nb \xff\t", Ends::Newline), ["a".into(), odd]);
        assert_eq!(
            of(b"a\nb\0c\0", Ends::Nul),
            [PathBuf::from("a\nb"), "c".into()]
        );
        assert_eq!(of(b"", Ends::Newline).len() + of(b"", Ends::Nul).len(), 0);
    }

    #[test]
    fn a_bad_line_is_named() {
        let of = |list: &[u8], ends| names(list, ends).unwrap_err().to_string();
        assert!(of(b"a\n\nb\n", Ends::Newline).starts_with("line 2 is empty"));
        assert!(of(b"\n", Ends::Newline).starts_with("line 1 is empty"));
        assert!(of(b"a\0\0", Ends::Nul).starts_with("name 2 is empty"));
        let error = of(b"a\nb\0c\0", Ends::Newline);
        assert!(
            error.starts_with("line 2 ") && error.ends_with("-0"),
            "{error}"
        );
        let long = vec![b'x'; 4096];
        let error = of(&[b"a\n", &long[..]].concat(), Ends::Newline);
        assert!(
            error.starts_with("line 2 is longer") && error.ends_with("bytes)"),
            "{error}"
        );
        assert_eq!(names(&long[1..], Ends::Newline).unwrap().len(), 1);
        let error = of(&b"name\n".repeat(1000), Ends::Nul);
        assert!(error.ends_with("without -0 each line is a name"), "{error}");
    }
}
