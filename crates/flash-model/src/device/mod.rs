//! One SSD: namespaces that share its flash.

mod config;
mod image;
mod submit;
#[cfg(test)]
mod tests;

use units::Nanos;

pub use self::{
    config::{ConfigError, NamespaceKind, NamespaceSpec},
    image::ImageError,
};
use crate::{
    SECTOR,
    command::{Done, Ticket},
    conventional::{ConventionalNamespace, ReclaimUnits, Spare},
    core::{Advance, Core, PagesInFlight},
    geometry::FlashGeometry,
    migration::{JobKind, PageWork, Tasks},
    profile::Profile,
    stats::{ByCause, DieStats, HintStats, Stats, Wear},
    zone::{Zone, ZoneState},
    zoned::ZonedNamespace,
};

#[derive(Clone, Debug)]
enum Namespace {
    Zoned(Box<ZonedNamespace>),
    Conventional(Box<ConventionalNamespace>),
}

/// The time in which at least one of several intervals was open; their beginnings are told in order.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    total: u64,
    until: u64,
}

impl Spell {
    fn add(&mut self, from: u64, until: u64) {
        self.total += until.saturating_sub(from.max(self.until));
        self.until = self.until.max(until);
    }
}

/// One SSD. All namespaces share dies, channels and write buffer.
#[derive(Clone, Debug)]
pub struct Device {
    geometry: FlashGeometry,
    core: Core,
    namespaces: Vec<Namespace>,
    /// Copies inside the device, and the padding of zones.
    tasks: Tasks,
    now: u64,
    /// When the last command came.
    active_at: u64,
    /// Whether the collectors use idle time at all.
    collects_idle: bool,
    /// Whether they could find something to do.
    has_idle_work: bool,
    host_read_bytes: u64,
    host_reading: Spell,
    host_written_bytes: u64,
    migrated_bytes: u64,
    migrations: u64,
    /// Kept for its memory.
    page: PageWork,
}

impl Device {
    /// Returns an empty device.
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
                NamespaceKind::Conventional => ConventionalNamespace::new(index, size.0, profile)
                    .map(|namespace| Namespace::Conventional(Box::new(namespace)))
                    .map_err(|source| ConfigError::Ftl { index, source }),
                NamespaceKind::Zoned if !size.0.is_multiple_of(geometry.zone.size.0) => {
                    Err(ConfigError::NotWholeZones {
                        index,
                        size,
                        zone: geometry.zone.size,
                    })
                }
                NamespaceKind::Zoned => {
                    let namespace = ZonedNamespace::new(index, size.0, &geometry);
                    Ok(Namespace::Zoned(Box::new(namespace)))
                }
            }
        };
        let namespaces = namespaces
            .iter()
            .enumerate()
            .map(make)
            .collect::<Result<Vec<_>, _>>()?;
        let mut core = Core::new(profile);
        core.in_flight = namespaces
            .iter()
            .map(|namespace| match namespace {
                Namespace::Zoned(zoned) => PagesInFlight::new(zoned.table.zones().len()),
                Namespace::Conventional(_) => PagesInFlight::default(),
            })
            .collect();
        Ok(Self {
            geometry,
            core,
            namespaces,
            tasks: Tasks::new(profile.timing.migration_window),
            now: 0,
            active_at: 0,
            collects_idle: profile.ftl.uses_idle_time() && !profile.is_instant(),
            has_idle_work: false,
            host_read_bytes: 0,
            host_reading: Spell::default(),
            host_written_bytes: 0,
            migrated_bytes: 0,
            migrations: 0,
            page: PageWork::default(),
        })
    }

    /// Does background work up to `now`, and appends the commands that are done by then, and when
    /// they were, to `finished`, in order of time.
    pub fn advance(&mut self, now: Nanos, finished: &mut Vec<(Ticket, Nanos)>) {
        self.pass_time(now.0);
        self.core.tickets.take_finished(self.now, finished);
    }

    /// Returns when [`Self::advance`] has something to do next; `None`: nothing is in motion.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        let own = [self.core.next_event(), self.idle_event()];
        own.into_iter().flatten().min().map(Nanos)
    }

    /// Lets time go on until a command is known to be done, and returns when it was; `None`: nothing is in
    /// motion any more. For hosts with one command under way: others that end meanwhile are not told again.
    #[must_use]
    pub fn finish(&mut self, done: Done) -> Option<Nanos> {
        let ticket = match done {
            Done::At(at) => return Some(at),
            Done::Later(ticket) => ticket,
        };
        let mut finished = Vec::new();
        loop {
            let next = self.next_event()?;
            self.advance(next, &mut finished);
            if let Some((_, at)) = finished.iter().find(|(of, _)| *of == ticket) {
                return Some(*at);
            }
            finished.clear();
        }
    }

    /// Lets the device end all that is in motion, the collectors' work included; returns when it is at rest. Commands
    /// that end meanwhile are not told again.
    pub fn rest(&mut self) -> Nanos {
        while let Some(next) = self.next_event() {
            self.advance(next, &mut Vec::new());
        }
        let until = self.now.max(self.core.free_at());
        self.advance(Nanos(until), &mut Vec::new());
        Nanos(until)
    }

    fn pass_time(&mut self, now: u64) {
        self.now = self.now.max(now);
        loop {
            while let Some(step) = self.core.step(self.now) {
                if let Advance::OfTask { task, end } = step {
                    self.tasks.step(&mut self.core, task, end);
                }
                self.put_in_motion();
            }
            if !self.collect_when_idle() {
                break;
            }
        }
        self.core.flash.clock = self.core.flash.clock.max(self.now);
    }

    /// Notes that a command came: time until the device is idle counts from here.
    fn is_active(&mut self) {
        self.active_at = self.now;
        self.has_idle_work = self.collects_idle;
    }

    /// Returns when the collectors have time for themselves next.
    fn idle_event(&self) -> Option<u64> {
        if !self.has_idle_work || !self.core.is_idle() || !self.tasks.is_idle() {
            return None;
        }
        let dies = self.core.flash.dies.iter().map(|die| die.free_at());
        let idle = self.active_at.saturating_add(self.core.timing.idle_after);
        dies.max().map(|free| free.max(idle))
    }

    /// Lets the collectors begin a little work if the device has been idle for long enough; returns
    /// whether they did.
    fn collect_when_idle(&mut self) -> bool {
        let Some(at) = self.idle_event().filter(|at| *at <= self.now) else {
            return false;
        };
        let mut progress = false;
        for namespace in &mut self.namespaces {
            if let Namespace::Conventional(conventional) = namespace {
                progress |= conventional.collect_idle(&mut self.core, at);
            }
        }
        self.has_idle_work = progress;
        progress
    }

    /// Lets migrations put pages in motion, as many as their window allows.
    fn put_in_motion(&mut self) {
        if self.tasks.is_idle() {
            return;
        }
        let mut page = std::mem::take(&mut self.page);
        while let Some(mut job) = self.tasks.take_job() {
            page.clear();
            match (&mut job.kind, &mut self.namespaces) {
                (JobKind::Move { ns, cursor, gather }, namespaces) => match &mut namespaces[*ns] {
                    Namespace::Zoned(zoned) => {
                        zoned.next_page(&self.core, cursor, gather, &mut page);
                    }
                    Namespace::Conventional(conventional) => {
                        conventional.next_page(&self.core, cursor, &mut page);
                    }
                },
                (JobKind::Pad { zones }, namespaces) => {
                    while let Some(padding) = zones.front_mut() {
                        if let Namespace::Zoned(zoned) = &namespaces[padding.ns]
                            && zoned.next_padding(padding, &mut page)
                        {
                            break;
                        }
                        zones.pop_front();
                    }
                }
            }
            if page.is_empty() && !job.kind.has_more() {
                self.tasks.all_known(&job, &mut self.core.tickets);
                continue;
            }
            page.ready = self.core.flash.clock;
            self.tasks.start(&mut self.core, &job, &mut page);
            self.tasks.put_back(job);
        }
        self.page = page;
    }

    /// Returns the zones of a namespace in order of address; none for a conventional one.
    #[must_use]
    pub fn zones(&self, ns: usize) -> &[Zone] {
        match self.namespaces.get(ns) {
            Some(Namespace::Zoned(zoned)) => zoned.table.zones(),
            _ => &[],
        }
    }

    /// Puts a zone into a state from outside: at start, or after a loss of power. Operations that
    /// were in motion for it are forgotten.
    pub fn restore_zone(&mut self, ns: usize, zone: usize, state: ZoneState, write_pointer: u64) {
        if let Some(Namespace::Zoned(zoned)) = self.namespaces.get_mut(ns)
            && zone < zoned.table.zones().len()
        {
            zoned.forget(&mut self.core, zone, self.now);
            // Pages past the write pointer will be written anew without an erase.
            self.core.read_cache.clear();
            zoned.table.restore(zone, state, write_pointer);
        }
    }

    /// Returns the spare flash of a conventional namespace; `None` for a zoned one.
    ///
    /// # Panics
    /// There is no such namespace.
    #[must_use]
    pub fn spare(&self, ns: usize) -> Option<Spare> {
        match &self.namespaces[ns] {
            Namespace::Conventional(conventional) => Some(conventional.spare()),
            Namespace::Zoned(_) => None,
        }
    }

    /// Returns the reclaim units of a conventional namespace; `None` for a zoned one, for one whose
    /// profile has no reclaim unit handles, and for one that there is not.
    #[must_use]
    pub fn reclaim_units(&self, ns: usize) -> Option<ReclaimUnits> {
        match self.namespaces.get(ns)? {
            Namespace::Conventional(conventional) => conventional.reclaim_units(),
            Namespace::Zoned(_) => None,
        }
    }

    /// Returns the FTL of a conventional namespace: the places of its data, the cost of collecting,
    /// the wear of its blocks. None for a zoned one.
    #[must_use]
    pub fn ftl(&self, ns: usize) -> Option<&crate::ftl::Ftl> {
        match self.namespaces.get(ns)? {
            Namespace::Conventional(namespace) => Some(&namespace.ftl),
            Namespace::Zoned(_) => None,
        }
    }

    /// Returns the device's counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (now, core, flash) = (self.now, &self.core, &self.core.flash);
        let dies = flash
            .dies
            .iter()
            .zip(&flash.counts)
            .map(|(die, counts)| DieStats {
                busy_ns: die.busy_until(now),
                reads: counts.reads,
                programs: counts.programs,
                erases: counts.erases,
                collisions: counts.collisions,
                collision_wait_ns: counts.collision_wait,
            });
        Stats {
            now_ns: Nanos(now),
            host_read_bytes: self.host_read_bytes,
            host_reading_ns: self.host_reading.total,
            host_written_bytes: self.host_written_bytes,
            migrated_bytes: self.migrated_bytes,
            migrations: self.migrations,
            sensed_bytes: ByCause::new(&core.traffic.sensed),
            programmed_bytes: ByCause::new(&core.traffic.programmed),
            copied_back_bytes: ByCause::new(&core.traffic.copied_back),
            buffered_bytes: core.intake.buffer.used_at(now),
            buffer_wait_ns: core.intake.buffer.waited(),
            channel_busy_ns: flash.channels.iter().map(|c| c.busy_until(now)).collect(),
            link_in_busy_ns: core.intake.link.busy_until(now),
            link_out_busy_ns: core.link_out.busy_until(now),
            dies: dies.collect(),
            wear: self.namespaces.iter().map(wear).collect(),
            hints: self.hints(),
        }
    }

    fn hints(&self) -> HintStats {
        let mut hints = HintStats::default();
        for namespace in &self.namespaces {
            if let Namespace::Conventional(conventional) = namespace {
                hints.add(conventional.ftl.counters());
            }
        }
        hints
    }

    /// Returns the bytes of a namespace that hold data: its mapped logical pages, or what its zones
    /// have taken (a full zone counts with its whole capacity, padding included). 0 for a namespace
    /// that does not exist.
    #[must_use]
    pub fn used_bytes(&self, ns: usize) -> u64 {
        match self.namespaces.get(ns) {
            Some(Namespace::Conventional(conventional)) => conventional.mapped_bytes(),
            Some(Namespace::Zoned(zoned)) => zoned.table.zones().iter().map(Zone::filled).sum(),
            None => 0,
        }
    }

    /// Lets every read, program and erase of a die that begins from now on take `factor` times as
    /// long; 1 ends that. Transfers and the saved state know nothing of it.
    ///
    /// # Panics
    /// There is no such die, or the factor is less than 1.
    pub fn slow_die(&mut self, die: u32, factor: f64) {
        assert!(die < self.geometry.dies() && factor >= 1.0);
        self.core.flash.slow_down(die, factor);
    }

    /// Returns the dies that are slow, by number, and their factors.
    #[must_use]
    pub fn slow_dies(&self) -> Vec<(u32, f64)> {
        self.core.flash.slow_dies()
    }

    /// Returns the parallel units and sizes.
    #[must_use]
    pub fn geometry(&self) -> FlashGeometry {
        self.geometry
    }
}

fn wear(namespace: &Namespace) -> Wear {
    match namespace {
        Namespace::Conventional(conventional) => {
            let report = conventional.ftl.wear();
            Wear {
                least: report.least,
                most: report.most,
                mean: report.mean,
            }
        }
        Namespace::Zoned(zoned) => {
            let total: u64 = zoned.erases().map(u64::from).sum();
            Wear {
                least: zoned.erases().min().unwrap_or(0),
                most: zoned.erases().max().unwrap_or(0),
                mean: total as f64 / zoned.erases().len().max(1) as f64,
            }
        }
    }
}
