//! Programs of this machine.

use std::process::{Command, Stdio};

use crate::ScratchError;

/// Run a program; returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String, ScratchError> {
    let failed = |output: String| ScratchError::Command {
        command: format!("{command:?}"),
        output,
    };
    let mut to_run = Command::new(command.get_program());
    to_run.args(command.get_args());
    // mkfs and losetup live in sbin, which a user's PATH may not have.
    let path = std::env::var("PATH").unwrap_or_default();
    to_run
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C");
    match to_run.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(failed(format!(
            "{}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))),
        Err(error) => Err(failed(error.to_string())),
    }
}
