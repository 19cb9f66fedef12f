//! A trace under way, by the installed program: what it costs, what it holds in memory, and what it tells at its end.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use units::Bytes;

use super::cases::{BOUND, Counted, OverheadCase, TestBed};

/// A trace under way.
pub(super) struct Trace {
    child: Option<Child>,
    /// Another process that is traced.
    sleeper: Option<Child>,
    began: Instant,
    busy: Duration,
}

/// The figures that the trace reported at its end.
pub(super) struct Told {
    /// Share of a processor's time.
    pub(super) busy: f64,
    pub(super) one_in: f64,
    pub(super) reads: u64,
    /// In percent of a processor's time, from the beginning.
    pub(super) percent: f64,
}

impl Trace {
    pub(super) fn start(place: &TestBed, case: &OverheadCase) -> Result<Self> {
        let mut command = Command::new(&place.indef);
        command
            .args(["trace", "--json", "--layer", case.layer, "--max-overhead"])
            .arg(BOUND.to_string())
            .arg("-o")
            .arg(&place.profile)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut sleeper = None;
        match case.counts {
            Counted::File => {
                // It has to be there before it is traced.
                fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(&place.file)?;
                command.arg("--path").arg(&place.file);
            }
            Counted::OtherDevice => {
                command.arg("--device").arg(place.other.device());
            }
            Counted::OtherProcess => {
                let child = Command::new("sleep").arg("1000").spawn()?;
                command.arg("--pid").arg(child.id().to_string());
                sleeper = Some(child);
            }
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot run {}", place.indef.display()))?;
        let mut trace = Self {
            child: Some(child),
            sleeper,
            began: Instant::now(),
            busy: Duration::ZERO,
        };
        let limit = Instant::now() + Duration::from_secs(30);
        while trace.attached() < 5 {
            ensure!(Instant::now() < limit, "the trace does not begin");
            sleep(Duration::from_millis(50));
        }
        // Loading the programs is over.
        sleep(Duration::from_millis(300));
        trace.begin();
        Ok(trace)
    }

    /// Begin the measured part.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
        self.busy = self.processor_time();
    }

    pub(super) fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// The descriptions of its descriptors.
    fn descriptors(&self) -> Vec<String> {
        let folder = format!("/proc/{}/fdinfo", self.id());
        let open = fs::read_dir(folder).into_iter().flatten().flatten();
        open.filter_map(|fd| fs::read_to_string(fd.path()).ok())
            .collect()
    }

    /// Programs that are attached.
    fn attached(&self) -> usize {
        let all = self.descriptors();
        all.iter().filter(|text| text.contains("link_id:")).count()
    }

    /// Runs of its programs, and nanoseconds.
    pub(super) fn programs(&self) -> (u64, u64) {
        let all = self.descriptors();
        let programs = all.iter().filter(|text| text.contains("prog_type:"));
        // A link's description names its program, too, but not its runs.
        programs.fold((0, 0), |(runs, time), text| {
            let number = |name| field(text, name).unwrap_or(0);
            (runs + number("run_cnt:"), time + number("run_time_ns:"))
        })
    }

    fn processor_time(&self) -> Duration {
        processor_time(self.id())
    }

    pub(super) fn finish(&mut self, peak: &mut Bytes) -> Result<Told> {
        *peak = (*peak).max(memory(self.id()));
        let busy = self
            .processor_time()
            .saturating_sub(self.busy)
            .as_secs_f64();
        let busy = busy / self.began.elapsed().as_secs_f64();
        let child = self.child.take().context("it was started")?;
        kill_process(Pid::from_child(&child), Signal::INT)?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "indef trace: {}\n{text}",
            output.status
        );
        let document: serde_json::Value =
            serde_json::from_str(&text).context("what indef trace printed")?;
        let totals = &document["totals"];
        let one_in = totals["one_in"].as_f64();
        Ok(Told {
            busy,
            one_in: one_in.context("indef trace does not tell how many it counted")?,
            reads: totals["reads"].as_u64().unwrap_or(0),
            percent: totals["overhead_percent"]
                .as_f64()
                .context("indef trace does not tell its cost")?,
        })
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        for mut child in self.child.take().into_iter().chain(self.sleeper.take()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Processor time of the threads of a process, which all last as long as it does, to the nanosecond
/// (`proc_pid_schedstat` in fs/proc/base.c, v6.1): a tick is 0.1 % of ten seconds.
pub(super) fn processor_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let times = threads.into_iter().flatten().flatten().map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let first = text.split_whitespace().next();
        first.and_then(|time| time.parse().ok()).unwrap_or(0)
    });
    Duration::from_nanos(times.sum())
}

/// Resident memory of a process, and the memory of the BPF maps that it holds. Pages of maps that
/// are mapped, a ring's even twice, count once, with the maps.
fn memory(pid: u32) -> Bytes {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let resident = field(&status, "VmRSS:").unwrap_or(0) * 1024;
    let open = fs::read_dir(process.join("fdinfo"))
        .into_iter()
        .flatten()
        .flatten();
    let maps: u64 = open
        .filter_map(|fd| fs::read_to_string(fd.path()).ok())
        .filter(|text| text.contains("map_id:"))
        .filter_map(|text| field(&text, "memlock:"))
        .sum();
    let mapped = fs::read_to_string(process.join("smaps")).unwrap_or_default();
    Bytes((resident + maps).saturating_sub(mapped_maps(&mapped)))
}

/// Resident pages of BPF maps among the mappings of a process.
fn mapped_maps(smaps: &str) -> u64 {
    let mut of_map = false;
    let mut sum = 0;
    for line in smaps.lines() {
        if let Some(kib) = line.strip_prefix("Rss:") {
            let kib = kib.split_whitespace().next().and_then(|n| n.parse().ok());
            sum += if of_map { kib.unwrap_or(0) * 1024 } else { 0 };
        } else if line.contains('-') {
            of_map = line.ends_with("anon_inode:bpf-map");
        }
    }
    sum
}

pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
