//! The side that asks.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    here::here,
    order::{Answer, Findings, Halt, NotTraced, Order, PATIENCE, is_readable, line, stranger},
};

/// How often it asks anew where it is turned away: the one before may still be writing down what it has.
const TRIES: u32 = 20;
/// From one such try to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time without a look at `halt`.
const TICK: Duration = Duration::from_millis(500);
/// A longer answer is none: it names some ten thousand files.
const LONGEST: usize = 16 << 20;

/// How long the other side may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Until it begins: a program is started, which lets all others go first.
    pub(super) begins: Duration,
    /// Beyond the time of the trace, on a machine where it hardly gets a processor.
    pub(super) late: Duration,
    /// To end when it is asked to, and to write down what it has: less than a service manager waits for a service.
    pub(super) ends: Duration,
}

const LIMITS: Limits = Limits {
    begins: Duration::from_secs(60),
    late: Duration::from_secs(300),
    ends: Duration::from_secs(40),
};

/// Trace as ordered: by whoever listens at `socket`, else in this process. Ends early when `halt` says so.
///
/// # Errors
///
/// It is not possible, what was counted was not kept, or the other side is lost.
pub fn trace(socket: Option<&Path>, order: &Order, halt: Halt<'_>) -> Result<Findings, NotTraced> {
    let Some(socket) = socket else {
        return here(order, halt);
    };
    for _ in 0..TRIES {
        let connection = match connect(socket) {
            Ok(connection) => connection,
            Err(error) => {
                tracing::debug!(%error, socket = %socket.display(), "nobody traces for us");
                return here(order, halt).map_err(|NotTraced { why, may_pass }| {
                    let socket = socket.display();
                    let why = format!("{why}; and nobody traces for it at {socket}: {error}");
                    NotTraced { why, may_pass }
                });
            }
        };
        if let Some(findings) = ask(&connection, order, halt, &LIMITS)? {
            return Ok(findings);
        }
        if halt() {
            return Ok(Findings::default());
        }
        thread::sleep(PAUSE);
    }
    let socket = socket.display();
    Err(NotTraced::for_now(format!(
        "whoever traces for it at {socket} takes no order, perhaps as it has one"
    )))
}

/// Connect, if root listens there, or who we are.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let connection = UnixStream::connect(socket)?;
    match stranger(&connection)? {
        None => Ok(connection),
        Some(user) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("user {user} listens there"),
        )),
    }
}

/// Order, and wait for the end. `None`: it was turned away.
pub(super) fn ask(
    connection: &UnixStream,
    order: &Order,
    halt: Halt<'_>,
    limits: &Limits,
) -> Result<Option<Findings>, NotTraced> {
    let lost = |error: io::Error| NotTraced::for_now(format!("asking for a trace: {error}"));
    let mut told = Told::of(connection);
    connection.set_write_timeout(Some(PATIENCE)).map_err(lost)?;
    let order_line = line(order).map_err(lost)?;
    if let Err(error) = { connection }.write_all(&order_line) {
        // It may have said why before it closed.
        tracing::debug!(%error, "the order was not taken");
    }
    let began = Instant::now();
    let (mut has_begun, mut ends_by) = (false, None);
    loop {
        // Asked each time: it is what tells others that we live.
        let is_halted = halt();
        let is_late = began.elapsed() > order.time.saturating_add(limits.late);
        match ends_by {
            None if is_halted || is_late => {
                // Who is gone has ended.
                let _ = connection.shutdown(Shutdown::Write);
                ends_by = Some(Instant::now() + limits.ends);
            }
            Some(by) if Instant::now() >= by => {
                return Err(silent("was asked to end, and does not"));
            }
            None | Some(_) => {}
        }
        if !has_begun && began.elapsed() > limits.begins {
            return Err(silent("does not begin"));
        }
        if !told.has_line() && !is_readable(connection, TICK).map_err(lost)? {
            continue;
        }
        match told.next().map_err(lost)? {
            Next::Nothing => {}
            Next::Answer(Answer::Begins) => has_begun = true,
            Next::Answer(Answer::Traced(findings)) => return Ok(Some(findings)),
            Next::Answer(Answer::Failed(why)) => return Err(why.into()),
            Next::Answer(Answer::FailedForNow(why)) => return Err(NotTraced::for_now(why)),
            Next::Closed if has_begun => {
                return Err(NotTraced::for_now(
                    "whoever traced for it ended before it told what it found (`journalctl -u 'indef-trace@*'` \
                     may tell why)"
                        .to_owned(),
                ));
            }
            Next::Closed => return Ok(None),
        }
    }
}

fn silent(what: &str) -> NotTraced {
    NotTraced::for_now(format!("whoever traces for it {what}"))
}

/// What the other side says.
struct Told<'a> {
    connection: &'a UnixStream,
    /// Read, and not yet given out.
    text: Vec<u8>,
    /// So much of it has no end of a line.
    scanned: usize,
    chunk: Vec<u8>,
}

enum Next {
    /// No whole line yet.
    Nothing,
    Answer(Answer),
    /// It is gone.
    Closed,
}

impl<'a> Told<'a> {
    fn of(connection: &'a UnixStream) -> Self {
        Self {
            connection,
            text: Vec::new(),
            scanned: 0,
            chunk: vec![0; 64 << 10],
        }
    }

    /// The end of the first line.
    fn end(&mut self) -> Option<usize> {
        let mut left = self.text[self.scanned..].iter();
        let found = left.position(|byte| *byte == b'\n');
        if found.is_none() {
            self.scanned = self.text.len();
        }
        found.map(|at| self.scanned + at)
    }

    fn has_line(&mut self) -> bool {
        self.end().is_some()
    }

    /// The next answer, if one is there. To be asked when there is a line, or something to read.
    fn next(&mut self) -> io::Result<Next> {
        if let Some(answer) = self.line()? {
            return Ok(Next::Answer(answer));
        }
        let read = match { self.connection }.read(&mut self.chunk) {
            // It closed without reading all that we wrote.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            result => result?,
        };
        if read == 0 {
            return Ok(Next::Closed);
        }
        self.text.extend_from_slice(&self.chunk[..read]);
        Ok(self.line()?.map_or(Next::Nothing, Next::Answer))
    }

    fn line(&mut self) -> io::Result<Option<Answer>> {
        let Some(end) = self.end() else {
            return match self.text.len() > LONGEST {
                true => Err(io::Error::other("an answer without an end")),
                false => Ok(None),
            };
        };
        let line: Vec<u8> = self.text.drain(..=end).collect();
        self.scanned = 0;
        Ok(Some(serde_json::from_slice(&line)?))
    }
}
