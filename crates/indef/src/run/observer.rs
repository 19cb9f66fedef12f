//! Observes a run: progress, failures as they happen, files as they end.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use indef_engine::run::{FileResult, Observer, RunEvent, Status, StopCause};
use indef_fs::EngineKind;

use super::outcome::run_file;
use crate::{
    advice::Advice,
    output::{Console, Count, Name, Progress, json::Document},
};

/// Shows a run during its execution.
pub(crate) struct Watch<'a> {
    console: &'a Console,
    document: Option<&'a Document>,
    /// The progress line, from the first event.
    progress: OnceLock<Progress>,
    files: AtomicU64,
    done: AtomicU64,
    told_of_goes: AtomicBool,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(console: &'a Console, document: Option<&'a Document>) -> Self {
        Self {
            console,
            document,
            progress: OnceLock::new(),
            files: AtomicU64::new(0),
            done: AtomicU64::new(0),
            told_of_goes: AtomicBool::new(false),
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(progress) = self.progress.get() {
            progress.finish();
        }
    }

    /// Print something without tearing the progress line.
    pub(crate) fn suspend(&self, say: impl FnOnce()) {
        match self.progress.get() {
            Some(progress) => progress.suspend(say),
            None => say(),
        }
    }

    fn progress(&self) -> &Progress {
        self.progress
            .get_or_init(|| Progress::bytes(self.console, 0))
    }

    fn count(&self) {
        let files = Count(self.files.load(Ordering::Relaxed)).to_string();
        let done = Count(self.done.load(Ordering::Relaxed));
        let width = files.len();
        self.progress()
            .message(format!("{done:>width$} of {files} files"));
    }

    fn file_done(&self, file: &FileResult) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.count();
        let reason = file.reason.as_ref().map(Advice::advice);
        match file.status {
            Status::Failed => self.failed(file),
            Status::Moved | Status::Skipped => self.suspend(|| {
                let (before, after) = (Count(file.extents_before), Count(file.extents_after));
                let extents = match run_file(file).why_no_fewer() {
                    Some(why) => format!("{before} extents as before ({why})"),
                    None if file.extents_before == file.extents_after => {
                        format!("{before} extents")
                    }
                    None => format!("{before} → {after} extents"),
                };
                self.console.detail(format_args!(
                    "{}: {}, {extents}{}{}",
                    Name(&file.path),
                    file.status,
                    if reason.is_some() { ": " } else { "" },
                    reason.as_deref().unwrap_or("")
                ));
            }),
        }
    }

    fn result(&self, file: &FileResult) {
        if file.has_failed_late() {
            self.failed(file);
        }
        if let Some(document) = self.document {
            document.entry(&run_file(file));
        }
    }

    fn failed(&self, file: &FileResult) {
        let reason = file.reason.as_ref().map(Advice::advice);
        let reason = reason.as_deref().unwrap_or("failed");
        // Errors of the libraries begin with the path already.
        let path = format!("{}: ", file.path.display());
        let reason = reason.strip_prefix(&path).unwrap_or(reason);
        self.suspend(|| {
            self.console
                .error(format_args!("{}: {reason}", Name(&file.path)), "");
        });
    }
}

impl Observer for Watch<'_> {
    fn on(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Planned { files, bytes } => {
                self.files.store(files, Ordering::Relaxed);
                self.progress().total(bytes.get());
                self.count();
            }
            RunEvent::Progress { bytes } => self.progress().add(bytes.get()),
            RunEvent::FileDone(file) => self.file_done(file),
            RunEvent::Result(file) => self.result(file),
            RunEvent::Fallback {
                place,
                engine,
                instead,
                reason,
            } => self.suspend(|| {
                let place = place.map_or_else(String::new, |place| format!("{}: ", Name(place)));
                let text = format!(
                    "{place}{engine} is not used: {}; {instead} is",
                    reason.advice()
                );
                // If the host copies although the device could, that deserves a
                // note.
                match engine {
                    EngineKind::F2fsOffload | EngineKind::XfsOffload => self.console.note(text),
                    _ => self.console.detail(text),
                }
            }),
            // Each subvolume has its engine.
            RunEvent::InGoes { engine, bytes, why }
                if !self.told_of_goes.swap(true, Ordering::Relaxed) =>
            {
                self.suspend(|| {
                    self.console.note(format_args!(
                        "{engine} writes {bytes} and more in one go, as {why}; --rate holds on average, with a pause after each go"
                    ));
                });
            }
            RunEvent::DeviceFull { place } => self.suspend(|| {
                let place = place.map_or_else(String::new, |place| format!("{}: ", Name(place)));
                self.console.note(format_args!(
                    "{place}the device is full, although the file system is not: nothing more is moved there; make room \
                     on it (in the pool of a thin volume)"
                ));
            }),
            RunEvent::Stopping(StopCause::TimeLimit) => self.suspend(|| {
                self.console
                    .note("the time limit is reached, finishing the current steps")
            }),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use indef_engine::run::FileError;
    use indef_fs::{FsError, NotTakenBack, TargetId};
    use units::Bytes;

    use super::*;
    use crate::made::Made;

    /// What was written there.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_could_not_be_written_back_is_an_error() {
        let console = Console::plain();
        let sink = Sink::default();
        let out = Box::new(sink.clone());
        let document = Document::begin_on(out, "files", &Made::default(), None);
        let watch = Watch::new(&console, Some(&document));
        let error = FsError::new(
            "/srv/b",
            "write back moved data",
            std::io::Error::from_raw_os_error(5),
        );
        let mut file = FileResult {
            path: "/srv/a".into(),
            id: TargetId { dev: 1, inode: 2 },
            fs: "ext4".into(),
            engine: None,
            status: Status::Moved,
            reason: None,
            extents_before: 2,
            extents_after: 1,
            bytes_planned: Bytes::ZERO,
            bytes_relocated: Bytes::ZERO,
            bytes_host_read: Bytes::ZERO,
            bytes_host_written: Bytes::ZERO,
            bytes_offloaded: Bytes::ZERO,
            bytes_reclaimed: Bytes::ZERO,
            holders: 0,
            bytes_unshared: Bytes::ZERO,
        };
        watch.on(RunEvent::FileDone(&file));
        watch.on(RunEvent::Result(&file));
        file.path = "/srv/b".into();
        watch.on(RunEvent::FileDone(&file));
        assert_eq!(console.errors(), 0);
        file.status = Status::Failed;
        file.reason = Some(FileError::Unwritten(error).into());
        watch.on(RunEvent::Result(&file));
        assert_eq!(console.errors(), 1);
        // Told when it was done, and only then.
        file.path = "/srv/c".into();
        let left = NotTakenBack {
            bytes: Bytes::kib(4),
            source: std::io::Error::from_raw_os_error(5),
        };
        let source = std::io::Error::from(left);
        let error = FsError::new("/srv/c", "write back moved data", source);
        file.reason = Some(FileError::Fs(error).into());
        assert!(file.is_unwritten());
        watch.on(RunEvent::FileDone(&file));
        watch.on(RunEvent::Result(&file));
        assert_eq!(console.errors(), 2);
        drop(watch);
        document.end(&serde_json::json!({})).unwrap();
        let text = sink.0.lock().unwrap().clone();
        let told: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let files = told["files"].as_array().unwrap();
        let of = |n: usize| (&files[n]["path"], &files[n]["status"]);
        assert_eq!(files.len(), 3, "{told}");
        assert_eq!(of(0), (&"/srv/a".into(), &"moved".into()), "{told}");
        assert_eq!(of(1), (&"/srv/b".into(), &"failed".into()), "{told}");
        let reason = files[1]["reason"].as_str().unwrap();
        assert!(reason.contains("write back moved data failed"), "{reason}");
        assert!(reason.contains("copy the file elsewhere"), "{reason}");
    }
}
