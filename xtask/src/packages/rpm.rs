//! A package of Fedora, RHEL, openSUSE and their like (rpm), by `rpmbuild`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{
    machine::Machine,
    package::{Package, RELOAD, configuration},
};
use crate::{command::run, dist::time_of_files};

/// Settings of `rpmbuild` by which equal files give the same package, and by which programs stay as they
/// were linked (rpm's own macros, `/usr/lib/rpm/macros`).
const SETTINGS: [&str; 9] = [
    "_buildhost localhost",
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "source_date_epoch_from_changelog 0",
    "__os_install_post %{nil}",
    "debug_package %{nil}",
    "_build_id_links none",
    "_unpackaged_files_terminate_build 1",
    // All versions of rpm in use unpack it.
    "_binary_payload w6.xzdio",
];

/// Pack what is laid out below `folder`.
pub(super) fn pack(
    package: &Package,
    machine: Machine,
    licences: &str,
    folder: &Path,
    into: &Path,
) -> Result<PathBuf> {
    let work = tempfile::tempdir_in(into)?;
    let spec = work.path().join("package.spec");
    fs::write(&spec, text(package, licences, folder)?)?;
    let mut build = Command::new("rpmbuild");
    build.args(["--quiet", "-bb", "--target"]);
    build.arg(format!("{}-linux", machine.name()));
    build
        .arg("--define")
        .arg(format!("_topdir {}", work.path().display()));
    for setting in SETTINGS {
        build.args(["--define", setting]);
    }
    let mut time = time_of_files();
    if time == "0" {
        // rpmbuild takes that for none (4.18, `build/files.c`).
        time = "1".to_owned();
    }
    run(build.arg(&spec).env("SOURCE_DATE_EPOCH", time))?;
    let (version, machine) = (env!("CARGO_PKG_VERSION"), machine.name());
    let name = format!("{}-{version}-1.{machine}.rpm", package.name);
    let file = into.join(&name);
    fs::rename(work.path().join("RPMS").join(machine).join(&name), &file)
        .with_context(|| format!("rpmbuild made no {name}"))?;
    Ok(file)
}

/// Its spec file. Nothing is switched on by itself, and state stays when it is removed.
fn text(package: &Package, licences: &str, folder: &Path) -> Result<String> {
    let Package {
        name,
        summary,
        description,
        recommends,
        ..
    } = package;
    let version = env!("CARGO_PKG_VERSION");
    let (switch_off, restart) = (package.switch_off(), package.restart());
    let mut files = Vec::new();
    list(folder, Path::new("/"), &mut files)?;
    for edited in configuration(folder)? {
        files.retain(|file| *file != edited);
        files.push(format!("%config(noreplace) {edited}"));
    }
    files.sort();
    let files = files.join("\n");
    let folder = folder.display();
    Ok(format!(
        "Name: {name}\n\
         Version: {version}\n\
         Release: 1\n\
         Summary: {summary}\n\
         License: {licences}\n\
         Recommends: {recommends}\n\
         # Programs are static: the scripts need a shell, and no more.\n\
         AutoReqProv: no\n\
         \n\
         %description\n\
         {description}\n\
         \n\
         %install\n\
         cp -a '{folder}/.' '%{{buildroot}}/'\n\
         \n\
         %post\n\
         {RELOAD}\n\
         # After an upgrade.\n\
         [ \"$1\" -ge 2 ] || exit 0\n\
         {restart}\
         \n\
         %preun\n\
         # Not when it is only replaced by a newer one.\n\
         [ \"$1\" = 0 ] || exit 0\n\
         {switch_off}\
         \n\
         %postun\n\
         {RELOAD}\n\
         \n\
         %files\n\
         %defattr(-,root,root)\n\
         {files}\n"
    ))
}

/// The files below `folder` with their names on the system, and the folders that are the package's own.
fn list(folder: &Path, name: &Path, into: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = name.join(entry.file_name());
        if !entry.file_type()?.is_dir() {
            into.push(name.display().to_string());
            continue;
        }
        // All others belong to the system.
        let ours =
            |parent: &Path| parent.starts_with("/usr/share/doc") || parent == Path::new("/etc");
        if name.parent().is_some_and(ours) {
            into.push(format!("%dir {}", name.display()));
        }
        list(&entry.path(), &name, into)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{command::output_of, packages::package::PACKAGES};

    #[test]
    fn equal_files_give_the_same_package() {
        if Command::new("rpmbuild").arg("--version").output().is_err() {
            scratch_fs::skip("there is no rpmbuild (package rpm)");
            return;
        }
        let made = |age: u64| {
            let folder = tempfile::tempdir().unwrap();
            let staged = folder.path().join("staged");
            for name in [
                "etc/indef/indef.toml",
                "usr/bin/indef",
                "usr/share/doc/indef/docs/a.md",
            ] {
                let file = staged.join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(&file, vec![7; 5000]).unwrap();
                let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
                fs::File::open(&file).unwrap().set_modified(time).unwrap();
            }
            let file = pack(&PACKAGES[0], Machine::X86_64, "MIT", &staged, folder.path()).unwrap();
            let asked = |what: &[&str]| {
                let mut rpm = Command::new("rpm");
                // No database of packages is needed, or made.
                rpm.arg("--dbpath").arg(folder.path().join("db"));
                output_of(rpm.arg("-qp").args(what).arg(&file)).unwrap()
            };
            assert_eq!(
                asked(&["--list"]),
                "/etc/indef\n/etc/indef/indef.toml\n/usr/bin/indef\n/usr/share/doc/indef\n/usr/share/doc/indef/docs\n\
                 /usr/share/doc/indef/docs/a.md"
            );
            assert_eq!(asked(&["--configfiles"]), "/etc/indef/indef.toml");
            assert!(asked(&["--info"]).contains("Finds the fragments"));
            let scripts = asked(&["--scripts"]);
            assert!(scripts.contains("systemctl stop 'indef.timer'"));
            assert!(scripts.contains("systemctl try-restart 'indef-watch.service'"));
            assert!(!asked(&["--requires"]).contains(".so"));
            fs::read(file).unwrap()
        };
        assert!(made(0) == made(100_000), "two packages of equal files");
    }
}
