//! `indef watch` as its unit starts it: in a session of its own, with the least priority (`Nice=`, `CPUSchedulingPolicy=`,
//! `IOScheduling…=` of `packaging/systemd/indef-watch.service`), and in a control group of its own, by which it tells the
//! pressure of others from its own. Its state is its own, too.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{JoinHandle, sleep},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::measure;

/// A process enters the group before it becomes the service: nothing of it is anywhere else.
const ENTER: &str =
    r#"if [ -n "$1" ]; then echo $$ >"$1/cgroup.procs" || exit; fi; shift; exec "$@""#;
const PRIORITY: [&str; 12] = [
    "setsid", "nice", "-n", "19", "chrt", "--batch", "0", "ionice", "-c", "2", "-n", "7",
];
/// How long it may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A line that it has written, and when it was read.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) at: SystemTime,
    pub(super) text: String,
}

/// A round that moved something, from the history.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) began: SystemTime,
    pub(super) relocated: u64,
    pub(super) written: u64,
}

/// What it has said and done.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub(super) lines: Vec<Line>,
    pub(super) rounds: Vec<Round>,
    /// Processor time of all its threads.
    pub(super) processor: Duration,
}

impl Done {
    /// Bytes that have new blocks.
    pub(super) fn relocated(&self) -> u64 {
        self.rounds.iter().map(|round| round.relocated).sum()
    }

    /// Bytes that this wrote.
    pub(super) fn written(&self) -> u64 {
        self.rounds.iter().map(|round| round.written).sum()
    }

    /// The last line with this part.
    pub(super) fn last(&self, part: &str) -> Option<&str> {
        let mut lines = self.lines.iter().rev().map(|line| line.text.as_str());
        lines.find(|line| line.contains(part))
    }
}

type Lines = Arc<Mutex<Vec<Line>>>;

/// The running service; ended when it is dropped.
pub(super) struct Service {
    child: Child,
    indef: PathBuf,
    lines: Lines,
    reader: Option<JoinHandle<()>>,
    state: TempDir,
    /// After the child: a group with a process in it cannot be removed.
    group: Option<Group>,
}

impl Service {
    /// Start it on a folder, and wait until it has begun.
    pub(super) fn start(indef: &Path, options: &[String], folder: &Path) -> Result<Self> {
        let state = tempfile::tempdir()?;
        let group = Group::make();
        let mut command = Command::new("sh");
        command.args(["-c", ENTER, "sh"]);
        command.arg(group.as_ref().map_or(Path::new(""), |group| &group.0));
        command.args(PRIORITY).arg(indef);
        command.args(["watch", "--progress", "never"]).args(options);
        let mut child = command
            .arg(folder)
            .env("PATH", stage::path_with_sbin())
            .env("STATE_DIRECTORY", state.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run sh")?;
        let said = child.stderr.take().context("a pipe was asked for")?;
        let lines = Lines::default();
        let into = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for text in BufReader::new(said).lines().map_while(Result::ok) {
                let at = SystemTime::now();
                let mut lines = into.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push(Line { at, text });
            }
        });
        let mut service = Self {
            child,
            indef: indef.to_owned(),
            lines,
            reader: Some(reader),
            state,
            group,
        };
        let patience = Instant::now() + PATIENCE;
        while service.said().is_empty() {
            let ended = service.child.try_wait()?;
            ensure!(ended.is_none(), "indef watch has not begun: {ended:?}");
            ensure!(Instant::now() < patience, "indef watch says nothing");
            sleep(Duration::from_millis(5));
        }
        Ok(service)
    }

    /// Whether it can tell the pressure of others from its own.
    pub(super) fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// The lines so far.
    fn said(&self) -> Vec<Line> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clone()
    }

    /// End it as a service manager does, and tell what it did.
    pub(super) fn finish(mut self) -> Result<Done> {
        let processor = measure::processor_time(self.child.id());
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let patience = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(Instant::now() < patience, "indef watch does not end");
            sleep(Duration::from_millis(5));
        };
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let lines = self.said();
        let all: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        ensure!(
            status.success(),
            "indef watch: {status}\n{}",
            all.join("\n")
        );
        let mut history = Command::new(&self.indef);
        history.env("STATE_DIRECTORY", self.state.path());
        let said = measure::text(history.args(["history", "--json"]))?;
        let document: serde_json::Value = serde_json::from_str(&said)?;
        let runs = document["runs"].as_array().context("no runs")?;
        let rounds = runs.iter().map(Round::parse).collect::<Result<_>>()?;
        Ok(Done {
            lines,
            rounds,
            processor,
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Round {
    fn parse(run: &serde_json::Value) -> Result<Self> {
        let number = |name: &str| {
            let number = run[name].as_u64();
            number.with_context(|| format!("a round without {name}: {run}"))
        };
        Ok(Self {
            began: UNIX_EPOCH + Duration::from_nanos(number("started_ns")?),
            relocated: number("bytes_relocated")?,
            written: number("bytes_written")?,
        })
    }
}

/// A control group (version 2) that is removed when it is dropped.
struct Group(PathBuf);

impl Group {
    /// Make one, where the machine lets us.
    fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let of_version_2 = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
        let hierarchy = mounts.lines().find(of_version_2)?.split(' ').nth(1)?;
        let name = format!("indef-bench-{}", std::process::id());
        let group = Path::new(hierarchy).join(name);
        fs::create_dir(&group).ok()?;
        Some(Self(group))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel needs a moment to let the last process go.
        for _ in 0..100 {
            match fs::remove_dir(&self.0) {
                Ok(()) => return,
                Err(_) => sleep(Duration::from_millis(10)),
            }
        }
    }
}

/// How to start it.
#[derive(Args, Clone)]
pub(super) struct ServiceArgs {
    /// Another option of indef watch, like --watch=--max-io-pressure=99, which takes the place of the benchmark's own (may be
    /// given several times)
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    watch: Vec<String>,
}

impl ServiceArgs {
    /// Its options: those that are given, like `--calm=1s`, and `own` ones where none of that name is given.
    pub(super) fn options(&self, own: &[(&str, String)]) -> Vec<String> {
        let name_of = |word: &str| {
            word.trim_start_matches("--")
                .split('=')
                .next()
                .map(str::to_owned)
        };
        let is_given = |name: &str| {
            let mut given = self.watch.iter();
            given.any(|word| name_of(word).as_deref() == Some(name))
        };
        let own = own.iter().filter(|(name, _)| !is_given(name));
        let own = own.map(|(name, value)| format!("--{name}={value}"));
        own.chain(self.watch.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_the_history_are_understood() {
        let run = serde_json::json!({
            "started_ns": 5_000_000_000_u64, "bytes_relocated": 7, "bytes_written": 8, "verb": "watch"
        });
        let round = Round::parse(&run).unwrap();
        assert_eq!(round.began, UNIX_EPOCH + Duration::from_secs(5));
        assert_eq!((round.relocated, round.written), (7, 8));
        // A round that goes on, as after a kill, is no result.
        let run = serde_json::json!({ "started_ns": 5, "bytes_relocated": null });
        assert!(Round::parse(&run).is_err());
    }

    #[test]
    fn what_is_given_takes_the_place_of_ours() {
        let own = [("learn", "2s".to_owned()), ("calm", "3s".to_owned())];
        let watch = vec!["--calm=1s".to_owned(), "--cautious".to_owned()];
        let all = ServiceArgs { watch }.options(&own);
        assert_eq!(all, ["--learn=2s", "--calm=1s", "--cautious"]);
    }
}
