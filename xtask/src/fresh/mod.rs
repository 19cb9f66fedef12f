//! README's commands on a machine that has Rust and nothing else.
//!
//! For each release of Debian, a root is made that has `make` and certificates beside the base
//! system, and the committed files are unpacked into it. First a user without rights types the
//! command and has to get a list of the missing packages before anything is compiled; then root
//! does, and it has to succeed.
//!
//! A root gets from this machine: the kernel with its devices, the pinned toolchain, cargo's
//! fetched packages (read-only, without the network), and apt's way to its mirror. Its mounts are
//! visible to its processes only, so they end with them.

mod cross;
mod machine;
mod root;
mod run;
mod service;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use rustix::fs::FlockOperation;

use crate::packages;

use self::{machine::MachineParts, root::Root, run::Runner};

/// The script that tries packages.
const TRY_PACKAGES: &str = "packaging/try.sh";
/// The script that tries services.
const TRY_SERVICES: &str = "packaging/try-service.sh";

/// A user without any rights.
const USER: u32 = 65534;

/// Options of `cargo xtask fresh`.
#[derive(clap::Args)]
#[command(
    about = "Run `make demo` of what is committed in clean Debian roots (as root; some 10 minutes)",
    after_help = "Needs root, mmdebstrap (or debootstrap), git and a network for Debian's packages.\n\
                  Roots and logs are in target/fresh; the roots go afterwards, also after Ctrl-C."
)]
pub(crate) struct Fresh {
    /// Which release of Debian; may be repeated [default: all]
    #[arg(long = "release", value_name = "RELEASE")]
    releases: Vec<Release>,
    /// Run `make test` in the place of `make demo` (takes half an hour)
    #[arg(long, conflicts_with = "packages")]
    test: bool,
    /// Build the packages here (`cargo xtask packages`); install, use and remove them there
    #[arg(long)]
    packages: bool,
    /// Build the packages here, boot the roots with systemd, and try indef's services there
    #[arg(long, conflicts_with_all = ["packages", "test"])]
    service: bool,
    /// Build the packages for 64-bit ARM in a root of Debian 13, with its compilers, and start what is in them
    #[arg(long, conflicts_with_all = ["packages", "test", "service", "releases", "built"])]
    cross: bool,
    /// Take the packages in this folder, as an earlier `cargo xtask packages` left them, instead of building them
    #[arg(long, value_name = "FOLDER")]
    built: Option<PathBuf>,
}

impl Fresh {
    /// The files of packages for this machine.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let Some(folder) = &self.built else {
            return packages::build();
        };
        let endings = packages::endings()?;
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if endings.iter().any(|ending| name.ends_with(ending)) {
                files.push(entry.path());
            }
        }
        ensure!(!files.is_empty(), "{}: no packages", folder.display());
        Ok(files)
    }
}

/// The thing to try.
enum Goal {
    /// `make` with this, from the sources.
    Make(&'static str),
    /// These files of packages.
    Packages(Vec<PathBuf>),
    /// The services in these files of packages, under systemd.
    Services(Vec<PathBuf>),
}

impl Goal {
    fn name(&self) -> String {
        match self {
            Self::Make(goal) => format!("make {goal}"),
            Self::Packages(_) => "packages".to_owned(),
            Self::Services(_) => "services".to_owned(),
        }
    }
}

/// A release of Debian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Release {
    /// Debian 12, bookworm
    #[value(name = "12")]
    Bookworm,
    /// Debian 13, trixie
    #[value(name = "13")]
    Trixie,
}

impl Release {
    fn suite(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Bookworm => 12,
            Self::Trixie => 13,
        }
    }
}

/// Try the commands in every requested release.
///
/// # Errors
///
/// The releases in which they failed; or the things that this machine lacks to try them.
pub(crate) fn run(options: &Fresh) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "clean roots need root (chroot, mounts, loop devices)"
    );
    let runner = Runner::new()?;
    let machine = MachineParts::this()?;
    let folder = source_tree::target().join("fresh");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    let _lock = lock(&folder)?;
    root::remove_left_over(&folder)?;

    ensure!(
        options.built.is_none() || options.packages || options.service,
        "--built is for --packages and --service"
    );
    if options.cross {
        return cross::run(&machine, &runner, &folder);
    }
    if options.service
        && let Err(lack) = service::can_boot()
    {
        println!("fresh: services skipped: {lack}");
        return Ok(());
    }
    let goal = match (options.packages, options.service, options.test) {
        (true, _, _) => Goal::Packages(options.files()?),
        (_, true, _) => Goal::Services(options.files()?),
        (_, _, true) => Goal::Make("test"),
        (false, false, false) => Goal::Make("demo"),
    };
    let told = goal.name();
    let mut releases = options.releases.clone();
    if releases.is_empty() {
        releases = Release::value_variants().to_vec();
    }
    let mut failed = Vec::new();
    for release in releases {
        let name = format!("Debian {}", release.number());
        let began = Instant::now();
        let tried = try_in(release, &goal, &machine, &runner, &folder);
        let after = began.elapsed().as_secs();
        match tried {
            Ok(()) => println!("fresh: {name}: {told} passed ({after} s in all)"),
            Err(error) => {
                println!("fresh: {name}: {told} FAILED after {after} s: {error:#}");
                failed.push(name);
            }
        }
        runner.go_on()?;
    }
    ensure!(failed.is_empty(), "failed in: {}", failed.join(", "));
    Ok(())
}

/// Allow one run at a time: other content of the folder is then left over.
fn lock(folder: &Path) -> Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join("lock"))?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!(
            "another `cargo xtask fresh` is running in {}",
            folder.display()
        );
    }
    Ok(file)
}

fn try_in(
    release: Release,
    goal: &Goal,
    machine: &MachineParts,
    runner: &Runner,
    folder: &Path,
) -> Result<()> {
    let say = |what: &str| println!("fresh: Debian {}: {what}", release.number());
    let log = folder.join(format!("debian-{}.log", release.number()));
    // An old log must not be taken for this run's.
    File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;

    say(&format!("making a root with {}", machine.bootstrap()));
    let root = Root::make(release.suite(), machine, runner, folder, &log)?;
    match goal {
        Goal::Make(goal) => {
            say("unpacking what is committed");
            root.unpack_sources()?;

            say(&format!("`make {goal}` by a user who may not install"));
            let output = runner
                .output(root.enter(machine, USER, &["make", goal]), &log)
                .context("`make` as a user cannot be run")?;
            check_refusal(&output)?;

            say(&format!("`make {goal}` by root (log: {})", log.display()));
            runner.run(root.enter(machine, 0, &["make", goal]), &log)?;
        }
        Goal::Packages(files) => {
            root.copy_in(files)?;
            root.copy_in(&[source_tree::root().join(TRY_PACKAGES)])?;
            say(&format!(
                "installing, using and removing (log: {})",
                log.display()
            ));
            runner.run(root.enter(machine, 0, &["sh", "-x", "./try.sh"]), &log)?;
        }
        Goal::Services(files) => {
            root.copy_in(files)?;
            root.copy_in(&[source_tree::root().join(TRY_SERVICES)])?;
            say("adding systemd");
            let prepare = ["sh", "-x", "./try-service.sh", "prepare"];
            runner.run(root.enter(machine, 0, &prepare), &log)?;
            say(&format!(
                "booting it, with the services (log: {})",
                log.display()
            ));
            service::try_booted(&root, runner, &log)?;
        }
    }
    root.remove()
}

/// Check that a user gets an early error that it cannot be built, with the names of the missing
/// packages.
fn check_refusal(output: &run::Output) -> Result<()> {
    ensure!(!output.success, "a user without a compiler was not stopped");
    for expected in [
        "cannot be built without",
        " gcc ",
        " clang ",
        " libelf-dev ",
    ] {
        ensure!(
            output.text.contains(expected),
            "a user was stopped, but not told {expected:?}: {}",
            output.text.trim()
        );
    }
    ensure!(
        !output.text.contains("Compiling"),
        "a user was stopped in the middle of the build"
    );
    Ok(())
}

#[cfg(test)]
mod tests;
