//! The control socket: one line of JSON asks, one line answers.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    device::{Device, ErrorFault, FaultError, SlowDie},
    record::RecordError,
};

/// The time that a client waits for the answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest question, in bytes.
const LONGEST_LINE: u64 = 64 << 10;

/// A question to a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// State and counters.
    Stats,
    /// Cut the power.
    PowerCut,
    /// Begin to record.
    RecordStart {
        /// The new file to record to; an absolute path.
        file: PathBuf,
    },
    /// Name this moment.
    RecordMark {
        /// The name.
        label: String,
    },
    /// End the recording.
    RecordStop,
    /// Let commands on a range fail.
    InjectError(ErrorFault),
    /// Slow a die down.
    InjectSlowDie(SlowDie),
    /// End all faults.
    InjectClear,
    /// Tell all faults.
    InjectList,
}

/// A daemon's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// It was done; this is its result.
    Done(Value),
    /// It was not done; this is the reason.
    Failed(String),
}

/// A daemon cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It is not there, or was lost.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ended meanwhile.
    #[error("the daemon ended before it answered")]
    NoAnswer,
    /// The question or its answer is not JSON of this version.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Ask the daemon at a socket.
///
/// # Errors
///
/// It is not there, or does not answer.
pub fn ask(socket: &Path, question: &Ask) -> Result<Told, AskError> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(question)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(AskError::NoAnswer);
    }
    Ok(serde_json::from_str(&answer)?)
}

/// Answer at `listener` for as long as the device lives.
pub(super) fn serve(listener: UnixListener, device: &Arc<Device>) -> io::Result<()> {
    let device = Arc::downgrade(device);
    std::thread::Builder::new()
        .name("flashd-control".to_owned())
        .spawn(move || {
            for stream in listener.incoming() {
                // One after the other: a client is a person or a script of the same user.
                let served = stream.and_then(|stream| answer(stream, &device));
                if let Err(error) = served {
                    tracing::debug!(%error, "a question was not answered");
                }
                if device.strong_count() == 0 {
                    return;
                }
            }
        })?;
    Ok(())
}

fn answer(stream: UnixStream, device: &Weak<Device>) -> io::Result<()> {
    // A client that connects and sends nothing must not keep others waiting.
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LONGEST_LINE)).read_line(&mut line)?;
    if line.is_empty() {
        return Ok(());
    }
    let told = match obey(&line, device) {
        Ok(value) => Told::Done(value),
        // The wire has texts.
        Err(failure) => Told::Failed(failure.to_string()),
    };
    let mut line = serde_json::to_vec(&told)?;
    line.push(b'\n');
    (&stream).write_all(&line)
}

/// The reason for which a question has no answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// It is none that this version knows.
    #[error("this was not understood: {0}")]
    NotUnderstood(#[source] serde_json::Error),
    /// It came too late.
    #[error("the device is being closed")]
    Closing,
    /// The recording could not be begun, marked or ended.
    #[error(transparent)]
    Recording(#[from] RecordError),
    /// The device has no such place.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The answer cannot be written.
    #[error(transparent)]
    Answer(#[from] serde_json::Error),
}

fn obey(line: &str, device: &Weak<Device>) -> Result<Value, Failure> {
    let question: Ask = serde_json::from_str(line).map_err(Failure::NotUnderstood)?;
    let device = device.upgrade().ok_or(Failure::Closing)?;
    act(&question, &device)
}

fn act(question: &Ask, device: &Device) -> Result<Value, Failure> {
    Ok(match question {
        Ask::Stats => serde_json::to_value(device.stats())?,
        Ask::PowerCut => json!({ "schema": 1, "lost_bytes": device.power_cut() }),
        Ask::RecordStart { file } => {
            device.record_to(file)?;
            serde_json::to_value(device.recording().state())?
        }
        Ask::RecordMark { label } => {
            device.recording().mark(label)?;
            serde_json::to_value(device.recording().state())?
        }
        Ask::InjectError(fault) => {
            device.inject_error(fault.clone())?;
            serde_json::to_value(device.faults())?
        }
        Ask::InjectSlowDie(slow) => {
            device.slow_die(*slow)?;
            serde_json::to_value(device.faults())?
        }
        Ask::InjectClear => {
            let before = device.faults();
            device.clear_faults();
            serde_json::to_value(before)?
        }
        Ask::InjectList => serde_json::to_value(device.faults())?,
        Ask::RecordStop => serde_json::to_value(device.recording().end()?)?,
    })
}
