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
    let (switch_off, restart) = (package.switch_off(), package.restart());
    let purge = package.purge;
    [
        (
            "postinst",
            format!(
                "#!/bin/sh\nset -e\n{RELOAD}\n\
                 # After an upgrade: the version before.\n\
                 [ \"$1\" = configure ] && [ -n \"$2\" ] || exit 0\n\
                 {restart}"
            ),
        ),
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

    /// What systemd is asked for by a script with these arguments, where it runs; it refuses all.
    fn asked(package: &Package, script: &str, arguments: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let log = file("log").display().to_string();
        fs::write(
            file("systemctl"),
            format!("#!/bin/sh\necho \"$*\" >>'{log}'\nexit 1\n"),
        )
        .unwrap();
        fs::set_permissions(file("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
        let text = { scripts(package).into_iter() }
            .find_map(|(name, text)| (name == script).then_some(text))
            .unwrap();
        let text = text
            .replace("/run/systemd/system", &folder.path().display().to_string())
            .replace("/etc/systemd/system", &file("none").display().to_string());
        let ran = Command::new("/bin/sh")
            .args(["-c", &text, script])
            .args(arguments)
            .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
            .status()
            .unwrap();
        assert!(ran.success(), "{script} {arguments:?}");
        fs::read_to_string(log).unwrap_or_default()
    }

    #[test]
    fn a_running_service_goes_on_with_the_new_program_and_a_silent_systemd_holds_nothing_up() {
        let [indef, flashd] = &PACKAGES;
        let (reload, restart) = ("daemon-reload\n", "try-restart indef-watch.service\n");
        let both = format!("{reload}{restart}");
        assert_eq!(asked(indef, "postinst", &["configure", ""]), reload);
        assert_eq!(asked(indef, "postinst", &["configure", "0.0.9"]), both);
        assert_eq!(asked(flashd, "postinst", &["configure", "0.0.9"]), reload);
        assert_eq!(asked(indef, "prerm", &["upgrade", "0.2.0"]), "");
        let stopped = asked(indef, "prerm", &["remove"]);
        assert!(stopped.starts_with("stop indef.timer "), "{stopped}");
        assert_eq!(asked(indef, "postrm", &["remove"]), reload);
    }

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
