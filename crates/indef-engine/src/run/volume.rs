//! The file systems of a run: which engines work on each, and how much room it has.

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use indef_core::SkipReason;
use indef_fs::{EngineOptions, FileSystemKey, Filesystem, FsError, Refusal, Relocator, Target};
use units::Bytes;

use super::{
    Observer, Reason, RunEvent, RunOptions, backend::Backend, limits::Stop, step_size::StepSize,
};
use crate::sync::lock;

/// A file system, or a subvolume of one, with its engines.
pub(super) struct Volume {
    pub(super) name: Arc<str>,
    pub(super) fs: Filesystem,
    /// Those that work on it, best first.
    engines: Vec<Box<dyn Relocator>>,
    /// One of them takes only files that others share.
    pub(super) asks_sharing: bool,
    /// The most telling reason of the engines that are not available.
    refusal: Option<Reason>,
    /// That of all subvolumes.
    pub(super) room: Arc<FreeShare>,
    /// The size of steps in which several files are moved together.
    pub(super) step_size: OnceLock<Arc<Mutex<StepSize>>>,
    /// Whether it has workers of its own, for an engine that moves files together.
    pub(super) gathers: AtomicBool,
}

impl Volume {
    fn look_at(
        backend: &dyn Backend,
        target: &Target,
        options: &RunOptions,
        observer: &dyn Observer,
        room: Arc<FreeShare>,
    ) -> Result<Self, Reason> {
        let fs = backend.file_system(target)?;
        let kinds = match options.engine {
            Some(kind) => [Some(kind), kind.instead()].into_iter().flatten().collect(),
            None => fs.engines(),
        };
        let engine_options = EngineOptions {
            allow_unshare: options.allow_unshare,
            reclaim: options.reclaim_ratio.is_some(),
            vacate: options.vacate,
            strict: options.strict,
            by_name: options.engine.is_some(),
            max_stall: options.max_stall,
            queue_depth: options.queue_depth,
            row: options.row,
        };
        let (mut engines, mut asks_sharing) = (Vec::new(), false);
        let mut refused_engines = Vec::new();
        for kind in kinds {
            match backend.relocator(kind, &fs, &engine_options) {
                Ok(engine) => {
                    engines.push(engine);
                    if let (Some((bytes, why)), Some(rate)) = (kind.in_one_go(), options.rate)
                        && rate < bytes
                    {
                        let engine = kind;
                        observer.on(RunEvent::InGoes { engine, bytes, why });
                    }
                    asks_sharing |= kind.keeps_sharing() && options.engine.is_none();
                }
                Err(refused) => {
                    tracing::info!(engine = %kind, fs = %fs.kind, reason = %refused, "engine is not available");
                    refused_engines.push((kind, Reason::from(refused)));
                }
            }
        }
        if let Some(instead) = engines.first() {
            for (engine, reason) in &refused_engines {
                observer.on(RunEvent::Fallback {
                    place: fs.mount.as_ref().map(|mount| &*mount.point),
                    engine: *engine,
                    instead: instead.name(),
                    reason,
                });
            }
        }
        Ok(Self {
            name: fs.kind.to_string().into(),
            fs,
            engines,
            asks_sharing,
            refusal: most_telling(refused_engines.into_iter().map(|(_, reason)| reason)),
            room,
            step_size: OnceLock::new(),
            gathers: AtomicBool::new(false),
        })
    }

    /// The best engine that admits the file, as its index.
    pub(super) fn choose(&self, target: &Target) -> Result<usize, Reason> {
        let mut first = self.refusal.clone();
        for (index, engine) in self.engines.iter().enumerate() {
            match engine.admit(target) {
                Ok(()) => return Ok(index),
                // Another engine may do what this one cannot.
                Err(Refusal::Skip(
                    reason @ (SkipReason::Unsupported | SkipReason::NoEngine | SkipReason::InUse),
                )) => {
                    tracing::debug!(engine = engine.name(), path = %target.path.display(), %reason, "engine refuses the file");
                    let nothing_told = [None, Some(Reason::Skip(SkipReason::NoEngine))];
                    if nothing_told.contains(&first) || index == 0 {
                        first = Some(Reason::Skip(reason));
                    }
                }
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Err(first.unwrap_or(Reason::Skip(SkipReason::NoEngine)))
    }

    pub(super) fn engine(&self, index: usize) -> &dyn Relocator {
        &*self.engines[index]
    }
}

/// The first reason, unless it only means that an engine is not for this file system.
fn most_telling(mut reasons: impl Iterator<Item = Reason>) -> Option<Reason> {
    let first = reasons.next()?;
    if first != Reason::Skip(SkipReason::NoEngine) {
        return Some(first);
    }
    let telling = reasons.find(|reason| *reason != Reason::Skip(SkipReason::NoEngine));
    telling.or(Some(first))
}

/// All file systems seen so far.
#[derive(Default)]
pub(super) struct Volumes(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// By device number, of which each subvolume has its own.
    volumes: HashMap<u64, Arc<Volume>>,
    rooms: HashMap<FileSystemKey, Arc<FreeShare>>,
}

impl Known {
    /// The room of the file system that a file is on.
    fn room(&mut self, target: &Target, options: &RunOptions) -> Arc<FreeShare> {
        let new = || {
            let frees = options.reclaim_ratio.is_some();
            Arc::new(FreeShare::new(options.min_free_pct, frees))
        };
        match FileSystemKey::of(&target.file) {
            Ok(key) => Arc::clone(self.rooms.entry(key).or_insert_with(new)),
            Err(_) => new(),
        }
    }
}

impl Volumes {
    pub(super) fn of(
        &self,
        backend: &dyn Backend,
        target: &Target,
        options: &RunOptions,
        observer: &dyn Observer,
    ) -> Result<Arc<Volume>, Reason> {
        // Held while looking, so that an engine's probes run once.
        let mut known = lock(&self.0);
        if let Some(volume) = known.volumes.get(&target.id.dev) {
            return Ok(Arc::clone(volume));
        }
        let room = known.room(target, options);
        let volume = Arc::new(Volume::look_at(backend, target, options, observer, room)?);
        known.volumes.insert(target.id.dev, Arc::clone(&volume));
        Ok(volume)
    }

    /// Whether the device of this file system, of which a file was opened before, has no space.
    pub(super) fn is_device_full(&self, dev: u64) -> bool {
        let known = lock(&self.0);
        let volume = known.volumes.get(&dev);
        volume.is_some_and(|volume| volume.room.is_device_full())
    }

    /// Whether a device of them has none.
    pub(super) fn any_device_full(&self) -> bool {
        let known = lock(&self.0);
        let mut volumes = known.volumes.values();
        volumes.any(|volume| volume.room.is_device_full())
    }

    /// Wait for the work that the engines left to the background: writeback of moved data. Returns
    /// the failures, at least one for each file.
    pub(super) fn settle(&self) -> Vec<FsError> {
        let known = lock(&self.0);
        let engines = known.volumes.values().flat_map(|volume| &volume.engines);
        engines.flat_map(|engine| engine.settle()).collect()
    }
}

/// Keeps a share of a file system free, however many donors are filled at the same time.
pub(super) struct FreeShare {
    min_free_pct: f64,
    /// The device did not have the space that the file system has.
    is_device_full: AtomicBool,
    /// A move gives space back, with the next commit.
    frees: bool,
    /// Bytes that relocations under way will take. A part of them is taken already, so it may count
    /// twice: then a relocation waits for others to end before it is refused.
    promised: Mutex<u64>,
    released: Condvar,
}

impl FreeShare {
    fn new(min_free_pct: f64, frees: bool) -> Self {
        Self {
            min_free_pct,
            is_device_full: AtomicBool::new(false),
            frees,
            promised: Mutex::new(0),
            released: Condvar::new(),
        }
    }

    /// The device has no space: from now on nothing is written there. Returns whether that is news.
    pub(super) fn device_is_full(&self) -> bool {
        !self.is_device_full.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_device_full(&self) -> bool {
        self.is_device_full.load(Ordering::Relaxed)
    }

    /// Promise room for `needed` bytes until the ticket is dropped.
    pub(super) fn take(
        &self,
        backend: &dyn Backend,
        target: &Target,
        needed: Bytes,
        stop: &Stop<'_>,
    ) -> Result<Ticket<'_>, Reason> {
        let mut promised = lock(&self.promised);
        let mut may_commit = self.frees;
        loop {
            let space = backend
                .space(target)
                .map_err(|error| target.error("look at the free space", None, error))?;
            let all = Bytes(promised.saturating_add(needed.get()));
            if space.allows(all, self.min_free_pct) {
                *promised = all.get();
                return Ok(Ticket {
                    room: self,
                    bytes: needed.get(),
                });
            }
            if *promised == 0 {
                if !std::mem::take(&mut may_commit) {
                    return Err(Reason::Skip(SkipReason::NoSpace));
                }
                // Also told of where data of others finds no place: all that matters here is whether there is room now.
                if let Err(error) = backend.commit(target) {
                    tracing::warn!(%error, "not all of the file system is written back");
                }
                continue;
            }
            if stop.cause().is_some() {
                return Err(Reason::Skip(SkipReason::Stopped));
            }
            promised = self
                .released
                .wait_timeout(promised, Duration::from_millis(50))
                .map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
        }
    }
}

/// A promise of room.
pub(super) struct Ticket<'a> {
    room: &'a FreeShare,
    bytes: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut promised = self
            .room
            .promised
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *promised = promised.saturating_sub(self.bytes);
        drop(promised);
        self.room.released.notify_all();
    }
}
