//! A device with a volatile cache: flashd's, as a file through FUSE or as NVMe disks, with a recording of all
//! its commands.
//!
//! A cut is a mark in the recording. Data that was flushed before it is durable. A flush is recorded before
//! it is acknowledged, so nothing that was acknowledged before the cut began comes after its mark. Of data
//! that was written and not flushed, any blocks may be there.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use flashd::record::{Form, Keep, Walk};

use super::{
    nvme::Controller,
    process::{Attach, Beginning, DONE, END, MARK, READABLE, UNREADABLE},
    state::{CutState, Left},
};
use crate::lock::lock;

/// States of a cut with some of the volatile blocks, in addition to those with all and none.
const REORDERED: u64 = 3;

/// See the module. The process ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Cache {
    files: Vec<PathBuf>,
    form: Form,
    /// Bytes of each namespace.
    sizes: Box<[u64]>,
    marks: AtomicU32,
    // Dropped before the process that serves it.
    controller: Option<Controller>,
    // Dropped before the folder of its file.
    process: Mutex<Process>,
    folder: tempfile::TempDir,
    /// The file of the state that it began with, removed with it.
    _store: Option<tempfile::TempPath>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Cache {
    /// Start a device: `program` is the hammer; its files lie in `folder`.
    pub(super) fn start(
        program: &Path,
        folder: &Path,
        attach: Attach,
        beginning: Beginning,
    ) -> Result<Self> {
        let links = folder;
        let folder = tempfile::Builder::new()
            .prefix("cache-")
            .tempdir_in(folder)?;
        let mut command = Command::new(program);
        command.arg("medium").arg(folder.path());
        command.arg(attach.as_str());
        if let Some(store) = &beginning.store {
            command.arg("--store").arg(store);
        }
        command.args(beginning.namespaces.iter().map(ToString::to_string));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A signal from the terminal is for the hammer, which ends the device in order.
        let mut child = command.process_group(0).spawn().context("the medium")?;
        let questions = child.stdin.take();
        let answers = child.stdout.take().context("the medium has no output")?;
        let mut process = Process {
            child,
            questions,
            answers: BufReader::new(answers),
        };
        let place = process.answer()?;
        let words: Vec<&str> = place.split(' ').collect();
        let controller = match (attach, &words[..]) {
            (Attach::Nvme, [port, nqn, disks]) => {
                Some(Controller::connect(port, nqn, disks.parse()?, links)?)
            }
            _ => None,
        };
        let files = match &controller {
            Some(controller) => controller.disks().to_vec(),
            None => vec![place.into()],
        };
        Ok(Self {
            files,
            form: beginning.form(),
            sizes: { beginning.namespaces.iter() }
                .map(|namespace| namespace.bytes)
                .collect(),
            controller,
            marks: 0.into(),
            process: Mutex::new(process),
            folder,
            _store: beginning
                .store
                .map(tempfile::TempPath::try_from_path)
                .transpose()?,
        })
    }

    /// The file for loop devices, or the disks.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    pub(super) fn is_disk(&self) -> bool {
        self.controller.is_some()
    }

    /// Set a mark and return its name.
    pub(super) fn mark(&self) -> Result<String> {
        let number = self.marks.fetch_add(1, Ordering::Relaxed);
        let name = format!("cut{number}");
        lock(&self.process).ask(&format!("{MARK}{name}"))?;
        Ok(name)
    }

    /// Let the block at this offset be unreadable. The namespaces follow each other, as the disks of a file
    /// system do. A command that reads it fails after a while.
    pub(super) fn make_unreadable(&self, mut offset: u64, delay: Duration) -> Result<()> {
        for (id, size) in (1..).zip(&self.sizes) {
            if offset < *size {
                let question = format!("{UNREADABLE}{id} {offset} {}", delay.as_nanos());
                lock(&self.process).ask(&question)?;
                return Ok(());
            }
            offset -= size;
        }
        bail!("{offset} is past the end of the last disk");
    }

    /// Let everything be readable again; returns the number of commands that failed.
    pub(super) fn make_readable(&self) -> Result<u64> {
        Ok(lock(&self.process).ask(READABLE)?.parse()?)
    }

    /// End the recording and the device.
    pub(super) fn end(self) -> Result<Recorded> {
        let mut process = self.process.into_inner().unwrap_or_else(|e| e.into_inner());
        drop(self.controller);
        process.ask(END)?;
        drop(process);
        let recording = self.folder.path().join("recording");
        let (form, folder) = (self.form, self.folder);
        let walk = Walk::open(&recording, &folder.path().join("base"), form)?;
        // Nothing else needs its name.
        fs::remove_file(&recording)?;
        Ok(Recorded { walk, form, folder })
    }
}

impl Process {
    fn ask(&mut self, question: &str) -> Result<String> {
        let questions = self.questions.as_mut().context("the medium has ended")?;
        writeln!(questions, "{question}").context("the medium")?;
        self.answer()
    }

    /// The part of the answer after "done".
    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("the medium")?;
        ensure!(!line.is_empty(), "the medium has ended");
        let rest = line.trim_end().strip_prefix(DONE);
        let rest = rest.with_context(|| format!("the medium: {}", line.trim_end()))?;
        Ok(rest.trim_start().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends when its input is closed.
        self.questions = None;
        let _ = self.child.wait();
    }
}

/// The recording of a device.
#[derive(Debug)]
pub(crate) struct Recorded {
    walk: Walk,
    form: Form,
    folder: tempfile::TempDir,
}

impl Recorded {
    /// The states at a mark (marks are passed in order): only the durable data, everything that was
    /// written, and some states between; each once, if fewer are possible.
    pub(super) fn states(&mut self, mark: &str, seed: u64) -> Result<Vec<CutState>> {
        self.walk.go_to(mark)?;
        let ways = [Keep::Durable, Keep::Everything].into_iter();
        let reordered = (0..REORDERED).map(|number| Keep::Reordered(seed.wrapping_add(number)));
        let mut states = Vec::new();
        for keep in ways.chain(reordered) {
            let file = self.folder.path().join(format!("{mark}.{}", states.len()));
            let replayed = self.walk.state(keep, &file)?;
            let (volatile, lost) = (replayed.volatile_bytes, replayed.left_out_bytes);
            let known = match keep {
                Keep::Durable => false,
                Keep::Everything => volatile == 0,
                Keep::Reordered(_) => lost == 0 || lost == volatile,
            };
            if known {
                fs::remove_file(&file)?;
                continue;
            }
            let what = format!(", {keep:?}: {lost} of {volatile} volatile bytes lost");
            let left = match self.form {
                Form::Image => Left::Image(file),
                Form::Store => Left::Store(file),
            };
            states.push(CutState { what, left });
        }
        Ok(states)
    }
}
