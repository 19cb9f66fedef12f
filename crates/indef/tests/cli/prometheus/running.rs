//! Programs that run beside a test, and Prometheus' HTTP API.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Ran, ended, signal, spawn};

/// What ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// One of the programs that `scripts/prometheus` has fetched, or the system's own; or a reported skip: return.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/prometheus");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = [fetched]
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file());
    if found.is_none() {
        scratch_fs::skip(&format!("no {name}; run scripts/prometheus"));
    }
    found
}

/// A port of the loopback that nobody listens at, for a program that cannot choose one by itself.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Ask until there is an answer.
#[track_caller]
pub(super) fn within<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < until, "in vain: {what}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// A program that is killed with its test.
pub(super) struct Running(Option<Child>);

impl Running {
    #[track_caller]
    pub(super) fn start(command: &mut Command) -> Self {
        Self(Some(spawn(command)))
    }

    /// Ask it to end, and wait for that.
    #[track_caller]
    pub(super) fn end(mut self) -> Ran {
        let child = self.0.take().expect("it runs");
        signal(&child, Signal::TERM);
        ended(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A Prometheus of this test alone.
pub(super) struct Prometheus {
    _running: Running,
    port: u16,
}

impl Prometheus {
    /// Start it with its data below a folder, and wait until it answers.
    #[track_caller]
    pub(super) fn start(program: &Path, folder: &Path, config: &Value) -> Self {
        let (file, port) = (folder.join("prometheus.yml"), free_port());
        // JSON is YAML.
        fs::write(&file, config.to_string()).unwrap();
        let running = Running::start(
            Command::new(program)
                .arg("--config.file")
                .arg(&file)
                .arg("--storage.tsdb.path")
                .arg(folder.join("series"))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .arg("--log.level=warn")
                .current_dir(folder),
        );
        within("Prometheus is ready", || {
            let answer = get(port, "/-/ready").ok()?;
            answer.contains("Ready").then_some(())
        });
        Self {
            _running: running,
            port,
        }
    }

    /// The data of an answer of its API.
    #[track_caller]
    pub(super) fn data(&self, path: &str) -> Value {
        let body = get(self.port, &format!("/api/v1/{path}")).unwrap();
        let mut answer: Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].take()
    }

    /// The series that an expression gives now.
    #[track_caller]
    pub(super) fn query(&self, expression: &str) -> Vec<Value> {
        let data = self.data(&format!("query?query={}", escaped(expression)));
        assert_eq!(data["resultType"], "vector", "{expression}: {data}");
        data["result"].as_array().unwrap().clone()
    }

    /// The values of a label of these series.
    #[track_caller]
    pub(super) fn label_values(&self, label: &str, series: &str) -> BTreeSet<String> {
        let series = escaped(series);
        let data = self.data(&format!("label/{label}/values?match%5B%5D={series}"));
        let values = data.as_array().unwrap().iter();
        values
            .map(|value| value.as_str().unwrap().to_owned())
            .collect()
    }

    /// Type and help of a family, as this instance told them.
    #[track_caller]
    pub(super) fn metadata(&self, instance: &str, family: &str) -> Value {
        let target = escaped(&format!("{{instance={instance:?}}}"));
        let path = format!("targets/metadata?match_target={target}&metric={family}");
        let mut data = self.data(&path);
        assert_eq!(data.as_array().unwrap().len(), 1, "{instance}: {data}");
        data[0].take()
    }

    /// Wait until it has read all of so many targets.
    #[track_caller]
    pub(super) fn reads_all_targets(&self, count: usize) {
        let mut last = Value::Null;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            last = self.data("targets?state=active")["activeTargets"].take();
            let targets = last.as_array().unwrap();
            let is_up = |target: &Value| target["health"] == "up";
            if targets.len() == count && targets.iter().all(is_up) {
                return;
            }
            thread::sleep(Duration::from_millis(200));
        }
        panic!("not all are read: {last:#}");
    }
}

/// The body of the answer to a request.
fn get(port: u16, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // In this version the answer comes in one piece, up to the end of the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    Ok(body.unwrap_or_default().to_owned())
}

/// As part of an address.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() {
            escaped.push(byte.into());
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}
