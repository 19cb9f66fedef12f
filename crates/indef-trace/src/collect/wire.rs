//! The contract's structures as bytes of maps and events, and in memory that is shared with the
//! programs.

use std::{
    io,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
};

use libbpf_rs::MapCore;
use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    time::{ClockId, clock_gettime},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::contract::{Counters, LINE_WORDS, RangeKey, SLOTS, Slot, State};

/// A structure of `bpf/contract.h`: valid whatever its bytes are ([`FromBytes`]), and without any
/// byte that is not a field's ([`IntoBytes`]): padding is not initialised, and the kernel compares
/// keys byte by byte.
///
/// The generated structures derive both, so that one with padding does not compile.
pub(super) trait Wire: FromBytes + IntoBytes + Immutable {}

impl<T: FromBytes + IntoBytes + Immutable> Wire for T {}

/// Nanoseconds of the clock by which the programs tell times.
pub(super) fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

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
/// slot is accessed by reference, to an atomic, as everybody changes it by atomic instructions.
pub(super) struct Variables {
    state: Mapping<State>,
    slots: Mapping<[Slot; SLOTS as usize]>,
}

/// The memory of a map with one entry.
struct Mapping<T> {
    at: NonNull<T>,
}

// SAFETY: nothing about the mapping belongs to a thread; a copy cannot be made, and changing its
// memory needs `&mut Variables`.
unsafe impl<T> Send for Mapping<T> {}

impl<T: Wire> Mapping<T> {
    fn of(map: &dyn MapCore) -> io::Result<Self> {
        assert_eq!(map.value_size() as usize, size_of::<T>());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no memory in use is replaced.
        let at = unsafe {
            mmap(
                ptr::null_mut(),
                size_of::<T>(),
                protection,
                MapFlags::SHARED,
                map.as_fd(),
                0,
            )
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at })
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no pointer into it outlives it. The call fails
        // only for other addresses.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), size_of::<T>()) };
    }
}

/// The address of a field of the state.
macro_rules! field {
    ($variables:ident . $field:ident) => {{
        // SAFETY: the mapping lives as long as the variables, and the field is in it.
        unsafe { &raw mut (*$variables.state.at.as_ptr()).$field }
    }};
}

/// A copy of a field of the state.
macro_rules! copied {
    ($variables:ident . $field:ident) => {{
        let field = field!($variables.$field);
        // SAFETY: the field can be read and is aligned, and any bytes there are a value (`Wire`). It
        // may change meanwhile, as volatile reads allow.
        unsafe { field.read_volatile() }
    }};
}

impl Variables {
    /// Map the variables of a loaded object. To be called once for an object.
    pub(super) fn map(state: &dyn MapCore, slots: &dyn MapCore) -> io::Result<Self> {
        Ok(Self {
            state: Mapping::of(state)?,
            slots: Mapping::of(slots)?,
        })
    }

    /// The programs' account of themselves.
    pub(super) fn state(&self) -> State {
        State {
            sampling: copied!(self.sampling),
            usual: copied!(self.usual),
            allowed: copied!(self.allowed),
            window: copied!(self.window),
            salt: copied!(self.salt),
            window_tick: copied!(self.window_tick),
            ticked_window: copied!(self.ticked_window),
            reserved_window: 0,
            line: [0; LINE_WORDS as usize],
            seen: copied!(self.seen),
            chosen: copied!(self.chosen),
            variance: copied!(self.variance),
            common: copied!(self.common),
            began: copied!(self.began),
            exact_since: copied!(self.exact_since),
            timings_left: copied!(self.timings_left),
            next_file: copied!(self.next_file),
            timing: copied!(self.timing),
            is_over: copied!(self.is_over),
            lost_tallies: copied!(self.lost_tallies),
            lost_tasks: copied!(self.lost_tasks),
            lost_files: copied!(self.lost_files),
            lost_events: copied!(self.lost_events),
            untold_calls: copied!(self.untold_calls),
            untold_files: copied!(self.untold_files),
            unjoined: copied!(self.unjoined),
        }
    }

    /// Let at least this many reads be timed. A read that is counted off meanwhile may be lost.
    pub(super) fn allow_timings(&mut self, reads: u32) {
        let left = copied!(self.timings_left).max(reads);
        let field = field!(self.timings_left);
        // SAFETY: the field can be written and is aligned; nobody has a reference to it.
        unsafe { field.write_volatile(left) }
    }

    /// Choose one in `one_in` accesses, each of which counts `weight` times, from now on; after `allowed`
    /// of them the programs brake, until this is called again.
    pub(super) fn set_sampling(&mut self, one_in: u32, weight: u32, allowed: Option<u64>) {
        let both = u64::from(weight) << 32 | u64::from(one_in);
        let before = copied!(self.sampling);
        // Before the first call, `sampling` is 0, and no program is attached.
        if before != 0 && before >> 32 != 1 {
            self.set_exact_since(monotonic());
        }
        let seen = copied!(self.seen);
        // `sampling` is never 0: there is no brake then.
        let (usual, allowed) = allowed.map_or((0, u64::MAX), |allowed| {
            (both, seen.saturating_add(allowed))
        });
        let fields = [
            (field!(self.allowed), allowed),
            (field!(self.usual), usual),
            // Last: the programs exchange it only for what was usual with it.
            (field!(self.sampling), both),
        ];
        for (field, value) in fields {
            // SAFETY: the field can be written, in one piece, as it is aligned; nobody has a reference
            // to it, and the programs change it by an atomic instruction.
            unsafe { field.write_volatile(value) }
        }
    }

    /// Which tasks are chosen when.
    pub(super) fn set_salt(&mut self, salt: u32) {
        let field = field!(self.salt);
        // SAFETY: as above.
        unsafe { field.write_volatile(salt) }
    }

    /// When the trace began, in nanoseconds of CLOCK_MONOTONIC.
    pub(super) fn set_began(&mut self, began: u64) {
        let field = field!(self.began);
        // SAFETY: as above.
        unsafe { field.write_volatile(began) }
        self.set_exact_since(began);
    }

    fn set_exact_since(&mut self, time: u64) {
        let field = field!(self.exact_since);
        // SAFETY: as above.
        unsafe { field.write_volatile(time) }
    }

    /// The trace is over.
    pub(super) fn set_over(&mut self) {
        let field = field!(self.is_over);
        // SAFETY: as above.
        unsafe { field.write_volatile(1) }
    }

    /// No request of a timed read is in flight any more.
    pub(super) fn forget_timing(&mut self) {
        let field = field!(self.timing);
        // SAFETY: as above.
        unsafe { field.write_volatile(0) }
    }

    /// Before the programs are attached anew: what began before is over.
    pub(super) fn next_window(&mut self) {
        let next = copied!(self.window).wrapping_add(1);
        let field = field!(self.window);
        // SAFETY: as above.
        unsafe { field.write_volatile(next) }
    }

    /// Take all ranges that are counted in slots, and leave these empty; except slots that a program
    /// owns at the moment.
    pub(super) fn take_slots(&mut self) -> impl Iterator<Item = (RangeKey, Counters)> + use<'_> {
        let slots = self.slots.at.as_ptr().cast::<Slot>();
        (0..SLOTS as usize).filter_map(move |index| {
            // SAFETY: the index is below the length of the array.
            let slot = unsafe { slots.add(index) };
            // SAFETY: the slot is in the mapping, which is borrowed, and everybody keeps to its
            // contract.
            unsafe { take(slot) }
        })
    }
}

/// Take the range that is counted in a slot, and leave the slot empty; `None` if it holds none, or if
/// a program owns it at the moment.
///
/// # Safety
///
/// The slot can be read and written, and whoever else does so has set `busy` from 0 to 1 before, by
/// an atomic instruction.
unsafe fn take(slot: *mut Slot) -> Option<(RangeKey, Counters)> {
    // SAFETY: the slot is there.
    let used = unsafe { &raw mut (*slot).used };
    // SAFETY: the field can be read; it may change meanwhile, and only decides whether to look.
    if unsafe { used.read_volatile() } == 0 {
        return None;
    }
    // SAFETY: the slot is there.
    let busy = unsafe { &raw mut (*slot).busy };
    // SAFETY: the field is aligned, and everybody changes it by atomic instructions only.
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

    fn slot() -> Slot {
        Slot {
            key: RangeKey {
                start: 4096,
                len: 8192,
                file: 3,
                kind: 1,
            },
            counters: Counters {
                count: 7,
                ..Counters::default()
            },
            used: 1,
            ..Slot::default()
        }
    }

    fn take_from(slot: &mut Slot) -> Option<(u64, u32)> {
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
    unsafe fn count(slot: *mut Slot) -> bool {
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
        struct Shared(*mut Slot);
        // SAFETY: the threads keep to the slot's contract.
        unsafe impl Sync for Shared {}
        let mut memory = Slot { used: 0, ..slot() };
        let shared = Shared(&raw mut memory);
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
        let read_back: RangeKey = read(bytes(&key)).unwrap();
        assert_eq!((read_back.start, read_back.kind), (4096, 1));
        assert!(read::<RangeKey>(&bytes(&key)[1..]).is_none());
    }
}
