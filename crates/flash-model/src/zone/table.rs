//! All zones of a namespace: transitions and the limits of open and active zones.
//!
//! Invariants: an empty zone's write pointer is its start, a full one's the end of its capacity;
//! never more zones are open or active than the limits allow. A call that returns an error has
//! changed nothing.

use std::collections::VecDeque;

use crate::{
    SECTOR,
    command::{Refused, ZoneAction},
    geometry::ZoneGeometry,
    zone::{Zone, ZoneState},
};

/// The zones of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct ZoneTable {
    zones: Vec<Zone>,
    zone_size: u64,
    max_active: usize,
    max_open: usize,
    active: usize,
    open: usize,
    /// Implicitly open zones in the order in which they were opened: the first one is closed when
    /// another one needs its place. May name zones that have moved on since.
    implicit: VecDeque<usize>,
}

/// A change of state, as far as it matters for the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    /// The zone.
    pub(crate) zone: usize,
    /// Bytes that were written in it before, padding included.
    pub(crate) filled: u64,
    /// Whether its flash was full or padded before.
    pub(crate) was_full: bool,
}

impl ZoneTable {
    /// Makes empty zones for `size` bytes of address space, a multiple of the zone size.
    pub(crate) fn new(size: u64, geometry: &ZoneGeometry) -> Self {
        let zone_size = geometry.size.0;
        let zones = (0..size / zone_size)
            .map(|index| Zone {
                start: index * zone_size,
                size: zone_size,
                capacity: geometry.capacity.0,
                write_pointer: index * zone_size,
                state: ZoneState::Empty,
            })
            .collect();
        let limit = |n: u32| if n == 0 { usize::MAX } else { n as usize };
        Self {
            zones,
            zone_size,
            max_active: limit(geometry.max_active),
            max_open: limit(geometry.max_open),
            active: 0,
            open: 0,
            implicit: VecDeque::new(),
        }
    }

    /// Returns the zones in order of address.
    pub(crate) fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Returns the zone that holds byte `offset`.
    pub(crate) fn index_of(&self, offset: u64) -> Result<usize, Refused> {
        let index = usize::try_from(offset / self.zone_size).map_err(|_| Refused::OutOfRange)?;
        if index < self.zones.len() {
            Ok(index)
        } else {
            Err(Refused::OutOfRange)
        }
    }

    /// Returns the zone that begins at byte `start`.
    pub(crate) fn at_start(&self, start: u64) -> Result<usize, Refused> {
        let index = self.index_of(start)?;
        if self.zones[index].start == start {
            Ok(index)
        } else {
            Err(Refused::Unaligned)
        }
    }

    /// Checks that the bytes may be read. Unwritten ones may (they read as zeroes), and a read may
    /// go on into the next zone.
    pub(crate) fn check_read(&self, offset: u64, len: u64) -> Result<(), Refused> {
        if len == 0 || !offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
            return Err(Refused::Unaligned);
        }
        let first = self.index_of(offset)?;
        let last = self.index_of(offset.checked_add(len - 1).ok_or(Refused::OutOfRange)?)?;
        if self.zones[first..=last]
            .iter()
            .any(|zone| zone.state == ZoneState::Offline)
        {
            return Err(Refused::ZoneOffline);
        }
        Ok(())
    }

    /// Writes `len` bytes at `offset`, which must be the write pointer; opens the zone if it must.
    /// Returns the zone.
    pub(crate) fn write(&mut self, offset: u64, len: u64) -> Result<usize, Refused> {
        let index = self.index_of(offset)?;
        self.write_in(index, offset, len)?;
        Ok(index)
    }

    /// Writes `len` bytes at the write pointer of a zone; returns the offset that it wrote at.
    pub(crate) fn append(&mut self, index: usize, len: u64) -> Result<u64, Refused> {
        // The pointer of a full zone has no meaning, but its state refuses the write.
        let offset = self.zones[index].write_pointer;
        self.write_in(index, offset, len)?;
        Ok(offset)
    }

    fn write_in(&mut self, index: usize, offset: u64, len: u64) -> Result<(), Refused> {
        self.check_write(index, offset, len)?;
        self.open_for_write(index)?;
        self.advance(index, len);
        Ok(())
    }

    /// Checks that a write could be done, apart from the limits.
    pub(crate) fn check_write(&self, index: usize, offset: u64, len: u64) -> Result<(), Refused> {
        let zone = &self.zones[index];
        match zone.state {
            ZoneState::Full => return Err(Refused::ZoneFull),
            ZoneState::ReadOnly => return Err(Refused::ZoneReadOnly),
            ZoneState::Offline => return Err(Refused::ZoneOffline),
            _ => {}
        }
        if len == 0 || !len.is_multiple_of(SECTOR) {
            return Err(Refused::Unaligned);
        }
        if offset != zone.write_pointer {
            return Err(Refused::InvalidWrite);
        }
        if len > zone.writable_end() - offset {
            return Err(Refused::ZoneBoundary);
        }
        Ok(())
    }

    fn advance(&mut self, index: usize, len: u64) {
        self.zones[index].write_pointer += len;
        if self.zones[index].write_pointer == self.zones[index].writable_end() {
            self.set_state(index, ZoneState::Full);
        }
    }

    fn open_for_write(&mut self, index: usize) -> Result<(), Refused> {
        if self.zones[index].state.is_open() {
            return Ok(());
        }
        self.make_room(index)?;
        self.set_state(index, ZoneState::ImplicitlyOpen);
        self.implicit.push_back(index);
        Ok(())
    }

    /// Makes sure that one more zone may be open. Zones opened by a write give way; those opened
    /// by a command do not (ZNS Command Set 1.1 §2.1.1.4.1).
    fn make_room(&mut self, index: usize) -> Result<(), Refused> {
        if !self.zones[index].state.is_active() && self.active >= self.max_active {
            return Err(Refused::TooManyActive);
        }
        if self.open < self.max_open {
            return Ok(());
        }
        while let Some(oldest) = self.implicit.pop_front() {
            if self.zones[oldest].state == ZoneState::ImplicitlyOpen {
                self.set_state(oldest, ZoneState::Closed);
                return Ok(());
            }
        }
        Err(Refused::TooManyOpen)
    }

    /// Puts a zone into a state, regardless of the limits, and keeps the counts right.
    fn set_state(&mut self, index: usize, state: ZoneState) {
        let old = std::mem::replace(&mut self.zones[index].state, state);
        self.open = self.open - usize::from(old.is_open()) + usize::from(state.is_open());
        self.active = self.active - usize::from(old.is_active()) + usize::from(state.is_active());
        if old == ZoneState::ImplicitlyOpen
            && let Some(at) = self.implicit.iter().position(|&zone| zone == index)
        {
            self.implicit.remove(at);
        }
    }

    /// Does one action on one zone. Returns `None` if the zone was in the wanted state already.
    pub(crate) fn act(
        &mut self,
        index: usize,
        action: ZoneAction,
    ) -> Result<Option<Transition>, Refused> {
        use ZoneState::{Closed, Empty, ExplicitlyOpen, Full, ImplicitlyOpen, Offline, ReadOnly};
        let zone = self.zones[index];
        let transition = Some(Transition {
            zone: index,
            filled: zone.write_pointer - zone.start,
            was_full: zone.state == Full,
        });
        let state = match (action, zone.state) {
            (ZoneAction::Open, ExplicitlyOpen)
            | (ZoneAction::Close, Closed)
            | (ZoneAction::Finish, Full)
            | (ZoneAction::Reset, Empty)
            | (ZoneAction::Offline, Offline) => return Ok(None),
            (ZoneAction::Open, ImplicitlyOpen) => ExplicitlyOpen,
            (ZoneAction::Open, Empty | Closed) => {
                self.make_room(index)?;
                ExplicitlyOpen
            }
            // Written or not: only a reset or a loss of power makes an opened zone empty again
            // (ZNS Command Set 1.1 §2.1.1.3.3).
            (ZoneAction::Close, ImplicitlyOpen | ExplicitlyOpen) => Closed,
            (ZoneAction::Finish, Empty | Closed | ImplicitlyOpen | ExplicitlyOpen) => Full,
            (ZoneAction::Reset, Closed | ImplicitlyOpen | ExplicitlyOpen | Full) => Empty,
            (ZoneAction::Offline, ReadOnly) => Offline,
            _ => return Err(Refused::InvalidTransition),
        };
        match state {
            Empty => self.zones[index].write_pointer = zone.start,
            Full => self.zones[index].write_pointer = zone.writable_end(),
            _ => {}
        }
        self.set_state(index, state);
        Ok(transition)
    }

    /// Returns the zones on which `action` with "select all" works (ZNS Command Set 1.1 §3.4.3.1).
    pub(crate) fn selected_by_all(&self, action: ZoneAction) -> Vec<usize> {
        use ZoneState::{Closed, ExplicitlyOpen, Full, ImplicitlyOpen, ReadOnly};
        let wanted = |state| match action {
            ZoneAction::Open => state == Closed,
            ZoneAction::Close => matches!(state, ImplicitlyOpen | ExplicitlyOpen),
            ZoneAction::Finish => matches!(state, ImplicitlyOpen | ExplicitlyOpen | Closed),
            ZoneAction::Reset => matches!(state, ImplicitlyOpen | ExplicitlyOpen | Closed | Full),
            ZoneAction::Offline => state == ReadOnly,
        };
        (0..self.zones.len())
            .filter(|&index| wanted(self.zones[index].state))
            .collect()
    }

    /// Checks that "select all" with `Open` fits into the limit of open zones; it is all or
    /// nothing.
    pub(crate) fn check_open_all(&self, selected: &[usize]) -> Result<(), Refused> {
        let explicit = self
            .zones
            .iter()
            .filter(|zone| zone.state == ZoneState::ExplicitlyOpen)
            .count();
        if explicit.saturating_add(selected.len()) > self.max_open {
            return Err(Refused::TooManyOpen);
        }
        Ok(())
    }

    /// Puts a zone into a state from outside: at start, or after a loss of power. The limits are
    /// not checked; a zone beyond them closes as others open.
    pub(crate) fn restore(&mut self, index: usize, state: ZoneState, write_pointer: u64) {
        let zone = self.zones[index];
        self.zones[index].write_pointer = match state {
            ZoneState::Empty => zone.start,
            ZoneState::Full => zone.writable_end(),
            _ => write_pointer.clamp(zone.start, zone.writable_end()),
        };
        self.set_state(index, state);
        if state == ZoneState::ImplicitlyOpen {
            self.implicit.push_back(index);
        }
    }
}
