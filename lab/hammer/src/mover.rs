//! The movers: indef with arguments from the seed, stopped and killed; or another program.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use workloads::Numbers;

use crate::{
    fray::{FRAY, HOG, fray},
    lock::lock,
    shared::Shared,
};

/// The mover of a round.
#[derive(Clone, Debug)]
pub enum Mover {
    /// None: a violation is then a fault of the kernel or of the hammer.
    None,
    /// This program, with indef's command line.
    Indef(PathBuf),
    /// e4defrag, for comparison.
    E4defrag,
}

/// The work of the movers in a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) runs: u64,
    pub(crate) kills: u64,
    pub(crate) bytes: u64,
    /// Bytes that the device copied for it.
    pub(crate) offloaded: u64,
}

/// The movers of a round.
pub(crate) struct Movers<'a> {
    shared: &'a Shared,
    mover: &'a Mover,
    slow: u32,
    states: tempfile::TempDir,
    children: Mutex<Vec<Child>>,
    moved: Mutex<Moved>,
}

impl<'a> Movers<'a> {
    pub(crate) fn new(shared: &'a Shared, mover: &'a Mover, slow: u32) -> io::Result<Self> {
        Ok(Self {
            shared,
            mover,
            slow,
            states: tempfile::tempdir()?,
            children: Mutex::default(),
            moved: Mutex::default(),
        })
    }

    pub(crate) fn moved(&self) -> Moved {
        *lock(&self.moved)
    }

    /// Run again and again until the round stops. Lane 1 comes and goes, so that at times two run at once.
    pub(crate) fn work(&self, seed: u64, lane: u32) {
        let mut rng = Numbers::stream(seed, 100 + u64::from(lane));
        let mut resume = false;
        // Where free space is to be made whole: it is, or as far as it can be.
        let mut is_whole = true;
        while !self.shared.stopped() {
            if lane > 0 {
                self.rest(rng.between(300, 2000));
            }
            if lane == 0 && self.shared.volume.compacts && (is_whole || rng.percent(30)) {
                fray(self.shared);
            }
            let Some((command, end)) = self.command(&mut rng, lane, resume) else {
                return;
            };
            match self.run(command, end, lane) {
                Ok(status) => {
                    let stopped = status.code() == Some(3) || status.code().is_none();
                    is_whole = status.code() == Some(0);
                    resume = stopped && !resume && rng.percent(50);
                    self.judge(status);
                }
                Err(error) => {
                    self.shared.violation(format!("the mover: {error}"));
                    return;
                }
            }
            self.rest(rng.between(5, 60));
        }
    }

    fn rest(&self, ms: u32) {
        let until = Instant::now() + Duration::from_millis(ms.into());
        while Instant::now() < until && !self.shared.stopped() {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The next run, and how and when to end it if it has not ended by then.
    fn command(
        &self,
        rng: &mut Numbers,
        lane: u32,
        resume: bool,
    ) -> Option<(Command, (u32, Signal))> {
        let root = &self.shared.root;
        let compacts = self.shared.volume.compacts;
        // It looks at the whole volume first.
        let in_parts = self.shared.volume.empties_parts();
        let longest = if compacts && !in_parts { 7500 } else { 2500 };
        let end = (
            rng.between(150, longest) * self.slow,
            rng.weighted(&[(3, Signal::TERM), (1, Signal::KILL)]),
        );
        let mut command = match self.mover {
            Mover::None => return None,
            Mover::E4defrag => {
                let mut command = Command::new("e4defrag");
                command.arg(root);
                // It takes long and cannot be stopped in order.
                return Some((command, (6000, Signal::TERM)));
            }
            Mover::Indef(program) => Command::new(program),
        };
        command.env("STATE_DIRECTORY", self.states.path().join(lane.to_string()));
        command.arg(if compacts { "compact" } else { "run" });
        command.args(["--json", "--progress", "never"]);
        let rate = rng.weighted(&[(2, "1MiB"), (4, "2MiB"), (4, "4MiB"), (3, "16MiB"), (2, "")]);
        let stall = rng.weighted(&[(1, "1"), (2, "5"), (3, "50"), (1, "500")]);
        let policy = rng.weighted(&[(2, "sequential"), (1, "whole")]);
        let jobs = rng.weighted(&[(2, "1"), (1, "2"), (1, "4")]);
        let depth = rng.weighted(&[(1, "1"), (1, "8"), (2, "64")]);
        let budget = rng.weighted(&[(4, ""), (1, "4MiB"), (1, "16MiB")]);
        // Where rows are known, new places are allocated in other ways (ext4, XFS).
        let rows = rng.weighted(&[(2, ""), (1, "16KiB,dies=4"), (1, "64KiB,dies=8")]);
        // A part is more than most budgets, and a pause comes after it.
        let (rate, budget) = if in_parts { ("", "") } else { (rate, budget) };
        if compacts {
            let want = rng.weighted(&[(2, ""), (2, "4MiB"), (2, "12MiB"), (2, "32MiB")]);
            if !in_parts {
                command.args(["--exclude", HOG]);
                // Then actors' files are what lies in the way: most are shared or change, and hardly anything moves.
                if rng.percent(15) {
                    command.args(["--exclude", FRAY]);
                }
            }
            for (option, value) in [("--want", want), ("--budget", budget)] {
                if !value.is_empty() {
                    command.args([option, value]);
                }
            }
            command.arg(root);
        } else if resume {
            command.arg("--resume");
        } else {
            let volume = self.shared.volume;
            if let Some(engine) = volume.offload.or(volume.engine) {
                command.args(["--engine", engine]);
            }
            match volume.reclaims {
                // Any ratio above 0: as much work as there is.
                true => command.args(["--reclaim", "--reclaim-ratio", "0.01"]),
                false => command.args(["--policy", policy]),
            };
            if self.shared.volume.unshares {
                command.arg("--allow-unshare");
            }
            if volume.names {
                command.arg("--shared-among-paths");
            }
            if !budget.is_empty() {
                command.args(["--budget", budget]);
            }
            if !rows.is_empty() && !volume.reclaims {
                command.args(["--geometry", &format!("striped:granule={rows}")]);
            }
            command.arg(root);
        }
        command.args(["--max-stall", stall, "--jobs", jobs, "--queue-depth", depth]);
        if !rate.is_empty() {
            command.args(["--rate", rate]);
        }
        Some((command, end))
    }

    fn run(&self, mut command: Command, end: (u32, Signal), lane: u32) -> io::Result<ExitStatus> {
        let path = |name: &str| self.states.path().join(format!("{lane}.{name}"));
        let (out, err) = (path("out"), path("err"));
        command.env("LC_ALL", "C").stdin(Stdio::null());
        // A signal from the terminal is only for the hammer.
        command.process_group(0);
        command.stdout(File::create(&out)?);
        command.stderr(File::create(&err)?);
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        self.shared
            .note(format!("mover {lane}: {}", words.join(" ")));
        let child = command.spawn()?;
        let id = child.id();
        lock(&self.children).push(child);
        let (ms, signal) = end;
        let begun = Instant::now();
        let mut ended = false;
        let status = loop {
            if let Some(status) = self.reap(id)? {
                break status;
            }
            let over = begun.elapsed() > Duration::from_millis(ms.into());
            if !ended && (over || self.shared.stopped()) {
                let signal = if over { signal } else { Signal::TERM };
                self.signal(signal, Some(id));
                ended = true;
            }
            thread::sleep(Duration::from_millis(3));
        };
        self.count(&out);
        let said = fs::read_to_string(&err).unwrap_or_default();
        let last = said.lines().last().unwrap_or_default();
        self.shared.note(format!("mover {lane}: {status} {last}"));
        if said.contains("panicked at") {
            self.shared.violation(format!("the mover: {said}"));
        }
        Ok(status)
    }

    /// Reap a child that has ended and return its status.
    fn reap(&self, id: u32) -> io::Result<Option<ExitStatus>> {
        let mut children = lock(&self.children);
        let Some(at) = children.iter().position(|child| child.id() == id) else {
            return Ok(None);
        };
        let status = children[at].try_wait()?;
        if status.is_some() {
            children.remove(at).wait()?;
        }
        Ok(status)
    }

    /// Send a signal to one or all. They cannot be gone: reaping takes the same lock.
    pub(crate) fn signal(&self, signal: Signal, only: Option<u32>) {
        let children = lock(&self.children);
        let chosen = children
            .iter()
            .filter(|child| only.is_none_or(|id| child.id() == id));
        for child in chosen {
            if signal == Signal::KILL {
                self.shared.model().mover_halted();
                lock(&self.moved).kills += 1;
            }
            if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                let _ = kill_process(pid, signal);
            }
        }
    }

    fn count(&self, out: &Path) {
        let mut moved = lock(&self.moved);
        moved.runs += 1;
        let text = fs::read_to_string(out).unwrap_or_default();
        if let Mover::E4defrag = self.mover {
            // It prints the share of each file that is done.
            moved.bytes += text.matches("[ OK ]").count() as u64;
        } else if let Ok(document) = serde_json::from_str::<serde_json::Value>(&text) {
            let totals = match self.shared.volume.compacts {
                true => &document,
                false => &document["totals"],
            };
            let total = |name: &str| totals[name].as_u64().unwrap_or(0);
            moved.bytes += total("bytes_relocated");
            moved.offloaded += total("bytes_offloaded");
            drop(moved);
            self.note_outcomes(&document);
        }
    }

    /// The outcome of files, for the log.
    fn note_outcomes(&self, document: &serde_json::Value) {
        let mut outcomes = BTreeMap::<String, u64>::new();
        for file in document["files"].as_array().into_iter().flatten() {
            let text = |name: &str| file[name].as_str().unwrap_or_default().to_owned();
            let outcome = format!("{} {}", text("status"), text("reason"));
            *outcomes.entry(outcome).or_default() += 1;
        }
        self.shared.note(format!("mover: {outcomes:?}"));
    }

    fn judge(&self, status: ExitStatus) {
        let ours = [Signal::TERM, Signal::KILL].map(Signal::as_raw);
        if let Some(signal) = status.signal()
            && !ours.contains(&signal)
        {
            self.shared.violation(format!("the mover: {status}"));
        }
    }
}
