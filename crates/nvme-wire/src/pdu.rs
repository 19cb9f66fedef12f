//! Protocol data units of NVMe/TCP (TCP §3.6).
//!
//! [`Header::from_host`] checks the eight bytes with which every PDU begins against the rules for a
//! host and returns the places of its parts, so that the reader of a socket knows how many bytes to
//! expect before it has any of them. A header that is wrong cannot be skipped, as nothing says
//! where the next one starts: every error here ([`Fatal`]) ends the connection with a C2HTermReq
//! that names it.

use zerocopy::little_endian::{U16, U32};

use crate::{command::Completion, command::Submission};

codes! {
    /// Which PDU (TCP §3.6.1).
    pub enum PduType: u8 {
        /// Initialize Connection Request, host to controller.
        IcReq = 0x00,
        /// Initialize Connection Response, controller to host.
        IcResp = 0x01,
        /// Host to Controller Terminate Connection Request.
        H2cTermReq = 0x02,
        /// Controller to Host Terminate Connection Request.
        C2hTermReq = 0x03,
        /// Command Capsule, host to controller.
        CapsuleCmd = 0x04,
        /// Response Capsule, controller to host.
        CapsuleResp = 0x05,
        /// Host to Controller Data Transfer.
        H2cData = 0x06,
        /// Controller to Host Data Transfer.
        C2hData = 0x07,
        /// Ready to Transfer, controller to host.
        R2t = 0x09,
    }
}

/// FLAGS: header digest is there.
pub const FLAG_HEADER_DIGEST: u8 = 1 << 0;
/// FLAGS: data digest is there.
pub const FLAG_DATA_DIGEST: u8 = 1 << 1;
/// FLAGS of H2CData and C2HData: the last one of this transfer.
pub const FLAG_LAST: u8 = 1 << 2;
/// FLAGS of C2HData: the command has succeeded, no response capsule follows.
pub const FLAG_SUCCESS: u8 = 1 << 3;

/// Bytes of a digest (CRC-32C).
pub const DIGEST_LEN: usize = 4;

wire! {
    /// CH: the start of every PDU (TCP §3.6.1).
    pub struct Header [8] {
        /// PDU-Type.
        pub kind: u8,
        /// FLAGS.
        pub flags: u8,
        /// HLEN: bytes of the PDU's header, without its digest.
        pub hlen: u8,
        /// PDO: bytes from the start of the PDU to its data.
        pub pdo: u8,
        /// PLEN: bytes of the whole PDU, digests and padding included.
        pub plen: U32,
    }
}

wire! {
    /// ICReq (TCP §3.6.2.2).
    pub struct IcReq [128] {
        /// CH.
        pub header: Header,
        /// PFV: format version, 0.
        pub pfv: U16,
        /// HPDA: the alignment of data to the host, in dwords, zero-based.
        pub hpda: u8,
        /// DGST: digests that the host wants.
        pub digests: u8,
        /// MAXR2T: requests for data that may be open for one command, zero-based.
        pub max_r2t: U32,
        reserved: [u8; 112],
    }
}

wire! {
    /// ICResp (TCP §3.6.2.3).
    pub struct IcResp [128] {
        /// CH.
        pub header: Header,
        /// PFV: format version, 0.
        pub pfv: U16,
        /// CPDA: the alignment of data to the controller, in dwords, zero-based.
        pub cpda: u8,
        /// DGST: digests that are used.
        pub digests: u8,
        /// MAXH2CDATA: most data of an H2CData PDU, in bytes; a multiple of 4, at least 4096.
        pub max_h2c_data: U32,
        reserved: [u8; 112],
    }
}

wire! {
    /// H2CTermReq and C2HTermReq, without the header in error that follows (TCP §3.6.2.4,
    /// §3.6.2.5).
    pub struct TermReq [24] {
        /// CH.
        pub header: Header,
        /// FES: the reason.
        pub status: U16,
        /// FEI: details; for a wrong field its offset in the PDU.
        pub information: U32,
        reserved: [u8; 10],
    }
}

wire! {
    /// CapsuleCmd, without its data (TCP §3.6.2.6).
    pub struct CapsuleCmd [72] {
        /// CH.
        pub header: Header,
        /// CCSQE.
        pub command: Submission,
    }
}

wire! {
    /// CapsuleResp (TCP §3.6.2.7).
    pub struct CapsuleResp [24] {
        /// CH.
        pub header: Header,
        /// RCCQE.
        pub completion: Completion,
    }
}

wire! {
    /// H2CData and C2HData, without their data (TCP §3.6.2.8, §3.6.2.9).
    pub struct Data [24] {
        /// CH.
        pub header: Header,
        /// CCCID: the command.
        pub cid: U16,
        /// TTAG: which R2T this answers; reserved in C2HData.
        pub transfer_tag: U16,
        /// DATAO: offset of this data in the command's data, in bytes.
        pub offset: U32,
        /// DATAL: bytes.
        pub length: U32,
        reserved: [u8; 4],
    }
}

wire! {
    /// R2T (TCP §3.6.2.10).
    pub struct R2t [24] {
        /// CH.
        pub header: Header,
        /// CCCID: the command.
        pub cid: U16,
        /// TTAG: the tag that the H2CData PDUs that answer have to carry.
        pub transfer_tag: U16,
        /// R2TO: the first byte wanted, as an offset in the command's data.
        pub offset: U32,
        /// R2TL: the number of bytes.
        pub length: U32,
        reserved: [u8; 4],
    }
}

/// Which digests a connection uses (TCP §3.3.1.1): DGST of ICReq and ICResp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// HDGST.
    pub header: bool,
    /// DDGST.
    pub data: bool,
}

impl Digests {
    /// From the byte; `None` if it has reserved bits set.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        if raw > 0b11 {
            return None;
        }
        Some(Self {
            header: raw & 0b01 != 0,
            data: raw & 0b10 != 0,
        })
    }

    /// The byte.
    #[must_use]
    pub const fn raw(self) -> u8 {
        self.header as u8 | (self.data as u8) << 1
    }
}

codes! {
    /// FES: the reason why a connection is ended (TCP §3.6.2.4, §3.6.2.5).
    pub enum FatalStatus: u16 {
        /// Invalid PDU Header Field.
        InvalidHeaderField = 0x01,
        /// PDU Sequence Error.
        SequenceError = 0x02,
        /// Header Digest Error.
        HeaderDigest = 0x03,
        /// Data Transfer Out of Range.
        DataOutOfRange = 0x04,
        /// Data Transfer Limit Exceeded; from a host, R2T Limit Exceeded.
        LimitExceeded = 0x05,
        /// Unsupported Parameter.
        UnsupportedParameter = 0x06,
    }
}

/// An error after which a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// FES.
    pub status: FatalStatus,
    /// FEI.
    pub information: u32,
}

impl Fatal {
    /// A field with this offset in the PDU is wrong.
    #[must_use]
    pub const fn field(offset: u32) -> Self {
        Self {
            status: FatalStatus::InvalidHeaderField,
            information: offset,
        }
    }

    /// An error without further information.
    #[must_use]
    pub const fn because(status: FatalStatus) -> Self {
        Self {
            status,
            information: 0,
        }
    }
}

impl std::fmt::Display for Fatal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} (information {})", self.status, self.information)
    }
}

/// Offsets of the fields of [`Header`], for [`Fatal::field`].
pub mod field {
    /// PDU-Type.
    pub const KIND: u32 = 0;
    /// FLAGS.
    pub const FLAGS: u32 = 1;
    /// HLEN.
    pub const HLEN: u32 = 2;
    /// PDO.
    pub const PDO: u32 = 3;
    /// PLEN.
    pub const PLEN: u32 = 4;
}

/// The places of the parts of a PDU. All counts in bytes; `total` is at least the sum of the
/// others, and more if there is padding before the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The header, without its digest.
    pub header: usize,
    /// Whether the header's digest follows it.
    pub header_digest: bool,
    /// From the start of the PDU to its data; the end of the header where there is none.
    pub data_start: usize,
    /// The data, without its digest.
    pub data: usize,
    /// Whether the data's digest follows it.
    pub data_digest: bool,
    /// The whole PDU.
    pub total: usize,
}

impl Header {
    /// PDU-Type as a name.
    #[must_use]
    pub const fn pdu_type(&self) -> PduType {
        PduType::from_raw(self.kind)
    }

    /// The header of a PDU without data, in either direction.
    #[must_use]
    pub const fn plain(kind: PduType, hlen: u8, digests: Digests) -> Self {
        let (flags, digest) = if digests.header {
            (FLAG_HEADER_DIGEST, DIGEST_LEN as u32)
        } else {
            (0, 0)
        };
        Self {
            kind: kind.raw(),
            flags,
            hlen,
            pdo: 0,
            plen: U32::new(hlen as u32 + digest),
        }
    }

    /// The header of a PDU with `len` bytes of data (at least one) at the next multiple of
    /// `alignment` bytes (a power of two, 4 to 128) after a header of `hlen` bytes.
    #[must_use]
    pub const fn with_data(
        kind: PduType,
        hlen: u8,
        digests: Digests,
        alignment: u8,
        len: u32,
    ) -> Self {
        let plain = Self::plain(kind, hlen, digests);
        let start = (plain.plen.get()).next_multiple_of(alignment as u32);
        let (flags, digest) = if digests.data {
            (FLAG_DATA_DIGEST, DIGEST_LEN as u32)
        } else {
            (0, 0)
        };
        Self {
            flags: plain.flags | flags,
            pdo: start as u8,
            plen: U32::new(start + len + digest),
            ..plain
        }
    }

    /// Check the header of a PDU that came from a host on a connection with these digests, on which
    /// a PDU has at most `max_data` bytes of data.
    ///
    /// # Errors
    ///
    /// The first field that is not what it has to be, or `LimitExceeded` for too much data.
    pub fn from_host(&self, digests: Digests, max_data: usize) -> Result<Parts, Fatal> {
        let expected = match self.pdu_type() {
            PduType::IcReq => Expected::bare(IcReq::LEN),
            PduType::H2cTermReq => Expected {
                trailer: TERM_REQ_TRAILER_MAX,
                ..Expected::bare(TermReq::LEN)
            },
            PduType::CapsuleCmd => Expected {
                digests,
                data: Needed::Possible,
                ..Expected::bare(CapsuleCmd::LEN)
            },
            PduType::H2cData => Expected {
                digests,
                data: Needed::Always,
                other_flags: FLAG_LAST,
                ..Expected::bare(Data::LEN)
            },
            _ => return Err(Fatal::field(field::KIND)),
        };
        self.parts(&expected, max_data)
    }

    /// The same for a PDU that came from a controller.
    ///
    /// # Errors
    ///
    /// As [`Header::from_host`].
    pub fn from_controller(&self, digests: Digests, max_data: usize) -> Result<Parts, Fatal> {
        let with_digests = |len| Expected {
            digests,
            ..Expected::bare(len)
        };
        let expected = match self.pdu_type() {
            PduType::IcResp => Expected::bare(IcResp::LEN),
            PduType::C2hTermReq => Expected {
                trailer: TERM_REQ_TRAILER_MAX,
                ..Expected::bare(TermReq::LEN)
            },
            PduType::CapsuleResp => with_digests(CapsuleResp::LEN),
            PduType::R2t => with_digests(R2t::LEN),
            PduType::C2hData => Expected {
                data: Needed::Always,
                other_flags: FLAG_LAST | FLAG_SUCCESS,
                ..with_digests(Data::LEN)
            },
            _ => return Err(Fatal::field(field::KIND)),
        };
        self.parts(&expected, max_data)
    }

    fn parts(&self, expected: &Expected, max_data: usize) -> Result<Parts, Fatal> {
        if usize::from(self.hlen) != expected.hlen {
            return Err(Fatal::field(field::HLEN));
        }
        let total = self.plen.get() as usize;
        let header_digest = expected.digests.header;
        let header_end = expected.hlen + if header_digest { DIGEST_LEN } else { 0 };
        let has_data = match expected.data {
            Needed::Never => false,
            Needed::Possible => total > header_end,
            Needed::Always => true,
        };
        let data_digest = expected.digests.data && has_data;
        let digests = Digests {
            header: header_digest,
            data: data_digest,
        };
        if self.flags & !expected.other_flags != digests.raw() {
            return Err(Fatal::field(field::FLAGS));
        }
        if !has_data {
            if total < header_end || total > header_end + expected.trailer {
                return Err(Fatal::field(field::PLEN));
            }
            return Ok(Parts {
                header: expected.hlen,
                header_digest,
                data_start: header_end,
                data: total - header_end,
                data_digest: false,
                total,
            });
        }
        let data_start = usize::from(self.pdo);
        if data_start < header_end || data_start % 4 != 0 {
            return Err(Fatal::field(field::PDO));
        }
        let overhead = data_start + if data_digest { DIGEST_LEN } else { 0 };
        if total <= overhead {
            return Err(Fatal::field(field::PLEN));
        }
        if total - overhead > max_data {
            return Err(Fatal::because(FatalStatus::LimitExceeded));
        }
        Ok(Parts {
            header: expected.hlen,
            header_digest,
            data_start,
            data: total - overhead,
            data_digest,
            total,
        })
    }
}

/// Most bytes of the PDU in error that a terminate request repeats (TCP §3.6.2.4).
pub const TERM_REQ_TRAILER_MAX: usize = 128;

/// The required form of a PDU of some type.
struct Expected {
    hlen: usize,
    digests: Digests,
    data: Needed,
    /// Bytes that may follow a header without being its data.
    trailer: usize,
    other_flags: u8,
}

enum Needed {
    Never,
    Possible,
    Always,
}

impl Expected {
    fn bare(hlen: usize) -> Self {
        Self {
            hlen,
            digests: Digests::default(),
            data: Needed::Never,
            trailer: 0,
            other_flags: 0,
        }
    }
}

impl TermReq {
    /// C2HTermReq for `fatal`, followed by `in_error` bytes of the offending PDU (at most
    /// [`TERM_REQ_TRAILER_MAX`]).
    #[must_use]
    pub fn to_host(fatal: Fatal, in_error: usize) -> Self {
        let mut this = Self::zeroed();
        this.header = Header::plain(PduType::C2hTermReq, Self::LEN as u8, Digests::default());
        this.header.plen = U32::new((Self::LEN + in_error.min(TERM_REQ_TRAILER_MAX)) as u32);
        this.status = U16::new(fatal.status.raw());
        this.information = U32::new(fatal.information);
        this
    }

    /// Why the other side ends the connection.
    #[must_use]
    pub const fn fatal(&self) -> Fatal {
        Fatal {
            status: FatalStatus::from_raw(self.status.get()),
            information: self.information.get(),
        }
    }
}

impl IcReq {
    /// The digests that the host wants, if the request is valid.
    ///
    /// # Errors
    ///
    /// The field that is wrong (TCP §3.6.2.2): an unknown format version or digest, an alignment
    /// beyond 128 bytes.
    pub const fn digests(&self) -> Result<Digests, Fatal> {
        if self.pfv.get() != 0 {
            return Err(Fatal {
                status: FatalStatus::UnsupportedParameter,
                information: 8,
            });
        }
        if self.hpda > 31 {
            return Err(Fatal::field(10));
        }
        match Digests::from_raw(self.digests) {
            Some(digests) => Ok(digests),
            None => Err(Fatal::field(11)),
        }
    }

    /// The alignment of data to the host, in bytes: 4 to 128.
    #[must_use]
    pub const fn alignment(&self) -> usize {
        (self.hpda as usize + 1) * 4
    }
}
