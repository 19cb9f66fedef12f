//! Programs of the system.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// Run a program of the system and return its output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for word in command.get_args() {
        text.push(' ');
        text.push_str(&word.to_string_lossy());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.env("LC_ALL", "C").stdin(Stdio::null());
    // `btrfs check` looks for the other device with libblkid, whose cache is shared with all other
    // processes and trusted for two seconds.
    command.env("BLKID_FILE", "/dev/null");
    // A signal from the terminal is only for the hammer.
    command.process_group(0);
    let output = command.output().with_context(|| text.clone())?;
    if !output.status.success() {
        bail!(
            "{text}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
