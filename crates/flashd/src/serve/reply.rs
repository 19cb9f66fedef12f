//! What goes back to a host, and how it looks on the wire.

use nvme_wire::{
    Completion, Status,
    pdu::{CapsuleResp, DIGEST_LEN, Data, Digests, FLAG_LAST, FLAG_SUCCESS, Header, PduType, R2t},
};
use zerocopy::{
    IntoBytes,
    little_endian::{U16, U32},
};

use super::subsystem::Subsystem;

/// How a command ended, without what only the queue knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) cid: u16,
    pub(super) status: Status,
    pub(super) result: u64,
}

impl End {
    pub(super) fn new(cid: u16, status: Status) -> Self {
        Self {
            cid,
            status,
            result: 0,
        }
    }

    pub(super) fn success(cid: u16, result: u64) -> Self {
        Self {
            cid,
            status: Status::Success,
            result,
        }
    }
}

/// Something for the host.
#[derive(Debug)]
pub(super) enum Reply {
    /// The command is done.
    Done(End),
    /// The command is not done at all: another one with its identifier is on its way.
    Conflict(End),
    /// The command is done, and this is its data (at least one byte).
    Data(u16, Vec<u8>),
    /// The command is done, and its data is read from the store when it is sent.
    Read {
        cid: u16,
        namespace: usize,
        offset: u64,
        len: u32,
    },
    /// Send data.
    Ready { cid: u16, tag: u16, len: u32 },
    /// A PDU that is ready.
    Pdu(Vec<u8>),
}

impl Reply {
    /// Which command is done with it.
    pub(super) fn ends(&self) -> Option<u16> {
        match *self {
            Self::Done(End { cid, .. }) | Self::Data(cid, _) | Self::Read { cid, .. } => Some(cid),
            Self::Conflict(_) | Self::Ready { .. } | Self::Pdu(_) => None,
        }
    }

    /// About how many bytes it will be.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Done(_) | Self::Conflict(_) | Self::Ready { .. } => 24,
            Self::Data(_, bytes) | Self::Pdu(bytes) => bytes.len(),
            Self::Read { len, .. } => *len as usize,
        }
    }
}

/// How PDUs look on one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub(super) digests: Digests,
    /// Of data to the host, in bytes.
    pub(super) alignment: u8,
    /// SQHD, or nothing where the queue has no flow control: then a C2HData PDU says by itself that
    /// the command has succeeded (TCP §3.3.2).
    pub(super) sq_head: Option<u16>,
}

impl Format {
    /// Append a reply's bytes to `wire`.
    pub(super) fn put(self, reply: &Reply, subsystem: &Subsystem, wire: &mut Vec<u8>) {
        match reply {
            Reply::Done(end) | Reply::Conflict(end) => self.put_end(*end, wire),
            Reply::Data(cid, bytes) => {
                let at = self.start_data(*cid, bytes.len() as u32, wire);
                wire[at..at + bytes.len()].copy_from_slice(bytes);
                self.end_data(*cid, at, bytes.len(), wire);
            }
            Reply::Read {
                cid,
                namespace,
                offset,
                len,
            } => {
                let before = wire.len();
                let at = self.start_data(*cid, *len, wire);
                let into = &mut wire[at..at + *len as usize];
                match subsystem.device.read_into(*namespace, *offset, into) {
                    Ok(()) => self.end_data(*cid, at, *len as usize, wire),
                    Err(failure) => {
                        wire.truncate(before);
                        let status = subsystem.status_of(&failure, Status::UnrecoveredRead);
                        self.put_end(End::new(*cid, status), wire);
                    }
                }
            }
            Reply::Ready { cid, tag, len } => {
                let mut r2t = R2t::zeroed();
                r2t.header = Header::plain(PduType::R2t, R2t::LEN as u8, self.digests);
                r2t.cid = U16::new(*cid);
                r2t.transfer_tag = U16::new(*tag);
                r2t.length = U32::new(*len);
                self.put_header(r2t.as_bytes(), wire);
            }
            Reply::Pdu(bytes) => wire.extend_from_slice(bytes),
        }
    }

    fn put_end(self, end: End, wire: &mut Vec<u8>) {
        let head = self.sq_head.unwrap_or(0);
        let response = CapsuleResp {
            header: Header::plain(PduType::CapsuleResp, CapsuleResp::LEN as u8, self.digests),
            completion: Completion::new(end.cid, head, end.status, end.result),
        };
        self.put_header(response.as_bytes(), wire);
    }

    /// A header and its digest.
    fn put_header(self, header: &[u8], wire: &mut Vec<u8>) {
        wire.extend_from_slice(header);
        if self.digests.header {
            wire.extend_from_slice(&crc32c::crc32c(header).to_le_bytes());
        }
    }

    /// The header of a C2HData PDU, and room for all that follows; where its data belongs.
    fn start_data(self, cid: u16, len: u32, wire: &mut Vec<u8>) -> usize {
        let mut data = Data::zeroed();
        data.header = Header::with_data(
            PduType::C2hData,
            Data::LEN as u8,
            self.digests,
            self.alignment,
            len,
        );
        data.header.flags |= FLAG_LAST;
        if self.sq_head.is_none() {
            data.header.flags |= FLAG_SUCCESS;
        }
        data.cid = U16::new(cid);
        data.length = U32::new(len);
        let start = wire.len();
        self.put_header(data.as_bytes(), wire);
        let data_start = start + usize::from(data.header.pdo);
        wire.resize(data_start + len as usize, 0);
        data_start
    }

    fn end_data(self, cid: u16, at: usize, len: usize, wire: &mut Vec<u8>) {
        if self.digests.data {
            let digest: [u8; DIGEST_LEN] = crc32c::crc32c(&wire[at..at + len]).to_le_bytes();
            wire.extend_from_slice(&digest);
        }
        if self.sq_head.is_some() {
            self.put_end(End::success(cid, 0), wire);
        }
    }
}
