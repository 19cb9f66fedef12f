//! Packages for Debian, for Fedora, and for their relatives, with programs that need nothing of the
//! system: they are linked statically, so neither the age of glibc nor libelf keeps them from starting.

mod deb;
mod notices;
mod package;
mod rpm;
mod twice;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use source_tree::{cargo, root, target};

use self::package::PACKAGES;
use crate::{
    command::{self, output_of},
    dist::stage,
};

/// The only machine that they are built for.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Make packages of Debian and of Fedora below target/packages, with statically linked programs, bills of
/// materials and checksums
#[derive(Args)]
pub(crate) struct Packages {
    /// Build them again from the committed files, in another folder, and compare
    #[arg(long)]
    twice: bool,
}

/// Build them.
pub(crate) fn run(options: &Packages) -> Result<()> {
    let made = build()?;
    match options.twice {
        true => twice::compare(&made),
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

/// Build all packages; for each program its bill of materials, and the checksums of all.
pub(crate) fn build() -> Result<Vec<PathBuf>> {
    let kinds = Kinds::here()?;
    let binaries = programs()?;
    let folder = target().join("packages");
    let mut made = Vec::new();
    for package in &PACKAGES {
        let staged = tempfile::tempdir_in(&folder)?;
        let prefix = stage(&binaries, package.options, staged.path(), "/usr")?;
        let parts = notices::parts(package.name, TRIPLE)?;
        let docs = prefix.join("share/doc").join(package.name);
        fs::write(docs.join("copyright"), notices::text(&parts)?)?;
        // Both package managers know what they installed.
        fs::remove_file(docs.join("files"))?;
        if kinds.rpm {
            let licences = notices::expression(&parts, package.libraries);
            made.push(rpm::pack(package, &licences, staged.path(), &folder)?);
        }
        // After the other: its own files come into the folder.
        if kinds.deb {
            made.push(deb::pack(package, staged.path(), &folder)?);
        }
        let bill = folder.join(format!(
            "{}_{}.cdx.json",
            package.name,
            env!("CARGO_PKG_VERSION")
        ));
        fs::write(&bill, notices::bill(package.name, &parts)?)?;
        made.push(bill);
    }
    for file in &made {
        println!("{}", file.display());
    }
    let sums = checksums(&folder, &made)?;
    fs::write(folder.join("SHA256SUMS"), format!("{sums}\n"))?;
    Ok(made)
}

/// Compile the programs. Paths of this machine are left out of them.
fn programs() -> Result<PathBuf> {
    let home = cargo_home()?;
    let places = [
        (home.join("registry/src"), "/usr/src/crates"),
        (root().to_owned(), "/usr/src/indef"),
    ];
    let (mut rust, mut c) = (vec!["-Ctarget-feature=+crt-static".to_owned()], Vec::new());
    rust.push("-Cstrip=debuginfo".to_owned());
    for (from, to) in places {
        let from = from.display();
        rust.push(format!("--remap-path-prefix={from}={to}"));
        c.push(format!("-ffile-prefix-map={from}={to}"));
    }
    // elfutils of Debian 13 compress with zstd, so there are further libraries.
    let about =
        |what: &str| output_of(Command::new("pkg-config").args(["--static", what, "libelf"]));
    let libdir = about("--variable=libdir")?;
    let libraries = about("--libs")?;
    let further = |word: &&str| word.starts_with("-l") && !["-lelf", "-lz"].contains(word);
    let words = libraries.split_whitespace().filter(further);
    rust.extend(words.map(|word| format!("-Clink-arg={word}")));
    let folder = target().join("packages");
    let mut command = cargo();
    command
        .args(["build", "--release", "--locked", "--target", TRIPLE])
        .arg("--target-dir")
        .arg(&folder)
        .args(["--package", "indef", "--package", "flashd"])
        .args(["--features", "indef/static"])
        .env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"))
        .env("CFLAGS", c.join(" "))
        .env("LIBBPF_SYS_LIBRARY_PATH", libdir);
    command::run(&mut command)?;
    let binaries = folder.join(TRIPLE).join("release");
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
