//! Helpers that run the real binary, and make files for it.

pub(crate) mod aside;
pub(crate) mod documented;
pub(crate) mod reader;
pub(crate) mod second;
pub(crate) mod small;
pub(crate) mod tmux;

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    io::{Read, Seek, Write},
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use indef_fs::{Mapper, map};
use rustix::process::{Pid, Signal, kill_process};
use scratch_fs::{FragmentOptions, ScratchFs, fragment, require};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use units::{Bytes, FileRange};

/// The output and status of a run of the binary.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit status; 128 + the signal where one ended it.
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// stdout as one JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The one error line, which must name `what`.
    #[track_caller]
    pub(crate) fn error_line(&self, what: &str) -> &str {
        let lines: Vec<&str> = self.err.lines().collect();
        assert_eq!(lines.len(), 1, "{self:?}");
        assert!(lines[0].starts_with("indef: "), "{self:?}");
        assert!(lines[0].contains(what), "{what} is not named: {self:?}");
        lines[0]
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let code = output.status.code();
        Self {
            status: code
                .or(output.status.signal().map(|s| 128 + s))
                .unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end.
pub(crate) trait Run {
    fn ran(&mut self) -> Ran;
}

impl Run for Command {
    #[track_caller]
    fn ran(&mut self) -> Ran {
        self.output().expect("the program runs").into()
    }
}

/// Starts a command whose output is kept.
#[track_caller]
pub(crate) fn spawn(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// Waits for its end.
#[track_caller]
pub(crate) fn ended(child: Child) -> Ran {
    child
        .wait_with_output()
        .expect("it can be waited for")
        .into()
}

#[track_caller]
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it is there");
}

/// Wait until it has handlers for signals, from when on it ends in order; or has ended.
#[track_caller]
pub(crate) fn listens(child: &Child) {
    let until = Instant::now() + Duration::from_secs(120);
    let is_ready = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        let caught = field("SigCgt:").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let terminate = 1 << (Signal::TERM.as_raw() - 1);
        caught.is_some_and(|mask| mask & terminate != 0)
            || field("State:").is_some_and(|state| state.trim().starts_with('Z'))
    };
    while !is_ready() {
        assert!(Instant::now() < until, "it does not listen to signals");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The binary, with a state directory for this process alone.
pub(crate) fn indef() -> Command {
    static STATE: OnceLock<TempDir> = OnceLock::new();
    let state = STATE.get_or_init(|| tempfile::tempdir().expect("a temporary directory"));
    indef_with_state(state.path())
}

/// The binary, with this state directory.
pub(crate) fn indef_with_state(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_indef"));
    command
        .env("STATE_DIRECTORY", state)
        .env("LC_ALL", "C")
        .env_remove("NO_COLOR");
    command
}

/// How many files runs have left in a state directory, beside the history of what they did.
#[track_caller]
pub(crate) fn left_in(state: &Path) -> usize {
    let entries = fs::read_dir(state).expect("a state directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names.filter(|name| name != "history").count()
}

/// Run it with these arguments.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    indef().args(arguments).ran()
}

/// The document of a demo, which must have moved files, found everything in order,
/// and counted these.
#[track_caller]
pub(crate) fn proven(ran: &Ran, counted: &[&str]) -> serde_json::Value {
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    assert_eq!(document["contents_equal"], true, "{document}");
    assert_eq!(document["fsck_clean"], true, "{document}");
    assert!(
        document["totals"]["files_moved"].as_u64().unwrap() >= 3,
        "{document}"
    );
    for name in counted {
        assert!(document[name].as_u64().unwrap() > 0, "{name}: {document}");
    }
    document
}

/// Make a program of these bytes. A process of its own writes it: a child that another test starts while this process has it
/// open for writing has it open, too, and until that child executes something, nobody can execute the program (ETXTBSY).
#[track_caller]
pub(crate) fn install(program: &Path, bytes: impl Into<Stdio>) {
    let mut install = Command::new("install");
    let install = install.args(["-m", "755", "/dev/stdin"]).arg(program);
    assert!(install.stdin(bytes).status().unwrap().success());
}

/// The same of a script for sh.
#[track_caller]
pub(crate) fn install_script(program: &Path, script: &str) {
    let mut text = tempfile::tempfile().unwrap();
    write!(text, "#!/bin/sh\n{script}\n").unwrap();
    text.rewind().unwrap();
    install(program, text);
}

/// A folder in which any user may execute the binary, and work.
pub(crate) struct ForAnybody {
    pub(crate) dir: TempDir,
    pub(crate) binary: PathBuf,
}

impl ForAnybody {
    pub(crate) fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let binary = dir.path().join("indef");
        install(&binary, File::open(env!("CARGO_BIN_EXE_indef")).unwrap());
        Self { dir, binary }
    }

    /// The binary as the user `nobody` (only root can do that).
    pub(crate) fn indef(&self) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&self.binary);
        command
            .uid(NOBODY)
            .gid(NOBODY)
            .env("HOME", self.dir.path())
            .env("XDG_STATE_HOME", self.dir.path().join("state"))
            .current_dir(self.dir.path());
        command
    }
}

/// The user id of `nobody`.
pub(crate) const NOBODY: u32 = 65_534;

/// Whether these tests run as root; if not, the test reports itself as skipped.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        scratch_fs::skip("it needs root");
    }
    root
}

/// A file system, or a reported skip.
pub(crate) fn scratch(kind: &str) -> Option<ScratchFs> {
    require(ScratchFs::builder(kind, Bytes::gib(1)).build())
}

/// A file of `size` in pieces of `piece`.
#[track_caller]
pub(crate) fn make(path: &Path, size: Bytes, piece: Bytes) {
    fragment(
        path,
        FragmentOptions {
            size,
            piece,
            seed: size.get() ^ piece.get(),
        },
    )
    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Files of that kind: `file 0`, `file 1` and so on.
#[track_caller]
pub(crate) fn make_several(dir: &Path, count: usize, size: Bytes, piece: Bytes) {
    for n in 0..count {
        make(&dir.join(format!("file {n}")), size, piece);
    }
}

/// Fragments of a file, written back first.
#[track_caller]
pub(crate) fn fragments(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    scratch_fs::fragments(&file).unwrap()
}

/// Wait until one of the files has fewer fragments than that: a run is at work. Nothing is written back
/// for that, which would cut what Btrfs moves.
#[track_caller]
pub(crate) fn has_begun<P: AsRef<Path>>(files: &[P], before: u64) {
    let until = Instant::now() + Duration::from_secs(120);
    let is_whole = |path: &P| {
        let (path, all) = (path.as_ref(), FileRange::new(0, u64::MAX));
        let layout = map(
            &File::open(path).unwrap(),
            path,
            all,
            false,
            &mut Mapper::default(),
        );
        layout.unwrap().fragments() >= before
    };
    while files.iter().all(is_whole) {
        assert!(Instant::now() < until, "nothing moves");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The SHA-256 of every file below a directory.
pub(crate) fn hashes(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut hashes = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            hashes.extend(self::hashes(&path));
        } else if kind.is_file() {
            let mut hasher = Sha256::new();
            let mut buffer = vec![0; 1 << 20];
            let mut file = File::open(&path).unwrap();
            loop {
                match file.read(&mut buffer).unwrap() {
                    0 => break,
                    n => hasher.update(&buffer[..n]),
                }
            }
            let hash = hasher
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            hashes.insert(path, hash);
        }
    }
    hashes
}

/// Output of `btrfs`, with these options and places.
#[track_caller]
pub(crate) fn btrfs_progs(options: &[&str], places: &[&Path]) -> String {
    let ran = Command::new("btrfs").args(options).args(places).ran();
    assert_eq!(ran.status, 0, "{options:?}: {ran:?}");
    ran.out
}

/// The three times, each in seconds and nanoseconds.
pub(crate) fn times(m: &Metadata) -> [i64; 6] {
    [
        m.atime(),
        m.atime_nsec(),
        m.mtime(),
        m.mtime_nsec(),
        m.ctime(),
        m.ctime_nsec(),
    ]
}
