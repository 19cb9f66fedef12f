//! Measures figures, on several threads or one after the other, with progress; what is done is kept until all are.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::figure::{Figure, FigureError, Measured, Turn, registry};

/// How often to look whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// The part of a figure that is kept until all are done.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// Of this program and the figure's file.
    key: String,
    measured: Measured,
    seconds: f64,
}

/// A figure, its result, and the seconds that it took.
pub(super) type Done = (Figure, Measured, f64);

/// A figure that is to be measured, and its key.
type Due = (Figure, String);

/// Forget what an unfinished run has kept.
pub(super) fn forget(unfinished: &Path) {
    // What stays is used by no other program: its key is of this one.
    let _ = fs::remove_dir_all(unfinished);
}

/// Measure `figures`, `jobs` at a time. Results are kept in the folder `unfinished`, and taken from there.
pub(super) fn all(
    figures: Vec<Figure>,
    jobs: usize,
    unfinished: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Done>> {
    let (mut done, queue) = taken(figures, unfinished)?;
    let progress = Progress::new(queue.len() + done.len(), done.len());
    let total = queue.len();
    let queue = Arc::new(Mutex::new(queue));
    let (sender, receiver) = mpsc::channel();
    for _ in 0..jobs.min(total) {
        let (queue, sender, stop) = (Arc::clone(&queue), sender.clone(), Arc::clone(stop));
        thread::spawn(move || {
            let next = || {
                let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                queue.pop_front().filter(|_| !stop.load(Ordering::Relaxed))
            };
            while let Some((figure, key)) = next() {
                let begun = Instant::now();
                let silent = Turn {
                    stop: &stop,
                    say: &|_| {},
                };
                let measured = catch(&figure, &silent);
                let seconds = begun.elapsed().as_secs_f64();
                if sender.send((figure, key, measured, seconds)).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    while done.len() < progress.total {
        match receiver.recv_timeout(LOOK) {
            Ok((figure, key, measured, seconds)) => {
                let measured = measured.with_context(|| figure.name.clone())?;
                keep(unfinished, &figure, key, &measured, seconds)?;
                progress.done(&figure.name, seconds);
                done.push((figure, measured, seconds));
            }
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                progress.end();
                // The other threads end with the process; they only compute.
                bail!("stopped; the same command goes on where it was");
            }
            Err(RecvTimeoutError::Timeout) => progress.tick(),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("stopped; the same command goes on where it was")
            }
        }
    }
    progress.end();
    Ok(done)
}

/// Measure `figures` one after the other, right here: on a machine, or in a guest on it, they would disturb each other. A
/// signal ends it once the figure has undone what it made.
pub(super) fn in_turn(
    figures: Vec<Figure>,
    unfinished: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Done>> {
    let (mut done, queue) = taken(figures, unfinished)?;
    let progress = Progress::new(queue.len() + done.len(), done.len());
    for (figure, key) in queue {
        let begun = Instant::now();
        let turn = Turn {
            stop,
            say: &|what| progress.say(&format!("{}: {what}", figure.name)),
        };
        let measured = catch(&figure, &turn).with_context(|| figure.name.clone())?;
        let seconds = begun.elapsed().as_secs_f64();
        keep(unfinished, &figure, key, &measured, seconds)?;
        progress.done(&figure.name, seconds);
        done.push((figure, measured, seconds));
    }
    progress.end();
    Ok(done)
}

/// The figures that a run before has measured, and the others with their keys.
fn taken(figures: Vec<Figure>, unfinished: &Path) -> Result<(Vec<Done>, VecDeque<Due>)> {
    fs::create_dir_all(unfinished).with_context(|| unfinished.display().to_string())?;
    let program = program_key()?;
    let mut done = Vec::new();
    let mut queue = VecDeque::new();
    for figure in figures {
        let key = key_of(&program, &figure)?;
        match earlier(unfinished, &figure, &key) {
            Some(kept) => done.push((figure, kept.measured, kept.seconds)),
            None => queue.push_back((figure, key)),
        }
    }
    if !done.is_empty() {
        eprintln!(
            "{} measured by the run before, which was stopped",
            done.len()
        );
    }
    Ok((done, queue))
}

/// A module that panics is an error of its figure.
fn catch(figure: &Figure, turn: &Turn<'_>) -> Result<Measured> {
    let measure = std::panic::AssertUnwindSafe(|| registry::measure(figure, turn));
    let measured: Option<Result<Measured, FigureError>> =
        std::panic::catch_unwind(measure).map_err(|_| anyhow!("its module panicked"))?;
    Ok(measured.context("it has no module")??)
}

fn program_key() -> Result<String> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let bytes = fs::read(&program).with_context(|| program.display().to_string())?;
    Ok(hex(&Sha256::digest(bytes)))
}

fn key_of(program: &str, figure: &Figure) -> Result<String> {
    let file = source_tree::root().join(format!("experiments/{}.toml", figure.name));
    let text = fs::read(&file).with_context(|| file.display().to_string())?;
    let digest = Sha256::new().chain_update(program).chain_update(text);
    Ok(hex(&digest.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file_of(unfinished: &Path, figure: &Figure) -> PathBuf {
    let name = figure.name.replace('/', "-");
    unfinished.join(name).with_extension("json")
}

fn earlier(unfinished: &Path, figure: &Figure, key: &str) -> Option<Kept> {
    let text = fs::read(file_of(unfinished, figure)).ok()?;
    let kept: Kept = serde_json::from_slice(&text).ok()?;
    (kept.key == key).then_some(kept)
}

fn keep(
    unfinished: &Path,
    figure: &Figure,
    key: String,
    measured: &Measured,
    seconds: f64,
) -> Result<()> {
    let kept = Kept {
        key,
        measured: measured.clone(),
        seconds,
    };
    let file = file_of(unfinished, figure);
    let new = file.with_extension("new");
    // A file that is there is whole.
    fs::write(&new, serde_json::to_vec(&kept)?)
        .and_then(|()| fs::rename(&new, &file))
        .with_context(|| file.display().to_string())
}

/// A bar on a terminal, lines elsewhere; both on stderr.
struct Progress {
    bar: ProgressBar,
    total: usize,
}

impl Progress {
    fn new(total: usize, done: usize) -> Self {
        let bar = ProgressBar::new(total as u64).with_position(done as u64);
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {pos} of {len} figures, {elapsed}")
        {
            bar.set_style(style);
        }
        Self { bar, total }
    }

    fn tick(&self) {
        self.bar.tick();
    }

    fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    fn done(&self, name: &str, seconds: f64) {
        self.bar.inc(1);
        let (at, of) = (self.bar.position(), self.total);
        self.bar
            .suspend(|| eprintln!("[{at:2} of {of}] {name}, {seconds:.1} s"));
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Vec<Figure> {
        vec![Figure::load(source_tree::root(), "fast24/fig07").unwrap()]
    }

    #[test]
    fn a_stopped_run_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let stop = Arc::new(AtomicBool::new(true));
        let error = all(figures(), 2, folder.path(), &stop).unwrap_err();
        assert!(
            error.to_string().contains("goes on where it was"),
            "{error}"
        );
        stop.store(false, Ordering::Relaxed);
        let first = all(figures(), 2, folder.path(), &stop).unwrap();
        // Nothing is measured: it would not be, as the run is to stop.
        stop.store(true, Ordering::Relaxed);
        let again = all(figures(), 2, folder.path(), &stop).unwrap();
        assert_eq!(first[0].1, again[0].1);
        // A result of another program is none.
        let file = file_of(folder.path(), &first[0].0);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("\"key\":\"", "\"key\":\"0")).unwrap();
        assert!(all(figures(), 1, folder.path(), &stop).is_err());
        forget(folder.path());
        assert!(!folder.path().exists());
    }
}
