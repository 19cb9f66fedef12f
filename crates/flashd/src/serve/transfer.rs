//! Data that a host was asked for: from the R2T to the last H2CData PDU (TCP §3.3.2).

use std::collections::{HashMap, VecDeque};

use nvme_wire::pdu::{Data, FLAG_LAST, Fatal, FatalStatus, field};

/// Bytes that may be asked for at a time on one connection, unless one command alone needs more.
const OPEN_BYTES_MAX: usize = 4 << 20;
/// Buffers that are kept for the next commands.
const SPARE_MAX: usize = 4;

/// A command that waits for its data.
#[derive(Debug)]
pub(super) struct Transfer<C> {
    pub(super) cid: u16,
    pub(super) command: C,
    pub(super) data: Vec<u8>,
    received: usize,
    /// A digest was wrong: the command fails when all its data is there.
    pub(super) damaged: bool,
}

/// The commands of a connection that wait for data. `C` holds the state that is needed to go on
/// with one.
#[derive(Debug)]
pub(super) struct Transfers<C> {
    open: HashMap<u16, Transfer<C>>,
    open_bytes: usize,
    next_tag: u16,
    /// Commands for whose data there is no room yet: CID, command, bytes.
    queued: VecDeque<(u16, C, usize)>,
    spare: Vec<Vec<u8>>,
}

/// An R2T to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) cid: u16,
    pub(super) tag: u16,
    pub(super) len: u32,
}

impl<C> Default for Transfers<C> {
    fn default() -> Self {
        Self {
            open: HashMap::new(),
            open_bytes: 0,
            next_tag: 0,
            queued: VecDeque::new(),
            spare: Vec::new(),
        }
    }
}

impl<C> Transfers<C> {
    /// Queue `command`, which needs `len` bytes; `None` if it has to wait for others.
    pub(super) fn want(&mut self, cid: u16, command: C, len: usize) -> Option<Ask> {
        self.queued.push_back((cid, command, len));
        self.next()
    }

    /// The next one that may be asked for.
    pub(super) fn next(&mut self) -> Option<Ask> {
        let &(_, _, len) = self.queued.front()?;
        if !self.open.is_empty() && self.open_bytes + len > OPEN_BYTES_MAX {
            return None;
        }
        let (cid, command, len) = self.queued.pop_front()?;
        while self.open.contains_key(&self.next_tag) {
            self.next_tag = self.next_tag.wrapping_add(1);
        }
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1);
        let mut data = self.spare.pop().unwrap_or_default();
        data.resize(len, 0);
        self.open_bytes += len;
        let transfer = Transfer {
            cid,
            command,
            data,
            received: 0,
            damaged: false,
        };
        self.open.insert(tag, transfer);
        Some(Ask {
            cid,
            tag,
            len: len as u32,
        })
    }

    /// The place of the data of an H2CData PDU of `len` bytes.
    ///
    /// # Errors
    ///
    /// The data was not asked for, or not this part of it.
    pub(super) fn place(&mut self, pdu: &Data, len: usize) -> Result<&mut [u8], Fatal> {
        const CCCID: u32 = 8;
        const TTAG: u32 = 10;
        const DATAL: u32 = 16;
        let Some(transfer) = self.open.get_mut(&pdu.transfer_tag.get()) else {
            return Err(Fatal::field(TTAG));
        };
        if transfer.cid != pdu.cid.get() {
            return Err(Fatal::field(CCCID));
        }
        if pdu.length.get() as usize != len {
            return Err(Fatal::field(DATAL));
        }
        let start = pdu.offset.get() as usize;
        let end = start + len;
        if start != transfer.received || end > transfer.data.len() {
            return Err(Fatal::because(FatalStatus::DataOutOfRange));
        }
        let is_last = end == transfer.data.len();
        if (pdu.header.flags & FLAG_LAST != 0) != is_last {
            return Err(Fatal::field(field::FLAGS));
        }
        Ok(&mut transfer.data[start..end])
    }

    /// Note that `len` bytes have come. Return the command and all its data, if these were the last
    /// ones.
    pub(super) fn received(&mut self, tag: u16, len: usize, damaged: bool) -> Option<Transfer<C>> {
        let transfer = self.open.get_mut(&tag)?;
        transfer.received += len;
        transfer.damaged |= damaged;
        if transfer.received < transfer.data.len() {
            return None;
        }
        let transfer = self.open.remove(&tag)?;
        self.open_bytes -= transfer.data.len();
        Some(transfer)
    }

    /// Keep the buffer of a command that is done, for another one.
    pub(super) fn give_back(&mut self, mut data: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            data.clear();
            self.spare.push(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use nvme_wire::pdu::{Digests, Header, PduType};
    use zerocopy::little_endian::{U16, U32};

    use super::*;

    fn pdu(ask: Ask, offset: usize, len: usize, last: bool) -> Data {
        let mut data = Data::zeroed();
        data.header = Header::with_data(
            PduType::H2cData,
            24,
            Digests::default(),
            4,
            len.max(1) as u32,
        );
        if last {
            data.header.flags |= FLAG_LAST;
        }
        data.cid = U16::new(ask.cid);
        data.transfer_tag = U16::new(ask.tag);
        data.offset = U32::new(offset as u32);
        data.length = U32::new(len as u32);
        data
    }

    #[test]
    fn data_comes_in_order_and_once() {
        let mut transfers = Transfers::default();
        let ask = transfers.want(7, (), 8192).unwrap();
        assert!(transfers.place(&pdu(ask, 0, 4096, false), 4096).is_ok());
        assert!(transfers.received(ask.tag, 4096, false).is_none());
        let out_of_range = Fatal::because(FatalStatus::DataOutOfRange);
        for (offset, len) in [(0, 4096), (4096, 8192), (8192, 4096)] {
            let refused = transfers.place(&pdu(ask, offset, len, true), len);
            assert_eq!(refused.unwrap_err(), out_of_range);
        }
        // The last one has to say so, and no other.
        let refused = transfers.place(&pdu(ask, 4096, 4096, false), 4096);
        assert_eq!(refused.unwrap_err(), Fatal::field(field::FLAGS));
        let refused = transfers.place(&pdu(ask, 4096, 2048, true), 2048);
        assert_eq!(refused.unwrap_err(), Fatal::field(field::FLAGS));
        assert!(transfers.place(&pdu(ask, 4096, 4096, true), 4096).is_ok());
        let done = transfers.received(ask.tag, 4096, false).unwrap();
        assert_eq!(done.cid, 7);
        assert_eq!(
            transfers
                .place(&pdu(ask, 0, 4096, false), 4096)
                .unwrap_err(),
            Fatal::field(10)
        );
    }

    #[test]
    fn what_there_is_no_room_for_waits() {
        let mut transfers = Transfers::default();
        let one = transfers.want(1, (), OPEN_BYTES_MAX).unwrap();
        assert_eq!(transfers.want(2, (), 512), None);
        assert_eq!(transfers.want(3, (), 512), None);
        let other_cid = Ask { cid: 9, ..one };
        assert_eq!(
            transfers
                .place(&pdu(other_cid, 0, 512, false), 512)
                .unwrap_err(),
            Fatal::field(8)
        );
        assert!(
            transfers
                .received(one.tag, OPEN_BYTES_MAX, true)
                .unwrap()
                .damaged
        );
        let (two, three) = (transfers.next().unwrap(), transfers.next().unwrap());
        assert_eq!((two.cid, three.cid), (2, 3));
        assert_ne!(two.tag, three.tag);
        assert_eq!(transfers.next(), None);
    }
}
