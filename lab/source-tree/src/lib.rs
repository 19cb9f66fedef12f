//! The source tree that this program was built from, and the programs that cargo builds from it.
//!
//! For whatever measures or tries the project's own programs: benchmarks, trials, chores. It knows
//! nothing of the programs themselves. A process builds each of them once: all that it runs are the same,
//! whatever is edited meanwhile. A program that was carried to another machine has no tree:
//! see [`is_there`].

#![forbid(unsafe_code)]

use std::{
    collections::BTreeSet,
    env, io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::{Mutex, PoisonError},
};

/// A program of the tree could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// cargo did not start.
    #[error("cannot run cargo in {}: {source}", root().display())]
    Start {
        /// Why.
        source: io::Error,
    },
    /// cargo has said why.
    #[error("{package} cannot be built: {status}")]
    Build {
        /// The package.
        package: String,
        /// How cargo ended.
        status: ExitStatus,
    },
}

/// The root of the repository.
#[must_use]
pub fn root() -> &'static Path {
    const CRATE: &str = env!("CARGO_MANIFEST_DIR");
    let root = Path::new(CRATE).ancestors().nth(2);
    root.expect("this crate lies in a folder of the repository's root")
}

/// Whether the tree is on this machine.
#[must_use]
pub fn is_there() -> bool {
    root().join("Cargo.toml").exists()
}

/// Where cargo puts what it builds.
#[must_use]
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// cargo, as it runs this program, from the root.
#[must_use]
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// Build the program `package` for release. Returns the program's path.
///
/// # Errors
///
/// It does not build.
pub fn release_binary(package: &str) -> Result<PathBuf, BuildError> {
    build(package, &["--release"])?;
    Ok(target().join("release").join(package))
}

/// Build the program `package` in cargo's usual profile: where its speed does not matter. Returns the
/// program's path.
///
/// # Errors
///
/// It does not build.
pub fn debug_binary(package: &str) -> Result<PathBuf, BuildError> {
    build(package, &[])?;
    Ok(target().join("debug").join(package))
}

/// Build an example of `package` for release. Returns the program's path.
///
/// # Errors
///
/// It does not build.
pub fn release_example(package: &str, example: &str) -> Result<PathBuf, BuildError> {
    build(package, &["--release", "--example", example])?;
    Ok(target().join("release/examples").join(example))
}

/// The program `package` for the running test: the one that the variable of its name (`INDEF`, say)
/// names, as `cargo xtask test` sets it; else it is built, in the profile of the test. Returns the
/// program's path.
///
/// Building it alone can be a build of everything below it: cargo chooses features of dependencies for
/// the packages that it is told to build.
///
/// # Errors
///
/// It does not build.
///
/// # Panics
///
/// Where the running program is no test of cargo's.
pub fn binary_for_test(package: &str) -> Result<PathBuf, BuildError> {
    if let Some(named) = env::var_os(package.to_uppercase()) {
        return Ok(named.into());
    }
    let test = env::current_exe().expect("a process knows its program");
    let folder = test.ancestors().nth(2).expect("tests lie in PROFILE/deps");
    let profile: &[&str] = match folder.ends_with("release") {
        true => &["--release"],
        false => &[],
    };
    build(package, profile)?;
    Ok(folder.join(package))
}

fn build(package: &str, arguments: &[&str]) -> Result<(), BuildError> {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    // Held meanwhile: cargo builds one thing at a time, too.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("{package} {}", arguments.join(" "));
    if built.contains(&name) {
        return Ok(());
    }
    let status = cargo()
        .args(["build", "--locked", "--quiet", "--package", package])
        .args(arguments)
        .status()
        .map_err(|source| BuildError::Start { source })?;
    if !status.success() {
        return Err(BuildError::Build {
            package: package.to_owned(),
            status,
        });
    }
    built.insert(name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_the_workspace() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(is_there() && manifest.contains("[workspace]"));
    }
}
