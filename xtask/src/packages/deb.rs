//! A package of Debian (deb(5)), by `dpkg-deb`.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{
    machine::Machine,
    package::{Package, RELOAD, configuration},
};
use crate::{command::run, dist::time_of_files};

/// Pack what is laid out below `folder`. Equal files give the same package: `dpkg-deb` sorts them, and
/// takes their time from `SOURCE_DATE_EPOCH`.
pub(super) fn pack(
    package: &Package,
    machine: Machine,
    folder: &Path,
    into: &Path,
) -> Result<PathBuf> {
    let control = folder.join("DEBIAN");
    fs::create_dir(&control)?;
    fs::write(
        control.join("control"),
        fields(package, machine, kib_below(folder)?),
    )?;
    let configuration = configuration(folder)?;
    if !configuration.is_empty() {
        fs::write(control.join("conffiles"), configuration.join("\n") + "\n")?;
    }
    for (name, text) in scripts(package) {
        let script = control.join(name);
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    let (version, machine) = (env!("CARGO_PKG_VERSION"), machine.debian());
    let name = format!("{}_{version}_{machine}.deb", package.name);
    let file = into.join(name);
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build"])
        .args([folder, &file])
        .env("SOURCE_DATE_EPOCH", time_of_files()))?;
    Ok(file)
}

/// Its control file (deb-control(5)).
fn fields(package: &Package, machine: Machine, kib: u64) -> String {
    let Package {
        name,
        summary,
        description,
        recommends,
        ..
    } = package;
    let (version, machine) = (env!("CARGO_PKG_VERSION"), machine.debian());
    let description = description.replace('\n', "\n ");
    format!(
        "Package: {name}\n\
         Version: {version}\n\
         Architecture: {machine}\n\
         Maintainer: The authors of indef\n\
         Section: admin\n\
         Priority: optional\n\
         Installed-Size: {kib}\n\
         Recommends: {recommends}\n\
         Description: {summary}\n {description}\n"
    )
}

/// Scripts around installation and removal (deb-postinst(5)). Nothing is switched on by itself.
fn scripts(package: &Package) -> [(&'static str, String); 3] {
    let switch_off = package.switch_off();
    let purge = package.purge;
    [
        ("postinst", format!("#!/bin/sh\nset -e\n{RELOAD}\n")),
        (
            "prerm",
            format!(
                "#!/bin/sh\nset -e\n\
                 # Not when it is only replaced by a newer one.\n\
                 [ \"$1\" = remove ] || exit 0\n\
                 {switch_off}"
            ),
        ),
        (
            "postrm",
            format!(
                "#!/bin/sh\nset -e\n{RELOAD}\n\
                 [ \"$1\" = purge ] || exit 0\n\
                 {purge}\n"
            ),
        ),
    ]
}

/// The size of all files in KiB, each rounded up.
fn kib_below(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        sum += match found.is_dir() {
            true => kib_below(&entry.path())?,
            false => found.size().div_ceil(1024),
        };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::package::PACKAGES;

    #[test]
    fn equal_files_give_the_same_package() {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            scratch_fs::skip("there is no dpkg-deb");
            return;
        }
        let made = |age: u64| {
            let folder = tempfile::tempdir().unwrap();
            let staged = folder.path().join("staged");
            for name in ["usr/bin/indef", "etc/indef/indef.toml"] {
                let file = staged.join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(&file, vec![7; 5000]).unwrap();
                let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
                fs::File::open(&file).unwrap().set_modified(time).unwrap();
            }
            let file = pack(&PACKAGES[0], Machine::X86_64, &staged, folder.path()).unwrap();
            let told = |options: &[&str]| {
                let mut tell = Command::new("dpkg-deb");
                let told = tell.arg("--info").arg(&file).args(options).output();
                String::from_utf8(told.unwrap().stdout).unwrap()
            };
            let info = told(&[]);
            assert!(info.contains("Installed-Size: 10\n"), "{info}");
            assert_eq!(told(&["conffiles"]), "/etc/indef/indef.toml\n");
            assert!(info.contains(" Finds the fragments"), "{info}");
            fs::read(file).unwrap()
        };
        assert_eq!(made(0), made(100_000));
    }
}
