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
        &root().join("docs/experiments"),
        &docs.join("docs/experiments"),
    )?;
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
    pack(&folder, &tarball)?;
    println!("{}", tarball.display());
    Ok(())
}

/// Pack a folder. Equal files give the same tarball wherever and whenever it is made: order, owners, times and
/// permissions are fixed. (Whether a program is equal is up to the compiler, and to the folder in which
/// it was built.)
fn pack(folder: &Path, tarball: &Path) -> Result<()> {
    let context = || format!("{}: no name", folder.display());
    let (parent, name) = (folder.parent(), folder.file_name());
    // See https://reproducible-builds.org/specs/source-date-epoch/.
    let time = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| "0".to_owned());
    run(Command::new("tar")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{time}"))
        .args(["--mode=u=rwX,go=rX", "--format=gnu"])
        .args(["--use-compress-program", "gzip --no-name"])
        .arg("--create")
        .arg("--file")
        .arg(tarball)
        .arg("--directory")
        .arg(parent.with_context(context)?)
        .arg(name.with_context(context)?))
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

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt, time::SystemTime};

    use super::*;

    #[test]
    fn equal_files_give_the_same_tarball() {
        let folder = tempfile::tempdir().unwrap();
        let made = |place: &str, mode: u32, age: u64| {
            let files = folder.path().join(place).join("indef-1");
            for name in ["bin/indef", "share/doc/page"] {
                let file = files.join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(&file, name).unwrap();
                let bits = if name.starts_with("bin") {
                    mode | 0o100
                } else {
                    mode
                };
                fs::set_permissions(&file, Permissions::from_mode(bits)).unwrap();
                let time = SystemTime::now() - std::time::Duration::from_secs(age);
                fs::File::open(&file).unwrap().set_modified(time).unwrap();
            }
            let tarball = folder.path().join(place).join("indef.tar.gz");
            pack(&files, &tarball).unwrap();
            fs::read(tarball).unwrap()
        };
        let first = made("here", 0o644, 0);
        assert_eq!(first, made("there", 0o600, 100_000));
        assert!(first.len() > 100);
    }
}
