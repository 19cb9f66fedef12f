//! The contract's structures: as bytes of maps and events, and in memory that is shared with the
//! programs.

use std::{
    marker::PhantomData,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::skeleton::{CollectMaps, types};

/// A structure of `bpf/contract.h`: valid whatever its bytes are ([`FromBytes`]), and with no byte
/// that is not a field's ([`IntoBytes`]): padding is not initialised, and the kernel compares keys
/// byte by byte.
///
/// Both are derived where `build.rs` says so (`WIRE`), so that a structure with padding, a pointer
/// or a `bool` does not compile.
pub(super) trait Wire: FromBytes + IntoBytes + Immutable {}

impl<T: FromBytes + IntoBytes + Immutable> Wire for T {}

/// The structure at the beginning of `bytes`, if they are enough.
pub(super) fn read<T: Wire>(bytes: &[u8]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(value, _)| value)
}

/// The bytes of a structure, for the kernel.
pub(super) fn bytes<T: Wire>(value: &T) -> &[u8] {
    value.as_bytes()
}

/// The programs' variables: memory that they and this process write at the same time.
///
/// A Rust reference to it would promise that nobody else writes there, so there is none, and values
/// are copied out by volatile reads: whole words, each as it was at some time. Only `busy` of a
/// slot is a reference, to an atomic, as everybody changes it by atomic instructions.
pub(super) struct Shared<'obj> {
    bss: *mut types::bss,
    /// The mapping lives as long as the object.
    object: PhantomData<&'obj ()>,
}

// SAFETY: nothing about the mapping belongs to a thread; a copy cannot be made, and what changes
// something needs `&mut self`.
unsafe impl Send for Shared<'_> {}

/// The place of a field of the variables.
macro_rules! place {
    ($shared:ident . $($field:tt)+) => {{
        // SAFETY: the mapping is there for 'obj, and the field is in it.
        unsafe { &raw mut (*$shared.bss).$($field)+ }
    }};
}

/// A copy of a field.
macro_rules! copied {
    ($($field:tt)+) => {{
        let place = place!($($field)+);
        // SAFETY: the place can be read and is aligned, and any bytes there are a value (`Wire`). It
        // may change meanwhile, as volatile reads allow.
        unsafe { place.read_volatile() }
    }};
}

impl<'obj> Shared<'obj> {
    /// The variables of a loaded object; taken from it, so that there is one of this.
    pub(super) fn of(maps: &mut CollectMaps<'obj>) -> Self {
        let bss = std::mem::replace(&mut maps.bss_data, ptr::null_mut());
        assert!(!bss.is_null(), "the variables are taken once");
        Self {
            bss,
            object: PhantomData,
        }
    }

    /// What the programs tell of themselves.
    pub(super) fn state(&self) -> types::state {
        types::state {
            timings_left: copied!(self.state.timings_left),
            next_file: copied!(self.state.next_file),
            timing: copied!(self.state.timing),
            reserved: 0,
            lost_tallies: copied!(self.state.lost_tallies),
            lost_tasks: copied!(self.state.lost_tasks),
            lost_files: copied!(self.state.lost_files),
            lost_events: copied!(self.state.lost_events),
            untold_files: copied!(self.state.untold_files),
            unjoined: copied!(self.state.unjoined),
        }
    }

    /// Let at least so many reads be timed. A read that is counted off meanwhile may be lost.
    pub(super) fn allow_timings(&mut self, reads: u32) {
        let left = copied!(self.state.timings_left).max(reads);
        let place = place!(self.state.timings_left);
        // SAFETY: the place can be written and is aligned; nobody has a reference to it.
        unsafe { place.write_volatile(left) }
    }

    /// Take all ranges that are counted in slots, and leave these empty; but not those that a program
    /// is at just now.
    pub(super) fn take_slots(
        &mut self,
    ) -> impl Iterator<Item = (types::range_key, types::counters)> + use<'_, 'obj> {
        let slots: *mut [types::slot] = place!(self.slots);
        (0..slots.len()).filter_map(move |index| {
            // SAFETY: the index is below the length of the array.
            let slot = unsafe { slots.cast::<types::slot>().add(index) };
            // SAFETY: the slot is in the mapping, and everybody keeps to its contract.
            unsafe { take(slot) }
        })
    }
}

/// Take the range that is counted in a slot, and leave the slot empty; `None` if there is none, or
/// if a program is at it just now.
///
/// # Safety
///
/// The slot can be read and written, and whoever else does so has set `busy` from 0 to 1 before, by
/// an atomic instruction.
unsafe fn take(slot: *mut types::slot) -> Option<(types::range_key, types::counters)> {
    // SAFETY: the slot is there.
    let used = unsafe { &raw mut (*slot).used };
    // SAFETY: the place can be read; it may change meanwhile, and only decides whether to look.
    if unsafe { used.read_volatile() } == 0 {
        return None;
    }
    // SAFETY: the slot is there.
    let busy = unsafe { &raw mut (*slot).busy };
    // SAFETY: the place is aligned, and everybody changes it by atomic instructions only.
    let busy = unsafe { AtomicU32::from_ptr(busy) };
    if busy.swap(1, Ordering::Acquire) != 0 {
        return None;
    }
    // From here to the store, all but `busy` is ours alone.
    // SAFETY: the slot is there, and nobody else writes this field.
    let key = unsafe { (*slot).key };
    // SAFETY: as before.
    let counters = unsafe { (*slot).counters };
    // SAFETY: as before.
    let taken = (unsafe { used.replace(0) } != 0).then_some((key, counters));
    busy.store(0, Ordering::Release);
    taken
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicBool, thread};

    use super::*;

    fn slot() -> types::slot {
        types::slot {
            key: types::range_key {
                start: 4096,
                len: 8192,
                file: 3,
                kind: 1,
            },
            counters: types::counters {
                count: 7,
                ..types::counters::default()
            },
            used: 1,
            ..types::slot::default()
        }
    }

    fn take_from(slot: &mut types::slot) -> Option<(u64, u32)> {
        // SAFETY: it is borrowed by us alone.
        let taken = unsafe { take(slot) };
        taken.map(|(key, counters)| (key.start, counters.count))
    }

    #[test]
    fn a_slot_is_taken_once() {
        let mut slot = slot();
        assert_eq!(take_from(&mut slot), Some((4096, 7)));
        assert_eq!((slot.used, slot.busy), (0, 0));
        assert_eq!(take_from(&mut slot), None);
    }

    #[test]
    fn a_slot_that_somebody_is_at_stays_his() {
        let mut slot = slot();
        slot.busy = 1;
        assert_eq!(take_from(&mut slot), None);
        assert_eq!((slot.used, slot.busy), (1, 1));
    }

    /// Counts in a slot as a program does (`count` in bpf/maps.h).
    ///
    /// # Safety
    ///
    /// As for [`take`].
    unsafe fn count(slot: *mut types::slot) -> bool {
        // SAFETY: the caller's.
        let busy = unsafe { &raw mut (*slot).busy };
        // SAFETY: everybody changes it by atomic instructions.
        let busy = unsafe { AtomicU32::from_ptr(busy) };
        if busy.swap(1, Ordering::SeqCst) != 0 {
            return false;
        }
        // SAFETY: all but `busy` is ours alone until the store.
        if unsafe { (*slot).used } == 0 {
            // SAFETY: as before.
            unsafe { (*slot).counters.count = 0 };
        }
        // SAFETY: as before.
        unsafe { (*slot).counters.count += 1 };
        // SAFETY: as before.
        unsafe { (*slot).used = 1 };
        busy.swap(0, Ordering::SeqCst);
        true
    }

    #[test]
    fn nothing_is_lost_or_taken_twice_beside_a_program() {
        struct Slot(*mut types::slot);
        // SAFETY: the threads keep to the slot's contract.
        unsafe impl Sync for Slot {}
        let mut memory = types::slot { used: 0, ..slot() };
        let shared = Slot(&raw mut memory);
        let shared = &shared;
        let done = AtomicBool::new(false);
        let (counted, mut taken) = thread::scope(|scope| {
            let program = scope.spawn(|| {
                // SAFETY: the slot outlives the threads, all of which keep to its contract.
                let counted = (0..200_000).filter(|_| unsafe { count(shared.0) }).count();
                done.store(true, Ordering::Release);
                counted
            });
            let mut taken = 0;
            while !done.load(Ordering::Acquire) {
                // SAFETY: as above.
                let range = unsafe { take(shared.0) };
                taken += range.map_or(0, |(_, counters)| counters.count as usize);
            }
            (program.join().unwrap(), taken)
        });
        taken += take_from(&mut memory).map_or(0, |(_, count)| count as usize);
        assert!(counted > 0);
        assert_eq!(taken, counted);
    }

    #[test]
    fn structures_are_their_bytes() {
        let key = slot().key;
        let read_back: types::range_key = read(bytes(&key)).unwrap();
        assert_eq!((read_back.start, read_back.kind), (4096, 1));
        assert!(read::<types::range_key>(&bytes(&key)[1..]).is_none());
    }
}
