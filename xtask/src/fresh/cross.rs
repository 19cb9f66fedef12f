//! Packages for 64-bit ARM, built in a root of Debian on a machine of another kind, and tried there by emulation.
//!
//! A compiler and its library for another machine have to be of one version. Debian's are, in one archive, and its
//! backports have them new enough; so neither this machine nor its toolchain needs anything for it. The root has
//! this machine's sources and the packages that cargo fetched here.

use std::{fs::File, path::Path, process::Command};

use anyhow::{Context, Result, ensure};

use super::{
    machine::MachineParts,
    root::Root,
    run::{Output, Runner},
};
use crate::{packages, sources};

/// The script that does it in the root; its first argument is one of the steps.
const SCRIPT: &str = "packaging/cross.sh";
/// Debian's name of the machine that the packages are for.
const MACHINE: &str = "arm64";
/// The release of the root, and where its compiler of Rust comes from.
const SUITES: [&str; 2] = ["trixie", "trixie-backports"];
/// The beginning of the line in which the script says what cannot be had.
const SKIPPED: &str = "skipped: ";
/// The beginning of a line that says what is done, or what was found.
const TOLD: &str = "=== ";

/// Build the packages and try them; they are below target/packages afterwards.
///
/// # Errors
///
/// A step has failed. That the archive has nothing for that machine is no error: it is told as a skip.
pub(super) fn run(machine: &MachineParts, runner: &Runner, folder: &Path) -> Result<()> {
    let log = folder.join("cross.log");
    File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    ensure!(
        machine.architecture != MACHINE,
        "this machine is one for which `cargo xtask packages` builds them"
    );
    say(&format!("making a root with {}", machine.bootstrap()));
    let root = Root::make(SUITES[0], machine, runner, folder, &log)?;
    let architectures = format!("{} {MACHINE}", machine.architecture);
    root.write(
        "etc/apt/sources.list.d/debian.sources",
        machine.mirror.entry(&SUITES, &architectures),
    )?;
    root.unpack_sources()?;

    say("installing compilers and an emulator");
    let prepared = runner.output(step(&root, machine, "prepare"), &log)?;
    if let Some(lack) = lack(&prepared) {
        say(&format!("skipped: {lack}"));
        return root.remove();
    }
    ensure!(
        prepared.success,
        "they cannot be installed; all of it is in {}",
        log.display()
    );
    say(&format!("building (log: {})", log.display()));
    runner.run(step(&root, machine, "build"), &log)?;
    for kind in ["programs", "guests"] {
        say(&format!("trying {kind} under emulation"));
        let tried = runner.output(step(&root, machine, kind), &log)?;
        for line in tried.text.lines().filter(|line| line.starts_with(TOLD)) {
            println!("  | {line}");
        }
        if let Some(lack) = lack(&tried) {
            say(&format!("{kind} skipped: {lack}"));
            continue;
        }
        ensure!(
            tried.success,
            "{kind} failed; all of it is in {}",
            log.display()
        );
    }
    let made = packages::take_over(&root.folder().join("srv/indef/target/packages"))?;
    for file in made {
        println!("{}", file.display());
    }
    say("passed");
    root.remove()
}

fn say(what: &str) {
    println!("fresh: cross: {what}");
}

/// A step of the script, with the root's own compilers.
fn step(root: &Root, machine: &MachineParts, name: &str) -> Command {
    let mut enter = root.enter(machine, 0, &["sh", SCRIPT, name]);
    enter.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    // The sources there are no checkout.
    if let Some(commit) = sources::commit() {
        enter.env(sources::COMMIT, commit);
    }
    enter
}

/// The thing for want of which a step ended.
fn lack(output: &Output) -> Option<&str> {
    let mut lines = output.text.lines();
    let told = lines.find_map(|line| line.strip_prefix(SKIPPED));
    told.filter(|_| !output.success)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

    use super::*;

    /// What `prepare` comes to where apt's programs do this.
    fn prepared(apt_get: &str, apt_cache: &str) -> Output {
        let folder = tempfile::tempdir().unwrap();
        for (name, what) in [("apt-get", apt_get), ("apt-cache", apt_cache), ("dpkg", "")] {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{what}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let ran = Command::new("/bin/sh")
            .arg(source_tree::root().join(SCRIPT))
            .arg("prepare")
            .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        Output {
            success: ran.status.success(),
            text: String::from_utf8_lossy(&text).into_owned(),
        }
    }

    #[test]
    fn only_what_the_archive_lacks_is_skipped() {
        let has = |suites: &[(&str, &str)]| {
            let of = |(suite, machine): &(&str, &str)| {
                format!(
                    "echo '     release v=13.1,o=Debian,a=stable,n={suite},l=Debian,c=main,b={machine}'"
                )
            };
            suites.iter().map(of).collect::<Vec<_>>().join("\n")
        };
        let backports = SUITES[1];
        let all = [
            ("trixie", "arm64"),
            (backports, "amd64"),
            (backports, "arm64"),
        ];
        let whole = prepared("", &has(&all));
        assert!(whole.success, "{}", whole.text);
        // A mistake in the names of packages, say.
        let refuses = "[ \"$1\" != install ]";
        let refused = prepared(refuses, &has(&all));
        assert!(!refused.success && refused.text.contains("FAILED: apt cannot install"));
        assert_eq!(lack(&refused), None, "{}", refused.text);
        // No mirror of them.
        for (without, lacks) in [
            (0, "no trixie for arm64"),
            (2, "no trixie-backports for arm64"),
        ] {
            let mut some = all.to_vec();
            some.remove(without);
            let lacking = prepared(refuses, &has(&some));
            let told = lack(&lacking).unwrap_or_default();
            assert!(told.contains(lacks), "{}", lacking.text);
        }
        let unread = prepared("[ \"$1\" != update ]", &has(&all));
        assert!(lack(&unread).is_some(), "{}", unread.text);
    }

    #[test]
    fn only_a_step_that_ended_lacks_something() {
        let output = |success, text: &str| Output {
            success,
            text: text.to_owned(),
        };
        let text = "apt says no\nskipped: Debian has no compiler\n";
        let ended = output(false, text);
        assert_eq!(lack(&ended), Some("Debian has no compiler"));
        assert_eq!(lack(&output(true, text)), None);
        assert_eq!(lack(&output(false, "it failed\n")), None);
    }

    #[test]
    fn the_script_knows_the_steps() {
        let script = fs::read_to_string(source_tree::root().join(SCRIPT)).unwrap();
        for step in ["prepare", "build", "programs", "guests"] {
            assert!(script.contains(&format!("\n{step})")), "{step}");
        }
    }
}
