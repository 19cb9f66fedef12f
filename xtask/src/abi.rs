//! Checks that linux-abi agrees with the installed kernel headers.
//!
//! Every item of `linux_abi::everything::all()` becomes C: static assertions on sizes, offsets and request
//! numbers, which the C compiler then checks against the real headers. Headers are often older than
//! the kernel, so an item that they do not have is reported as not checkable, and is no failure.

use std::{
    fmt::Write as _,
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use linux_abi::{abi::AbiItem, everything::all};

/// The headers that kernel headers expect to have been included before them: FS_IOC_FIEMAP of
/// linux/fs.h names a structure of linux/fiemap.h, for one.
const BEFORE: &str = "#include <stddef.h>\n#include <stdint.h>\n#include <sys/types.h>\n\
                      #include <sys/ioctl.h>\n#include <linux/fiemap.h>\n";

/// The result for an item.
#[derive(Debug, Default, PartialEq, Eq)]
struct AbiCheck {
    assertions: usize,
    not_checkable: Vec<String>,
    wrong: Vec<String>,
}

/// Check all items.
///
/// # Errors
///
/// The sizes, offsets and numbers that the headers contradict.
pub(crate) fn check() -> Result<()> {
    let mut assertions = 0;
    let mut wrong = Vec::new();
    for item in all() {
        let outcome = check_item(&item)?;
        for what in outcome.not_checkable {
            println!("abi-check: not checkable here: {what}");
        }
        assertions += outcome.assertions;
        wrong.extend(outcome.wrong);
    }
    ensure!(
        wrong.is_empty(),
        "the installed headers contradict linux-abi:\n{}",
        wrong.join("\n")
    );
    ensure!(
        assertions > 0,
        "nothing could be checked; are the kernel headers (linux-libc-dev) installed?"
    );
    println!("abi-check: {assertions} assertions hold");
    Ok(())
}

fn check_item(item: &AbiItem) -> Result<AbiCheck> {
    let mut outcome = AbiCheck::default();
    let include = format!("{BEFORE}#include <{}>\n", item.header);
    if compile(&include)?.is_err() {
        outcome
            .not_checkable
            .push(format!("{} {}: no such header", item.header, item.c_type));
        return Ok(outcome);
    }
    if !item.c_type.is_empty() {
        if compile(&format!("{include}char exists[sizeof({})];\n", item.c_type))?.is_ok() {
            assert_all(&mut outcome, &include, &structure(item))?;
        } else {
            outcome
                .not_checkable
                .push(format!("{} is not in {}", item.c_type, item.header));
        }
    }
    for (name, value) in item.requests {
        let exists =
            format!("{include}unsigned int exists(void) {{ return (unsigned int)({name}); }}\n");
        if compile(&exists)?.is_ok() {
            let assertion = format!(
                "_Static_assert((unsigned int)({name}) == {value:#x}u, \"{name} is {value:#x}\");"
            );
            assert_all(&mut outcome, &include, &[assertion])?;
        } else {
            outcome
                .not_checkable
                .push(format!("{name} is not in {}", item.header));
        }
    }
    Ok(outcome)
}

/// Assertions on size and offsets.
fn structure(item: &AbiItem) -> Vec<String> {
    let AbiItem {
        c_type,
        size,
        fields,
        ..
    } = item;
    let mut assertions = vec![format!(
        "_Static_assert(sizeof({c_type}) == {size}, \"{c_type} has {size} bytes\");"
    )];
    assertions.extend(fields.iter().map(|(field, offset)| {
        format!(
            "_Static_assert(offsetof({c_type}, {field}) == {offset}, \
             \"{c_type}: {field} is at {offset}\");"
        )
    }));
    assertions
}

fn assert_all(outcome: &mut AbiCheck, include: &str, assertions: &[String]) -> Result<()> {
    let mut source = include.to_owned();
    for assertion in assertions {
        writeln!(source, "{assertion}")?;
    }
    match compile(&source)? {
        Ok(()) => outcome.assertions += assertions.len(),
        Err(errors) => outcome.wrong.push(errors),
    }
    Ok(())
}

/// Whether this is C that compiles; the compiler's complaints if not.
fn compile(source: &str) -> Result<Result<(), String>> {
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=gnu11", "-fsyntax-only", "-w", "-x", "c", "-I"])
        // Headers of our own kernel patches.
        .arg(source_tree::root().join("kernel/f2fs"))
        .arg("-")
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run the C compiler")?;
    compiler
        .stdin
        .take()
        .context("the compiler has no input")?
        .write_all(source.as_bytes())?;
    let output = compiler.wait_with_output()?;
    Ok(if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: AbiItem = AbiItem {
        header: "linux/fiemap.h",
        c_type: "struct fiemap_extent",
        size: 56,
        fields: &[("fe_logical", 0), ("fe_flags", 40)],
        requests: &[("FIEMAP_EXTENT_SHARED", 0x2000)],
    };

    #[test]
    fn what_is_right_holds() {
        let outcome = check_item(&RIGHT).unwrap();
        assert_eq!(
            outcome,
            AbiCheck {
                assertions: 4,
                ..AbiCheck::default()
            }
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = AbiItem {
            fields: &[("fe_flags", 44)],
            requests: &[("FIEMAP_EXTENT_SHARED", 0x4000)],
            ..RIGHT
        };
        let outcome = check_item(&wrong).unwrap();
        assert_eq!(outcome.wrong.len(), 2);
        assert!(
            outcome.wrong[0].contains("fe_flags is at 44"),
            "{outcome:?}"
        );
        assert!(
            outcome.wrong[1].contains("FIEMAP_EXTENT_SHARED is 0x4000"),
            "{outcome:?}"
        );
    }

    #[test]
    fn what_the_headers_lack_is_not_checkable() {
        let header = AbiItem {
            header: "linux/of-the-future.h",
            ..RIGHT
        };
        assert_eq!(check_item(&header).unwrap().not_checkable.len(), 1);
        let rest = AbiItem {
            c_type: "struct of_the_future",
            requests: &[("FIEMAP_OF_THE_FUTURE", 1)],
            ..RIGHT
        };
        let outcome = check_item(&rest).unwrap();
        assert_eq!((outcome.not_checkable.len(), outcome.assertions), (2, 0));
    }
}
