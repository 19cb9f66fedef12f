//! Data that a host was asked for: from the R2T to the last H2CData PDU (TCP §3.3.2).

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use nvme_wire::pdu::{Data, FLAG_LAST, Fatal, FatalStatus, field};

use super::room::{Lent, Room};

/// A command that waits for its data.
#[derive(Debug)]
pub(super) struct Transfer<C> {
    pub(super) cid: u16,
    pub(super) command: C,
    pub(super) data: Lent,
    received: usize,
    asked: Instant,
    /// A digest was wrong: the command fails when all its data is there.
    pub(super) damaged: bool,
}

/// The commands of a connection that wait for data. `C` holds the state that is needed to go on
/// with one.
#[derive(Debug)]
pub(super) struct Transfers<C> {
    room: Arc<Room>,
    open: HashMap<u16, Transfer<C>>,
    /// Tags in the order of their R2Ts, with the times of these; some are done already.
    order: VecDeque<(u16, Instant)>,
    open_bytes: usize,
    next_tag: u16,
    /// Commands for whose data there is no room yet: CID, command, bytes.
    queued: VecDeque<(u16, C, usize)>,
}

/// An R2T to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataRequest {
    pub(super) cid: u16,
    pub(super) tag: u16,
    pub(super) len: u32,
}

impl<C> Transfers<C> {
    pub(super) fn new(room: Arc<Room>) -> Self {
        Self {
            room,
            open: HashMap::new(),
            order: VecDeque::new(),
            open_bytes: 0,
            next_tag: 0,
            queued: VecDeque::new(),
        }
    }

    /// Queue `command`, which needs `len` bytes, for [`Self::next`].
    pub(super) fn want(&mut self, cid: u16, command: C, len: usize) {
        if self.is_idle() {
            self.room.enter();
        }
        self.queued.push_back((cid, command, len));
    }

    /// The next command that there is room for.
    pub(super) fn next(&mut self) -> Option<DataRequest> {
        let &(_, _, len) = self.queued.front()?;
        let data = self.room.lend(len, self.open_bytes)?;
        let (cid, command, len) = self.queued.pop_front()?;
        while self.open.contains_key(&self.next_tag) {
            self.next_tag = self.next_tag.wrapping_add(1);
        }
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1);
        self.open_bytes += len;
        let asked = Instant::now();
        let transfer = Transfer {
            cid,
            command,
            data,
            received: 0,
            asked,
            damaged: false,
        };
        self.open.insert(tag, transfer);
        self.order.push_back((tag, asked));
        Some(DataRequest {
            cid,
            tag,
            len: len as u32,
        })
    }

    /// Whether a command waits for room that no other one of this connection will give.
    pub(super) fn is_starved(&self) -> bool {
        self.open.is_empty() && !self.queued.is_empty()
    }

    /// Wait until there is room for the next command, at most for `time`.
    pub(super) fn wait_for_room(&self, time: Duration) {
        if let Some(&(_, _, len)) = self.queued.front() {
            self.room.wait(len, time);
        }
    }

    /// When the oldest data that has not come was asked for.
    pub(super) fn asked(&mut self) -> Option<Instant> {
        while let Some(&(tag, asked)) = self.order.front() {
            if self.open.get(&tag).is_some_and(|open| open.asked == asked) {
                return Some(asked);
            }
            self.order.pop_front();
        }
        None
    }

    fn is_idle(&self) -> bool {
        self.open.is_empty() && self.queued.is_empty()
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
        if self.is_idle() {
            self.room.leave();
        }
        Some(transfer)
    }
}

impl<C> Drop for Transfers<C> {
    fn drop(&mut self) {
        if !self.is_idle() {
            self.room.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use nvme_wire::pdu::{Digests, Header, PduType};
    use zerocopy::little_endian::{U16, U32};

    use super::*;
    use crate::serve::limits::MAX_TRANSFER;

    fn pdu(ask: DataRequest, offset: usize, len: usize, last: bool) -> Data {
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
        let mut transfers = Transfers::new(Arc::default());
        transfers.want(7, (), 8192);
        let ask = transfers.next().unwrap();
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
        let room = Arc::new(Room::default());
        let mut transfers = Transfers::new(Arc::clone(&room));
        transfers.want(1, (), MAX_TRANSFER);
        let one = transfers.next().unwrap();
        // Others have the rest, all but one block, and this connection's share is used up.
        let mut others = Vec::new();
        while let Some(data) = room.lend(MAX_TRANSFER - 512, 0) {
            others.push(data);
        }
        while let Some(data) = room.lend(512, 0) {
            others.push(data);
        }
        transfers.want(2, (), 512);
        transfers.want(3, (), 512);
        assert_eq!(transfers.next(), None);
        assert!(!transfers.is_starved(), "its own data comes");
        let other_cid = DataRequest { cid: 9, ..one };
        assert_eq!(
            transfers
                .place(&pdu(other_cid, 0, 512, false), 512)
                .unwrap_err(),
            Fatal::field(8)
        );
        assert!(transfers.asked().is_some());
        let done = transfers.received(one.tag, MAX_TRANSFER, true).unwrap();
        assert!(done.damaged);
        assert_eq!(transfers.next(), None, "its buffer is still in use");
        assert_eq!(transfers.asked(), None);
        drop(done);
        let (two, three) = (transfers.next().unwrap(), transfers.next().unwrap());
        assert_eq!((two.cid, three.cid), (2, 3));
        assert_ne!(two.tag, three.tag);
        assert_eq!(transfers.next(), None);
    }
}
