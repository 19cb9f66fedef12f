//! The text of strace.
//!
//! ```text
//! 575   00:03:03.510652 read(4</srv/data.bin>, "@0\305\311\266"..., 4096) = 4096
//! 575   read(4,  <unfinished ...>
//! 575   <... read resumed>"abc"..., 4096) = 4096
//! ```
//!
//! Process numbers (`-f`, also as `[pid 575]`), times (`-t` to `-ttt`, `-r`) and paths (`-y`, `-yy`)
//! may be there or not; times are not needed, as the lines are in order.

use std::{collections::HashMap, io::BufRead};

use indef_core::profile::ProfileSink;

use super::{
    descriptors::{Arg, Call, Descriptors, decoded, is_followed},
    lines::{Lines, Out, first_word, number},
    report::{ImportError, ImportOptions},
};

/// Calls that have not returned; there cannot be more than threads.
const UNFINISHED: usize = 64 << 10;

pub(super) fn import<R: BufRead, S: ProfileSink>(
    lines: &mut Lines<'_, R, S>,
    options: &ImportOptions,
) -> Result<(), ImportError> {
    let mut trace = Trace {
        descriptors: Descriptors::new(&options.folder, true),
        unfinished: HashMap::new(),
    };
    while let Some((line, out)) = lines.next()? {
        if !line.trim_ascii().is_empty() && trace.line(line, out).is_none() {
            out.unknown(line);
        }
    }
    Ok(())
}

struct Trace {
    descriptors: Descriptors,
    /// The first line of a call that is not complete, by thread.
    unfinished: HashMap<u32, Vec<u8>>,
}

impl Trace {
    /// `None` if the line is not understood.
    fn line<S: ProfileSink>(&mut self, line: &[u8], out: &mut Out<'_, S>) -> Option<()> {
        let (pid, text) = beginning(line)?;
        if text.starts_with(b"+++ ") {
            self.unfinished.remove(&pid);
            self.descriptors.ends(pid);
            return Some(());
        }
        if text.starts_with(b"--- ") || text.starts_with(b"strace: ") {
            return Some(());
        }
        if let Some(resumed) = text.strip_prefix(b"<... ") {
            let at = resumed.windows(8).position(|w| w == b"resumed>")?;
            let name = resumed[..at].trim_ascii();
            // Of a call that began before the trace, the first half is missing.
            let Some(mut whole) = self.unfinished.remove(&pid) else {
                return Some(());
            };
            if whole.is_empty() {
                return Some(());
            }
            if !whole.starts_with(name) {
                return None;
            }
            whole.extend_from_slice(&resumed[at + 8..]);
            return self.call(pid, &whole, out);
        }
        let open = text.iter().position(|byte| *byte == b'(')?;
        let name = &text[..open];
        if !is_name(name) {
            return None;
        }
        if let Some(begun) = text.strip_suffix(b"<unfinished ...>") {
            if self.unfinished.len() < UNFINISHED || self.unfinished.contains_key(&pid) {
                let mut kept = Vec::new();
                if is_followed(name) {
                    kept.extend_from_slice(begun.trim_ascii_end());
                    self.descriptors.begins(pid, name, begun);
                }
                self.unfinished.insert(pid, kept);
            }
            return Some(());
        }
        self.call(pid, text, out)
    }

    fn call<S: ProfileSink>(&mut self, pid: u32, text: &[u8], out: &mut Out<'_, S>) -> Option<()> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let (name, rest) = text.split_at(open);
        if !is_followed(name) {
            return Some(());
        }
        let (args, after) = arguments(&rest[1..])?;
        let after = after
            .trim_ascii_start()
            .strip_prefix(b"=")?
            .trim_ascii_start();
        let (result, _) = first_word(after);
        // A result that strace did not see: the thread ended in the call.
        if result == b"?" {
            return Some(());
        }
        let shown = after.iter().position(|byte| *byte == b'<');
        let end = result
            .iter()
            .position(|byte| *byte == b'<')
            .unwrap_or(result.len());
        let value: i64 = std::str::from_utf8(&result[..end]).ok()?.parse().ok()?;
        let result_path = shown
            .filter(|_| end < result.len())
            .and_then(|at| after[at + 1..].strip_suffix(b">"))
            .map(decoded);
        let call = Call {
            pid,
            name,
            args,
            result: value,
            result_path,
        };
        self.descriptors.call(&call, out);
        Some(())
    }
}

/// Whether a line looks like strace's.
pub(super) fn is_line(line: &[u8]) -> bool {
    let Some((_, text)) = beginning(line) else {
        return false;
    };
    let open = text.iter().position(|byte| *byte == b'(');
    text.starts_with(b"<... ")
        || text.starts_with(b"+++ ")
        || open.is_some_and(|open| is_name(&text[..open]))
}

fn is_name(name: &[u8]) -> bool {
    let is = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name.is_empty() && name.iter().all(is)
}

/// The thread, and the line from its call on.
fn beginning(line: &[u8]) -> Option<(u32, &[u8])> {
    let mut text = line.trim_ascii();
    let mut pid = 0;
    if let Some(rest) = text.strip_prefix(b"[pid ") {
        let end = rest.iter().position(|byte| *byte == b']')?;
        pid = u32::try_from(number(rest[..end].trim_ascii())?).ok()?;
        text = rest[end + 1..].trim_ascii_start();
    } else {
        let (word, rest) = first_word(text);
        if let Some(found) = number(word) {
            pid = u32::try_from(found).ok()?;
            text = rest;
        }
    }
    // A time of any kind; it may have a sign if it is the difference to a line printed out of order.
    let (word, rest) = first_word(text);
    let is_time = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b':' | b'.' | b'-' | b'+');
    if word.first().is_some_and(u8::is_ascii_digit) && word.iter().all(is_time) {
        text = rest;
    }
    (!text.is_empty()).then_some((pid, text))
}

/// The arguments up to the closing parenthesis, and the rest of the line.
fn arguments(text: &[u8]) -> Option<(Vec<Arg<'_>>, &[u8])> {
    let mut args = Vec::new();
    let mut depth = 0_u32;
    let mut from = 0;
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'"' => at = end_of_string(text, at)?,
            // The path of a descriptor.
            b'<' if at > 0 && (text[at - 1].is_ascii_digit() || text[at - 1] == b'D') => {
                at = end_of_path(text, at)?;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                args.push(unnamed(&text[from..at]));
                return Some((args, &text[at + 1..]));
            }
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                args.push(unnamed(&text[from..at]));
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn unnamed(value: &[u8]) -> Arg<'_> {
    Arg {
        name: None,
        value: value.trim_ascii(),
    }
}

/// The index of the closing quote.
fn end_of_string(text: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 1,
            b'"' => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// The index of the closing bracket; `-yy` shows devices in inner ones.
fn end_of_path(text: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, byte) in text.iter().enumerate().skip(open) {
        match byte {
            b'<' => depth += 1,
            // An arrow between the ends of a connection.
            b'>' if text[at - 1] == b'-' => {}
            b'>' if depth == 1 => return Some(at),
            b'>' => depth -= 1,
            _ => {}
        }
    }
    None
}
