//! One namespace: a volatile cache over durable bytes, and the rules between them.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use super::{
    StoreError,
    base::Base,
    cache::{Cache, Content},
    kind::ZoneLayout,
    zones::{ZoneRest, Zones},
};

/// Blocks that leave a full cache at once, as a part of its capacity.
const DRAIN_PART: usize = 8;

/// Bytes that are copied at once.
const COPY_STEP: u64 = 1 << 20;

/// The health of a namespace's store.
#[derive(Clone, Debug, Default)]
pub enum Health {
    /// All is well.
    #[default]
    Healthy,
    /// The last access of its kind failed; others may still work, and this one later.
    Degraded(Arc<StoreError>),
    /// Out of service since it was opened.
    Failed(Arc<StoreError>),
}

impl Health {
    /// Whether all is well.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        matches!(self, Self::Healthy)
    }

    /// The failure or damage, if not all is well.
    #[must_use]
    pub fn problem(&self) -> Option<&Arc<StoreError>> {
        match self {
            Self::Healthy => None,
            Self::Degraded(problem) | Self::Failed(problem) => Some(problem),
        }
    }
}

/// The bytes of one namespace. All offsets and lengths are whole logical blocks inside of it (the
/// caller has checked; others panic).
#[derive(Debug)]
pub struct StoredNamespace {
    number: u32,
    size_bytes: u64,
    block_bytes: u64,
    state: RwLock<Contents>,
    health: RwLock<Health>,
    /// The damage that was found when it was opened, and stays.
    damage: Option<Arc<StoreError>>,
}

#[derive(Debug)]
struct Contents {
    cache: Cache,
    base: Base,
    zones: Option<Zones>,
    block_bytes: u64,
}

impl StoredNamespace {
    pub(super) fn new(
        number: u32,
        size_bytes: u64,
        block_bytes: u64,
        cache_bytes: u64,
        base: Base,
        zones: Option<Zones>,
        health: Health,
    ) -> Self {
        let capacity = u32::try_from(cache_bytes / block_bytes).unwrap_or(u32::MAX - 1);
        Self {
            number,
            size_bytes,
            block_bytes,
            state: RwLock::new(Contents {
                cache: Cache::new(capacity, block_bytes as usize),
                base,
                zones,
                block_bytes,
            }),
            damage: match &health {
                Health::Degraded(damage) => Some(Arc::clone(damage)),
                Health::Healthy | Health::Failed(_) => None,
            },
            health: RwLock::new(health),
        }
    }

    /// Bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes of a logical block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Its health.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
            .read()
            .unwrap_or_else(|e| e.into_inner())
            .clone()
    }

    /// Bring all memory in now, so that no request waits for some: where the host's writeback goes
    /// through this process, waiting for memory could wait for itself.
    pub fn touch(&self) {
        let mut state = self.write_state();
        state.base.touch();
        state.cache.touch();
    }

    /// Fill `into` with the data that was written last, durable or not.
    ///
    /// # Errors
    ///
    /// The backing file cannot be read.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StoreError> {
        self.in_service()?;
        let result = self.read_state().read(offset, into);
        if let Err(error) = &result {
            self.note_failure(error);
        }
        result
    }

    /// Copy all of it into an empty file, which is sparse where there are zeroes.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or the backing file cannot be read.
    pub fn copy_to(&self, file: &File) -> io::Result<()> {
        file.set_len(self.size_bytes)?;
        let mut buffer = vec![0; COPY_STEP as usize];
        for offset in (0..self.size_bytes).step_by(COPY_STEP as usize) {
            let part = &mut buffer[..(self.size_bytes - offset).min(COPY_STEP) as usize];
            self.read(offset, part).map_err(io::Error::other)?;
            if part.iter().any(|byte| *byte != 0) {
                file.write_all_at(part, offset)?;
            }
        }
        Ok(())
    }

    /// Write; durable on return only with `fua`.
    ///
    /// # Errors
    ///
    /// The backing file cannot be written. The blocks then read as before or as written; those of
    /// earlier writes are kept.
    pub fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), StoreError> {
        self.in_service()?;
        let mut state = self.write_state();
        let result = if fua || state.cache.capacity() == 0 {
            state.write_through(offset, data)
        } else {
            state.write_cached(offset, data.len() as u64, Some(data))
        };
        drop(state);
        self.note(result)
    }

    /// Make a range read as zeroes: a write of zeroes, as volatile as one. (Deallocate does this
    /// too. A range larger than half of the cache bypasses it and is durable on return.)
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub fn zero(&self, offset: u64, len: u64, fua: bool) -> Result<(), StoreError> {
        self.in_service()?;
        let mut state = self.write_state();
        let result = if fua || state.zeroes_bypass_cache(len) {
            state.zero_through(offset, len)
        } else {
            state.write_cached(offset, len, None)
        };
        drop(state);
        self.note(result)
    }

    /// Make everything durable that was written before.
    ///
    /// # Errors
    ///
    /// The backing file cannot be written. Data that could not be written is still there, and the
    /// next flush tries again.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.in_service()?;
        let mut state = self.write_state();
        let all = state.cache.len();
        let result = state.drain(all).and_then(|()| state.base.sync());
        drop(state);
        self.note(result)
    }

    /// Wait until the host's disk has all that is durable, if that is asked for. (A flush does so itself; after
    /// changes of zones it is for the caller, as there may be many.)
    ///
    /// # Errors
    ///
    /// The host could not write it.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.in_service()?;
        let result = self.read_state().base.sync();
        self.note(result)
    }

    /// Empty a zone, durably.
    ///
    /// # Errors
    ///
    /// The record in the backing file cannot be written.
    pub fn reset_zone(&self, zone: usize) -> Result<(), StoreError> {
        self.in_service()?;
        let result = self.write_state().reset_zone(zone);
        self.note(result)
    }

    /// Put a zone into a state, durably and with all of its data.
    ///
    /// # Errors
    ///
    /// The backing file cannot be written.
    pub fn set_zone(&self, zone: usize, kind: fn(u64) -> ZoneRest) -> Result<(), StoreError> {
        self.in_service()?;
        let result = self.write_state().set_zone(zone, kind);
        self.note(result)
    }

    /// Drop all data that is not durable. Return the state that each zone has then.
    pub fn power_cut(&self) -> Vec<ZoneRest> {
        let mut state = self.write_state();
        state.cache.clear();
        state.zones.as_mut().map_or_else(Vec::new, |zones| {
            zones.power_cut();
            zones.durable().to_vec()
        })
    }

    /// The state that each zone would have after a power cut.
    #[must_use]
    pub fn durable_zones(&self) -> Vec<ZoneRest> {
        let state = self.read_state();
        state
            .zones
            .as_ref()
            .map_or_else(Vec::new, |zones| zones.durable().to_vec())
    }

    /// The state of each zone now, durable or not.
    #[must_use]
    pub fn zones_now(&self) -> Vec<ZoneRest> {
        let state = self.read_state();
        state.zones.as_ref().map_or_else(Vec::new, Zones::now)
    }

    /// Bytes of a zone that were written, durable or not.
    #[must_use]
    pub fn written_in_zone(&self, zone: usize) -> u64 {
        let state = self.read_state();
        state.zones.as_ref().map_or(0, |zones| zones.written(zone))
    }

    /// The zones' sizes, if it has zones.
    #[must_use]
    pub fn zone_layout(&self) -> Option<ZoneLayout> {
        self.read_state().zones.as_ref().map(Zones::layout)
    }

    /// Whether there is a volatile cache; else each change is durable on return.
    pub(super) fn has_cache(&self) -> bool {
        self.read_state().cache.capacity() > 0
    }

    /// Whether so many bytes of zeroes go past the cache.
    pub(super) fn zeroes_bypass_cache(&self, len: u64) -> bool {
        self.read_state().zeroes_bypass_cache(len)
    }

    /// Bytes that a power cut would lose now.
    #[must_use]
    pub fn volatile_bytes(&self) -> u64 {
        self.read_state().cache.len() as u64 * self.block_bytes
    }

    fn in_service(&self) -> Result<(), StoreError> {
        match &*self.health.read().unwrap_or_else(|e| e.into_inner()) {
            Health::Failed(damage) => Err(StoreError::OutOfService {
                namespace: self.number,
                damage: Arc::clone(damage),
            }),
            _ => Ok(()),
        }
    }

    /// Whether a health reports more than the damage that was found at start.
    fn has_failed_since(&self, health: &Health) -> bool {
        match (health.problem(), &self.damage) {
            (Some(problem), Some(damage)) => !Arc::ptr_eq(problem, damage),
            (problem, _) => problem.is_some(),
        }
    }

    /// Learn the health from the result of a write.
    fn note(&self, result: Result<(), StoreError>) -> Result<(), StoreError> {
        match &result {
            Ok(()) => {
                let degraded = |health: &Health| {
                    matches!(health, Health::Degraded(_)) && self.has_failed_since(health)
                };
                let known = degraded(&self.health.read().unwrap_or_else(|e| e.into_inner()));
                if known {
                    let all_durable = self.read_state().cache.is_empty();
                    let mut health = self.health.write().unwrap_or_else(|e| e.into_inner());
                    // Only data that reached the file proves that the file takes data again.
                    if all_durable && degraded(&health) {
                        tracing::info!(namespace = self.number, "writes to the store work again");
                        *health = self
                            .damage
                            .clone()
                            .map_or(Health::Healthy, Health::Degraded);
                    }
                }
            }
            Err(error) => self.note_failure(error),
        }
        result
    }

    fn note_failure(&self, error: &StoreError) {
        let mut health = self.health.write().unwrap_or_else(|e| e.into_inner());
        if !self.has_failed_since(&health) {
            tracing::error!(namespace = self.number, %error, "the store failed");
        }
        if !matches!(*health, Health::Failed(_)) {
            *health = Health::Degraded(Arc::new(error.clone()));
        }
    }

    // A thread that panicked inside has left the state as consistent as a failed write does.
    fn read_state(&self) -> RwLockReadGuard<'_, Contents> {
        self.state.read().unwrap_or_else(|e| e.into_inner())
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, Contents> {
        self.state.write().unwrap_or_else(|e| e.into_inner())
    }
}

impl Contents {
    fn zeroes_bypass_cache(&self, len: u64) -> bool {
        len / self.block_bytes > self.cache.capacity() as u64 / 2
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StoreError> {
        let Some(zones) = &self.zones else {
            return self.read_written(offset, into);
        };
        let mut at = 0;
        while at < into.len() {
            let place = offset + at as u64;
            let (zone, within) = zones.locate(place);
            let rest = (into.len() - at) as u64;
            let here = rest.min(zones.layout().size_bytes - within);
            let valid = zones.written(zone).saturating_sub(within).min(here) as usize;
            let part = &mut into[at..at + here as usize];
            let (written, behind) = part.split_at_mut(valid);
            self.read_written(place, written)?;
            behind.fill(0);
            at += here as usize;
        }
        Ok(())
    }

    /// Read the base first, then the newer data over it.
    fn read_written(&self, offset: u64, into: &mut [u8]) -> Result<(), StoreError> {
        if into.is_empty() {
            return Ok(());
        }
        if self.cache.is_empty() {
            return self.base.read(offset, into);
        }
        let first = offset / self.block_bytes;
        let count = into.len() / self.block_bytes as usize;
        let cached = |index: usize| self.cache.get(first + index as u64);
        // Neighbours that are not in the cache are one read of the base.
        let mut index = 0;
        while index < count {
            let start = index * self.block_bytes as usize;
            let end = start + self.block_bytes as usize;
            match cached(index) {
                Some(Content::Data(data)) => into[start..end].copy_from_slice(data),
                Some(Content::Zeroes) => into[start..end].fill(0),
                None => {
                    let run = (index + 1..count)
                        .find(|next| cached(*next).is_some())
                        .unwrap_or(count);
                    let end = run * self.block_bytes as usize;
                    self.base
                        .read(offset + start as u64, &mut into[start..end])?;
                    index = run;
                    continue;
                }
            }
            index += 1;
        }
        Ok(())
    }

    /// `None` writes zeroes.
    fn write_cached(
        &mut self,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let first = offset / self.block_bytes;
        for index in 0..len / self.block_bytes {
            let start = (index * self.block_bytes) as usize;
            let content = data.map_or(Content::Zeroes, |data| {
                Content::Data(&data[start..start + self.block_bytes as usize])
            });
            if !self.cache.has_room_for(first + index) {
                self.drain((self.cache.capacity() / DRAIN_PART).max(1))?;
            }
            assert!(
                self.cache.put(first + index, content),
                "a drained cache has room"
            );
            self.advance(offset, (index + 1) * self.block_bytes);
        }
        Ok(())
    }

    /// Write; on return the data is durable, and in a zone everything before it.
    fn write_through(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let len = data.len() as u64;
        self.drain_zone_before(offset)?;
        self.base.write(offset, data)?;
        self.replaced(offset, len)
    }

    fn zero_through(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.drain_zone_before(offset)?;
        self.base.zero(offset, len)?;
        self.replaced(offset, len)
    }

    /// Note that a range has gone to the base, past the cache.
    fn replaced(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        if let Some(zones) = &self.zones {
            // Only now it is in the zone: data that a record does not cover would be lost by a power
            // cut, whatever is flushed before.
            let (zone, within) = zones.locate(offset);
            self.make_durable(&[(zone, within + len)])?;
        }
        self.cache
            .remove_range(offset / self.block_bytes..(offset + len) / self.block_bytes);
        self.base.sync()
    }

    /// Note that the data of zones is durable up to there. Where the host's disk counts it has that data
    /// first: the host may write a file's pages in any order.
    fn make_durable(&mut self, ends: &[(usize, u64)]) -> Result<(), StoreError> {
        let Some(zones) = &mut self.zones else {
            return Ok(());
        };
        if !ends.is_empty() {
            self.base.sync()?;
        }
        ends.iter()
            .try_for_each(|&(zone, end)| zones.make_durable(zone, end))
    }

    fn advance(&mut self, offset: u64, len: u64) {
        if let Some(zones) = &mut self.zones {
            let (zone, within) = zones.locate(offset);
            zones.advance(zone, within + len);
        }
    }

    /// Bring the data of a zone before `offset` into the base, so that the durable data has no
    /// holes.
    fn drain_zone_before(&mut self, offset: u64) -> Result<(), StoreError> {
        let Some(zones) = &self.zones else {
            return Ok(());
        };
        let (zone, within) = zones.locate(offset);
        self.drain_zone(zone, within)
    }

    /// Bring the first `within` bytes of a zone into the base.
    fn drain_zone(&mut self, zone: usize, within: u64) -> Result<(), StoreError> {
        let Some(zones) = &self.zones else {
            return Ok(());
        };
        let start = zones.start(zone);
        let from = (start + zones.durable_bytes(zone)) / self.block_bytes;
        let until = (start + within.min(zones.written(zone))) / self.block_bytes;
        let blocks: Vec<u64> = (from..until)
            .filter(|block| self.cache.get(*block).is_some())
            .collect();
        self.drain_blocks(&blocks)
    }

    /// Bring the `count` oldest blocks into the base.
    fn drain(&mut self, count: usize) -> Result<(), StoreError> {
        let blocks = self.cache.oldest(count);
        self.drain_blocks(&blocks)
    }

    /// Bring these blocks, in order of address, into the base. In a zone they are the first of its
    /// volatile ones: zones are written in order, and blocks leave in the order in which they came.
    fn drain_blocks(&mut self, blocks: &[u64]) -> Result<(), StoreError> {
        let mut rest = blocks;
        let mut ends = Vec::new();
        while !rest.is_empty() {
            let joined = |pair: &[u64]| pair[1] == pair[0] + 1 && self.same_kind(pair[0], pair[1]);
            let len = 1 + rest.windows(2).take_while(|pair| joined(pair)).count();
            let (run, behind) = rest.split_at(len);
            rest = behind;
            let (offset, len) = (
                run[0] * self.block_bytes,
                run.len() as u64 * self.block_bytes,
            );
            let pieces: Vec<&[u8]> = run
                .iter()
                .filter_map(|block| match self.cache.get(*block) {
                    Some(Content::Data(data)) => Some(data),
                    _ => None,
                })
                .collect();
            if pieces.is_empty() {
                self.base.zero(offset, len)?;
            } else {
                self.base.write_pieces(offset, &pieces)?;
            }
            if let Some(zones) = &self.zones {
                let (zone, within) = zones.locate(offset);
                ends.push((zone, within + len));
            }
        }
        self.make_durable(&ends)?;
        for block in blocks {
            self.cache.remove(*block);
        }
        Ok(())
    }

    /// Whether two cached neighbours can be written together: both data or both zeroes, one zone.
    fn same_kind(&self, a: u64, b: u64) -> bool {
        let zeroes = |block| self.cache.get(block) == Some(Content::Zeroes);
        let zone = |block: u64| {
            let zones = self.zones.as_ref()?;
            Some(zones.locate(block * self.block_bytes).0)
        };
        zeroes(a) == zeroes(b) && zone(a) == zone(b)
    }

    fn reset_zone(&mut self, zone: usize) -> Result<(), StoreError> {
        let Some(zones) = &mut self.zones else {
            return Ok(());
        };
        zones.reset(zone)?;
        let first = zones.start(zone) / self.block_bytes;
        let blocks = zones.layout().size_bytes / self.block_bytes;
        self.cache.remove_range(first..first + blocks);
        Ok(())
    }

    fn set_zone(&mut self, zone: usize, kind: fn(u64) -> ZoneRest) -> Result<(), StoreError> {
        let Some(zones) = &self.zones else {
            return Ok(());
        };
        let all = zones.layout().capacity_bytes;
        self.drain_zone(zone, all)?;
        let zones = self.zones.as_mut().expect("it was there a moment ago");
        let written = zones.written(zone);
        zones.set(zone, kind(written))
    }
}
