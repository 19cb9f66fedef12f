//! Bytes from a socket, PDU by PDU.

use std::{
    io::{ErrorKind, Read},
    net::TcpStream,
};

/// Bytes that are read from the socket at once.
const BUFFER: usize = 256 << 10;

/// The reason why nothing more is received.
#[derive(Debug)]
pub(super) enum ReceiveError {
    /// The host has closed the connection, or it broke.
    Closed,
    /// [`Patience`] said so.
    GaveUp,
}

/// Asked about each read from the socket. `within` a PDU the host owes the rest of it, between two
/// it owes nothing.
pub(super) trait Patience {
    /// Before waiting: send the data that waits to be sent.
    fn before_wait(&mut self);
    /// Bytes have come, which may be the first of a PDU. Whether to end it all the same.
    fn received(&mut self, within: bool) -> bool;
    /// Whether to end it, as nothing has come for one tick (the socket's read timeout).
    fn is_over(&mut self, within: bool) -> bool;
}

/// A socket with a buffer.
#[derive(Debug)]
pub(super) struct Receiver {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Receiver {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
        }
    }

    /// The next `len` bytes (at most a quarter of the buffer), which stay where they are.
    pub(super) fn peek(
        &mut self,
        len: usize,
        within: bool,
        patience: &mut dyn Patience,
    ) -> Result<&[u8], ReceiveError> {
        debug_assert!(len <= BUFFER / 4);
        if BUFFER - self.start < len {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < len {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            }
            let within = within || self.start < self.end;
            self.end += receive(
                &mut self.stream,
                &mut self.buffer[self.end..],
                within,
                patience,
            )?;
        }
        Ok(&self.buffer[self.start..self.start + len])
    }

    /// Release bytes that [`Receiver::peek`] has shown.
    pub(super) fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
    }

    /// The bytes that were peeked at, once more.
    pub(super) fn peeked(&self, len: usize) -> &[u8] {
        &self.buffer[self.start..(self.start + len).min(self.end)]
    }

    /// Fill `into` with the next bytes; those that are not in the buffer yet bypass it.
    pub(super) fn take(
        &mut self,
        into: &mut [u8],
        patience: &mut dyn Patience,
    ) -> Result<(), ReceiveError> {
        let buffered = (self.end - self.start).min(into.len());
        into[..buffered].copy_from_slice(&self.buffer[self.start..self.start + buffered]);
        self.start += buffered;
        let mut at = buffered;
        while at < into.len() {
            at += receive(&mut self.stream, &mut into[at..], true, patience)?;
        }
        Ok(())
    }

    /// Throw away the input until the host closes or sends nothing for one tick.
    pub(super) fn drain(&mut self) {
        // A host that never stops sending is not waited for.
        for _ in 0..64 {
            match self.stream.read(&mut self.buffer) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

fn receive(
    stream: &mut TcpStream,
    into: &mut [u8],
    within: bool,
    patience: &mut dyn Patience,
) -> Result<usize, ReceiveError> {
    patience.before_wait();
    loop {
        match stream.read(into) {
            Ok(0) => return Err(ReceiveError::Closed),
            Ok(_) if patience.received(within) => return Err(ReceiveError::GaveUp),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if patience.is_over(within) {
                    return Err(ReceiveError::GaveUp);
                }
            }
            Err(_) => return Err(ReceiveError::Closed),
        }
    }
}
