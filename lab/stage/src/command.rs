//! Programs of this machine.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::StageError;

/// The output of a command that succeeds.
///
/// # Errors
///
/// It cannot be started, or it fails; what it wrote to stderr is in the error.
pub fn text(command: &mut Command) -> Result<String, StageError> {
    let program = PathBuf::from(command.get_program());
    let output = command
        .env("PATH", path_with_sbin())
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(source) => return Err(StageError::Start { program, source }),
    };
    if !output.status.success() {
        return Err(StageError::Program {
            program,
            status: output.status,
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    String::from_utf8(output.stdout).map_err(|error| StageError::Said {
        what: program.display().to_string(),
        text: String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// `PATH` with the folders of root's programs, which a user's may not have.
#[must_use]
pub fn path_with_sbin() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_what_the_program_said() {
        let said = text(Command::new("sh").args(["-c", "echo out; echo why >&2"]));
        assert_eq!(said.unwrap(), "out\n");
        let error = text(Command::new("sh").args(["-c", "echo why >&2; exit 3"]));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("sh: exit status: 3\nwhy"), "{error}");
        let error = text(&mut Command::new("/no/such/program")).unwrap_err();
        assert!(error.to_string().contains("is it installed?"), "{error}");
    }
}
