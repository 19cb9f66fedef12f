//! A command for a shared guest: from the guest that is free to the result.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use rustix::fs::FlockOperation;

use super::spec::{Spec, Start, folder};
use crate::{
    Cache, LabError, Outcome,
    cache::try_lock,
    job::Job,
    machine::CONSOLE,
    programs,
    standing::{self, Standing},
};

/// The link to the keepers' program.
const KEEPER: &str = "keeper";
/// Belong to one test, which the keeper outlives: its log of skips, by which its processes are known.
const OF_A_TEST: &str = "INDEF_SKIP_LOG";

/// Time limit for a guest to be put back.
const PUT_BACK: Duration = Duration::from_secs(60);

/// A command for a shared guest.
pub(crate) struct Request<'a> {
    pub(crate) spec: Spec,
    pub(crate) job: &'a Job,
    /// The host's folder that it has as `/share`.
    pub(crate) share: Option<&'a Path>,
    pub(crate) timeout: Duration,
    pub(crate) stop: &'a AtomicBool,
}

impl Request<'_> {
    /// Run it; `None` where there are no shared guests.
    pub(crate) fn run(&self) -> Result<Option<Outcome>, LabError> {
        let Some(folder) = folder() else {
            return Ok(None);
        };
        let Some(share) = self.share_below(&folder)? else {
            return Ok(None);
        };
        let began = Instant::now();
        let held = Held::take(&folder, self)?;
        let boot = began.elapsed();
        let result = self.run_in(&held, &share, boot);
        match &result {
            Ok(_) => held.put_back(self.stop)?,
            Err(_) => held.end()?,
        }
        result.map(Some)
    }

    /// The folder for `/share`, relative to the folder that all guests share: empty for none, `None` if it
    /// lies elsewhere.
    fn share_below(&self, folder: &Path) -> Result<Option<PathBuf>, LabError> {
        let Some(share) = self.share else {
            return Ok(Some(PathBuf::new()));
        };
        let real = |path: &Path| fs::canonicalize(path).map_err(LabError::at(path));
        let (share, folder) = (real(share)?, real(folder)?);
        Ok(share.strip_prefix(folder).ok().map(Path::to_owned))
    }

    fn run_in(&self, held: &Held, share: &Path, boot: Duration) -> Result<Outcome, LabError> {
        let [program, arguments @ ..] = self.job.command.as_slice() else {
            return Err(LabError::Request("no command for the guest".into()));
        };
        let mut copy: Vec<OsString> = self.job.copy.iter().map(Into::into).collect();
        let program = match programs::find(Path::new(program)) {
            Some(file) => {
                copy.push(file.clone().into());
                file.into()
            }
            None => program.clone(),
        };
        let settings = format!("load='{}'\n{}", self.job.load.join(" "), self.job.zns);
        let mut words = ["sh", "/lab/enter"].map(OsString::from).to_vec();
        words.extend([share.into(), settings.into(), program]);
        words.extend_from_slice(arguments);
        let command = standing::Command {
            words,
            here: env::current_dir()
                .map_err(LabError::at(Path::new(".")))?
                .into(),
            copy,
            with_tools: self.job.with_tools,
            timeout_s: self.timeout.as_secs(),
        };
        let before = held.console().len();
        let began = Instant::now();
        let said = held.standing.output(command, self.stop);
        let console = held.console().split_off(before);
        let said = said.map_err(|error| match error {
            LabError::Request(why) => LabError::Died {
                why,
                console: console.clone(),
            },
            other => other,
        })?;
        Ok(Outcome {
            status: said.status,
            stdout: said.stdout,
            stderr: said.stderr,
            console,
            accelerator: held.standing.state().accelerator,
            boot,
            elapsed: began.elapsed(),
        })
    }
}

/// A shared guest that is ours.
struct Held {
    standing: Standing,
    /// Exists while nobody uses the guest and it is as after its boot.
    is_clean: PathBuf,
    // Released last.
    _lock: File,
}

impl Held {
    /// A guest of this kind that nobody uses, or a new one.
    fn take(folder: &Path, request: &Request<'_>) -> Result<Self, LabError> {
        let kind = request.spec.kind()?;
        let cache = Cache::at(folder);
        let (mut number, mut free) = (0, None);
        loop {
            let name = format!("{kind}-{number}");
            let is_known = Start::path(folder, &name).exists();
            let use_lock = folder.join(format!("{name}.use"));
            if let Some(lock) = try_lock(&use_lock, FlockOperation::NonBlockingLockExclusive)? {
                let is_clean = folder.join(format!("{name}.clean"));
                if let Some(standing) = clean(&cache, &name, &is_clean)? {
                    return Ok(Self {
                        standing,
                        is_clean,
                        _lock: lock,
                    });
                }
                free.get_or_insert((name, is_clean, lock));
            }
            // Those that were started have the lowest numbers.
            if let (false, Some((name, is_clean, lock))) = (is_known, free.take()) {
                let standing = start(folder, &cache, &name, request)?;
                return Ok(Self {
                    standing,
                    is_clean,
                    _lock: lock,
                });
            }
            number += 1;
        }
    }

    fn console(&self) -> String {
        let said = fs::read(self.standing.state().folder.join(CONSOLE)).unwrap_or_default();
        String::from_utf8_lossy(&said).replace('\r', "")
    }

    /// Put it back, for the next user; a guest with which that does not work is ended.
    fn put_back(self, stop: &AtomicBool) -> Result<(), LabError> {
        let command = standing::Command {
            words: ["sh", "/lab/reset"].map(OsString::from).to_vec(),
            here: "/root".into(),
            copy: Vec::new(),
            with_tools: false,
            timeout_s: PUT_BACK.as_secs(),
        };
        let why = match self.standing.output(command, stop) {
            Ok(said) if said.status == 0 => {
                return File::create(&self.is_clean)
                    .map(drop)
                    .map_err(LabError::at(&self.is_clean));
            }
            Ok(said) => String::from_utf8_lossy(&said.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        eprintln!("the shared guest cannot be put back, and ends: {why}");
        self.end()
    }

    fn end(self) -> Result<(), LabError> {
        self.standing.down()
    }
}

/// The guest with this name, if it is up and was put back. Its lock must be held.
fn clean(cache: &Cache, name: &str, is_clean: &Path) -> Result<Option<Standing>, LabError> {
    let was_clean = fs::remove_file(is_clean).is_ok();
    match Standing::find(cache, name)? {
        Some(standing) if was_clean => Ok(Some(standing)),
        Some(left) => left.down().map(|()| None),
        None => Ok(None),
    }
}

/// Start a keeper and wait until its guest is up.
fn start(
    folder: &Path,
    cache: &Cache,
    name: &str,
    request: &Request<'_>,
) -> Result<Standing, LabError> {
    let program = request.job.command.first().map(Path::new);
    let start = Start {
        spec: request.spec.clone(),
        copy: program
            .and_then(programs::find)
            .into_iter()
            .chain(
                request
                    .job
                    .copy
                    .iter()
                    .filter_map(|file| programs::find(file)),
            )
            .collect(),
        with_tools: request.job.with_tools,
    };
    start.write(&Start::path(folder, name))?;
    let log = folder.join(format!("{name}.log"));
    let errors = File::create(&log).map_err(LabError::at(&log))?;
    let program = folder.join(KEEPER);
    let mut keeper = Command::new(&program)
        .args(["keep-shared", name])
        .env("TMPDIR", folder)
        .env_remove(OF_A_TEST)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        // A signal for the test must not reach it.
        .process_group(0)
        .spawn()
        .map_err(LabError::at(&program))?;
    let mut said = String::new();
    if let Some(out) = keeper.stdout.take() {
        let read = BufReader::new(out).read_line(&mut said);
        read.map_err(LabError::at(&program))?;
    }
    match Standing::find(cache, name)? {
        Some(standing) if !said.is_empty() => Ok(standing),
        _ => Err(LabError::Died {
            why: "the shared guest did not come up".into(),
            console: fs::read_to_string(&log).unwrap_or_default(),
        }),
    }
}
