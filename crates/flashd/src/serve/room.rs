//! The memory for data that hosts were asked for, shared by all connections.
//!
//! A buffer is lent before the R2T is sent, and comes back when it is dropped: its command is done,
//! or its connection ends. A connection that holds none waits for room; one that holds some goes on with
//! its share. The one that waits holds nothing, and a host that does not send its data in time is
//! dropped, so that every wait ends.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use super::limits::MAX_TRANSFER;
use crate::lock::lock;

/// Bytes that all hosts may be asked for at a time.
const ROOM: usize = 24 << 20;
/// The most of it for one connection.
const SHARE_MAX: usize = 4 << 20;
/// Buffers that are kept for the next commands.
const SPARE_MAX: usize = 8;

/// The shared memory.
#[derive(Debug)]
pub(super) struct Room {
    state: Mutex<Pool>,
    given_back: Condvar,
}

#[derive(Debug)]
struct Pool {
    free: usize,
    /// Connections that hold or want some.
    users: usize,
    waiting: usize,
    spare: Vec<Vec<u8>>,
}

impl Default for Room {
    fn default() -> Self {
        const { assert!(MAX_TRANSFER <= SHARE_MAX && SHARE_MAX <= ROOM) };
        Self {
            state: Mutex::new(Pool {
                free: ROOM,
                users: 0,
                waiting: 0,
                spare: Vec::new(),
            }),
            given_back: Condvar::new(),
        }
    }
}

impl Room {
    /// A connection begins to want room.
    pub(super) fn enter(&self) {
        lock(&self.state).users += 1;
    }

    /// It neither holds nor wants any.
    pub(super) fn leave(&self) {
        lock(&self.state).users -= 1;
    }

    /// Lend a buffer of `len` bytes, at most [`MAX_TRANSFER`], whose content is arbitrary; `None`
    /// if there is no room for a connection that has `held` bytes already.
    pub(super) fn lend(self: &Arc<Self>, len: usize, held: usize) -> Option<Lent> {
        let mut state = lock(&self.state);
        let share = (ROOM / state.users.max(1)).min(SHARE_MAX);
        if len > state.free || (held > 0 && held + len > share) {
            return None;
        }
        state.free -= len;
        // One that fits exactly: a larger one would hold more than was counted.
        let same = state.spare.iter().position(|data| data.capacity() == len);
        let spare = same.map(|at| state.spare.swap_remove(at));
        drop(state);
        Some(Lent {
            data: spare.unwrap_or_else(|| vec![0; len]),
            room: Arc::clone(self),
        })
    }

    fn take_back(&self, data: Vec<u8>) {
        let mut state = lock(&self.state);
        state.free += data.len();
        let oldest = (state.spare.len() == SPARE_MAX).then(|| state.spare.remove(0));
        state.spare.push(data);
        if state.waiting > 0 {
            self.given_back.notify_all();
        }
        drop(state);
        drop(oldest);
    }

    /// Wait until `len` bytes are free, at most for `time`.
    pub(super) fn wait(&self, len: usize, time: Duration) {
        let mut state = lock(&self.state);
        state.waiting += 1;
        let is_full = |state: &mut Pool| state.free < len;
        let (mut state, _) = self
            .given_back
            .wait_timeout_while(state, time, is_full)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        state.waiting -= 1;
    }
}

/// A buffer of the room.
#[derive(Debug)]
pub(super) struct Lent {
    data: Vec<u8>,
    room: Arc<Room>,
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.data
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.room.take_back(std::mem::take(&mut self.data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_the_room() {
        let room = Arc::new(Room::default());
        room.enter();
        let mut one = Vec::new();
        while let Some(data) = room.lend(MAX_TRANSFER, one.len() * MAX_TRANSFER) {
            one.push(data);
        }
        assert_eq!(one.len() * MAX_TRANSFER, SHARE_MAX);
        // Others take the rest; then nobody gets any.
        let mut others = Vec::new();
        for _ in 0..ROOM / MAX_TRANSFER - one.len() {
            room.enter();
            others.push(room.lend(MAX_TRANSFER, 0).unwrap());
        }
        assert!(room.lend(512, 0).is_none());
        // What the first gives back is not for it, as its share has shrunk.
        one.pop();
        assert!(room.lend(MAX_TRANSFER, one.len() * MAX_TRANSFER).is_none());
        assert!(room.lend(MAX_TRANSFER, 0).is_some());
    }

    #[test]
    fn one_that_waits_is_woken() {
        let room = Arc::new(Room::default());
        let held: Vec<_> = (0..ROOM / MAX_TRANSFER)
            .map(|_| room.lend(MAX_TRANSFER, 0).unwrap())
            .collect();
        room.wait(512, Duration::from_millis(1));
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| {
                let began = std::time::Instant::now();
                room.wait(512, Duration::from_secs(60));
                assert!(began.elapsed() < Duration::from_secs(30));
                room.lend(512, 0).is_some()
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
            assert!(waits.join().unwrap());
        });
    }
}
