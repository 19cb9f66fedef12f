//! PDUs to and from a socket.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use nvme_wire::{
    Completion, Submission,
    pdu::{
        CapsuleCmd, CapsuleResp, DIGEST_LEN, Data, Digests, FLAG_DATA_DIGEST, FLAG_HEADER_DIGEST,
        FLAG_LAST, FLAG_SUCCESS, Header, IcReq, IcResp, PduType, R2t, TermReq,
    },
};
use zerocopy::{
    IntoBytes,
    little_endian::{U16, U32},
};

use crate::Error;

const BUFFER: usize = 256 << 10;
/// Most data of a PDU from the target.
const DATA_MAX: usize = 16 << 20;
/// How long the target may be silent while something is expected.
const PATIENCE: Duration = Duration::from_secs(20);

/// A PDU from a target. Data is in [`Wire::data`] until the next one is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// ICResp.
    Initialized(IcResp),
    /// CapsuleResp.
    Done(Completion),
    /// C2HData.
    Data {
        /// The command.
        cid: u16,
        /// The offset in its data.
        offset: usize,
        /// Whether this is the last PDU of the transfer.
        last: bool,
        /// Whether the command has succeeded and no response follows.
        success: bool,
    },
    /// R2T.
    Ready(R2t),
    /// C2HTermReq.
    Terminated(TermReq),
}

/// A connection to a target.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    digests: Digests,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    data: Vec<u8>,
    out: Vec<u8>,
}

impl Wire {
    /// Connect, and no more.
    ///
    /// # Errors
    ///
    /// Nobody listens there.
    pub fn open(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            digests: Digests::default(),
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            data: Vec::new(),
            out: Vec::new(),
        })
    }

    /// Exchange ICReq and ICResp.
    ///
    /// # Errors
    ///
    /// The target does not accept the request.
    pub fn initialize(&mut self, digests: Digests, hpda: u8) -> Result<IcResp, Error> {
        self.put(Self::ic_req(digests, hpda).as_bytes());
        self.flush()?;
        match self.receive()? {
            Incoming::Initialized(response) => {
                self.digests = Digests::from_raw(response.digests)
                    .ok_or_else(|| Error::Protocol("digests of ICResp".to_owned()))?;
                Ok(response)
            }
            Incoming::Terminated(request) => Err(Error::Terminated(request.fatal())),
            other => Err(Error::Protocol(format!("{other:?} instead of ICResp"))),
        }
    }

    /// A valid ICReq.
    #[must_use]
    pub fn ic_req(digests: Digests, hpda: u8) -> IcReq {
        let mut request = IcReq::zeroed();
        request.header = Header::plain(PduType::IcReq, IcReq::LEN as u8, Digests::default());
        request.digests = digests.raw();
        request.hpda = hpda;
        request
    }

    /// The digests that both sides have agreed on.
    #[must_use]
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// The socket.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Any bytes, to be sent with the next [`Wire::flush`].
    pub fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// The bytes of a PDU: `header` (whose `header` field is filled in here), `data`, digests.
    #[must_use]
    pub fn pdu(&self, kind: PduType, header: &[u8], flags: u8, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put_pdu(kind, header, flags, data, &mut bytes);
        bytes
    }

    fn put_pdu(&self, kind: PduType, header: &[u8], flags: u8, data: &[u8], out: &mut Vec<u8>) {
        let hlen = header.len() as u8;
        let mut common = if data.is_empty() {
            Header::plain(kind, hlen, self.digests)
        } else {
            Header::with_data(kind, hlen, self.digests, 4, data.len() as u32)
        };
        common.flags |= flags;
        let start = out.len();
        out.extend_from_slice(common.as_bytes());
        out.extend_from_slice(&header[Header::LEN..]);
        if common.flags & FLAG_HEADER_DIGEST != 0 {
            let digest = crc32c::crc32c(&out[start..]);
            out.extend_from_slice(&digest.to_le_bytes());
        }
        if !data.is_empty() {
            out.resize(start + usize::from(common.pdo), 0);
            out.extend_from_slice(data);
            if common.flags & FLAG_DATA_DIGEST != 0 {
                out.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
            }
        }
    }

    /// A command, with data in its capsule if there is some.
    pub fn put_command(&mut self, command: &Submission, data: &[u8]) {
        let capsule = CapsuleCmd {
            header: Header::plain(PduType::CapsuleCmd, CapsuleCmd::LEN as u8, self.digests),
            command: *command,
        };
        let mut out = std::mem::take(&mut self.out);
        self.put_pdu(PduType::CapsuleCmd, capsule.as_bytes(), 0, data, &mut out);
        self.out = out;
    }

    /// The header of H2CData for a part of what an R2T asks for.
    #[must_use]
    pub fn h2c_data(r2t: &R2t, offset: usize, len: usize) -> Data {
        let mut header = Data::zeroed();
        header.cid = r2t.cid;
        header.transfer_tag = U16::new(r2t.transfer_tag.get());
        header.offset = U32::new(offset as u32);
        header.length = U32::new(len as u32);
        header
    }

    /// Data that an R2T asks for, in PDUs of at most `piece` bytes.
    pub fn put_data(&mut self, r2t: &R2t, data: &[u8], piece: usize) {
        let from = r2t.offset.get() as usize;
        let end = from + r2t.length.get() as usize;
        let mut out = std::mem::take(&mut self.out);
        for start in (from..end).step_by(piece.max(1)) {
            let part = &data[start..end.min(start + piece)];
            let header = Self::h2c_data(r2t, start, part.len());
            let last = if start + part.len() == end {
                FLAG_LAST
            } else {
                0
            };
            self.put_pdu(PduType::H2cData, header.as_bytes(), last, part, &mut out);
        }
        self.out = out;
    }

    /// Send the bytes that were put.
    ///
    /// # Errors
    ///
    /// The connection is gone.
    pub fn flush(&mut self) -> Result<(), Error> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Whether received bytes are left that were not looked at yet.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        self.end - self.start >= Header::LEN
    }

    /// The data of the C2HData PDU that was received last.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The next PDU.
    ///
    /// # Errors
    ///
    /// The connection is gone, or the PDU is wrong.
    pub fn receive(&mut self) -> Result<Incoming, Error> {
        let mut data = std::mem::take(&mut self.data);
        let result = self.receive_into(|_, len| {
            data.resize(len, 0);
            Ok(&mut data[..])
        });
        self.data = data;
        result
    }

    /// The next PDU; its data goes into the buffer that `place` returns for its header and length.
    ///
    /// # Errors
    ///
    /// The connection is gone, the PDU is wrong, or `place` returned an error.
    pub fn receive_into<'a>(
        &mut self,
        place: impl FnOnce(&Data, usize) -> Result<&'a mut [u8], Error>,
    ) -> Result<Incoming, Error> {
        let header = Header::first_of(self.fill(Header::LEN)?);
        let header = header.ok_or_else(|| Error::Protocol("no header".to_owned()))?;
        let wrong = |what: &str| Error::Protocol(format!("{what} of {header:?}"));
        let parts = header
            .from_controller(self.digests, DATA_MAX)
            .map_err(|fatal| wrong(&fatal.to_string()))?;
        let bytes = self.fill(parts.data_start)?;
        if parts.header_digest {
            let digest = &bytes[parts.header..parts.header + DIGEST_LEN];
            if crc32c::crc32c(&bytes[..parts.header]).to_le_bytes() != digest {
                return Err(wrong("header digest"));
            }
        }
        let incoming = match header.pdu_type() {
            PduType::IcResp => IcResp::first_of(bytes).map(Incoming::Initialized),
            PduType::CapsuleResp => {
                CapsuleResp::first_of(bytes).map(|pdu| Incoming::Done(pdu.completion))
            }
            PduType::R2t => R2t::first_of(bytes).map(Incoming::Ready),
            PduType::C2hTermReq => TermReq::first_of(bytes).map(Incoming::Terminated),
            PduType::C2hData => {
                let pdu = Data::first_of(bytes).ok_or_else(|| wrong("length"))?;
                if pdu.length.get() as usize != parts.data {
                    return Err(wrong("DATAL"));
                }
                self.start += parts.data_start;
                let into = place(&pdu, parts.data)?;
                self.take(into)?;
                if parts.data_digest {
                    let mut digest = [0; DIGEST_LEN];
                    self.take(&mut digest)?;
                    if crc32c::crc32c(into) != u32::from_le_bytes(digest) {
                        return Err(wrong("data digest"));
                    }
                }
                return Ok(Incoming::Data {
                    cid: pdu.cid.get(),
                    offset: pdu.offset.get() as usize,
                    last: header.flags & FLAG_LAST != 0,
                    success: header.flags & FLAG_SUCCESS != 0,
                });
            }
            _ => None,
        };
        self.fill(parts.total)?;
        self.start += parts.total;
        incoming.ok_or_else(|| wrong("type"))
    }

    fn fill(&mut self, len: usize) -> Result<&[u8], Error> {
        if BUFFER - self.start < len {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < len {
            let count = self.stream.read(&mut self.buffer[self.end..])?;
            if count == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            self.end += count;
        }
        Ok(&self.buffer[self.start..self.start + len])
    }

    fn take(&mut self, into: &mut [u8]) -> Result<(), Error> {
        let buffered = (self.end - self.start).min(into.len());
        into[..buffered].copy_from_slice(&self.buffer[self.start..self.start + buffered]);
        self.start += buffered;
        self.stream.read_exact(&mut into[buffered..])?;
        Ok(())
    }
}
