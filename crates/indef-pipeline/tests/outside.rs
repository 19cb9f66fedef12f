//! A program outside of the workspace that knows `indef-pipeline` alone: the example of the crate's
//! documentation, built by cargo and run on a fragmented file.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
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
    package(outside.path(), &workspace);
    // The workspace's build products are not built again.
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--"])
        .arg(scratch.path())
        .current_dir(outside.path())
        .env("CARGO_TARGET_DIR", workspace.join("target"))
        .env("XDG_STATE_HOME", outside.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.ends_with("1 moved\n"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(fs::read(&file).unwrap() == content);
    scratch.fsck().unwrap();
}
