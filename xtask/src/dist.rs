//! Tarballs of indef and of its laboratory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use source_tree::{release_binary, root, target};

use crate::command::run;

/// Make `target/dist/indef-VERSION-ARCH-linux.tar.gz`, and `indef-lab-…`.
pub(crate) fn tarballs() -> Result<()> {
    tarball("indef", &[])?;
    tarball("indef-lab", &["--lab"])
}

/// Lay a program's files out below `folder` as on a machine: below `prefix` in it. The script knows
/// the layout, `options` name the program to it. Programs for another machine need an emulator.
pub(crate) fn stage(
    binaries: &Path,
    emulator: Option<&str>,
    options: &[&str],
    folder: &Path,
    prefix: &str,
) -> Result<PathBuf> {
    run(Command::new("scripts/install")
        .args(options)
        .current_dir(root())
        .env("BINARIES", binaries)
        .env("EMULATOR", emulator.unwrap_or_default())
        .env("DESTDIR", folder)
        .env("PREFIX", prefix))?;
    Ok(folder.join(prefix.trim_start_matches('/')))
}

fn tarball(program: &str, options: &[&str]) -> Result<()> {
    let binary = release_binary(program)?;
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
    let binaries = binary.parent().context("a program without a folder")?;
    let staged = tempfile::tempdir_in(target())?;
    let files = stage(binaries, None, options, staged.path(), "/usr/local")?;
    fs::create_dir_all(&dist)?;
    fs::rename(files, &folder)?;
    let tarball = dist.join(format!("{name}.tar.gz"));
    pack(&folder, &tarball)?;
    println!("{}", tarball.display());
    Ok(())
}

/// The time of all files in what is packed, as `SOURCE_DATE_EPOCH`
/// (<https://reproducible-builds.org/specs/source-date-epoch/>).
pub(crate) fn time_of_files() -> String {
    std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| "0".to_owned())
}

/// Pack a folder. Equal files give the same tarball wherever and whenever it is made: order, owners, times and
/// permissions are fixed. (Whether a program is equal is up to the compiler, and to the folder in which
/// it was built.)
fn pack(folder: &Path, tarball: &Path) -> Result<()> {
    let context = || format!("{}: no name", folder.display());
    let (parent, name) = (folder.parent(), folder.file_name());
    let time = time_of_files();
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

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::fs::{PermissionsExt, symlink},
        time::SystemTime,
    };

    use super::*;

    /// All that is not a folder below this one, without it.
    fn files(folder: &Path) -> Vec<String> {
        let found = Command::new("find")
            .arg(folder)
            .args(["!", "-type", "d", "-printf", "%P\n"])
            .output()
            .unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        let mut files: Vec<String> = found.lines().map(str::to_owned).collect();
        files.sort();
        files
    }

    #[test]
    fn an_installation_is_removed_with_the_links_that_switch_its_units_on() {
        let folder = tempfile::tempdir().unwrap();
        let (binaries, system) = (folder.path().join("release"), folder.path().join("system"));
        fs::create_dir(&binaries).unwrap();
        // It would print man pages and completions.
        let program = "#!/bin/sh\n[ $2 != completions ] || touch \"$3/indef.bash\" \"$3/_indef\" \"$3/indef.fish\"\n";
        fs::write(binaries.join("indef"), program).unwrap();
        fs::set_permissions(binaries.join("indef"), Permissions::from_mode(0o755)).unwrap();
        stage(&binaries, None, &[], &system, "/usr/local").unwrap();
        assert!(system.join("usr/local/bin/indef").is_file());
        let wants = system.join("etc/systemd/system/timers.target.wants");
        fs::create_dir_all(&wants).unwrap();
        let unit = |prefix: &str| format!("{prefix}/lib/systemd/system/indef.timer");
        symlink(unit("/usr/local"), wants.join("indef.timer")).unwrap();
        // A package's, say.
        symlink(unit("/usr"), wants.join("other.timer")).unwrap();
        let state = system.join("var/lib/indef/watch/profile");
        fs::create_dir_all(state.parent().unwrap()).unwrap();
        fs::write(&state, "").unwrap();
        stage(&binaries, None, &["--uninstall"], &system, "/usr/local").unwrap();
        assert_eq!(
            files(&system),
            [
                "etc/systemd/system/timers.target.wants/other.timer",
                "var/lib/indef/watch/profile"
            ]
        );
    }

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
