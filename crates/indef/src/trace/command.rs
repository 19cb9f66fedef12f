//! The traced command: it is held back until the collector knows it, so that none of its accesses
//! escapes, and executes the program only then.

use std::{
    cell::RefCell,
    convert::Infallible,
    env,
    ffi::OsString,
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use crate::{
    args::HeldArgs,
    outcome::Outcome,
    output::{Console, Name},
};

/// Exit status of a shell whose command is not found; ours until the command has been executed.
const NOT_STARTED: i32 = 127;

/// A traced command.
pub(super) struct Traced {
    child: RefCell<Child>,
    pid: Pid,
    name: OsString,
}

impl Traced {
    /// Start the command, held back. Where stdout is for one document, what it prints goes to stderr.
    pub(super) fn start(command: &[OsString], console: &Console) -> Result<Self> {
        let own = env::current_exe().context("cannot find this program to start the command")?;
        let child = Command::new(own)
            .arg("held")
            .arg("--")
            .args(command)
            .stdout(match console.json {
                true => io::stderr().into(),
                false => Stdio::inherit(),
            })
            .spawn()
            .context("cannot start the command")?;
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("the command has no process number")?;
        let traced = Self {
            child: RefCell::new(child),
            pid,
            name: command.first().cloned().unwrap_or_default(),
        };
        // Without WNOWAIT, which leaves the end of a child for `wait`, a stop could not be
        // distinguished from an end; a held child only ever stops here.
        match waitpid(Some(pid), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => Ok(traced),
            Ok(_) => bail!("the command ended before it began"),
            Err(error) => Err(anyhow!("waiting for the command: {error}")),
        }
    }

    /// Its process number.
    pub(super) fn id(&self) -> u32 {
        self.child.borrow().id()
    }

    /// Let it continue.
    pub(super) fn go_on(&self) -> Result<()> {
        kill_process(self.pid, Signal::CONT).context("cannot let the command go on")
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.child.borrow_mut().try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Wait for its end, and report how it ended if it did not succeed.
    pub(super) fn wait(self, console: &Console) -> Result<()> {
        let mut child = self.child.into_inner();
        if matches!(child.try_wait(), Ok(None)) {
            console.note("tracing has ended; the command still runs, waiting for its end");
        }
        let status = child.wait().context("waiting for the command")?;
        if status.code() == Some(NOT_STARTED) {
            bail!(
                "{}: the command could not be run, or ended with status {NOT_STARTED} as a shell does that finds none",
                Name(self.name.as_ref())
            );
        }
        if let Some(how) = ended_badly(status) {
            console.note(format_args!("the command {how}"));
        }
        Ok(())
    }
}

fn ended_badly(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("ended with status {code}")),
        (None, Some(signal)) => Some(format!("was ended by signal {signal}")),
        (None, None) => Some("ended in an unknown way".to_owned()),
    }
}

/// Stop; once continued, become the command.
pub(crate) fn held(args: &HeldArgs) -> Result<Outcome> {
    let Err(error) = hold(args);
    let name = args.command.first().cloned().unwrap_or_default();
    eprintln!("indef: {}: cannot be run: {error}", Name(name.as_ref()));
    std::process::exit(NOT_STARTED);
}

fn hold(args: &HeldArgs) -> io::Result<Infallible> {
    kill_process(getpid(), Signal::STOP)?;
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or(io::ErrorKind::InvalidInput)?;
    Err(Command::new(program).args(arguments).exec())
}
