//! The test programs: built by cargo, all at once; each lists its own tests.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::{
    process::{self, TICK},
    room::Run,
    tiers::Tier,
};

/// The name of the program that stands for all doc tests.
pub(crate) const DOCS: &str = "doc-tests";

/// A program with tests.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Package, and the part of it: `indef-fs`, `indef-fs/ext4`, `indef/bin`.
    pub(crate) name: String,
    /// The name of the file with its `main`: `ext4`; for a library its package.
    pub(crate) target: String,
    /// The package's folder; tests run in it, as with `cargo test`.
    pub(crate) folder: PathBuf,
    pub(crate) kind: ProgramKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ProgramKind {
    /// An executable with libtest's harness.
    Harness(PathBuf),
    /// cargo with these arguments, which has rustdoc build and run them.
    Docs(Vec<String>),
}

/// The build products of cargo.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) programs: Vec<Program>,
    /// Products that tests of other packages use, built along with their own tests: the variable that
    /// names it to them, and the path. Programs, for `source_tree::binary_for_test`; and `indef-pipeline`,
    /// for a program outside of the workspace.
    pub(crate) shared: Vec<(&'static str, PathBuf)>,
    /// indef-lab, the same.
    pub(crate) lab: Option<PathBuf>,
}

impl Program {
    /// Its tests' names. Doc tests become known while they run: they are one entry.
    pub(crate) fn list(&self) -> Result<Vec<String>> {
        let ProgramKind::Harness(executable) = &self.kind else {
            return Ok(vec!["all".into()]);
        };
        let output = Command::new(executable)
            .args(["--list", "--format", "terse"])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {}", executable.display()))?;
        ensure!(
            output.status.success(),
            "{} does not list its tests: {}",
            executable.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        let said = String::from_utf8(output.stdout)?;
        Ok(said
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(str::to_owned)
            .collect())
    }

    /// The command that runs one test of it, and shows the test's output immediately: a test that
    /// hangs has printed where.
    pub(crate) fn command(&self, test: &str) -> Command {
        match &self.kind {
            ProgramKind::Harness(executable) => {
                let mut command = Command::new(executable);
                command
                    .args(["--exact", test, "--nocapture", "--color", "never"])
                    .current_dir(&self.folder)
                    .env("CARGO_MANIFEST_DIR", &self.folder);
                command
            }
            ProgramKind::Docs(arguments) => {
                let mut command = source_tree::cargo();
                command.args(arguments);
                command
            }
        }
    }
}

/// Have cargo build all programs of a tier; of these packages only, if there are any.
pub(crate) fn build(
    tier: Tier,
    packages: &[String],
    run: &Run,
    stop: &AtomicBool,
) -> Result<Built> {
    let selection = selection(packages);
    let messages = run.file("messages");
    let mut command = source_tree::cargo();
    command
        .args(["test", "--locked", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .args(&selection)
        .stdin(Stdio::null())
        .stdout(File::create(&messages)?);
    if tier == Tier::Check {
        command.args(["--lib", "--bins"]);
    }
    let mut cargo = command.spawn().context("cannot run cargo")?;
    let status = loop {
        if let Some(status) = cargo.try_wait()? {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            process::terminate(&mut cargo);
            bail!("stopped");
        }
        thread::sleep(TICK);
    };
    ensure!(status.success(), "cargo test --no-run: {status}");
    let mut built = artifacts(BufReader::new(File::open(messages)?))?;
    ensure!(!built.programs.is_empty(), "there are no test programs");
    if tier == Tier::Test && built.programs.iter().any(|one| one.target == one.name) {
        built.programs.push(Program {
            name: DOCS.into(),
            target: DOCS.into(),
            folder: source_tree::root().to_owned(),
            kind: ProgramKind::Docs(doc_arguments(selection)),
        });
    }
    Ok(built)
}

/// cargo's arguments for the doc tests of these packages, and for no other test: only their names have a line. With
/// `--doc` cargo leaves out what tests alone depend on, and so builds most libraries once more, with fewer
/// features of those that they use.
pub(crate) fn doc_arguments(selection: Vec<String>) -> Vec<String> {
    let before = ["test", "--locked"].map(str::to_owned);
    let after = ["--", "(line "].map(str::to_owned);
    before.into_iter().chain(selection).chain(after).collect()
}

fn selection(packages: &[String]) -> Vec<String> {
    if packages.is_empty() {
        return vec!["--workspace".into()];
    }
    let of = |name: &String| ["--package".to_owned(), name.clone()];
    packages.iter().flat_map(of).collect()
}

/// The relevant part of cargo's messages.
#[derive(Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

impl Message {
    /// The library with this name, if it is the message's, with the variable for it.
    fn library(&self, name: &str, variable: &'static str) -> Option<(&'static str, PathBuf)> {
        let is_it = |target: &Target| target.kind == ["lib"] && target.name == name;
        let is_plain = |profile: &Profile| !profile.test;
        if !self.target.as_ref().is_some_and(is_it) || !self.profile.as_ref().is_some_and(is_plain)
        {
            return None;
        }
        let is_library = |file: &&PathBuf| file.extension().is_some_and(|ending| ending == "rlib");
        let file = self.filenames.iter().find(is_library)?;
        Some((variable, file.clone()))
    }
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The build products named in cargo's messages.
pub(crate) fn artifacts(messages: impl BufRead) -> Result<Built> {
    let mut built = Built::default();
    for line in messages.lines() {
        let message: Message = serde_json::from_str(&line?).context("cargo's messages")?;
        built
            .shared
            .extend(message.library("indef_pipeline", "INDEF_PIPELINE"));
        let (Some(id), Some(manifest), Some(target), Some(profile), Some(executable)) = (
            message.package_id,
            message.manifest_path,
            message.target,
            message.profile,
            message.executable,
        ) else {
            continue;
        };
        if message.reason != "compiler-artifact" {
            continue;
        }
        let is_program = target.kind == ["bin"];
        if !profile.test {
            match target.name.as_str() {
                "indef" if is_program => built.shared.push(("INDEF", executable)),
                "flashd" if is_program => built.shared.push(("FLASHD", executable)),
                "indef-lab" if is_program => built.lab = Some(executable),
                _ => {}
            }
            continue;
        }
        let package = package(&id).with_context(|| format!("no package in {id}"))?;
        let (name, of) = match target.kind.first().map(String::as_str) {
            Some("test") => (format!("{package}/{}", target.name), target.name),
            Some("bin") => (format!("{package}/bin"), format!("{package}/bin")),
            _ => (package.to_owned(), package.to_owned()),
        };
        built.programs.push(Program {
            name,
            target: of,
            folder: manifest.parent().map(Path::to_owned).unwrap_or_default(),
            kind: ProgramKind::Harness(executable),
        });
    }
    built
        .programs
        .sort_by(|one, other| one.name.cmp(&other.name));
    Ok(built)
}

/// The package's name, from an id like `path+file:///folder/name#0.1.0` or `…/folder#name@0.1.0`.
fn package(id: &str) -> Option<&str> {
    let (place, version) = id.rsplit_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => place.rsplit('/').next(),
    }
}
