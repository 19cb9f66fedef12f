//! Text that must fit a number of terminal columns: wide characters take two, combining ones none.

use std::{borrow::Cow, io};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns and rows of the terminal at stderr; the usual ones where it does not know them.
pub(crate) fn terminal() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    let (columns, rows) = size.map_or((0, 0), |size| (size.ws_col, size.ws_row));
    let or = |known: u16, usual| match known {
        0 => usual,
        known => known.into(),
    };
    (or(columns, 80), or(rows, 24))
}

/// Columns that a text takes.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// The beginning of a text, in at most this many columns; an ellipsis marks omitted text.
pub(crate) fn head(text: &str, room: usize) -> Cow<'_, str> {
    if text.width() <= room {
        return Cow::Borrowed(text);
    }
    let Some(room) = room.checked_sub(1) else {
        return Cow::Borrowed("");
    };
    let mut short = String::new();
    let mut used = 0;
    for character in text.chars() {
        let wide = character.width().unwrap_or(0);
        if used + wide > room {
            break;
        }
        used += wide;
        short.push(character);
    }
    short.push('…');
    Cow::Owned(short)
}

/// The end of a text, in at most this many columns: the end of a path is the part that
/// distinguishes it from others.
pub(crate) fn tail(text: &str, room: usize) -> Cow<'_, str> {
    if text.width() <= room {
        return Cow::Borrowed(text);
    }
    let Some(room) = room.checked_sub(1) else {
        return Cow::Borrowed("");
    };
    let mut from = text.len();
    let mut used = 0;
    for (at, character) in text.char_indices().rev() {
        let wide = character.width().unwrap_or(0);
        if used + wide > room {
            break;
        }
        used += wide;
        from = at;
    }
    Cow::Owned(format!("…{}", &text[from..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_fits_stays() {
        assert_eq!(head("größe", 5), "größe");
        assert_eq!(tail("größe", 5), "größe");
        assert_eq!(head("", 0), "");
    }

    #[test]
    fn what_does_not_fit_is_cut_where_it_matters_least() {
        assert_eq!(head("/srv/db/main.sqlite", 8), "/srv/db…");
        assert_eq!(tail("/srv/db/main.sqlite", 8), "….sqlite");
        assert_eq!(head("ab", 1), "…");
        assert_eq!(tail("ab", 1), "…");
        assert_eq!((head("ab", 0), tail("ab", 0)), ("".into(), "".into()));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(columns("名前"), 4);
        assert_eq!(head("名前の", 4), "名…");
        assert_eq!(tail("名前の", 4), "…の");
        for room in 0..8 {
            assert!(columns(&head("a名b前", room)) <= room);
            assert!(columns(&tail("a名b前", room)) <= room);
        }
    }
}
