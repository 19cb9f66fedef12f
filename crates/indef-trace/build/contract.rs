//! From `contract.h` to Rust: a constant for each `#define` of a number and each value of an `enum`,
//! and a structure of the same layout for each `struct`. Anything else in the header is an error.
//!
//! The structures derive zerocopy's traits: one with implicit padding does not compile, and without
//! padding both compilers lay out the same fields alike.

const DERIVE: &str = "#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, \
     ::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::Immutable)]\n#[repr(C)]\n";

pub(crate) fn translate(header: &str) -> String {
    let mut rust = String::new();
    let mut declarations = String::new();
    for line in strip_comments(header).lines() {
        match line.trim().strip_prefix('#') {
            Some(directive) => rust += &define(directive),
            None => declarations += &format!("{line} "),
        }
    }
    let mut rest = declarations.trim();
    while !rest.is_empty() {
        let (head, body, after) = declaration(rest);
        match words(head)[..] {
            ["enum", _] => body.split(',').for_each(|value| rust += &constant(value)),
            ["struct", name] => rust += &structure(name, body),
            _ => panic!("contract.h: `{head}` is neither an enum nor a struct with a name"),
        }
        rest = after.trim_start();
    }
    rust
}

fn strip_comments(header: &str) -> String {
    let mut parts = header.split("/*");
    let code = parts.next().unwrap_or_default().to_owned();
    parts.fold(code, |code, part| {
        let (_, after) = part.split_once("*/").expect("a comment ends");
        code + after
    })
}

/// `#define NAME number`; the guard of the header and its `#include` have no number.
fn define(directive: &str) -> String {
    match words(directive)[..] {
        ["define", name, value] => constant(&format!("{name} = {value}")),
        ["ifndef" | "define" | "include", _] | ["endif"] => String::new(),
        _ => panic!("contract.h: #{directive} is no plain number"),
    }
}

/// `NAME = number`; nothing after the last comma.
fn constant(text: &str) -> String {
    if text.trim().is_empty() {
        return String::new();
    }
    let parsed = text
        .split_once('=')
        .and_then(|(name, value)| Some((name.trim(), value.trim().parse::<u32>().ok()?)));
    let (name, value) = parsed.unwrap_or_else(|| panic!("contract.h: `{text}` has no number"));
    format!("pub(crate) const {name}: u32 = {value};\n")
}

/// Split off `head { body };`.
fn declaration(text: &str) -> (&str, &str, &str) {
    let split = || {
        let (head, rest) = text.split_once('{')?;
        let (body, after) = rest.split_once('}')?;
        Some((head, body, after.trim_start().strip_prefix(';')?))
    };
    split().unwrap_or_else(|| panic!("contract.h: `{text}` is no declaration"))
}

fn structure(name: &str, body: &str) -> String {
    let fields: String = body
        .split(';')
        .filter(|field| !field.trim().is_empty())
        .map(field)
        .collect();
    format!("{DERIVE}pub(crate) struct {} {{\n{fields}}}\n", camel(name))
}

/// `type name` or `type name[LENGTH]`.
fn field(text: &str) -> String {
    let (name, of) = match words(text)[..] {
        ["struct", of, name] => (name, camel(of)),
        [of, name] => (name, integer(of)),
        _ => panic!("contract.h: `{text}` is no field"),
    };
    match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
        Some((name, len)) => format!("    pub(crate) {name}: [{of}; {len} as usize],\n"),
        None => format!("    pub(crate) {name}: {of},\n"),
    }
}

fn integer(name: &str) -> String {
    let bits = name.strip_prefix("__u");
    let bits = bits.filter(|bits| matches!(*bits, "8" | "16" | "32" | "64"));
    format!(
        "u{}",
        bits.unwrap_or_else(|| panic!("contract.h: `{name}` is no type of it"))
    )
}

/// `range_key` becomes `RangeKey`.
fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| word[..1].to_uppercase() + &word[1..])
        .collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}
