//! `indef watch` as a service: signals, the service manager, metrics, one at a time.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read, Write},
    os::unix::net::{UnixDatagram, UnixListener, UnixStream},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::common::{Run, ended, indef_with_state, signal, spawn};
use rustix::process::Signal;

/// A service that does not trace.
fn watch(state: &Path) -> Command {
    let mut command = indef_with_state(state);
    command.args(["watch", "--learn", "0s"]);
    command
}

/// Wait until it listens to signals, and has its state.
fn has_begun(state: &Path) {
    for _ in 0..1200 {
        if state.join("watch/lock").exists() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("it has not begun");
}

/// Wait for a message of the service that holds this.
fn told(socket: &UnixDatagram, part: &str) {
    let mut buffer = [0; 4096];
    for _ in 0..200 {
        let read = match socket.recv(&mut buffer) {
            // A child of another test has ended.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.expect("a message within its time"),
        };
        if String::from_utf8_lossy(&buffer[..read]).contains(part) {
            return;
        }
    }
    panic!("{part} is not told");
}

#[test]
fn a_service_tells_its_manager_and_ends_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (state, data) = (folder.path().join("state"), folder.path().join("data"));
    fs::create_dir(&state).unwrap();
    fs::create_dir(&data).unwrap();
    let notify = folder.path().join("notify");
    let socket = UnixDatagram::bind(&notify).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let (file, listen) = (
        folder.path().join("indef.prom"),
        folder.path().join("scrape"),
    );
    let child = spawn(
        watch(&state)
            .env("NOTIFY_SOCKET", &notify)
            .env("WATCHDOG_USEC", "400000")
            .arg(&data)
            .arg("--metrics-file")
            .arg(&file)
            .arg("--metrics-listen")
            .arg(format!("unix:{}", listen.display())),
    );
    told(&socket, "READY=1");
    told(&socket, "STATUS=");
    told(&socket, "WATCHDOG=1");
    // A second one is refused, and disturbs nothing of the first.
    let second = watch(&state)
        .arg(&data)
        .arg("--metrics-listen")
        .arg(format!("unix:{}", listen.display()))
        .ran();
    assert_eq!(second.status, 1, "{second:?}");
    second.error_line("another indef watch is running");
    // SIGHUP: it begins anew.
    signal(&child, Signal::HUP);
    told(&socket, "READY=1");
    let mut stream = UnixStream::connect(&listen).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut scraped = String::new();
    stream.read_to_string(&mut scraped).unwrap();
    assert!(scraped.starts_with("HTTP/1.1 200 OK"), "{scraped}");
    assert!(scraped.contains("indef_watch_info{version="), "{scraped}");
    assert!(scraped.ends_with("# EOF\n"), "{scraped}");
    signal(&child, Signal::TERM);
    let begun = Instant::now();
    told(&socket, "STOPPING=1");
    let ran = ended(child);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "it ends soon");
    assert_eq!(
        ran.err.matches("looks after one file system").count(),
        2,
        "{ran:?}"
    );
    let metrics = fs::read_to_string(&file).unwrap();
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(!listen.exists());
    // Its lock is nobody's any more.
    let dry = watch(&state).arg("--once").arg(&data).ran();
    assert!(dry.status == 0 || dry.status == 3, "{dry:?}");
}

/// A round of a service whose stderr is the journal; what it printed there. A machine of its own, so that none of this
/// comes into the journal of this one.
fn round_for_the_journal(machine: &Path) -> String {
    let log = machine.join("log");
    let file = fs::File::create(&log).unwrap();
    let status = rustix::fs::fstat(&file).unwrap();
    let stream = format!("{}:{}", status.st_dev, status.st_ino);
    let ran = watch(machine)
        .arg("--once")
        .arg(machine)
        .env("JOURNAL_STREAM", stream)
        .env("INDEF_WATCH_ROOT", machine)
        .stderr(file)
        .status()
        .unwrap();
    assert!(matches!(ran.code(), Some(0 | 3)), "{ran}");
    fs::read_to_string(&log).unwrap()
}

#[test]
fn lines_for_the_journal_have_their_level() {
    let folder = tempfile::tempdir().unwrap();
    let lines = round_for_the_journal(folder.path());
    assert!(
        lines.starts_with("<6>looks after one file system\n"),
        "{lines}"
    );
    let has_level = |line: &str| line.starts_with("<6>") || line.starts_with("<4>");
    assert!(lines.lines().all(has_level), "{lines}");
}

/// The fields of an entry in journald's native protocol, all in its form for any content.
fn fields(mut entry: &[u8]) -> HashMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_owned()).unwrap();
    let mut fields = HashMap::new();
    while !entry.is_empty() {
        let end = entry.iter().position(|byte| *byte == b'\n').unwrap();
        let (name, rest) = (text(&entry[..end]), &entry[end + 1..]);
        let (length, rest) = rest.split_first_chunk().unwrap();
        let (value, rest) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
        entry = rest.strip_prefix(b"\n").unwrap();
        assert!(fields.insert(name, text(value)).is_none());
    }
    fields
}

#[test]
fn entries_of_the_journal_have_fields() {
    let folder = tempfile::tempdir().unwrap();
    // Paths may have line breaks.
    let machine = folder.path().join("a\nb");
    fs::create_dir_all(machine.join("run/systemd/journal")).unwrap();
    let journal = UnixDatagram::bind(machine.join("run/systemd/journal/socket")).unwrap();
    assert_eq!(round_for_the_journal(&machine), "");
    journal.set_nonblocking(true).unwrap();
    let mut buffer = [0; 4096];
    let mut entries = Vec::new();
    while let Ok(read) = journal.recv(&mut buffer) {
        entries.push(fields(&buffer[..read]));
    }
    let began = &entries[0];
    assert_eq!(began["MESSAGE"], "looks after one file system");
    assert_eq!(
        (&*began["PRIORITY"], &*began["INDEF_EVENT"]),
        ("6", "began")
    );
    assert_eq!(began["SYSLOG_IDENTIFIER"], "indef");
    assert!(!began.contains_key("INDEF_PATH"));
    let decided = entries
        .iter()
        .find(|entry| entry["INDEF_EVENT"] == "decided");
    let decided = decided.unwrap_or_else(|| panic!("{entries:?}"));
    assert_eq!(Path::new(&decided["INDEF_PATH"]), machine);
    assert_eq!(decided["INDEF_REASON"], "no-profile");
    assert!(!decided["MESSAGE"].contains('\n'), "{decided:?}");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path();
    let refused = |arguments: &[&str]| watch(state).args(arguments).ran();
    let ran = refused(&["--metrics-listen", "0.0.0.0:9779"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("no loopback address"), "{ran:?}");
    let ran = refused(&["--json", "/"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("--once"), "{ran:?}");
    let ran = refused(&["--once", "/no/such"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("/no/such");
    let ran = refused(&["--window", "nights"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("22:00-06:00"), "{ran:?}");
    let file = state.join("indef.toml");
    fs::write(&file, "[limits]\nrat = 5\n[watch]\nwindow = [\"nights\"]\n").unwrap();
    let ran = refused(&["--once", &format!("--config={}", file.display())]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(
        ran.err.contains(":2: limits.rat: ") && ran.err.contains(":4: watch.window: "),
        "{ran:?}"
    );
    assert!(ran.err.contains("nothing was done"), "{ran:?}");
}

/// SIGHUP without `--config`: the command line holds as before, and there is nothing to read again.
#[test]
fn a_service_without_a_configuration_goes_on_after_sighup() {
    let folder = tempfile::tempdir().unwrap();
    let (state, data) = (folder.path().join("state"), folder.path().join("data"));
    fs::create_dir(&state).unwrap();
    fs::create_dir(&data).unwrap();
    let (notify, numbers) = (
        folder.path().join("notify"),
        folder.path().join("indef.prom"),
    );
    let socket = UnixDatagram::bind(&notify).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut child = spawn(
        watch(&state)
            .env("NOTIFY_SOCKET", &notify)
            // Nothing is read of how busy this machine is.
            .env("INDEF_WATCH_ROOT", folder.path())
            .args(["--window", "22:00-06:00", "--budget", "20MiB"])
            .arg("--metrics-file")
            .args([&numbers, &data]),
    );
    told(&socket, "READY=1");
    for _ in 0..2 {
        signal(&child, Signal::HUP);
        told(&socket, "READY=1");
        assert!(child.try_wait().unwrap().is_none(), "it goes on");
    }
    signal(&child, Signal::TERM);
    told(&socket, "STOPPING=1");
    let ran = ended(child);
    assert_eq!(ran.status, 0, "{ran:?}");
    let rounds: Vec<&str> = ran.err.split("looks after one file system\n").collect();
    assert_eq!(rounds.len(), 4, "{ran:?}");
    for word in ["settings", "configuration", "metrics"] {
        assert!(!ran.err.contains(word), "{ran:?}");
    }
    let told = fs::read_to_string(&numbers).unwrap();
    assert!(told.ends_with("# EOF\n"), "{told}");
}

/// SIGHUP: a file with mistakes changes nothing, one without them holds from then on.
#[test]
fn a_service_reads_its_configuration_again() {
    let folder = tempfile::tempdir().unwrap();
    let (state, data) = (folder.path().join("state"), folder.path().join("data"));
    fs::create_dir(&state).unwrap();
    fs::create_dir(&data).unwrap();
    let (notify, file) = (
        folder.path().join("notify"),
        folder.path().join("indef.toml"),
    );
    let socket = UnixDatagram::bind(&notify).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let good = format!(
        "paths = [\"{}\"]\n[watch]\nlearn = \"0s\"\n",
        data.display()
    );
    fs::write(&file, format!("{good}[limits]\ntime-limit = \"1h\"\n")).unwrap();
    let child = spawn(
        indef_with_state(&state)
            .env("NOTIFY_SOCKET", &notify)
            .args(["watch", &format!("--config={}", file.display())]),
    );
    told(&socket, "READY=1");
    fs::write(&file, "[limits]\nrat = 5\n[run]\njobs = 0\n").unwrap();
    signal(&child, Signal::HUP);
    told(
        &socket,
        "STATUS=the configuration has mistakes, the settings",
    );
    told(&socket, "READY=1");
    let changed = format!(
        "[metrics]\nmetrics-file = \"{}/x\"\n",
        folder.path().display()
    );
    fs::write(&file, good.replace("/data", "/gone") + &changed).unwrap();
    signal(&child, Signal::HUP);
    told(&socket, "/gone");
    told(&socket, "READY=1");
    signal(&child, Signal::TERM);
    let ran = ended(child);
    assert_eq!(ran.status, 0, "{ran:?}");
    let about: Vec<&str> = ran
        .err
        .lines()
        .filter(|line| line.contains("mistakes"))
        .collect();
    assert_eq!(about.len(), 1, "{ran:?}");
    assert!(
        about[0].contains(":2: limits.rat: ") && about[0].contains("and 1 more"),
        "{ran:?}"
    );
    let in_vain = "the configuration sets limits.time-limit";
    assert_eq!(ran.err.matches(in_vain).count(), 1, "{ran:?}");
    assert!(ran.err.contains("until the next start"), "{ran:?}");
    assert!(!folder.path().join("x").exists(), "{ran:?}");
}

/// A file of a later version, say, which is replaced.
#[test]
fn experience_that_is_not_understood_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (state, data) = (folder.path().join("state"), folder.path().join("data"));
    fs::create_dir_all(state.join("watch")).unwrap();
    fs::create_dir(&data).unwrap();
    let kept = state.join("watch/experience.json");
    fs::write(&kept, r#"{"schema":2,"file_systems":{}}"#).unwrap();
    let ran = watch(&state)
        .arg("--once")
        .arg(&data)
        .env("INDEF_WATCH_ROOT", folder.path())
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let told = format!("{}: what was learned of earlier moves", kept.display());
    assert!(
        ran.err.contains(&told) && ran.err.contains("another version"),
        "{ran:?}"
    );
}

/// What failed while a service went on is no failure of its end; of a single round it is.
#[test]
fn a_service_that_is_stopped_has_not_failed() {
    let folder = tempfile::tempdir().unwrap();
    let unwritable = "/no/such/indef.prom";
    let other = tempfile::tempdir().unwrap();
    let once = watch(other.path())
        .args(["--once", "--metrics-file", unwritable])
        .arg(folder.path())
        .ran();
    assert!(once.err.contains(unwritable), "{once:?}");
    // 3 where others need this machine.
    assert!(matches!(once.status, 1 | 3), "{once:?}");
    let child = spawn(
        watch(folder.path())
            .args(["--metrics-file", unwritable])
            .arg(folder.path()),
    );
    has_begun(folder.path());
    signal(&child, Signal::TERM);
    let ran = ended(child);
    assert!(ran.status == 0 && ran.err.contains(unwritable), "{ran:?}");
}

/// A single round is over before numbers are due again; who runs it by cron reads those of its end.
#[test]
fn a_single_round_leaves_the_numbers_of_its_end() {
    let (state, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = state.path().join("indef.prom");
    let ran = watch(state.path())
        .args(["--once", "--without-profile", "--metrics-file"])
        .args([file.as_path(), folder.path()])
        // Nothing is read of how busy this machine is.
        .env("INDEF_WATCH_ROOT", folder.path())
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let metrics = fs::read_to_string(file).unwrap();
    assert!(metrics.contains("\nindef_scans_total 1\n"), "{metrics}");
}

/// Who asks beside the service what it would do leaves its numbers alone; where they are asked for, they are given.
#[test]
fn a_dry_run_leaves_the_numbers_of_the_service_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let [numbers, listen, config, own] =
        ["numbers", "listen", "indef.toml", "own"].map(|name| folder.path().join(name));
    fs::write(&numbers, "of the service\n").unwrap();
    let _service = UnixListener::bind(&listen).unwrap();
    let text = format!(
        "[metrics]\nmetrics-file = \"{}\"\nmetrics-listen = \"unix:{}\"\n",
        numbers.display(),
        listen.display()
    );
    fs::write(&config, text).unwrap();
    let ran = watch(folder.path())
        .args(["--dry-run", &format!("--config={}", config.display())])
        .arg("--metrics-file")
        .args([&own, &data])
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(fs::read_to_string(&numbers).unwrap(), "of the service\n");
    assert!(listen.exists() && own.exists(), "{ran:?}");
}

/// A signal in the midst of a wait is noticed at once, not at its end.
#[test]
fn a_waiting_service_wakes_up_for_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let child = spawn(watch(folder.path()).arg(folder.path()));
    has_begun(folder.path());
    signal(&child, Signal::INT);
    assert_eq!(ended(child).status, 0);
}
