//! Paths in a profile: bytes that would break a line are percent-encoded.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::path::{PathError, path_of};

/// A path as one word: printable ASCII except `%` stays, every other byte becomes `%XX`, spaces too.
#[must_use]
pub fn encode(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            let digit = |value: u8| char::from(b"0123456789ABCDEF"[usize::from(value)]);
            text.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    text
}

/// The path of an encoded word. Bytes that need no encoding may be encoded or not.
///
/// # Errors
///
/// The problem with the word.
pub fn decode(text: &[u8]) -> Result<PathBuf, PathError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, behind @ ..] = rest else {
            return Err(PathError::Escape);
        };
        let (Some(high), Some(low)) = (hex(*high), hex(*low)) else {
            return Err(PathError::Escape);
        };
        bytes.push(high << 4 | low);
        rest = behind;
    }
    if bytes.is_empty() {
        return Err(PathError::Missing);
    }
    path_of(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}
