//! Checks the licences of the dependencies. Every package that `cargo metadata` knows must have a
//! licence expression that the list in deny.toml allows.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

/// Check all packages.
///
/// # Errors
///
/// The packages whose licence is missing, unreadable or not allowed.
pub(crate) fn check() -> Result<()> {
    let allowed = allowed(&fs::read_to_string(source_tree::root().join("deny.toml"))?)?;
    let output = source_tree::cargo()
        .args(["metadata", "--format-version=1", "--locked"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed");
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;

    let mut refused = Vec::new();
    for Package {
        name,
        version,
        license,
    } in &metadata.packages
    {
        let verdict = match license {
            None => Err("has no licence expression".to_owned()),
            Some(expression) => match permits(expression, &allowed) {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!("'{expression}' is not allowed")),
                Err(error) => Err(format!("'{expression}': {error}")),
            },
        };
        if let Err(why) = verdict {
            refused.push(format!("{name} {version}: {why}"));
        }
    }
    ensure!(
        refused.is_empty(),
        "licences that deny.toml does not allow:\n  {}",
        refused.join("\n  ")
    );
    println!(
        "licences: {} packages, all allowed",
        metadata.packages.len()
    );
    Ok(())
}

/// The strings of `allow = […]` below `[licenses]`.
fn allowed(deny: &str) -> Result<BTreeSet<String>> {
    let list = deny
        .split_once("[licenses]")
        .and_then(|(_, section)| section.split_once("allow = ["))
        .and_then(|(_, list)| list.split_once(']'))
        .map(|(list, _)| list)
        .context("deny.toml has no 'allow = […]' below [licenses]")?;
    Ok(list
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect())
}

/// Whether the SPDX expression leaves a choice that is allowed throughout. `/` is the old way to
/// write OR; AND binds more strongly than OR.
fn permits(expression: &str, allowed: &BTreeSet<String>) -> Result<bool> {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = tokens.as_slice();
    let permitted = any(&mut rest, allowed)?;
    ensure!(rest.is_empty(), "unexpected '{}'", rest.join(" "));
    Ok(permitted)
}

fn any(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool> {
    let mut permitted = all(rest, allowed)?;
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        permitted |= all(rest, allowed)?;
    }
    Ok(permitted)
}

fn all(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool> {
    let mut permitted = one(rest, allowed)?;
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        permitted &= one(rest, allowed)?;
    }
    Ok(permitted)
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool> {
    match **rest {
        ["(", ref inner @ ..] => {
            *rest = inner;
            let permitted = any(rest, allowed)?;
            ensure!(rest.first() == Some(&")"), "a parenthesis is not closed");
            *rest = &rest[1..];
            Ok(permitted)
        }
        [licence, "WITH", exception, ref after @ ..] => {
            *rest = after;
            Ok(allowed.contains(&format!("{licence} WITH {exception}")))
        }
        [licence, ref after @ ..] if !matches!(licence, "AND" | "OR" | "WITH" | ")") => {
            *rest = after;
            Ok(allowed.contains(licence))
        }
        _ => bail!("a licence is missing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> BTreeSet<String> {
        allowed(
            "[licenses]\n# why\nallow = [\n \"MIT\",\n \"Apache-2.0 WITH LLVM-exception\",\n]\n",
        )
        .unwrap()
    }

    #[test]
    fn a_choice_is_enough() {
        for expression in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(GPL-3.0 OR MIT) AND MIT",
        ] {
            assert!(permits(expression, &list()).unwrap(), "{expression}");
        }
    }

    #[test]
    fn all_parts_of_an_and_are_needed() {
        for expression in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR X) AND (Y OR Z)",
            "Apache-2.0",
        ] {
            assert!(!permits(expression, &list()).unwrap(), "{expression}");
        }
    }

    #[test]
    fn an_exception_belongs_to_its_licence() {
        assert!(permits("Apache-2.0 WITH LLVM-exception OR X", &list()).unwrap());
        assert!(!permits("GPL-2.0 WITH LLVM-exception", &list()).unwrap());
    }

    #[test]
    fn nonsense_is_refused() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT MIT"] {
            assert!(permits(expression, &list()).is_err(), "{expression}");
        }
    }

    #[test]
    fn our_own_list_can_be_read() {
        let deny = fs::read_to_string(source_tree::root().join("deny.toml")).unwrap();
        let list = allowed(&deny).unwrap();
        assert!(list.contains("MIT") && list.contains("Apache-2.0"));
        assert!(!list.iter().any(|licence| licence.contains("GPL")));
    }
}
