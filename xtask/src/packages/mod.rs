//! Packages for Debian and its relatives, with programs that need nothing of the system: they are
//! linked statically, so neither the age of glibc nor libelf keeps them from starting.

mod deb;
mod notices;
mod package;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use source_tree::{cargo, root, target};

use self::package::PACKAGES;
use crate::{
    command::{output_of, run},
    dist::stage,
};

/// The only machine that they are built for.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Build all packages; beside each its bill of materials, and the checksums of all.
pub(crate) fn build() -> Result<Vec<PathBuf>> {
    let binaries = programs()?;
    let folder = target().join("packages");
    let mut made = Vec::new();
    for package in &PACKAGES {
        let staged = tempfile::tempdir_in(&folder)?;
        let prefix = stage(&binaries, package.options, staged.path(), "/usr")?;
        let parts = notices::parts(package.name, TRIPLE)?;
        let docs = prefix.join("share/doc").join(package.name);
        fs::write(docs.join("copyright"), notices::text(&parts)?)?;
        // dpkg knows what it installed.
        fs::remove_file(docs.join("files"))?;
        let file = deb::pack(package, staged.path(), &folder)?;
        let bill = file.with_extension("cdx.json");
        fs::write(&bill, notices::bill(package.name, &parts)?)?;
        println!("{}", file.display());
        made.extend([file, bill]);
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
    run(&mut command)?;
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
