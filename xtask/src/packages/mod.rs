//! Packages for Debian, for Fedora, and for their relatives, with programs that need nothing of the
//! system: they are linked statically, so neither the age of glibc nor libelf keeps them from starting.

mod deb;
mod machine;
mod notices;
mod package;
mod rpm;
mod twice;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use source_tree::{cargo, root, target};

use self::{
    machine::Machine,
    package::{PACKAGES, Package},
};
use crate::{
    command::{self, output_of},
    dist::stage,
    sources,
};

/// Make packages of Debian and of Fedora below target/packages, with statically linked programs, bills of
/// materials and checksums
#[derive(Args)]
pub(crate) struct Packages {
    /// Build them again from the committed files, in another folder, and compare
    #[arg(long)]
    twice: bool,
    /// The machine that they are for [default: this one]
    #[arg(long)]
    machine: Option<Machine>,
}

/// Build them.
pub(crate) fn run(options: &Packages) -> Result<()> {
    let machine = options.machine.map_or_else(Machine::own, Ok)?;
    let made = build_for(machine)?;
    match options.twice {
        true => twice::compare(&made, machine),
        false => Ok(()),
    }
}

/// The kinds of packages that this machine can make.
struct Kinds {
    deb: bool,
    rpm: bool,
}

impl Kinds {
    fn here() -> Result<Self> {
        let is_there = |program: &str, package: &str| {
            let there = (Command::new(program).arg("--version").output())
                .is_ok_and(|output| output.status.success());
            if !there {
                eprintln!("packages: no {program} (Debian's package {package}), none of its kind");
            }
            there
        };
        let kinds = Self {
            deb: is_there("dpkg-deb", "dpkg"),
            rpm: is_there("rpmbuild", "rpm"),
        };
        ensure!(kinds.deb || kinds.rpm, "nothing here makes packages");
        Ok(kinds)
    }
}

/// Build all packages for this machine.
pub(crate) fn build() -> Result<Vec<PathBuf>> {
    build_for(Machine::own()?)
}

/// The endings of the names of this machine's packages.
pub(crate) fn endings() -> Result<[String; 2]> {
    let own = Machine::own()?;
    Ok([
        format!("_{}.deb", own.debian()),
        format!(".{}.rpm", own.name()),
    ])
}

/// Copy what [`build_for`] has made in another tree for 64-bit ARM to where it would be here, with the programs.
pub(crate) fn take_over(made: &Path) -> Result<Vec<PathBuf>> {
    let machine = Machine::Aarch64;
    let folder = target().join("packages");
    let programs = Path::new(&machine.triple()).join("release");
    fs::create_dir_all(folder.join(&programs))?;
    let mut taken = Vec::new();
    let sums = format!("SHA256SUMS.{}", machine.name());
    // The lines name the packages and the bills of materials.
    let listed = fs::read_to_string(made.join(&sums))?;
    let listed = listed.lines().filter_map(|line| line.split("  ").nth(1));
    let programs = PACKAGES.iter().map(|package| programs.join(package.name));
    for name in listed
        .map(PathBuf::from)
        .chain([sums.into()])
        .chain(programs)
    {
        let (from, to) = (made.join(&name), folder.join(&name));
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        taken.push(to);
    }
    Ok(taken)
}

/// Build all packages; for each program its bill of materials, and the checksums of all.
fn build_for(machine: Machine) -> Result<Vec<PathBuf>> {
    let kinds = Kinds::here()?;
    let emulator = machine.emulator()?;
    let binaries = programs(machine)?;
    let folder = target().join("packages");
    let mut made = Vec::new();
    for package in &PACKAGES {
        let staged = tempfile::tempdir_in(&folder)?;
        let prefix = stage(
            &binaries,
            emulator.as_deref(),
            package.options,
            staged.path(),
            "/usr",
        )?;
        let parts = notices::parts(package.name, &machine.triple())?;
        let docs = prefix.join("share/doc").join(package.name);
        fs::write(docs.join("copyright"), notices::text(&parts)?)?;
        // Both package managers know what they installed.
        fs::remove_file(docs.join("files"))?;
        if kinds.rpm {
            let licences = notices::expression(&parts, &libraries(package, machine)?);
            made.push(rpm::pack(
                package,
                machine,
                &licences,
                staged.path(),
                &folder,
            )?);
        }
        // After the other: its own files come into the folder.
        if kinds.deb {
            made.push(deb::pack(package, machine, staged.path(), &folder)?);
        }
        let bill = folder.join(format!(
            "{}_{}_{}.cdx.json",
            package.name,
            env!("CARGO_PKG_VERSION"),
            machine.name()
        ));
        fs::write(&bill, notices::bill(package.name, &parts)?)?;
        made.push(bill);
    }
    for file in &made {
        println!("{}", file.display());
    }
    let sums = checksums(&folder, &made)?;
    fs::write(
        folder.join(format!("SHA256SUMS.{}", machine.name())),
        format!("{sums}\n"),
    )?;
    Ok(made)
}

/// Licences of all that is linked into a package's program and no crate.
fn libraries(package: &Package, machine: Machine) -> Result<Vec<&'static str>> {
    let mut licences = package.libraries.to_vec();
    if package.has_libelf {
        let (_, further) = machine.libelf()?;
        for library in &further {
            licences.push(licence_of(library)?);
        }
    }
    Ok(licences)
}

/// The licence (SPDX) of a library that libelf needs.
fn licence_of(library: &str) -> Result<&'static str> {
    match library {
        "-lzstd" => Ok("BSD-3-Clause"),
        other => bail!(
            "libelf.a needs {other} here, whose licence is not known: add it to licence_of, and to the notices (notices.rs)"
        ),
    }
}

/// Compile the programs. Paths of this machine are left out of them.
fn programs(machine: Machine) -> Result<PathBuf> {
    let home = cargo_home()?;
    let places = [
        (home.join("registry/src"), "/usr/src/crates"),
        (root().to_owned(), "/usr/src/indef"),
    ];
    let (mut rust, mut c) = (vec!["-Ctarget-feature=+crt-static".to_owned()], Vec::new());
    // Names of symbols, too: those that link-time optimization makes differ from folder to folder.
    rust.push("-Cstrip=symbols".to_owned());
    for (from, to) in places {
        let from = from.display();
        rust.push(format!("--remap-path-prefix={from}={to}"));
        c.push(format!("-ffile-prefix-map={from}={to}"));
    }
    let (_, libraries) = machine.libelf()?;
    // By name: rustc asks for shared libraries again before these.
    rust.extend(libraries.iter().map(|library| {
        let name = library.trim_start_matches("-l");
        format!("-Clink-arg=-l:lib{name}.a")
    }));
    let folder = target().join("packages");
    let mut command = cargo();
    command.args(["build", "--release", "--locked"]);
    machine.prepare(&mut command, &folder)?;
    command
        .arg("--target-dir")
        .arg(&folder)
        .args(["--package", "indef", "--package", "flashd"])
        .args(["--features", "indef/static"])
        .env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"))
        .env("CFLAGS", c.join(" "));
    // Where the sources are no checkout, the commit is told by who unpacked them.
    if let Some(commit) = sources::commit() {
        command.env(sources::COMMIT, commit);
    }
    command::run(&mut command)?;
    let binaries = folder.join(machine.triple()).join("release");
    for package in &PACKAGES {
        for place in [&home, root()] {
            ensure_unnamed(&binaries.join(package.name), place)?;
        }
    }
    Ok(binaries)
}

/// Make sure that a program does not name a folder of this machine.
fn ensure_unnamed(program: &Path, folder: &Path) -> Result<()> {
    let content = fs::read(program).with_context(|| program.display().to_string())?;
    let name = folder.as_os_str().as_encoded_bytes();
    ensure!(
        !content.windows(name.len()).any(|part| part == name),
        "{} names {}",
        program.display(),
        folder.display()
    );
    Ok(())
}

fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(Path::new(&home).join(".cargo"))
}

fn checksums(folder: &Path, files: &[PathBuf]) -> Result<String> {
    let names = files.iter().filter_map(|file| file.file_name());
    output_of(Command::new("sha256sum").args(names).current_dir(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_a_known_licence_is_not_passed_over() {
        assert_eq!(licence_of("-lzstd").unwrap(), "BSD-3-Clause");
        assert!(
            licence_of("-lsomething")
                .unwrap_err()
                .to_string()
                .contains("-lsomething")
        );
    }
}
