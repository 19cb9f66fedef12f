//! File names on a terminal: nothing in a name may move the cursor, forge a line or hide.

use std::{
    fmt::{self, Write as _},
    path::Path,
};

/// A path as one line of text. Control characters, bytes that are not UTF-8, and the invisible
/// characters that reorder text are shown as escapes; everything else as it is.
pub(crate) struct Name<'a>(pub(crate) &'a Path);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_os_str().as_encoded_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\n' => f.write_str("\\n")?,
                    '\t' => f.write_str("\\t")?,
                    '\r' => f.write_str("\\r")?,
                    c if c.is_control() || is_invisible(c) => {
                        write!(f, "\\u{{{:x}}}", u32::from(c))?;
                    }
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Whether a character has no shape of its own and reorders or hides the characters around it.
pub(super) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    use super::*;

    fn shown(bytes: &[u8]) -> String {
        Name(Path::new(OsStr::from_bytes(bytes))).to_string()
    }

    #[test]
    fn names_stay_on_one_line_and_show_every_byte() {
        assert_eq!(shown(b"plain name.db"), "plain name.db");
        assert_eq!(shown("größe-名前".as_bytes()), "größe-名前");
        assert_eq!(shown(b"two\nlines\x1b[31m"), "two\\nlines\\u{1b}[31m");
        assert_eq!(shown(b"latin-\xe4-1\xff"), "latin-\\xe4-1\\xff");
        assert_eq!(
            shown("evil\u{202e}gpj.exe".as_bytes()),
            "evil\\u{202e}gpj.exe"
        );
        // Marks of Arabic, tags.
        assert_eq!(
            shown("a\u{61c}b\u{e0041}".as_bytes()),
            "a\\u{61c}b\\u{e0041}"
        );
    }
}
