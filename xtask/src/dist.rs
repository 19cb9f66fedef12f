//! The files of an installation, and tarballs of them: one of indef, one of its laboratory.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use source_tree::{release_binary, root, target};

/// Both programs contain parts under it: indef its BPF programs, indef-lab the patches of
/// `kernel/`.
const LICENCES: [&str; 3] = ["LICENSE-MIT", "LICENSE-APACHE", "LICENSE-GPL-2.0"];

/// Build indef for release and put all installed files below `folder`, laid out as below a prefix
/// like /usr/local.
pub(crate) fn stage(folder: &Path) -> Result<()> {
    let binary = release_binary("indef")?;
    copy(&binary, &folder.join("bin/indef"))?;

    let man = folder.join("share/man/man1");
    fs::create_dir_all(&man)?;
    run(Command::new(&binary).args(["generate", "man"]).arg(&man))?;

    let completions = tempfile::tempdir()?;
    run(Command::new(&binary)
        .args(["generate", "completions"])
        .arg(completions.path()))?;
    for (generated, place) in [
        ("indef.bash", "share/bash-completion/completions/indef"),
        ("_indef", "share/zsh/site-functions/_indef"),
        ("indef.fish", "share/fish/vendor_completions.d/indef.fish"),
    ] {
        copy(&completions.path().join(generated), &folder.join(place))?;
    }

    let docs = folder.join("share/doc/indef");
    let pages = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ];
    for name in pages.iter().chain(&LICENCES) {
        copy(&root().join(name), &docs.join(name))?;
    }
    copy_files(&root().join("docs"), &docs.join("docs"))?;
    copy_files(
        &root().join("packaging/systemd"),
        &folder.join("lib/systemd/system"),
    )
}

/// The same for indef-lab, which is installed beside indef.
pub(crate) fn stage_lab(folder: &Path) -> Result<()> {
    let binary = release_binary("indef-lab")?;
    copy(&binary, &folder.join("bin/indef-lab"))?;
    let docs = folder.join("share/doc/indef-lab");
    for name in ["docs/lab.md", "docs/flashd.md"].iter().chain(&LICENCES) {
        copy(&root().join(name), &docs.join(name))?;
    }
    Ok(())
}

/// Make `target/dist/indef-VERSION-ARCH-linux.tar.gz`, and `indef-lab-…`.
pub(crate) fn tarballs() -> Result<()> {
    tarball("indef", stage)?;
    tarball("indef-lab", stage_lab)
}

fn tarball(program: &str, stage: fn(&Path) -> Result<()>) -> Result<()> {
    let name = format!(
        "{program}-{}-{}-linux",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    let dist = target().join("dist");
    let folder = dist.join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    stage(&folder)?;
    let tarball = dist.join(format!("{name}.tar.gz"));
    // Owners and order fixed: the same tree gives the same tarball wherever it is made.
    run(Command::new("tar")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg("--create")
        .arg("--gzip")
        .arg("--file")
        .arg(&tarball)
        .arg("--directory")
        .arg(&dist)
        .arg(&name))?;
    println!("{}", tarball.display());
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a path without a parent")?)?;
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// The files (not the folders) directly in `from`.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
