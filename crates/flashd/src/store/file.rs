//! The backing file: its layout, making one, opening one.
//!
//! ```text
//! superblock A   64 KiB   header, JSON that describes the rest, checksum
//! superblock B   64 KiB   the same again
//! per namespace           zone records (32 bytes each), then its bytes, from a multiple of 1 MiB
//! images                  two places for the device model's state, and in their headers records of the device's
//!                         life; sparse
//! ```
//!
//! A new file gets a small "forming" superblock first and its final ones last, so that a kill
//! between leaves a file that is recognised and formed again, and a foreign file is never touched.
//! Nothing but superblocks, records and images is interpreted.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rustix::fs::FallocateFlags;
use units::Bytes;

use super::{
    StoreError,
    base::{Base, Region},
    error::{SYNC, Unusable},
    image::{ImageFound, ImagePlaces},
    kind::StoreKind,
    life::{self, Life},
    locked::{Locked, lock},
    namespace::{Health, StoredNamespace},
    superblock::{
        Described, SUPERBLOCK_BYTES, Superblock, encode, new_uuid, plan, read_superblock,
    },
    zones::Zones,
};

/// How a backing file is used.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// The file. Made if it does not exist or is empty.
    pub path: PathBuf,
    /// Do not reserve all space at once, and give back what is deallocated. The file system below
    /// may then become full while the device is in use.
    pub sparse: bool,
    /// What is durable is on the host's disk, too, so that it outlives the host: flushes, FUA writes and
    /// zone management wait for that (else for the host's kernel, which outlives this process alone).
    pub host_sync: bool,
}

/// All namespaces' bytes, and the place for the device model's state.
#[derive(Debug)]
pub struct Store {
    /// In the order of their identifiers.
    pub namespaces: Vec<StoredNamespace>,
    /// Unique identifiers, the same after the file was opened again.
    pub uuids: Vec<[u8; 16]>,
    image: Option<ImageFile>,
}

#[derive(Debug)]
struct ImageFile {
    file: Arc<Locked>,
    path: Arc<PathBuf>,
    places: ImagePlaces,
    /// Generation of the newest image.
    newest: Mutex<u64>,
    /// The device's life up to now, when it was opened.
    life: Life,
    /// Number of the newest record of it.
    newest_life: Mutex<u64>,
}

impl Store {
    /// A store in memory, all zeroes. `cache_bytes` are those of each namespace's write cache.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn in_memory(kinds: &[StoreKind], cache_bytes: u64) -> Result<Self, StoreError> {
        let namespaces = (1..).zip(kinds).map(|(number, kind)| {
            let base = Base::memory(kind.size_bytes)?;
            let zones = kind.zones.map(Zones::empty);
            Ok(namespace(
                number,
                kind,
                cache_bytes,
                base,
                zones,
                Health::Healthy,
            ))
        });
        Ok(Self {
            namespaces: namespaces.collect::<Result<_, _>>()?,
            uuids: kinds.iter().map(|_| new_uuid()).collect(),
            image: None,
        })
    }

    /// Open a backing file, or make it. The second part of the result is the device model's state,
    /// if one was saved.
    ///
    /// # Errors
    ///
    /// Another daemon has it, it is something else, it was made for other namespaces, both of its
    /// superblocks are damaged, or there is no space for it. Damage to one namespace is no error:
    /// its [`Health`] says so.
    pub fn open(
        options: &FileOptions,
        kinds: &[StoreKind],
        cache_bytes: u64,
        profile: &str,
    ) -> Result<(Self, Option<Vec<u8>>), StoreError> {
        let path = Arc::new(options.path.clone());
        let file = lock(&path)?;
        let superblock = match read_superblock(&file, &path)? {
            Some(superblock) => superblock,
            None => {
                let formed = form(&file, &path, kinds, profile, options.sparse)?;
                if options.host_sync {
                    sync_name(&path).map_err(|source| StoreError::io(&path, SYNC, 0, source))?;
                }
                formed
            }
        };
        check_kinds(&path, &superblock, kinds)?;
        let file = Arc::new(file);
        let len = file
            .metadata()
            .map_err(|source| StoreError::io(&path, "stat", 0, source))?
            .len();
        let mut namespaces = Vec::new();
        for (number, described) in (1..).zip(&superblock.namespaces) {
            let region = |start| Region {
                file: Arc::clone(&file),
                path: Arc::clone(&path),
                start,
                sparse: options.sparse,
                host_sync: options.host_sync,
            };
            namespaces.push(open_namespace(
                number,
                described,
                cache_bytes,
                len,
                &region,
            )?);
        }
        let places = ImagePlaces {
            start: superblock.image_start,
            len: superblock.image_len,
        };
        let found = places
            .load(&file)
            .map_err(|source| StoreError::io(&path, "read", places.start, source))?;
        let (newest, image) = match found {
            ImageFound::Nothing => (0, None),
            ImageFound::Image(generation, image) => (generation, Some(image)),
            ImageFound::Damaged => {
                tracing::warn!(
                    path = %path.display(),
                    "the saved mapping and wear are damaged; they start anew, no data is lost"
                );
                (0, None)
            }
        };
        let (newest_life, life) = life::load(&places, &file)
            .map_err(|source| StoreError::io(&path, "read", places.start, source))?;
        let store = Self {
            namespaces,
            uuids: superblock.namespaces.iter().map(|n| n.uuid).collect(),
            image: Some(ImageFile {
                file,
                path,
                places,
                newest: Mutex::new(newest),
                life,
                newest_life: Mutex::new(newest_life),
            }),
        };
        Ok((store, image))
    }

    /// The sizes of the namespaces of an existing file, without opening it for use.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no store.
    pub fn describe(path: &Path) -> Result<Vec<StoreKind>, StoreError> {
        let file = File::open(path).map_err(|source| StoreError::io(path, "open", 0, source))?;
        let superblock = read_superblock(&file, path)?
            .ok_or_else(|| StoreError::unusable(path, Unusable::Empty))?;
        Ok(superblock.namespaces.into_iter().map(|n| n.kind).collect())
    }

    /// Keep the device model's state in the file. Nothing happens without a file, or where its end is cut off: what is missing
    /// would then read as zeroes. The state is taken when it is this caller's turn, so that of two the later one saves
    /// the later state.
    ///
    /// # Errors
    ///
    /// The file cannot be written; the state saved before is still there.
    pub fn save_image(&self, image: impl FnOnce() -> Vec<u8>) -> Result<(), StoreError> {
        let Some(to) = self.whole_file()? else {
            return Ok(());
        };
        let mut newest = to.newest.lock().unwrap_or_else(|e| e.into_inner());
        to.places
            .save(&to.file, *newest + 1, &image())
            .map_err(|source| StoreError::io(&to.path, "save mapping", to.places.start, source))?;
        *newest += 1;
        Ok(())
    }

    /// The device's life, as it was kept when the file was opened; a new one without a file.
    #[must_use]
    pub fn life(&self) -> Life {
        self.image.as_ref().map_or_else(Life::default, |it| it.life)
    }

    /// Keep the device's life in the file. Nothing happens without a file, or where its end is cut off.
    ///
    /// # Errors
    ///
    /// The file cannot be written; what was kept before is still there.
    pub fn save_life(&self, life: &Life) -> Result<(), StoreError> {
        let Some(to) = self.whole_file()? else {
            return Ok(());
        };
        let mut newest = to.newest_life.lock().unwrap_or_else(|e| e.into_inner());
        life::save(&to.places, &to.file, *newest + 1, life)
            .map_err(|source| StoreError::io(&to.path, "save counters", to.places.start, source))?;
        *newest += 1;
        Ok(())
    }

    /// The file, if there is one and its end is not cut off.
    fn whole_file(&self) -> Result<Option<&ImageFile>, StoreError> {
        let Some(to) = &self.image else {
            return Ok(None);
        };
        let found = to.file.metadata();
        let found = found.map_err(|source| StoreError::io(&to.path, "stat", 0, source))?;
        Ok((found.len() >= to.places.start).then_some(to))
    }

    /// Whether there is a file.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.image.is_some()
    }

    /// Wait until the host's disk has everything that the file got.
    ///
    /// # Errors
    ///
    /// The host's file system reports an error.
    pub fn sync_file(&self) -> Result<(), StoreError> {
        match &self.image {
            None => Ok(()),
            Some(to) => to
                .file
                .sync()
                .map_err(|source| StoreError::io(&to.path, SYNC, 0, source)),
        }
    }
}

fn namespace(
    number: u32,
    kind: &StoreKind,
    cache_bytes: u64,
    base: Base,
    zones: Option<Zones>,
    health: Health,
) -> StoredNamespace {
    StoredNamespace::new(
        number,
        kind.size_bytes,
        kind.block_bytes,
        cache_bytes,
        base,
        zones,
        health,
    )
}

fn open_namespace(
    number: u32,
    described: &Described,
    cache_bytes: u64,
    file_len: u64,
    region: &dyn Fn(u64) -> Region,
) -> Result<StoredNamespace, StoreError> {
    let Described {
        kind,
        records_start,
        data_start,
        ..
    } = described;
    let end = data_start + kind.size_bytes;
    let mut health = Health::Healthy;
    let mut zones = kind.zones.map(Zones::empty);
    if file_len < end {
        health = Health::Failed(Arc::new(StoreError::Truncated { file_len, end }));
    } else if let Some(layout) = kind.zones {
        let (loaded, damaged) = Zones::load(layout, region(*records_start))?;
        zones = Some(loaded);
        if let Some(&first) = damaged.first() {
            health = Health::Degraded(Arc::new(StoreError::ZoneRecords {
                count: damaged.len(),
                first,
            }));
        }
    }
    if let Some(damage) = health.problem() {
        tracing::error!(namespace = number, "{damage}");
    }
    let base = Base::File(region(*data_start));
    Ok(namespace(number, kind, cache_bytes, base, zones, health))
}

/// Make a store of an empty file.
fn form(
    file: &File,
    path: &Path,
    kinds: &[StoreKind],
    profile: &str,
    sparse: bool,
) -> Result<Superblock, StoreError> {
    let failed = |operation| move |source| StoreError::io(path, operation, 0, source);
    let superblock = plan(kinds, profile);
    let forming = Superblock::forming();
    let sealed = encode(&superblock);
    if sealed.len() as u64 > SUPERBLOCK_BYTES {
        let count = kinds.len();
        return Err(StoreError::unusable(path, Unusable::TooMany { count }));
    }
    // From the beginning: an attempt before this one may have left parts.
    file.write_all_at(&encode(&forming), 0)
        .and_then(|()| file.set_len(4096))
        .map_err(failed("write"))?;
    let end = superblock.image_start;
    file.set_len(end).map_err(failed("grow"))?;
    if !sparse {
        let reserved = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, end);
        match reserved {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => {
                tracing::warn!(path = %path.display(), "space cannot be reserved there");
            }
            Err(source) => {
                // Give back what was taken; the file is recognised as unfinished.
                let _ = file.set_len(0);
                tracing::error!(path = %path.display(), "no room for {}", Bytes(end));
                return Err(StoreError::io(path, "reserve space", end, source.into()));
            }
        }
    }
    file.write_all_at(&sealed, SUPERBLOCK_BYTES)
        .and_then(|()| file.write_all_at(&sealed, 0))
        .and_then(|()| file.sync_all())
        .map_err(failed("write"))?;
    Ok(superblock)
}

/// Wait until the host's disk has the name of the file: to sync a new file is not enough (fsync(2)).
fn sync_name(path: &Path) -> io::Result<()> {
    let folder = path.canonicalize()?;
    folder
        .parent()
        .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn check_kinds(
    path: &Path,
    superblock: &Superblock,
    kinds: &[StoreKind],
) -> Result<(), StoreError> {
    let (there, asked) = (superblock.namespaces.len(), kinds.len());
    if there != asked {
        let reason = Unusable::OtherCount { there, asked };
        return Err(StoreError::unusable(path, reason));
    }
    for (number, (there, asked)) in (1..).zip(superblock.namespaces.iter().zip(kinds)) {
        if there.kind != *asked {
            let reason = Unusable::OtherKind {
                number,
                there: there.kind.clone(),
                asked: asked.clone(),
            };
            return Err(StoreError::unusable(path, reason));
        }
    }
    Ok(())
}
