//! The process that owns a standing guest.

use std::{
    collections::HashMap,
    fs,
    io::{self, BufReader, Read},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::fs::FlockOperation;

use super::{
    Place, State,
    command::{Client, Control, JobFolder, Running, Slot},
    wire::{Ask, Command, Frame},
};
use crate::{
    Cache, Guest, Kernel, LabError,
    job::{Files, Job},
    machine::{Machine, TERMINAL, Word},
    scratch::scratch,
};

/// Interval of all periodic checks.
const GLANCE: Duration = Duration::from_millis(50);
/// Time limit for the guest to unmount and power off.
const POWER_OFF: Duration = Duration::from_secs(15);
/// Time limit for a client to send its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Ports of the slots.
const OUT: [&str; 4] = ["out0", "out1", "out2", "out3"];
const ERR: [&str; 4] = ["err0", "err1", "err2", "err3"];

/// Limits after which a keeper ends by itself.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time without any client.
    pub idle: Duration,
    /// The time since the start.
    pub life: Duration,
}

/// Boot the guest and keep it until a client requests its end, a limit is reached, it ends
/// itself, or `stop` is set. `announce` is called once commands can arrive. In every case nothing
/// remains except the remains of a kill of this process: a folder, which the next keeper removes.
///
/// # Errors
///
/// A guest with this name exists already; or it does not come up.
pub fn keep(
    cache: &Cache,
    name: &str,
    guest: Guest,
    limits: Limits,
    stop: impl Fn() -> bool,
    announce: impl FnOnce(&State),
) -> Result<(), LabError> {
    let place = Place::of(cache, name)?;
    let _lock = lock(&place)?;
    place.clear();
    let folder = scratch()?;
    let socket = folder.path().join("socket");
    let mut guest = guest;
    let ports: Vec<&str> = ["control", TERMINAL]
        .into_iter()
        .chain(OUT)
        .chain(ERR)
        .collect();
    let (machine, accelerator, files) = guest.stay(folder.path(), &ports)?;
    let keeper = Arc::new(Keeper::of(&guest, machine, folder.path(), files)?);
    let listener = UnixListener::bind(&socket).map_err(LabError::at(&socket))?;
    listener
        .set_nonblocking(true)
        .map_err(LabError::at(&socket))?;
    let state = State {
        pid: std::process::id(),
        socket,
        folder: folder.path().to_owned(),
        kernel: guest.kernel().version().to_owned(),
        device: guest.device().map(|device| device.name().to_owned()),
        accelerator,
    };
    place.write(&state)?;
    tracing::info!(?accelerator, kernel = state.kernel, "the guest is up");
    announce(&state);
    let ended = keeper.serve(&listener, limits, &stop);
    keeper.power_off();
    place.clear();
    ended
}

/// Take the lock, which is held until we end. Another process may be holding it for a moment, to
/// check whether it is taken.
fn lock(place: &Place) -> Result<fs::File, LabError> {
    for _ in 0..20 {
        if let Some(lock) = place.lock(FlockOperation::NonBlockingLockExclusive)? {
            return Ok(lock);
        }
        thread::sleep(GLANCE);
    }
    Err(LabError::Request(
        "a guest with this name is standing already".into(),
    ))
}

struct Keeper {
    kernel: Kernel,
    /// The folder for the files of commands; the guest has it as `/lab/jobs`.
    jobs: PathBuf,
    machine: Mutex<Machine>,
    control: Control,
    /// The free slots.
    slots: Mutex<Vec<Slot>>,
    /// The terminal's stream, while no client has it.
    terminal: Mutex<Option<UnixStream>>,
    /// The receivers of the word about a command's end, by the command's number.
    waiting: Mutex<HashMap<u64, Sender<Word>>>,
    /// The receiver of the word about the shell's end.
    at_terminal: Mutex<Option<Sender<Word>>>,
    /// The files of the host that the guest has.
    there: Mutex<Files>,
    jobs_begun: AtomicU64,
    /// The number of clients, and the time at which the last one was connected.
    clients: Mutex<(usize, Instant)>,
    down: AtomicBool,
}

impl Keeper {
    fn of(
        guest: &Guest,
        mut machine: Machine,
        folder: &Path,
        files: Files,
    ) -> Result<Self, LabError> {
        let mut port = |name: &str| {
            machine.ports.remove(name).ok_or_else(|| {
                LabError::Request(format!("the guest has no port with the name {name}"))
            })
        };
        let control = Control(Mutex::new(port("control")?));
        let terminal = port(TERMINAL)?;
        let mut slots = Vec::new();
        for (number, (out, err)) in OUT.iter().zip(ERR).enumerate().rev() {
            let slot = Slot {
                number,
                out: port(out)?,
                err: port(err)?,
            };
            for stream in [&slot.out, &slot.err] {
                stream
                    .set_read_timeout(Some(GLANCE))
                    .map_err(LabError::at(folder))?;
            }
            slots.push(slot);
        }
        terminal
            .set_read_timeout(Some(GLANCE))
            .map_err(LabError::at(folder))?;
        Ok(Self {
            kernel: guest.kernel().clone(),
            jobs: folder.join("jobs"),
            machine: Mutex::new(machine),
            control,
            slots: Mutex::new(slots),
            terminal: Mutex::new(Some(terminal)),
            waiting: Mutex::default(),
            at_terminal: Mutex::default(),
            there: Mutex::new(files),
            jobs_begun: AtomicU64::new(0),
            clients: Mutex::new((0, Instant::now())),
            down: AtomicBool::new(false),
        })
    }

    /// Pass on the guest's word about a job to the client that waits for it.
    fn answer(&self, job: u64, word: Word) {
        if let Some(sender) = lock_on(&self.waiting).remove(&job) {
            let _ = sender.send(word);
        }
    }

    /// Accept clients, and pass on the guest's words, until the end.
    fn serve(
        self: &Arc<Self>,
        listener: &UnixListener,
        limits: Limits,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), LabError> {
        let begun = Instant::now();
        loop {
            let word = lock_on(&self.machine).words.recv_timeout(GLANCE);
            match word {
                Ok(Word::Ended(job, outcome)) => self.answer(job, Word::Ended(job, outcome)),
                Ok(Word::Lost(job)) => self.answer(job, Word::Lost(job)),
                Ok(Word::ShellEnded) => {
                    if let Some(sender) = &*lock_on(&self.at_terminal) {
                        let _ = sender.send(Word::ShellEnded);
                    }
                }
                Ok(Word::Silence) | Err(RecvTimeoutError::Disconnected) => {
                    return self.guest_ended();
                }
                Ok(Word::Ready | Word::Failed(_) | Word::Exit(_))
                | Err(RecvTimeoutError::Timeout) => {}
            }
            while let Ok((stream, _)) = listener.accept() {
                self.take(stream);
            }
            let (clients, last) = *lock_on(&self.clients);
            let idle = clients == 0 && last.elapsed() > limits.idle;
            if idle || begun.elapsed() > limits.life {
                tracing::info!("ending: nobody is there, or it has been there for long");
                return Ok(());
            }
            if stop() || self.down.load(Ordering::Acquire) {
                return Ok(());
            }
        }
    }

    /// A guest that a command told to power off has ended well.
    fn guest_ended(&self) -> Result<(), LabError> {
        lock_on(&self.waiting).clear();
        let console = lock_on(&self.machine).end_of_console();
        if console.contains("Kernel panic") || console.contains("Oops") {
            return Err(LabError::Died {
                why: "the guest went down".into(),
                console,
            });
        }
        Ok(())
    }

    fn power_off(&self) {
        self.down.store(true, Ordering::Release);
        let _ = self.control.say("down\n");
        lock_on(&self.machine).end(POWER_OFF);
    }

    /// Serve a client in a thread of its own. It ends with the client, or with the process.
    fn take(self: &Arc<Self>, stream: UnixStream) {
        let keeper = Arc::clone(self);
        lock_on(&self.clients).0 += 1;
        let served = thread::Builder::new().name("client".into()).spawn(move || {
            if let Err(error) = keeper.client(stream) {
                tracing::warn!("a client: {error}");
            }
            keeper.leave();
        });
        if served.is_err() {
            self.leave();
        }
    }

    fn leave(&self) {
        let mut clients = lock_on(&self.clients);
        *clients = (clients.0.saturating_sub(1), Instant::now());
    }

    fn client(&self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut input = BufReader::new(stream.try_clone()?);
        let ask = Ask::read(&mut input)?;
        stream.set_read_timeout(None)?;
        let client = Client::new(stream);
        let last = match ask {
            Ask::Down => {
                self.down.store(true, Ordering::Release);
                None
            }
            Ask::Run(command) => {
                let gone = Arc::clone(&client.gone);
                // Nothing arrives but the end.
                thread::spawn(move || {
                    let _ = io::copy(&mut input, &mut io::sink());
                    gone.store(true, Ordering::Release);
                });
                Some(self.run(&client, command))
            }
            Ask::Shell { rows, columns } => Some(self.shell(&client, input, rows, columns)),
        };
        if let Some(last) = last {
            client.say(&last);
        }
        client.end();
        Ok(())
    }

    /// Run a command and return the last frame for the client.
    fn run(&self, client: &Client, command: Command) -> Frame {
        let Some(slot) = lock_on(&self.slots).pop() else {
            return Frame::Failed(format!("{} commands are running there already", OUT.len()));
        };
        let last = self
            .run_in(&slot, client, command)
            .unwrap_or_else(|error| Frame::Failed(error.to_string()));
        lock_on(&self.slots).push(slot);
        last
    }

    fn run_in(&self, slot: &Slot, client: &Client, command: Command) -> Result<Frame, LabError> {
        let number = self.jobs_begun.fetch_add(1, Ordering::Relaxed);
        let folder = JobFolder(self.jobs.join(number.to_string()));
        fs::create_dir(&folder.0).map_err(LabError::at(&folder.0))?;
        let timeout = Duration::from_secs(command.timeout_s);
        let job = Job {
            copy: command.copy.into_iter().map(PathBuf::from).collect(),
            with_tools: command.with_tools,
            here: Some(command.here.into()),
            command: command.words,
            ..Job::default()
        };
        let there = lock_on(&self.there).clone();
        let there = job.write_more(&self.kernel, &folder.0, there)?;
        let mark = mark().map_err(LabError::at(Path::new("/dev/urandom")))?;
        let (sender, words) = mpsc::channel();
        lock_on(&self.waiting).insert(number, sender);
        let at_control = |_| LabError::Request("the standing guest has ended".into());
        self.control
            .say(&format!("run {} {number} {mark}\n", slot.number))
            .map_err(at_control)?;
        let kill = || drop(self.control.say(&format!("kill {}\n", slot.number)));
        let last = Running {
            client,
            slot,
            mark: mark.as_bytes(),
            words: &words,
            timeout,
            down: &self.down,
            kill: &kill,
        }
        .wait();
        // Another command may have brought the same files meanwhile, or others.
        let mut known = lock_on(&self.there);
        match last {
            Frame::Failed(_) => known.clear(),
            _ => known.extend(there),
        }
        Ok(last)
    }

    /// Give the terminal to a client.
    fn shell(
        &self,
        client: &Client,
        mut input: impl Read + Send,
        rows: u16,
        columns: u16,
    ) -> Frame {
        let Some(terminal) = lock_on(&self.terminal).take() else {
            return Frame::Failed("somebody else is at the guest's terminal".into());
        };
        let (sender, words) = mpsc::channel();
        *lock_on(&self.at_terminal) = Some(sender);
        let _ = self.control.say(&format!("size {rows} {columns}\n"));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (over, gone) = (&over, &client.gone);
            let mut typing = &terminal;
            scope.spawn(move || {
                let _ = io::copy(&mut input, &mut typing);
                gone.store(true, Ordering::Release);
            });
            scope.spawn(|| show(&terminal, client, over));
            loop {
                let ended = words.recv_timeout(GLANCE);
                let done = ended != Err(RecvTimeoutError::Timeout);
                let gone = client.gone.load(Ordering::Acquire);
                if done || gone || self.down.load(Ordering::Acquire) {
                    break;
                }
            }
            over.store(true, Ordering::Release);
            client.say(&Frame::Ended(0));
            // Ends the thread that waits for keys.
            client.end();
        });
        *lock_on(&self.at_terminal) = None;
        *lock_on(&self.terminal) = Some(terminal);
        Frame::Ended(0)
    }
}

/// Send the output of the terminal to the client. Once `over` is set, only the output already
/// present.
fn show(mut terminal: &UnixStream, client: &Client, over: &AtomicBool) {
    let mut buffer = vec![0; 4096];
    loop {
        match terminal.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => client.say(&Frame::Out(buffer[..n].to_vec())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) => {}
            Err(_) => return,
        }
        if over.load(Ordering::Acquire) {
            return;
        }
    }
}

/// A random string that no output contains.
fn mark() -> io::Result<String> {
    let mut bytes = [0; 12];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn lock_on<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
