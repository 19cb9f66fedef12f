//! Replies to a host, and their layout on the wire.

use nvme_wire::{
    Completion, Status,
    pdu::{CapsuleResp, DIGEST_LEN, Data, Digests, FLAG_LAST, FLAG_SUCCESS, Header, PduType, R2t},
};
use zerocopy::{
    IntoBytes,
    little_endian::{U16, U32},
};

use crate::serve::backend::Backend;

/// The end of a command that has succeeded.
#[derive(Debug)]
pub(in crate::serve) enum Completed {
    /// With this result.
    Result(u64),
    /// With this data for the host, at least one byte.
    Data(Vec<u8>),
    /// With this data, at least one byte, and this result.
    DataAndResult { data: Vec<u8>, result: u64 },
    /// With data that is read from the store when it is sent, durable data only if asked for.
    Read {
        namespace: usize,
        offset: u64,
        len: u32,
        durably: bool,
    },
}

/// The end of a command that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Failed {
    pub(in crate::serve) status: Status,
    pub(in crate::serve) result: u64,
    pub(super) is_logged: bool,
}

impl Failed {
    /// A failure that is no error of the command, and does not go into the error log.
    pub(in crate::serve) fn unlogged(status: Status) -> Self {
        Self {
            status,
            result: 0,
            is_logged: false,
        }
    }

    /// A failure with a result that holds details.
    pub(in crate::serve) fn with_result(status: Status, result: u64) -> Self {
        Self {
            status,
            result,
            is_logged: true,
        }
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self::with_result(status, 0)
    }
}

/// Something for the host.
#[derive(Debug)]
pub(super) enum Reply {
    /// The command is done.
    Done {
        cid: u16,
        end: Result<Completed, Failed>,
    },
    /// The command is not done at all: another one with its identifier is on its way.
    Conflict { cid: u16 },
    /// Send data.
    Ready { cid: u16, tag: u16, len: u32 },
    /// A PDU that is ready.
    Pdu(Vec<u8>),
}

impl Reply {
    /// The command that is done with it.
    pub(super) fn ends(&self) -> Option<u16> {
        match *self {
            Self::Done { cid, .. } => Some(cid),
            Self::Conflict { .. } | Self::Ready { .. } | Self::Pdu(_) => None,
        }
    }

    /// About how many bytes it will be.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Done {
                end: Ok(Completed::Data(bytes) | Completed::DataAndResult { data: bytes, .. }),
                ..
            }
            | Self::Pdu(bytes) => bytes.len(),
            Self::Done {
                end: Ok(Completed::Read { len, .. }),
                ..
            } => *len as usize,
            Self::Done { .. } | Self::Conflict { .. } | Self::Ready { .. } => 24,
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
    pub(super) fn put(self, reply: &Reply, backend: &Backend, wire: &mut Vec<u8>) {
        match reply {
            Reply::Done { cid, end: Ok(end) } => self.put_completed(*cid, end, backend, wire),
            Reply::Done {
                cid,
                end: Err(failed),
            } => self.put_end(*cid, failed.status, failed.result, wire),
            Reply::Conflict { cid } => self.put_end(*cid, Status::CommandIdConflict, 0, wire),
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

    fn put_completed(self, cid: u16, end: &Completed, backend: &Backend, wire: &mut Vec<u8>) {
        match *end {
            Completed::Result(result) => self.put_end(cid, Status::Success, result, wire),
            Completed::Data(ref bytes) => {
                let at = self.start_data(cid, bytes.len() as u32, wire);
                wire[at..at + bytes.len()].copy_from_slice(bytes);
                self.end_data(cid, at, bytes.len(), wire);
            }
            Completed::DataAndResult { ref data, result } => {
                // A C2HData PDU that says by itself that the command has succeeded has no result.
                let without = Self {
                    sq_head: Some(self.sq_head.unwrap_or(0)),
                    ..self
                };
                let at = without.start_data(cid, data.len() as u32, wire);
                wire[at..at + data.len()].copy_from_slice(data);
                without.put_digest(at, data.len(), wire);
                self.put_end(cid, Status::Success, result, wire);
            }
            Completed::Read {
                namespace,
                offset,
                len,
                durably,
            } => {
                let before = wire.len();
                let at = self.start_data(cid, len, wire);
                let into = &mut wire[at..at + len as usize];
                let read = if durably {
                    backend.device.read_durably(namespace, offset, into)
                } else {
                    backend.device.read_into(namespace, offset, into)
                };
                match read {
                    Ok(()) => self.end_data(cid, at, len as usize, wire),
                    Err(failure) => {
                        wire.truncate(before);
                        let status = backend.status_of(&failure, Status::UnrecoveredRead);
                        self.put_end(cid, status, 0, wire);
                    }
                }
            }
        }
    }

    fn put_end(self, cid: u16, status: Status, result: u64, wire: &mut Vec<u8>) {
        let head = self.sq_head.unwrap_or(0);
        let response = CapsuleResp {
            header: Header::plain(PduType::CapsuleResp, CapsuleResp::LEN as u8, self.digests),
            completion: Completion::new(cid, head, status, result),
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

    /// Append the header of a C2HData PDU, and reserve room for all that follows; return the place
    /// of its data.
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

    /// The digest of data, where there are digests.
    fn put_digest(self, at: usize, len: usize, wire: &mut Vec<u8>) {
        if self.digests.data {
            let digest: [u8; DIGEST_LEN] = crc32c::crc32c(&wire[at..at + len]).to_le_bytes();
            wire.extend_from_slice(&digest);
        }
    }

    fn end_data(self, cid: u16, at: usize, len: usize, wire: &mut Vec<u8>) {
        self.put_digest(at, len, wire);
        if self.sq_head.is_some() {
            self.put_end(cid, Status::Success, 0, wire);
        }
    }
}
