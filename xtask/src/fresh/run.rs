//! Programs that run for minutes: logged, and ended on request.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

/// Interval of the checks of a program.
const TICK: Duration = Duration::from_millis(100);
/// Time limit for a program to end when it is asked to.
const GRACE: Duration = Duration::from_secs(10);
/// Number of lines of a log that are shown after a failure.
const SHOWN: usize = 60;

/// Runs programs until Ctrl-C.
pub(super) struct Runner {
    stopped: Arc<AtomicBool>,
}

/// The result of a program, with its whole output.
pub(super) struct Output {
    pub(super) success: bool,
    pub(super) text: String,
}

impl Runner {
    /// From now on, SIGINT (Ctrl-C), SIGHUP and SIGTERM are seen here.
    pub(super) fn new() -> Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ] {
            signal_hook::flag::register(signal, Arc::clone(&stopped))?;
        }
        Ok(Self { stopped })
    }

    /// Fail once the end was requested.
    pub(super) fn go_on(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        Ok(())
    }

    /// Run to success; the end of the log is shown otherwise.
    pub(super) fn run(&self, command: Command, log: &Path) -> Result<()> {
        let status = self.status(command, log)?;
        if !status.success() {
            let text = fs::read(log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            for line in &lines[lines.len().saturating_sub(SHOWN)..] {
                println!("  | {line}");
            }
            bail!("{status}; all of it is in {}", log.display());
        }
        Ok(())
    }

    /// Run to the end.
    pub(super) fn output(&self, command: Command, log: &Path) -> Result<Output> {
        let start = fs::metadata(log)?.len();
        let status = self.status(command, log)?;
        let mut text = Vec::new();
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(start))?;
        file.read_to_end(&mut text)?;
        Ok(Output {
            success: status.success(),
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }

    /// Run the program in a process group of its own: Ctrl-C in the terminal is for us, and our
    /// reaction reaches the programs that it has started, too.
    fn status(&self, mut command: Command, log: &Path) -> Result<ExitStatus> {
        self.go_on()?;
        let output = File::options().append(true).open(log)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {:?}", command.get_program()))?;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.go_on().is_err() {
                end(&mut child)?;
                bail!("stopped");
            }
            thread::sleep(TICK);
        }
    }
}

/// Ask the group to end, and end it if it does not.
fn end(child: &mut Child) -> io::Result<()> {
    let group = Pid::from_child(child);
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    let asked = Instant::now();
    while asked.elapsed() < GRACE && child.try_wait()?.is_none() {
        thread::sleep(TICK);
    }
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    child.wait().map(drop)
}
