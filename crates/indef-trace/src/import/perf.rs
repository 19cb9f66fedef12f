//! The text of perf trace.
//!
//! ```text
//!    164.990 ( 0.003 ms): python3/811 openat(dfd: CWD, filename: 0xcfd3fb0, flags: RDONLY) = 4
//!    165.003 ( 0.011 ms): python3/811 read(fd: 4</srv/data.bin>, buf: 0x55fb, count: 4096) = 4096
//!    165.645 (         ): cat/811 read(fd: 0, buf: 0x7f, count: 1) ...
//!    165.645 ( 0.533 ms): cat/811  ... [continued]: read()) = 1
//! ```
//!
//! Arguments that are zero are left out, and file names may be mere addresses: then the path shown
//! with a descriptor names the file.

use std::{collections::HashMap, io::BufRead};

use indef_core::profile::ProfileSink;

use super::{
    descriptors::{Arg, Call, Descriptors, is_followed},
    lines::{Lines, Out, number},
    report::{ImportError, ImportOptions},
};

/// Calls that have not returned; there cannot be more than threads.
const UNFINISHED: usize = 64 << 10;

pub(super) fn import<R: BufRead, S: ProfileSink>(
    lines: &mut Lines<'_, R, S>,
    options: &ImportOptions,
) -> Result<(), ImportError> {
    let mut descriptors = Descriptors::new(&options.folder, false);
    let mut unfinished = HashMap::new();
    while let Some((line, out)) = lines.next()? {
        let text = line.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        if event(text, &mut descriptors, &mut unfinished, out).is_none() {
            out.unknown(line);
        }
    }
    Ok(())
}

/// `None` if the line is not understood.
fn event<S: ProfileSink>(
    line: &[u8],
    descriptors: &mut Descriptors,
    unfinished: &mut HashMap<u32, Vec<u8>>,
    out: &mut Out<'_, S>,
) -> Option<()> {
    let (pid, text) = beginning(line)?;
    if let Some(rest) = text.trim_ascii_start().strip_prefix(b"... [continued]: ") {
        let open = rest.iter().position(|byte| *byte == b'(')?;
        let after = rest[open..]
            .strip_prefix(b"())")
            .or_else(|| rest[open..].strip_prefix(b"()"))?;
        let Some(mut whole) = unfinished.remove(&pid) else {
            return Some(());
        };
        if !whole.starts_with(&rest[..open]) {
            return None;
        }
        whole.extend_from_slice(after);
        return call(pid, &whole, descriptors, out);
    }
    let open = text.iter().position(|byte| *byte == b'(')?;
    let name = &text[..open];
    if let Some(begun) = text.strip_suffix(b"...") {
        if is_followed(name) && unfinished.len() < UNFINISHED {
            descriptors.begins(pid, name, begun);
            let begun = begun.trim_ascii_end();
            let closed = begun.ends_with(b")");
            let mut kept = begun.to_vec();
            if !closed {
                kept.push(b')');
            }
            unfinished.insert(pid, kept);
        }
        return Some(());
    }
    call(pid, text, descriptors, out)
}

fn call<S: ProfileSink>(
    pid: u32,
    text: &[u8],
    descriptors: &mut Descriptors,
    out: &mut Out<'_, S>,
) -> Option<()> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let (name, rest) = text.split_at(open);
    if !is_followed(name) {
        return Some(());
    }
    // Paths are not escaped: the arguments end at the last closing parenthesis before a result.
    let equals = rest.windows(2).rposition(|w| w == b"= ")?;
    let close = rest[..equals].iter().rposition(|byte| *byte == b')')?;
    if !rest[close + 1..equals].trim_ascii().is_empty() {
        return None;
    }
    let result = rest[equals + 2..].trim_ascii();
    let end = result
        .iter()
        .position(|b| !(b.is_ascii_digit() || *b == b'-'));
    let result = &result[..end.unwrap_or(result.len())];
    // The child's side of a fork, or a call that did not return.
    if result.is_empty() {
        return Some(());
    }
    let call = Call {
        pid,
        name,
        args: arguments(&rest[1..close]),
        result: std::str::from_utf8(result).ok()?.parse().ok()?,
        result_path: None,
    };
    descriptors.call(&call, out);
    Some(())
}

/// Whether a line looks like perf trace's.
pub(super) fn is_line(line: &[u8]) -> bool {
    beginning(line.trim_ascii()).is_some()
}

/// `time ( duration ms): name/thread call…`: the thread, and the line from its call on.
fn beginning(line: &[u8]) -> Option<(u32, &[u8])> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let time = line[..open].trim_ascii();
    let is_time = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'?');
    if time.is_empty() || !time.iter().all(is_time) {
        return None;
    }
    let close = open + line[open..].windows(2).position(|w| w == b"):")?;
    let is_duration = |byte: &u8| byte.is_ascii_digit() || b". mus?".contains(byte);
    if !line[open + 1..close].iter().all(is_duration) {
        return None;
    }
    let text = line[close + 2..].trim_ascii_start();
    // A program's name may hold blanks and slashes; the thread stands right before the call.
    let paren = text
        .iter()
        .position(|byte| *byte == b'(')
        .unwrap_or(text.len());
    let head = &text[..paren];
    let slash = head
        .windows(2)
        .rposition(|w| w[0] == b'/' && w[1].is_ascii_digit())?;
    let digits = text[slash + 1..]
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    let pid = number(&text[slash + 1..slash + 1 + digits])?;
    let rest = text[slash + 1 + digits..].trim_ascii_start();
    Some((u32::try_from(pid).ok()?, rest))
}

/// `name: value, name: value`, where a value may hold commas in brackets or quotes.
fn arguments(text: &[u8]) -> Vec<Arg<'_>> {
    let mut args = Vec::new();
    let mut from = 0;
    let mut depth = 0_i32;
    let mut in_string = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'<' | b'{' | b'[' | b'(' => depth += 1,
            b'>' | b'}' | b']' | b')' => depth -= 1,
            b',' if depth <= 0 => {
                args.extend(argument(&text[from..at]));
                from = at + 1;
            }
            _ => {}
        }
    }
    args.extend(argument(&text[from..]));
    args
}

fn argument(text: &[u8]) -> Option<Arg<'_>> {
    let text = text.trim_ascii();
    let colon = text.windows(2).position(|w| w == b": ")?;
    Some(Arg {
        name: Some(&text[..colon]),
        value: text[colon + 2..].trim_ascii(),
    })
}
