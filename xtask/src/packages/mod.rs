//! Packages for Debian and its relatives, with programs that need nothing of the system: they are
//! linked statically, so neither the age of glibc nor libelf keeps them from starting.

mod deb;
mod notices;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use source_tree::{cargo, root, target};

use crate::dist::{run, stage};

/// The only machine that they are built for.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// One package.
struct Package {
    /// Its name, also that of its program and of the crate.
    name: &'static str,
    summary: &'static str,
    /// Further lines of its description.
    description: &'static str,
    /// Options of `scripts/install`.
    options: &'static [&'static str],
    /// Packages that it is more useful with.
    recommends: &'static str,
    /// Its unit that is switched on by hand, and has to be off before it is removed.
    unit: &'static str,
    /// A command for the state that is left when it is purged.
    purge: &'static str,
}

const PACKAGES: [Package; 2] = [
    Package {
        name: "indef",
        summary: "defragmenter for flash",
        description: "Finds the fragments that make reads slow on flash, and moves only those, on\n\
                      ext4, XFS, Btrfs and F2FS, while everything runs.",
        options: &[],
        recommends: "e2fsprogs, xfsprogs, btrfs-progs",
        unit: "indef.timer",
        purge: "rm -rf /var/lib/indef",
    },
    Package {
        name: "flashd",
        summary: "software-defined flash SSD over NVMe/TCP",
        description: "A flash device with dies, channels and a translation layer that behaves like\n\
                      one, for measurements and for tests of file systems.",
        options: &["--flashd"],
        recommends: "nvme-cli",
        unit: "flashd@*.service",
        // The content of somebody's SSD stays.
        purge: "rmdir /var/lib/flashd /etc/flashd 2>/dev/null || true",
    },
];

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
    fs::write(folder.join("SHA256SUMS"), sums)?;
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
    let about = |what: &str| output(Command::new("pkg-config").args(["--static", what, "libelf"]));
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
        .env("LIBBPF_SYS_LIBRARY_PATH", libdir.trim());
    run(&mut command)?;
    Ok(folder.join(TRIPLE).join("release"))
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
    output(Command::new("sha256sum").args(names).current_dir(folder))
}

/// A program's standard output.
fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?}: {}: {said}",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}
