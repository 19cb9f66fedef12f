//! A root that is booted: systemd is its first process, and a script the only thing that it is for.
//!
//! It needs no virtual machine: namespaces are enough for all that the units ask systemd for, but for limits of memory
//! where this machine's control groups are those of version 1, and its kernel is the one that indef moves files with.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{root::Root, run::Runner};

const BOOT: &str = include_str!("boot.sh");
/// The control group of a booted root.
const GROUP: &str = "indef-fresh";
/// In seconds: a system that does not come up, or never ends, is given up.
const LONGEST: u32 = 1800;
/// Where the script's output goes, in the root.
const LOG: &str = "srv/indef/service.log";

const TARGET: &str = "[Unit]
Description=Nothing but a script
Requires=basic.target
Wants=fresh.service
After=basic.target
AllowIsolate=yes
";

/// The status of the script becomes that of systemd.
const UNIT: &str = "[Unit]
Description=The script
After=basic.target
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
WorkingDirectory=/srv/indef
Environment=HOME=/root
ExecStart=/bin/sh -x ./try-service.sh
StandardOutput=append:/srv/indef/service.log
StandardError=append:/srv/indef/service.log
TimeoutStartSec=infinity
";

/// Whether roots can be booted here; else what is missing.
pub(super) fn can_boot() -> Result<(), String> {
    let groups = groups().ok_or(
        "no control groups of version 2 are mounted here, and without them systemd does not start",
    )?;
    let probe = groups.join(format!("{GROUP}-probe"));
    fs::create_dir(&probe)
        .and_then(|()| fs::remove_dir(&probe))
        .map_err(|error| {
            format!(
                "no control group can be made in {}: {error}",
                groups.display()
            )
        })?;
    let kinds = ["--cgroup", "--mount", "--pid", "--uts", "--ipc", "--fork"];
    let made = Command::new("unshare").args(kinds).arg("true").output();
    match made {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "no namespaces can be made here: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("unshare(1): {error}")),
    }
}

/// Where control groups of version 2 are mounted.
fn groups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect());
    mounts.find_map(|fields: Vec<&str>| match fields[..] {
        [_, point, "cgroup2", ..] => Some(point.into()),
        _ => None,
    })
}

/// Boot the root, in which everything is installed, and let it run its script.
pub(super) fn try_booted(root: &Root, runner: &Runner, log: &Path) -> Result<()> {
    let groups = groups().context("no control groups of version 2 are mounted here")?;
    let group = groups.join(GROUP);
    // Of a run that was killed. There is one run at a time.
    remove_groups(&group);
    root.write("etc/systemd/system/fresh.target", TARGET)?;
    root.write("etc/systemd/system/fresh.service", UNIT)?;
    // systemd makes one if this is empty.
    root.write("etc/machine-id", "")?;
    root.write(LOG, "")?;
    let mut boot = Command::new("timeout");
    boot.args([
        "--kill-after=10",
        &LONGEST.to_string(),
        "sh",
        "-c",
        BOOT,
        "sh",
    ])
    .arg(root.folder())
    .arg(&group);
    let booted = runner.output(boot, log);
    remove_groups(&group);
    let said = fs::read_to_string(root.folder().join(LOG)).unwrap_or_default();
    File::options()
        .append(true)
        .open(log)?
        .write_all(said.as_bytes())?;
    let booted = booted?;
    for line in said.lines().filter(|line| line.starts_with("=== ")) {
        println!("  | {line}");
    }
    if !booted.success || !said.contains("=== all of it works") {
        let lines: Vec<&str> = said.lines().collect();
        for line in &lines[lines.len().saturating_sub(90)..] {
            println!("  | {line}");
        }
        bail!(
            "the script failed, or systemd did; all of it is in {}",
            log.display()
        );
    }
    Ok(())
}

/// Remove a control group with all below it, as far as no process is in it.
fn remove_groups(group: &Path) {
    let Ok(entries) = fs::read_dir(group) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}
