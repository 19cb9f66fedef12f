//! One JSON document on stdout, written while its entries arrive: never more than one of them is
//! in memory. It is whole however the command ends ([`end_failed`]), but for a kill.

use std::{
    io::{self, BufWriter, Write},
    sync::{Mutex, PoisonError},
};

use indef_engine::Cancel;
use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};

use super::name::is_invisible;
use crate::{document::SCHEMA, made::Made};

/// How much of the one document stands on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Nothing,
    /// Up to somewhere in its list.
    Begun,
    /// All of it, or what could be written of it.
    Whole,
}

/// Of this process, as its stdout is.
static STANDING: Mutex<Standing> = Mutex::new(Standing::Nothing);

/// Note how much there is now. Returns how much there was.
fn stands(now: Standing) -> Standing {
    let mut standing = STANDING.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *standing, now)
}

/// A document `{"schema":…, NAME:[…], …}` while it is written. Entries come from many threads.
pub(crate) struct Document {
    inner: Mutex<Inner>,
    /// The work to cancel when stdout is closed.
    work: Option<Cancel>,
}

struct Inner {
    out: Box<dyn Write + Send>,
    line: Vec<u8>,
    entries: u64,
    error: Option<io::Error>,
}

impl Document {
    /// Begin the document with where it comes from and the list `name`. `work`, given if its only use is
    /// this output, is cancelled when stdout is closed.
    pub(crate) fn begin(name: &str, made: &Made, work: Option<&Cancel>) -> Self {
        stands(Standing::Begun);
        let out = BufWriter::with_capacity(64 << 10, io::stdout());
        Self::begin_on(Box::new(out), name, made, work)
    }

    /// The same somewhere else.
    pub(crate) fn begin_on(
        out: Box<dyn Write + Send>,
        name: &str,
        made: &Made,
        work: Option<&Cancel>,
    ) -> Self {
        let mut inner = Inner {
            out,
            line: Vec::new(),
            entries: 0,
            error: None,
        };
        let begun = text(made).and_then(|made| {
            write!(
                inner.out,
                "{{\"schema\":{SCHEMA},\"made\":{made},\"{name}\":["
            )
        });
        inner.error = begun.err();
        Self {
            inner: Mutex::new(inner),
            work: work.cloned(),
        }
    }

    /// Append an entry to the list.
    pub(crate) fn entry(&self, entry: &impl Serialize) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.error.is_none()
            && let Err(error) = inner.entry(entry)
        {
            inner.error = Some(error);
            if let Some(work) = &self.work {
                work.cancel();
            }
        }
    }

    /// Close the list and the document with the fields of `rest`, an object.
    ///
    /// # Errors
    ///
    /// The first error of any write.
    pub(crate) fn end(self, rest: &impl Serialize) -> io::Result<()> {
        stands(Standing::Whole);
        let mut inner = self
            .inner
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = inner.error {
            return Err(error);
        }
        let rest = text(rest)?;
        let fields = rest.strip_prefix('{').unwrap_or(&rest);
        let comma = if fields == "}" { "" } else { "," };
        writeln!(inner.out, "\n]{comma}{fields}")?;
        inner.out.flush()
    }
}

impl Inner {
    fn entry(&mut self, entry: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        self.line.extend(if self.entries == 0 {
            &b"\n"[..]
        } else {
            b",\n"
        });
        write_to(&mut self.line, entry)?;
        self.entries += 1;
        self.out.write_all(&self.line)
    }
}

/// What moves a cursor, or hides, and may stand in JSON as it is (DEL, U+0080 to U+009F, and so on) is an escape, too: a
/// document may end up on a terminal.
struct ForTerminals;

impl Formatter for ForTerminals {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let is_safe = |c: char| !c.is_control() && !is_invisible(c);
        let mut rest = fragment;
        while let Some(odd) = rest.chars().find(|c| !is_safe(*c)) {
            let (before, after) = rest.split_once(odd).unwrap_or((rest, ""));
            out.write_all(before.as_bytes())?;
            for unit in odd.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = after;
        }
        out.write_all(rest.as_bytes())
    }
}

fn write_to(out: &mut Vec<u8>, document: &(impl Serialize + ?Sized)) -> io::Result<()> {
    document.serialize(&mut Serializer::with_formatter(out, ForTerminals))?;
    Ok(())
}

fn text(document: &(impl Serialize + ?Sized)) -> io::Result<String> {
    let mut text = Vec::new();
    write_to(&mut text, document)?;
    String::from_utf8(text).map_err(io::Error::other)
}

/// Print a complete document, with where it comes from.
///
/// # Errors
///
/// Those of stdout.
pub(crate) fn print(document: &impl Serialize, made: &Made) -> io::Result<()> {
    print_bare(&WithOrigin { document, made })
}

#[derive(Serialize)]
struct WithOrigin<'a, D> {
    #[serde(flatten)]
    document: &'a D,
    made: &'a Made,
}

/// Print what only indef itself reads.
///
/// # Errors
///
/// Those of stdout.
pub(crate) fn print_bare(document: &impl Serialize) -> io::Result<()> {
    stands(Standing::Whole);
    let text = text(document)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// The document of a command that failed before it had anything else to tell.
#[derive(Serialize)]
struct Failed<'a> {
    schema: u64,
    error: &'a str,
}

/// The command has failed: tell so in a document of its own, or in the one that it had begun and dropped. One that is whole
/// stays as it is.
///
/// # Errors
///
/// Those of stdout.
pub(crate) fn end_failed(error: &str) -> io::Result<()> {
    match stands(Standing::Whole) {
        Standing::Nothing => {
            let schema = SCHEMA;
            print(&Failed { schema, error }, &Made::of(&[]))
        }
        Standing::Begun => {
            let error = text(error)?;
            let mut out = io::stdout().lock();
            writeln!(out, "\n],\"error\":{error}}}")?;
            out.flush()
        }
        Standing::Whole => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_whole_and_move_no_cursor() {
        let odd = "größe\u{1b}[2J\u{9b}2J\u{7f}\u{202e}gpj\u{e0041}\\ \"\n\u{85}";
        let told = text(&odd).unwrap();
        assert!(
            told.contains("größe\\u001b[2J\\u009b2J\\u007f\\u202egpj\\udb40\\udc41"),
            "{told}"
        );
        assert!(
            !told.contains(|c: char| c.is_control() || is_invisible(c)),
            "{told}"
        );
        assert_eq!(serde_json::from_str::<String>(&told).unwrap(), odd);
    }
}
