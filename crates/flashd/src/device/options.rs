//! From options to a device.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, RwLock, atomic::AtomicU64},
};

use flash_model::{ConfigError, NamespaceKind, NamespaceSpec, Profile, SECTOR};
use units::{Bytes, Nanos};

use super::{Device, NamespaceInfo, restore_zones};
use crate::{
    pace::{Clock, LatencyHold, Lateness, Pace, Spinners},
    record::{RecordError, Recording},
    store::{FileOptions, Store, StoreError, StoreKind, ZoneLayout},
};

/// The largest write cache: memory beside the data is bounded.
const LARGEST_CACHE: Bytes = Bytes::mib(32);

/// A namespace to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// With zones or without.
    pub kind: NamespaceKind,
    /// Bytes.
    pub size: Bytes,
}

impl NamespaceOptions {
    /// So many zones of a profile.
    #[must_use]
    pub fn zones(profile: &Profile, count: u64) -> Self {
        Self {
            kind: NamespaceKind::Zoned,
            size: Bytes(profile.geometry().zone.size.get() * count),
        }
    }
}

/// The place of the bytes.
#[derive(Clone, Debug)]
pub enum StoreOptions {
    /// In memory; gone with the process.
    Memory,
    /// In a file.
    File(FileOptions),
}

impl StoreOptions {
    /// In a file with holes. What is durable outlives the process, and not the host.
    #[must_use]
    pub fn sparse_file(path: &Path) -> Self {
        Self::File(FileOptions {
            path: path.to_owned(),
            sparse: true,
            host_sync: false,
        })
    }
}

/// Options of a device.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Its flash.
    pub profile: Profile,
    /// Its namespaces; with an existing file, none means those of the file.
    pub namespaces: Vec<NamespaceOptions>,
    /// Bytes of a logical block: 512 or 4096.
    pub block_bytes: u64,
    /// The place of the bytes.
    pub store: StoreOptions,
    /// Size of the volatile write cache, all namespaces together; zero makes every write durable at
    /// once. `None` takes the profile's buffer, or zero where that is protected against a loss of
    /// power.
    pub write_cache: Option<Bytes>,
    /// How many times slower than real time the model's time goes.
    pub time_scale: f64,
    /// Real time that the path to the host takes anyway; taken off each deadline.
    pub overhead: Nanos,
    /// Bring all memory in at start.
    pub touch: bool,
    /// Keep processors out of deep sleep while the device has latencies.
    pub hold_awake: bool,
    /// Let no processor be idle at all, see [`Spinners`].
    pub spin: bool,
    /// Record to this file from the start.
    pub record: Option<PathBuf>,
}

impl DeviceOptions {
    /// A device in memory with this profile, at full speed.
    #[must_use]
    pub fn in_memory(profile: Profile, namespaces: &[NamespaceOptions]) -> Self {
        Self {
            profile,
            namespaces: namespaces.to_vec(),
            block_bytes: 4096,
            store: StoreOptions::Memory,
            write_cache: None,
            time_scale: 1.0,
            overhead: Nanos(0),
            touch: false,
            hold_awake: false,
            spin: false,
            record: None,
        }
    }
}

/// The device cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The profile cannot have these namespaces.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The recording cannot be made.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The time scale makes no sense.
    #[error("--time-scale {0} is no positive number")]
    TimeScale(f64),
    /// The size of a logical block is not supported.
    #[error("--block-size {0}: a logical block has 512 or 4096 bytes")]
    BlockSize(u64),
    /// A namespace does not consist of whole logical blocks.
    #[error("namespace {id}: {size} is no multiple of the logical block of {block_bytes} bytes")]
    PartOfBlock {
        /// NVMe's identifier.
        id: u32,
        /// Its size.
        size: Bytes,
        /// Bytes of a logical block.
        block_bytes: u64,
    },
}

impl Device {
    /// Open a device.
    ///
    /// # Errors
    ///
    /// The options make no sense together, or the store cannot be opened. A namespace whose part
    /// of the store is damaged is no error: its health says so, and the others work.
    pub fn open(options: &DeviceOptions) -> Result<Arc<Self>, OpenError> {
        let specs = specs(options)?;
        let mut model = flash_model::Device::new(&options.profile, &specs)?;
        let clock = Clock::new(options.time_scale, options.overhead.get())
            .ok_or(OpenError::TimeScale(options.time_scale))?;
        report_spare(&options.profile, &model, specs.len());
        let kinds = kinds(options, &specs, &model);
        let cache = options
            .write_cache
            .unwrap_or_else(|| volatile_buffer(&options.profile));
        let cache_bytes = cache.get() / specs.len() as u64;
        let (store, image) = match &options.store {
            StoreOptions::Memory => (Store::in_memory(&kinds, cache_bytes)?, None),
            StoreOptions::File(file) => {
                Store::open(file, &kinds, cache_bytes, options.profile.name())?
            }
        };
        if let Some(image) = image
            && let Err(error) = model.restore(&image)
        {
            tracing::warn!(%error, "mapping and wear start anew; no data is lost");
        }
        for (index, namespace) in store.namespaces.iter().enumerate() {
            restore_zones(&mut model, index, &namespace.durable_zones());
            if options.touch {
                namespace.touch();
            }
        }
        let lived = super::lived::Lived::begin(&store);
        let recording = Recording::default();
        if let Some(path) = &options.record {
            recording.begin(path, options.profile.name(), &kinds, &store)?;
        }
        let lateness = Arc::new(Lateness::new());
        let namespaces: Vec<NamespaceInfo> = (1..)
            .zip(specs.iter().zip(&store.uuids))
            .map(|(id, (spec, uuid))| NamespaceInfo {
                id,
                kind: spec.kind,
                block_bytes: options.block_bytes,
                size_bytes: spec.size.get(),
                uuid: *uuid,
            })
            .collect();
        Ok(Arc::new(Self {
            faults: super::fault::Faults::default(),
            order: namespaces.iter().map(|_| Mutex::new(())).collect(),
            namespaces,
            store,
            model: Mutex::new(model),
            recording,
            log: super::log::CommandLog::default(),
            pace: Pace::new(clock.clone(), Arc::clone(&lateness)),
            clock,
            lateness,
            pending: Mutex::default(),
            next_tick_ns: AtomicU64::new(u64::MAX),
            power_cuts: Arc::new(AtomicU64::new(0)),
            powered: RwLock::default(),
            lived,
            cache_bytes,
            kinds,
            _awake: hold(
                options,
                options.hold_awake,
                LatencyHold::take,
                "/dev/cpu_dma_latency cannot be held",
            ),
            _spinners: hold(
                options,
                options.spin,
                Spinners::start,
                "processors cannot be kept busy",
            ),
            profile: options.profile.clone(),
        }))
    }
}

/// Say how much spare flash each conventional namespace has, and where its writes are not amplified
/// as the profile's number suggests.
fn report_spare(profile: &Profile, model: &flash_model::Device, namespaces: usize) {
    if profile.is_instant() {
        return;
    }
    for index in 0..namespaces {
        let Some(spare) = model.spare(index) else {
            continue;
        };
        let id = index + 1;
        let (percent, nominal) = (spare.percent, spare.nominal_percent);
        if spare.is_far_from_nominal() {
            tracing::warn!(
                "namespace {id}: {percent:.0} % spare flash, not {nominal} % as the profile says: it is \
                 small for this flash, and garbage collection costs less than on the whole device; \
                 from {} on it is at most twice the profile's",
                spare.enough
            );
        } else {
            tracing::info!("namespace {id}: {percent:.1} % spare flash (profile: {nominal} %)");
        }
    }
}

/// The part of a profile's buffer that a loss of power empties.
fn volatile_buffer(profile: &Profile) -> Bytes {
    if profile.is_buffer_protected() {
        Bytes::ZERO
    } else {
        profile.buffer_size().min(LARGEST_CACHE)
    }
}

/// Take what keeps answers in time, if it is wanted and the device has latencies. Without it they
/// may be later, and a message says so.
fn hold<T>(
    options: &DeviceOptions,
    wanted: bool,
    take: fn() -> io::Result<T>,
    failure: &str,
) -> Option<T> {
    if !wanted || options.profile.is_instant() {
        return None;
    }
    take()
        .inspect_err(|error| tracing::warn!(%error, "{failure}: answers may be later"))
        .ok()
}

/// The namespaces for the model.
fn specs(options: &DeviceOptions) -> Result<Vec<NamespaceSpec>, OpenError> {
    if !matches!(options.block_bytes, 512 | 4096) {
        return Err(OpenError::BlockSize(options.block_bytes));
    }
    let mut namespaces = options.namespaces.clone();
    if let StoreOptions::File(file) = &options.store
        && namespaces.is_empty()
    {
        namespaces = Store::describe(&file.path)?
            .into_iter()
            .map(|kind| NamespaceOptions {
                kind: if kind.zones.is_some() {
                    NamespaceKind::Zoned
                } else {
                    NamespaceKind::Conventional
                },
                size: Bytes(kind.size_bytes),
            })
            .collect();
    }
    for (id, namespace) in (1..).zip(&namespaces) {
        if !namespace
            .size
            .get()
            .is_multiple_of(options.block_bytes.max(SECTOR))
        {
            return Err(OpenError::PartOfBlock {
                id,
                size: namespace.size,
                block_bytes: options.block_bytes,
            });
        }
    }
    Ok(namespaces
        .iter()
        .map(|namespace| NamespaceSpec {
            kind: namespace.kind,
            size: namespace.size,
        })
        .collect())
}

/// The namespaces for the store, with the zones that the model has given them.
fn kinds(
    options: &DeviceOptions,
    specs: &[NamespaceSpec],
    model: &flash_model::Device,
) -> Vec<StoreKind> {
    specs
        .iter()
        .enumerate()
        .map(|(index, spec)| {
            let zones = model.zones(index);
            StoreKind {
                size_bytes: spec.size.get(),
                block_bytes: options.block_bytes,
                zones: zones.first().map(|zone| ZoneLayout {
                    size_bytes: zone.size,
                    capacity_bytes: zone.capacity,
                    count: zones.len(),
                }),
            }
        })
        .collect()
}
