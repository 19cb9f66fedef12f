//! The messages between a client and a standing guest's keeper, over a Unix socket: the client
//! sends one line of JSON ([`Ask`]), the keeper frames ([`Frame`]): kind, length (4 bytes,
//! little-endian), content.

use std::{
    ffi::OsString,
    io::{self, BufRead, Read, Write},
};

use serde::{Deserialize, Serialize};

/// Maximum length of a line: a command and names of files.
const LONGEST_ASK: u64 = 1 << 20;
/// Maximum length of a frame; the keeper sends at most the bytes that it reads at once.
const LONGEST_FRAME: u32 = 1 << 20;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ask {
    /// Run a command; it ends when the connection does.
    Run(Command),
    /// Connects to the terminal: all further bytes from the client are typed there.
    Shell {
        /// Lines of the client's terminal.
        rows: u16,
        /// Columns of it.
        columns: u16,
    },
    /// End the guest.
    Down,
}

/// A command for a standing guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments. The program is a file of the host, or one of busybox's.
    pub words: Vec<OsString>,
    /// The command's working directory.
    pub here: OsString,
    /// Files of the host that it wants, at the same path as on the host.
    pub copy: Vec<OsString>,
    /// Whether it wants the makers and checkers of file systems.
    pub with_tools: bool,
    /// Its time limit in seconds.
    pub timeout_s: u64,
}

/// A message of the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Standard output, or the output of the terminal.
    Out(Vec<u8>),
    /// Standard error.
    Err(Vec<u8>),
    /// It has ended with this status.
    Ended(i32),
    /// It came to no result, for this reason.
    Failed(String),
}

impl Frame {
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let status;
        let (kind, content): (u8, &[u8]) = match self {
            Self::Out(bytes) => (1, bytes),
            Self::Err(bytes) => (2, bytes),
            Self::Ended(code) => {
                status = code.to_le_bytes();
                (3, &status)
            }
            Self::Failed(why) => (4, why.as_bytes()),
        };
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut frame = vec![kind];
        frame.extend(length.to_le_bytes());
        frame.extend(content);
        to.write_all(&frame)
    }

    /// Read the next one; `None` at the end.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; 5];
        match from.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length);
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no keeper of the lab's");
        if length > LONGEST_FRAME {
            return Err(wrong());
        }
        let mut content = vec![0; length as usize];
        from.read_exact(&mut content)?;
        Ok(Some(match kind {
            1 => Self::Out(content),
            2 => Self::Err(content),
            3 => Self::Ended(i32::from_le_bytes(content.try_into().map_err(|_| wrong())?)),
            4 => Self::Failed(String::from_utf8_lossy(&content).into_owned()),
            _ => return Err(wrong()),
        }))
    }
}

impl Ask {
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)
    }

    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut line = Vec::new();
        from.take(LONGEST_ASK).read_until(b'\n', &mut line)?;
        Ok(serde_json::from_slice(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        let frames = [
            Frame::Out(vec![0, 10, 255]),
            Frame::Err(Vec::new()),
            Frame::Ended(-1),
            Frame::Failed("it's gone".into()),
        ];
        let mut wire = Vec::new();
        for frame in &frames {
            frame.write(&mut wire).unwrap();
        }
        let mut wire = wire.as_slice();
        for frame in frames {
            assert_eq!(Frame::read(&mut wire).unwrap(), Some(frame));
        }
        assert_eq!(Frame::read(&mut wire).unwrap(), None);
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        assert!(Frame::read(&mut [9, 0, 0, 0, 0].as_slice()).is_err());
        assert!(Frame::read(&mut [1, 255, 255, 255, 255].as_slice()).is_err());
        assert!(Frame::read(&mut [1, 9, 0, 0, 0, 1].as_slice()).is_err());
        assert!(Frame::read(&mut [3, 1, 0, 0, 0, 1].as_slice()).is_err());
    }

    #[test]
    fn a_command_of_any_bytes_is_understood() {
        use std::os::unix::ffi::OsStringExt;
        let ask = Ask::Run(Command {
            words: vec!["sh".into(), OsString::from_vec(vec![0xff, b'\n'])],
            here: "/tmp".into(),
            copy: vec!["/etc/fstab".into()],
            with_tools: true,
            timeout_s: 3,
        });
        let mut wire = Vec::new();
        ask.write(&mut wire).unwrap();
        assert_eq!(Ask::read(&mut wire.as_slice()).unwrap(), ask);
        assert!(Ask::read(&mut b"{}\n".as_slice()).is_err());
    }
}
