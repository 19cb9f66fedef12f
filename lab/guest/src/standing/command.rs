//! A command in a standing guest: its slot, its files, its output, its end.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use super::wire::Frame;
use crate::machine::Word;

/// Interval of the check whether the client is still connected.
const GLANCE: Duration = Duration::from_millis(50);
/// Interval at which a command is told again to end.
const INSIST: Duration = Duration::from_secs(1);

/// Two ports for a command's output.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: usize,
    pub(super) out: UnixStream,
    pub(super) err: UnixStream,
}

/// The client's side of the connection.
#[derive(Clone, Debug)]
pub(super) struct Client {
    stream: Arc<Mutex<UnixStream>>,
    /// Whether it has disconnected.
    pub(super) gone: Arc<AtomicBool>,
}

impl Client {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream: Arc::new(Mutex::new(stream)),
            gone: Arc::default(),
        }
    }

    /// Send a frame; if nobody receives it, that is recorded.
    pub(super) fn say(&self, frame: &Frame) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if frame.write(&mut *stream).is_err() {
            self.gone.store(true, Ordering::Release);
        }
    }

    /// End the connection.
    pub(super) fn end(&self) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

/// A started command.
pub(super) struct Running<'a> {
    pub(super) client: &'a Client,
    pub(super) slot: &'a Slot,
    /// The mark after the end of each of its outputs.
    pub(super) mark: &'a [u8],
    /// The words about how it ends.
    pub(super) words: &'a Receiver<Word>,
    pub(super) timeout: Duration,
    /// Whether the guest must end.
    pub(super) down: &'a AtomicBool,
    /// Tells the guest to end it.
    pub(super) kill: &'a (dyn Fn() + Sync),
}

impl Running<'_> {
    /// Pass its output on, wait for its end, and return the last frame for the
    /// client.
    pub(super) fn wait(&self) -> Frame {
        // Set when no more output can arrive.
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for (port, frame) in [
                (&self.slot.out, Frame::Out as fn(Vec<u8>) -> Frame),
                (&self.slot.err, Frame::Err),
            ] {
                let (mark, client, over) = (self.mark, self.client, &over);
                scope.spawn(move || forward(port, mark, client, frame, over));
            }
            let ended = self.end();
            if ended.is_none() {
                over.store(true, Ordering::Release);
            }
            ended
        })
        .unwrap_or_else(|| Frame::Failed("the standing guest has ended".into()))
    }

    /// `None` where the guest has ended.
    fn end(&self) -> Option<Frame> {
        let begun = Instant::now();
        let mut told: Option<Instant> = None;
        let mut late = false;
        loop {
            match self.words.recv_timeout(GLANCE) {
                Ok(Word::Ended(..)) if late => {
                    return Some(Frame::Failed(format!(
                        "the command was ended after {:?}",
                        self.timeout
                    )));
                }
                Ok(Word::Ended(_, status)) => return Some(Frame::Ended(status)),
                Ok(Word::Lost(_)) => {
                    return Some(Frame::Failed("the command could not be started".into()));
                }
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.down.load(Ordering::Acquire) {
                return None;
            }
            late |= begun.elapsed() > self.timeout;
            let unwanted = late || self.client.gone.load(Ordering::Acquire);
            if unwanted && told.is_none_or(|told| told.elapsed() > INSIST) {
                told = Some(Instant::now());
                (self.kill)();
            }
        }
    }
}

/// Pass on the output of a port, up to the mark.
fn forward(
    mut port: &UnixStream,
    mark: &[u8],
    client: &Client,
    frame: impl Fn(Vec<u8>) -> Frame,
    over: &AtomicBool,
) {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match port.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => kept.extend_from_slice(&buffer[..n]),
            // The port's streams have a timeout, so that the flags can be checked.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                if over.load(Ordering::Acquire) {
                    break;
                }
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        }
        if kept.ends_with(mark) {
            kept.truncate(kept.len() - mark.len());
            break;
        }
        // Bytes that may be the beginning of the mark are held back until the rest
        // arrives.
        let open = (1..mark.len().min(kept.len() + 1))
            .rev()
            .find(|n| mark.starts_with(&kept[kept.len() - n..]))
            .unwrap_or(0);
        let certain = kept.len() - open;
        if certain > 0 {
            let rest = kept.split_off(certain);
            client.say(&frame(std::mem::replace(&mut kept, rest)));
        }
    }
    if !kept.is_empty() {
        client.say(&frame(kept));
    }
}

/// A folder that is removed when its value is dropped.
pub(super) struct JobFolder(pub(super) PathBuf);

impl Drop for JobFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The writer of lines to the guest.
#[derive(Debug)]
pub(super) struct Control(pub(super) Mutex<UnixStream>);

impl Control {
    pub(super) fn say(&self, line: &str) -> io::Result<()> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(line.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    /// However the output is cut into pieces, exactly the bytes before the mark arrive.
    #[test]
    fn output_ends_at_the_mark() {
        let mark = b"=mark=";
        let whole = [b"some =mark output".as_slice(), mark].concat();
        for step in 1..whole.len() {
            let (mut guest, port) = UnixStream::pair().unwrap();
            let (ours, theirs) = UnixStream::pair().unwrap();
            let client = Client::new(ours);
            for piece in whole.chunks(step) {
                guest.write_all(piece).unwrap();
            }
            let over = AtomicBool::new(false);
            forward(&port, mark, &client, Frame::Out, &over);
            client.end();
            let mut said = Vec::new();
            let mut theirs = BufReader::new(theirs);
            while let Some(Frame::Out(bytes)) = Frame::read(&mut theirs).unwrap() {
                said.extend(bytes);
            }
            assert_eq!(said, b"some =mark output", "in pieces of {step}");
        }
    }
}
