//! A program outside of the workspace that knows `indef-pipeline` alone: the example of the crate's
//! documentation, built and run on a fragmented file.
//!
//! cargo builds it from a manifest with this one dependency: most of what is below `indef-pipeline` anew,
//! with the features that it asks for itself. `make test` has the compiler link it with the library that
//! is there (`INDEF_PIPELINE`), which takes a second in place of a minute.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use scratch_fs::{FragmentOptions, ScratchFs, fragment, require};
use units::Bytes;

const LIB: &str = include_str!("../src/lib.rs");

/// The example, without the lines that documentation hides, and with a `main` that takes a folder.
fn program() -> String {
    let example = LIB
        .split("//! ```\n")
        .nth(2)
        .expect("the second fence of lib.rs opens the example");
    let shown = example
        .lines()
        .map(|line| line.trim_start_matches("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .filter(|line| !line.starts_with("# "));
    let shown: Vec<&str> = shown.collect();
    assert!(shown.len() <= 40, "{} lines", shown.len());
    let main = "fn main() -> Result<(), Error> {\n    \
        let dir = std::env::args_os().nth(1).expect(\"a folder\");\n    \
        println!(\"{} moved\", defragment(dir.as_ref(), None)?);\n    Ok(())\n}\n";
    format!("{}\n\n{main}", shown.join("\n"))
}

/// A package in `folder`, with the dependencies locked and built as in the workspace.
fn package(folder: &Path, workspace: &Path) {
    let root = fs::read_to_string(workspace.join("Cargo.toml")).unwrap();
    let (_, profiles) = root.split_once("\n[profile.").unwrap();
    let manifest = format!(
        "[package]\nname = \"indef-outside\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nindef-pipeline = {{ path = {:?} }}\n\n[profile.{profiles}",
        workspace.join("crates/indef-pipeline")
    );
    fs::create_dir(folder.join("src")).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("src/main.rs"), program()).unwrap();
    fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
}

/// Have cargo build and run it on `dir`. The workspace's build products are not built again where their
/// features are the same.
fn run_by_cargo(outside: &Path, workspace: &Path, dir: &Path) -> Output {
    package(outside, workspace);
    Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--"])
        .arg(dir)
        .current_dir(outside)
        .env("CARGO_TARGET_DIR", workspace.join("target"))
        .env("XDG_STATE_HOME", outside)
        .output()
        .unwrap()
}

/// Link it with this library, which lies where this test has its own dependencies from, and run it on `dir`.
fn run_with(library: &Path, outside: &Path, workspace: &Path, dir: &Path) -> Output {
    let test = env::current_exe().unwrap();
    let (source, built) = (outside.join("main.rs"), outside.join("outside"));
    fs::write(&source, program()).unwrap();
    let mut external = OsString::from("indef_pipeline=");
    external.push(library);
    let mut dependencies = OsString::from("dependency=");
    dependencies.push(test.parent().unwrap());
    let compiled = Command::new("rustc")
        .args(["--edition", "2024", "--extern"])
        .arg(external)
        .arg("-L")
        .arg(dependencies)
        .arg("-o")
        .args([&built, &source])
        // The workspace's toolchain.
        .current_dir(workspace)
        .output()
        .unwrap();
    if !compiled.status.success() {
        return compiled;
    }
    Command::new(built)
        .arg(dir)
        .env("XDG_STATE_HOME", outside)
        .output()
        .unwrap()
}

#[test]
fn loop_a_program_outside_of_the_workspace_plans_and_runs() {
    let Some(mut scratch) = require(ScratchFs::builder("ext4", Bytes::mib(256)).build()) else {
        return;
    };
    let file = scratch.path().join("file");
    let options = FragmentOptions {
        size: Bytes::mib(2),
        piece: Bytes::kib(16),
        seed: 7,
    };
    fragment(&file, options).unwrap();
    scratch.sync().unwrap();
    let content = fs::read(&file).unwrap();

    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap();
    let outside = tempfile::tempdir().unwrap();
    let output = match env::var_os("INDEF_PIPELINE") {
        Some(library) if env::var_os("INDEF_OUTSIDE_BY_CARGO").is_none() => {
            run_with(library.as_ref(), outside.path(), &workspace, scratch.path())
        }
        _ => run_by_cargo(outside.path(), &workspace, scratch.path()),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.ends_with("1 moved\n"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(fs::read(&file).unwrap() == content);
    scratch.fsck().unwrap();
}
