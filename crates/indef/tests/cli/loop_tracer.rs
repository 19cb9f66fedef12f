//! Another process traces for `indef watch`, which has no right to: the test is the service manager between them, which
//! listens, and starts `indef tracer` with the connection as its stdin.

use std::{
    io::{BufRead, BufReader, Write},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
};

use rustix::{
    process::{Signal, Uid},
    thread::set_thread_res_uid,
};
use scratch_fs::ScratchFs;
use tempfile::TempDir;
use units::Bytes;

use crate::{
    common::{
        Run, aside::Aside, ended, is_root, listens, make, reader::Reader, run, scratch, signal,
        spawn,
    },
    loop_watch::machine,
};

const INDEF: &str = env!("CARGO_BIN_EXE_indef");

/// Listens, as `indef-trace.socket` does.
struct Manager {
    folder: TempDir,
    listener: UnixListener,
}

impl Manager {
    fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("trace")).unwrap();
        Self { folder, listener }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    fn accept(&self) -> UnixStream {
        self.listener.accept().unwrap().0
    }
}

/// Traces for whoever is at the other end, in a session of its own, as a service manager starts it.
fn tracer(connection: UnixStream) -> Child {
    let mut command = Command::new("setsid");
    command.args([INDEF, "tracer"]);
    spawn(command.stdin(OwnedFd::from(connection)))
}

/// A service without the rights for tracing, which asks at `socket` for it. It may not move anything either.
fn watch(state: &TempDir, socket: &Path, options: &[&str], path: &Path) -> Command {
    let mut command = Command::new("setpriv");
    // bpf, perfmon and sys_admin (linux/capability.h, v6.1).
    command
        .args(["--bounding-set", "-cap_39,-cap_38,-cap_21"])
        .args(["--inh-caps", "-all", INDEF, "watch"])
        .args(options)
        .arg(path)
        .env("STATE_DIRECTORY", state.path())
        .env("INDEF_TRACE_SOCKET", socket);
    command
}

/// A file system, where everything is given that these tests need.
fn place() -> Option<ScratchFs> {
    if !is_root() {
        return None;
    }
    scratch("ext4")
}

fn can_trace() -> bool {
    let check = run(["trace", "--check"]);
    if check.status != 0 {
        scratch_fs::skip(&check.err);
    }
    check.status == 0
}

#[test]
fn loop_the_right_to_trace_is_needed_by_another_process_alone() {
    let Some(scratch) = place().filter(|_| can_trace()) else {
        return;
    };
    let hot = scratch.path().join("hot");
    make(&hot, Bytes::mib(1), Bytes::kib(4));
    scratch.sync().unwrap();
    let (busy, state, manager) = (
        machine(80.0),
        tempfile::tempdir().unwrap(),
        Manager::begin(),
    );
    let options = ["--once", "--json", "--learn", "3s"];
    let _reader = Reader::of(&hot);
    let watching = spawn(
        watch(&state, &manager.socket(), &options, scratch.path())
            .env("INDEF_WATCH_ROOT", busy.path()),
    );
    let traced = ended(tracer(manager.accept()));
    let ran = ended(watching);
    let told = (traced.status, traced.out.as_str(), traced.err.as_str());
    assert_eq!(told, (0, "", ""), "{ran:?}");
    assert_eq!(ran.status, 3, "{ran:?}");
    assert_eq!(ran.json()["file_systems"][0]["held"], "readings", "{ran:?}");
    assert!(
        ran.err.contains("traced ") && !ran.err.contains("cannot trace"),
        "{ran:?}"
    );
    let profile = state.path().join("watch/profile");
    let shown = run(["profile", "show", "--json", profile.to_str().unwrap()]);
    assert_eq!(shown.status, 0, "{shown:?}");
    assert!(shown.out.contains("indef watch"), "{shown:?}");

    // Where nobody listens it would have to do it itself.
    drop(manager);
    let nowhere = state.path().join("nowhere");
    let ran = watch(&state, &nowhere, &options, scratch.path())
        .env("INDEF_WATCH_ROOT", busy.path())
        .ran();
    assert_eq!(ran.status, 3, "{ran:?}");
    for part in [
        "cannot trace: tracing needs CAP_BPF and CAP_PERFMON",
        "nobody traces for it at ",
    ] {
        assert!(ran.err.contains(part), "{part}: {ran:?}");
    }
    // And does, if it may.
    let ran = Command::new(INDEF)
        .args(["watch", "--once", "--learn", "1s"])
        .arg(scratch.path())
        .env("STATE_DIRECTORY", state.path())
        .env("INDEF_WATCH_ROOT", busy.path())
        .env("INDEF_TRACE_SOCKET", nowhere)
        .ran();
    assert_eq!(ran.status, 3, "{ran:?}");
    assert!(ran.err.contains("traced "), "{ran:?}");
}

/// The process that traces gives way to all others, and ends with the service, which hears what was found until then.
#[test]
fn loop_a_trace_by_another_process_gives_way_and_ends_with_the_service() {
    let Some(scratch) = place().filter(|_| can_trace()) else {
        return;
    };
    let (calm, state, manager) = (machine(0.0), tempfile::tempdir().unwrap(), Manager::begin());
    let watching = spawn(
        watch(
            &state,
            &manager.socket(),
            &["--learn", "10m"],
            scratch.path(),
        )
        .env("INDEF_WATCH_ROOT", calm.path()),
    );
    let tracing = tracer(manager.accept());
    let found = Aside::wait_for(tracing.id());
    let of_watch = Aside::of(watching.id());
    listens(&watching);
    signal(&watching, Signal::TERM);
    let (ran, traced) = (ended(watching), ended(tracing));
    assert_eq!((ran.status, traced.status), (0, 0), "{ran:?} {traced:?}");
    found.assert_gives_way();
    assert!(!of_watch.traces(), "{of_watch:?}");
    assert!(ran.err.contains("traced "), "{ran:?}");
}

#[test]
fn loop_a_service_outlives_who_traces_for_it() {
    let Some(scratch) = place() else {
        return;
    };
    let (busy, state, manager) = (
        machine(80.0),
        tempfile::tempdir().unwrap(),
        Manager::begin(),
    );
    let options = ["--once", "--json", "--learn", "1h"];
    let watching = spawn(
        watch(&state, &manager.socket(), &options, scratch.path())
            .env("INDEF_WATCH_ROOT", busy.path()),
    );
    // Turned away once, as by a manager that has one trace already.
    drop(manager.accept());
    let mut connection = manager.accept();
    let mut order = String::new();
    BufReader::new(&mut connection)
        .read_line(&mut order)
        .unwrap();
    let order: serde_json::Value = serde_json::from_str(&order).unwrap();
    assert_eq!(order["time"]["secs"], 3600, "{order}");
    connection.write_all(b"\"Begins\"\n").unwrap();
    drop(connection);
    let ran = ended(watching);
    assert_eq!(ran.status, 3, "{ran:?}");
    let why = "cannot trace: whoever traced for it ended before it told what it found";
    assert!(ran.err.contains(why), "{ran:?}");
}

#[test]
fn others_than_root_are_not_traced_for() {
    if !is_root() {
        return;
    }
    let pair = thread::spawn(|| {
        // Of this thread alone.
        let same: Option<Uid> = None;
        set_thread_res_uid(same, Uid::from_raw(1000), same).unwrap();
        UnixStream::pair().unwrap()
    });
    let (mut theirs, ours) = pair.join().unwrap();
    theirs.write_all(b"{}\n").unwrap();
    let ran = ended(tracer(ours));
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("user 1000 asks for a trace");
    // Nor is stdin a connection where a person starts it.
    let ran = run(["tracer"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("no order came");
}
