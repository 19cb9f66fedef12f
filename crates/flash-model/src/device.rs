//! One SSD: namespaces that share its flash.

use units::{Bytes, Nanos};

use crate::{
    SECTOR,
    command::{Accepted, Command, Done, Refused, Ticket, ZoneAction},
    geometry::Geometry,
    profile::Profile,
    stats::Stats,
    zone::{Zone, ZoneState, ZoneTable},
};

/// How a namespace is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceKind {
    /// Zones that are written in order (ZNS command set).
    Zoned,
    /// Any block at any time, through a page-mapped FTL (NVM command set).
    Conventional,
}

/// What a namespace should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceSpec {
    /// How it is addressed.
    pub kind: NamespaceKind,
    /// Address space; a multiple of the zone size where it has zones.
    pub size: Bytes,
}

/// Namespaces that the profile's device cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No device without.
    #[error("a device needs at least one namespace")]
    NoNamespace,
    /// Zones come whole.
    #[error("namespace {index}: size {size} is no multiple of the zone size {zone}")]
    NotWholeZones {
        /// Which one, from 0.
        index: usize,
        /// Its size.
        size: Bytes,
        /// The profile's zone size.
        zone: Bytes,
    },
    /// Addresses are counted in sectors.
    #[error("namespace {index}: size {size} is no multiple of {SECTOR} bytes, or zero")]
    BadSize {
        /// Which one, from 0.
        index: usize,
        /// Its size.
        size: Bytes,
    },
}

/// A saved state that cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the saved device state cannot be used: {0}")]
pub struct ImageError(pub String);

#[derive(Clone, Debug)]
enum Namespace {
    Zoned(ZoneTable),
    Conventional { size: u64 },
}

/// One SSD. All namespaces share dies, channels and write buffer.
#[derive(Clone, Debug)]
pub struct Device {
    geometry: Geometry,
    namespaces: Vec<Namespace>,
    stats: Stats,
}

impl Device {
    /// An empty device.
    ///
    /// # Errors
    /// Namespaces that the profile cannot have.
    pub fn new(profile: &Profile, namespaces: &[NamespaceSpec]) -> Result<Self, ConfigError> {
        if namespaces.is_empty() {
            return Err(ConfigError::NoNamespace);
        }
        let geometry = *profile.geometry();
        let make = |(index, spec): (usize, &NamespaceSpec)| {
            let size = spec.size;
            if size.is_zero() || !size.0.is_multiple_of(SECTOR) {
                return Err(ConfigError::BadSize { index, size });
            }
            match spec.kind {
                NamespaceKind::Conventional => Ok(Namespace::Conventional { size: size.0 }),
                NamespaceKind::Zoned if !size.0.is_multiple_of(geometry.zone.size.0) => {
                    Err(ConfigError::NotWholeZones {
                        index,
                        size,
                        zone: geometry.zone.size,
                    })
                }
                NamespaceKind::Zoned => {
                    Ok(Namespace::Zoned(ZoneTable::new(size.0, &geometry.zone)))
                }
            }
        };
        let namespaces = namespaces
            .iter()
            .enumerate()
            .map(make)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            geometry,
            namespaces,
            stats: Stats::default(),
        })
    }

    /// Takes a command at time `now`, which never goes back.
    ///
    /// # Errors
    /// Why the command was refused; nothing has changed then.
    pub fn submit(
        &mut self,
        now: Nanos,
        ns: usize,
        command: &Command<'_>,
    ) -> Result<Accepted, Refused> {
        self.stats.now_ns = self.stats.now_ns.max(now);
        let namespace = self
            .namespaces
            .get_mut(ns)
            .ok_or(Refused::NoSuchNamespace)?;
        let wrote_at = match namespace {
            Namespace::Zoned(zones) => zoned(zones, command)?,
            Namespace::Conventional { size } => conventional(*size, command)?,
        };
        match *command {
            Command::Read { len, .. } => self.stats.host_read_bytes += len,
            Command::Write { len, .. } | Command::Append { len, .. } => {
                self.stats.host_written_bytes += len;
            }
            Command::Copy { sources, .. } => {
                self.stats.migrated_bytes += sources.iter().map(|span| span.len).sum::<u64>();
            }
            Command::Migrate { moves } => {
                self.stats.migrated_bytes += moves.iter().map(|piece| piece.len).sum::<u64>();
            }
            _ => {}
        }
        Ok(Accepted {
            done: Done::At(now),
            wrote_at,
        })
    }

    /// Does background work up to `now` and tells which commands it finished, and when.
    pub fn advance(&mut self, now: Nanos, finished: &mut Vec<(Ticket, Nanos)>) {
        finished.clear();
        self.stats.now_ns = self.stats.now_ns.max(now);
    }

    /// When [`Self::advance`] has something to do next.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        None
    }

    /// The zones of a namespace in order of address; none for a conventional one.
    #[must_use]
    pub fn zones(&self, ns: usize) -> &[Zone] {
        match self.namespaces.get(ns) {
            Some(Namespace::Zoned(zones)) => zones.zones(),
            _ => &[],
        }
    }

    /// Puts a zone into a state from outside: at start, or after a loss of power.
    pub fn restore_zone(&mut self, ns: usize, zone: usize, state: ZoneState, write_pointer: u64) {
        if let Some(Namespace::Zoned(zones)) = self.namespaces.get_mut(ns)
            && zone < zones.zones().len()
        {
            zones.restore(zone, state, write_pointer);
        }
    }

    /// What the device did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }

    /// What has to be kept for the device to go on after a restart: compact bytes, with a version
    /// but without a checksum.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let mut image = IMAGE_VERSION.to_le_bytes().to_vec();
        for namespace in &self.namespaces {
            match namespace {
                Namespace::Zoned(zones) => {
                    image.extend((zones.zones().len() as u64).to_le_bytes());
                    for zone in zones.zones() {
                        image.push(zone.state.code());
                        image.extend(zone.write_pointer.to_le_bytes());
                    }
                }
                Namespace::Conventional { size } => image.extend(size.to_le_bytes()),
            }
        }
        image
    }

    /// Puts a device that was made with the same profile and namespaces into a saved state.
    ///
    /// # Errors
    /// What does not fit; the device has not changed then.
    pub fn restore(&mut self, image: &[u8]) -> Result<(), ImageError> {
        let mut restored = self.clone();
        let mut rest = image;
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version != IMAGE_VERSION {
            return Err(ImageError(format!(
                "it has version {version}, not {IMAGE_VERSION}"
            )));
        }
        for (index, namespace) in restored.namespaces.iter_mut().enumerate() {
            let length = u64::from_le_bytes(take(&mut rest)?);
            let expected = match namespace {
                Namespace::Zoned(zones) => zones.zones().len() as u64,
                Namespace::Conventional { size } => *size,
            };
            if length != expected {
                return Err(ImageError(format!(
                    "namespace {index} has another size in it"
                )));
            }
            if let Namespace::Zoned(zones) = namespace {
                for zone in 0..zones.zones().len() {
                    let [code] = take(&mut rest)?;
                    let write_pointer = u64::from_le_bytes(take(&mut rest)?);
                    let state = ZoneState::from_code(code)
                        .ok_or_else(|| ImageError(format!("there is no zone state {code}")))?;
                    zones.restore(zone, state, write_pointer);
                }
            }
        }
        if !rest.is_empty() {
            return Err(ImageError(format!("it is {} bytes too long", rest.len())));
        }
        *self = restored;
        Ok(())
    }

    /// Parallel units and sizes.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
}

const IMAGE_VERSION: u32 = 1;

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], ImageError> {
    let (head, tail) = rest
        .split_first_chunk()
        .ok_or_else(|| ImageError("it ends too early".to_owned()))?;
    *rest = tail;
    Ok(*head)
}

fn check_range(size: u64, offset: u64, len: u64) -> Result<(), Refused> {
    if len == 0 || !offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
        return Err(Refused::Unaligned);
    }
    if offset.checked_add(len).is_none_or(|end| end > size) {
        return Err(Refused::OutOfRange);
    }
    Ok(())
}

fn conventional(size: u64, command: &Command<'_>) -> Result<Option<u64>, Refused> {
    match *command {
        Command::Read { offset, len }
        | Command::Write { offset, len, .. }
        | Command::Deallocate { offset, len }
        | Command::WriteZeroes { offset, len } => check_range(size, offset, len)?,
        Command::Flush => {}
        Command::Append { .. } | Command::Zone { .. } => return Err(Refused::NotZoned),
        Command::Copy {
            sources,
            destination,
        } => {
            for span in sources {
                check_range(size, span.offset, span.len)?;
            }
            check_range(size, destination, sources.iter().map(|span| span.len).sum())?;
        }
        Command::Migrate { moves } => {
            for piece in moves {
                check_range(size, piece.from, piece.len)?;
                check_range(size, piece.to, piece.len)?;
            }
        }
    }
    Ok(None)
}

fn zoned(zones: &mut ZoneTable, command: &Command<'_>) -> Result<Option<u64>, Refused> {
    match *command {
        Command::Read { offset, len } => zones.check_read(offset, len)?,
        Command::Write { offset, len, .. } | Command::WriteZeroes { offset, len } => {
            zones.write(offset, len)?;
        }
        Command::Append { zone, len, .. } => {
            let index = zones.at_start(zone)?;
            return zones.append(index, len).map(Some);
        }
        Command::Flush => {}
        Command::Deallocate { offset, len } => zones.check_read(offset, len)?,
        Command::Zone {
            start,
            all: false,
            action,
        } => {
            let index = zones.at_start(start)?;
            zones.act(index, action)?;
        }
        Command::Zone {
            all: true, action, ..
        } => {
            let selected = zones.selected_by_all(action);
            if action == ZoneAction::Open {
                zones.check_open_all(&selected)?;
            }
            for index in selected {
                zones.act(index, action)?;
            }
        }
        Command::Copy {
            sources,
            destination,
        } => {
            for span in sources {
                zones.check_read(span.offset, span.len)?;
            }
            zones.write(destination, sources.iter().map(|span| span.len).sum())?;
        }
        Command::Migrate { moves } => {
            let before = zones.clone();
            for piece in moves {
                let done = zones
                    .check_read(piece.from, piece.len)
                    .and_then(|()| zones.write(piece.to, piece.len));
                if let Err(refused) = done {
                    *zones = before;
                    return Err(refused);
                }
            }
        }
    }
    Ok(None)
}
