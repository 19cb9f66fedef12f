//! The contract's structures, read from the bytes of maps and events.

use std::{
    mem::size_of,
    ptr, slice,
    sync::atomic::{AtomicU32, Ordering},
};

use super::skeleton::types;

/// A structure of `bpf/contract.h`.
///
/// # Safety
///
/// Only for types that are valid whatever their bytes are.
pub(super) unsafe trait Wire: Copy {}

// SAFETY: integers only, or arrays of them.
unsafe impl Wire for types::range_key {}
// SAFETY: integers only.
unsafe impl Wire for types::counters {}
// SAFETY: integers only.
unsafe impl Wire for types::file_key {}
// SAFETY: integers only.
unsafe impl Wire for types::file_entry {}
// SAFETY: integers only.
unsafe impl Wire for types::file_event {}
// SAFETY: integers only.
unsafe impl Wire for types::range_event {}
// SAFETY: integers only.
unsafe impl Wire for types::counted_event {}
// SAFETY: integers only.
unsafe impl Wire for types::pending {}
// SAFETY: integers only.
unsafe impl Wire for types::run {}
// SAFETY: integers only.
unsafe impl Wire for types::state {}
// SAFETY: integers only.
unsafe impl Wire for types::root {}
// SAFETY: integers only.
unsafe impl Wire for u32 {}

/// The structure at the beginning of `bytes`, if they are enough.
pub(super) fn read<T: Wire>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, any of them make a valid T, and no alignment is asked for.
    Some(unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<T>()) })
}

/// The bytes of a structure, for the kernel.
pub(super) fn bytes<T: Wire>(value: &T) -> &[u8] {
    // SAFETY: the contract's structures have no implicit padding, so every byte is initialised, and
    // the slice lives as long as the value.
    unsafe { slice::from_raw_parts(ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
}

/// A value that BPF programs change meanwhile.
pub(super) fn volatile<T: Wire>(value: &T) -> T {
    // SAFETY: the reference is valid and aligned; the value may change while it is read, which
    // volatile reads allow for.
    unsafe { ptr::read_volatile(value) }
}

/// Take the range that is counted in a slot, and leave the slot empty; `None` if there is none, or
/// if a program is at it just now.
pub(super) fn take_slot(slot: &mut types::slot) -> Option<(types::range_key, types::counters)> {
    if volatile(&slot.used) == 0 {
        return None;
    }
    let busy = ptr::from_mut(&mut slot.busy);
    // SAFETY: the pointer is valid and aligned for as long as the slot is borrowed, and everybody,
    // programs too, changes `busy` by atomic instructions only.
    let busy = unsafe { AtomicU32::from_ptr(busy) };
    if busy.swap(1, Ordering::Acquire) != 0 {
        return None;
    }
    let taken = (slot.used != 0).then_some((slot.key, slot.counters));
    slot.used = 0;
    busy.store(0, Ordering::Release);
    taken
}
