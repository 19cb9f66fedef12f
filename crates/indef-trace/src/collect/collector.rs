//! Load the programs, and take from them what they counted.

use std::{
    collections::BTreeMap,
    fs::File,
    mem::MaybeUninit,
    os::fd::AsRawFd,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use libbpf_rs::{
    Link, MapCore, MapFlags, OpenObject, PrintLevel,
    btf::Btf,
    set_print,
    skel::{OpenSkel, Skel, SkelBuilder},
};
use linux_abi::barrier;
use units::{Bytes, FileOffset, FileRange, Nanos};

use super::{
    Layer, Source, TraceError, TraceOptions, btrfs, config,
    error::check_permission,
    intake::{Intake, Limits, PARTS},
    skeleton::{CollectSkel, CollectSkelBuilder, OpenCollectSkel, types},
    sources::{choose, watches_function},
    tallies::{READ, READ_RUN, WRITE, expand},
    wire::{self, Shared},
};
use crate::{FileKey, FsId, Tally, TracedFile, mounts::stat_device, resolve::Resolver};

/// Ranges that are held before they are handed out, due or not: with what comes until the next
/// look, a table of 2^17 places holds them.
const MANY: usize = (1 << 17) / 4 * 3;
/// `FILES` of the contract.
const FILES: u32 = 131_072;
/// Entries of a map that are taken in one call, and ranges that are handed out at once.
const BATCH: u32 = 8192;
/// How often counters are taken, at most and at least.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(300);
/// How many reads are timed before the next [`Collector::drain`].
const TIMED_AT_ONCE: u32 = 250;

/// What was counted since the last time.
#[derive(Debug, Default)]
pub struct Drained {
    /// Ranges with their counts. A range may stand there more than once.
    pub tallies: Vec<Tally>,
    /// Files that were met with for the first time.
    pub files: Vec<TracedFile>,
    /// Single accesses, if they were asked for, in order of time.
    pub accesses: Vec<Access>,
    /// Accesses that are missing because there was no room for them.
    pub lost: u64,
}

impl Drained {
    fn append(&mut self, mut more: Self) {
        self.tallies.append(&mut more.tallies);
        self.files.append(&mut more.files);
        self.accesses.append(&mut more.accesses);
        self.lost += more.lost;
    }
}

/// One access, as it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which file.
    pub file: FileKey,
    /// Which bytes.
    pub range: FileRange,
    /// Whether it was a write.
    pub write: bool,
    /// Whether it went around the page cache.
    pub direct: bool,
    /// Requests that it became; 0 if they were not counted.
    pub requests: u32,
    /// The process.
    pub pid: u32,
    /// When, on the clock that counts from boot.
    pub time: Nanos,
}

/// The programs, loaded and attached.
pub struct Collector {
    skel: CollectSkel<'static>,
    shared: Shared<'static>,
    links: Vec<Link>,
    intake: Intake,
    sources: Vec<Source>,
    options: TraceOptions,
    files: BTreeMap<u32, FileKey>,
    /// The last file when the kernel's map of files was emptied.
    forgotten: u32,
    /// How many of the kernel's files were read from its map after the ring was full.
    untold: u64,
    resolver: Resolver,
    /// Losses that were reported already.
    lost: u64,
    emptied: Instant,
    /// When Btrfs' devices were last told to the programs.
    devices_set: Instant,
    /// How long emptying took the last time.
    took: Duration,
}

/// Key and value of a map, as bytes.
type Entry = (Vec<u8>, Vec<u8>);

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector")
            .field("options", &self.options)
            .field("sources", &self.sources)
            .finish_non_exhaustive()
    }
}

impl Collector {
    /// Load and attach. What counts is counted from now on.
    ///
    /// # Errors
    ///
    /// No permission, a kernel without what is needed, a filter that cannot be set.
    pub fn start(options: &TraceOptions) -> Result<Self, TraceError> {
        check_permission()?;
        let btf = Btf::from_vmlinux().map_err(|_| TraceError::NoTypes)?;
        let log = Log::begin();
        // Functions may not be watched everywhere; only trying tells.
        let first = choose(options.layer, &btf, true, "");
        let watches = |sources: &[Source]| {
            let mut programs = sources.iter().filter_map(|source| source.program);
            programs.any(watches_function)
        };
        if !watches(&first) {
            return Self::load(options, first, &log);
        }
        match Self::load(options, first, &log) {
            Err(TraceError::Kernel { source, .. }) => {
                let refusal = source.to_string();
                Self::load(options, choose(options.layer, &btf, false, &refusal), &log)
            }
            done => done,
        }
    }

    fn load(options: &TraceOptions, sources: Vec<Source>, log: &Log) -> Result<Self, TraceError> {
        log.clear();
        let kernel = |doing: &str, source| TraceError::Kernel {
            doing: doing.to_owned(),
            source,
            log: log.tail(),
        };
        if let Some(missing) = sources.iter().find(|s| s.required && s.program.is_none()) {
            return Err(TraceError::NoSource {
                what: missing.what,
                why: missing.why_not.clone().unwrap_or_default(),
            });
        }
        // The object lives as long as the process: a program collects once or a few times.
        let storage: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = CollectSkelBuilder::default()
            .open(storage)
            .map_err(|error| kernel("reading the BPF programs", error))?;
        configure(&mut open, options, &sources)?;
        let mut skel = open
            .load()
            .map_err(|error| kernel("loading the BPF programs", error))?;
        let limits = Limits {
            ranges: options.held,
            accesses: options.held,
        };
        let intake = Intake::begin(&skel.maps.events, limits)
            .map_err(|error| kernel("opening the ring", error))?;
        let mut collector = Self {
            shared: Shared::of(&mut skel.maps),
            skel,
            links: Vec::new(),
            intake,
            sources,
            options: options.clone(),
            files: BTreeMap::new(),
            forgotten: 0,
            untold: 0,
            resolver: Resolver::new(),
            lost: 0,
            emptied: Instant::now(),
            devices_set: Instant::now(),
            took: Duration::ZERO,
        };
        collector.shared.allow_timings(TIMED_AT_ONCE);
        collector.set_btrfs_devices();
        collector.set_cgroup()?;
        collector.set_roots()?;
        for pid in &options.filter.pids {
            collector.follow(*pid)?;
        }
        collector.attach().map_err(|(program, error)| {
            kernel(&format!("attaching the BPF program {program}"), error)
        })?;
        Ok(collector)
    }

    fn attach(&mut self) -> Result<(), (&'static str, libbpf_rs::Error)> {
        let wanted: Vec<_> = self.sources.iter().filter_map(|s| s.program).collect();
        for name in wanted {
            let object = self.skel.object_mut();
            let Some(program) = object.progs_mut().find(|program| program.name() == name) else {
                continue;
            };
            let link = program.attach().map_err(|error| (name, error))?;
            self.links.push(link);
        }
        Ok(())
    }

    /// What is seen, and what is not.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Count the accesses of this process and of the children that it will have.
    ///
    /// # Errors
    ///
    /// The kernel's map is full.
    pub fn follow(&self, pid: u32) -> Result<(), TraceError> {
        let one = 1u32.to_ne_bytes();
        self.skel
            .maps
            .followed
            .update(&pid.to_ne_bytes(), &one, MapFlags::ANY)
            .map_err(|source| TraceError::Kernel {
                doing: format!("following process {pid}"),
                source,
                log: String::new(),
            })
    }

    /// Let some more reads be timed, spread over the time. To be called some ten times a second.
    /// Returns whether so much has come that it should be drained now.
    pub fn keep_up(&mut self) -> bool {
        self.shared.allow_timings(TIMED_AT_ONCE / 20);
        self.holds_many()
    }

    fn holds_many(&self) -> bool {
        self.intake.inbox().ranges() >= MANY.min(self.options.held / 2)
    }

    /// Take what was counted. To be called about once a second; most of it stays where it is until it
    /// is worth the effort.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn drain(&mut self) -> Result<Drained, TraceError> {
        let mut all = Drained::default();
        self.drain_into(&mut |part| all.append(part))?;
        Ok(all)
    }

    /// The same in parts, so that not all of it is in memory at once.
    ///
    /// # Errors
    ///
    /// The kernel refused. What `sink` got before was counted.
    pub fn drain_into(&mut self, sink: &mut dyn FnMut(Drained)) -> Result<(), TraceError> {
        self.intake.catch_up();
        self.shared.allow_timings(TIMED_AT_ONCE);
        // Raw accesses are drained many times a second, but file systems are not mounted that often.
        if self.devices_set.elapsed() >= SOONEST / 2 {
            self.set_btrfs_devices();
        }
        let mut rest = Drained::default();
        let waited = self.emptied.elapsed();
        // Emptying costs in proportion to what is there, with what `sink` does: at most a percent of
        // the time, but not for ever.
        let due = waited >= (self.took * 100).clamp(SOONEST, LATEST);
        if due || self.holds_many() {
            self.empty(&mut rest, sink);
            self.forget_files(&mut rest)?;
        }
        self.deliver(&mut rest);
        sink(rest);
        Ok(())
    }

    /// Detach everything, and take all that is left.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn finish(self) -> Result<Drained, TraceError> {
        let mut all = Drained::default();
        self.finish_into(&mut |part| all.append(part))?;
        Ok(all)
    }

    /// The same in parts.
    ///
    /// # Errors
    ///
    /// The kernel refused. What `sink` got before was counted.
    pub fn finish_into(mut self, sink: &mut dyn FnMut(Drained)) -> Result<(), TraceError> {
        self.links.clear();
        if barrier::wait_for_readers().is_err() {
            // A moment that is long for a program has to do.
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut rest = Drained::default();
        self.empty(&mut rest, sink);
        self.take_pending(&mut rest);
        self.deliver(&mut rest);
        sink(rest);
        Ok(())
    }

    fn state(&self) -> types::state {
        self.shared.state()
    }

    /// Empty the slots and the ring, and hand out what was counted.
    fn empty(&mut self, drained: &mut Drained, sink: &mut dyn FnMut(Drained)) {
        let began = Instant::now();
        for (range, counters) in self.shared.take_slots() {
            self.intake.count(&range, &counters);
        }
        self.intake.catch_up();
        let mut counted = Vec::new();
        for part in 0..PARTS {
            counted.append(&mut self.intake.inbox().take_part(part));
        }
        // In the order in which a store keeps them: what is added together then lies together.
        counted.sort_unstable_by_key(|(range, _)| (range.file, range.start, range.len));
        self.learn_files(drained);
        for (range, counters) in counted {
            self.tally(&range, &counters, drained);
            if drained.tallies.len() >= BATCH as usize {
                sink(std::mem::take(drained));
            }
        }
        self.emptied = Instant::now();
        self.took = self.emptied - began;
    }

    fn tally(&mut self, key: &types::range_key, value: &types::counters, drained: &mut Drained) {
        if !self.files.contains_key(&key.file) {
            self.learn_from_map(drained);
        }
        match self.files.get(&key.file) {
            Some(file) => {
                expand(
                    *file,
                    key,
                    value,
                    self.options.readahead,
                    &mut drained.tallies,
                );
            }
            // Cannot be: a file is in the map before its ranges are.
            None => drained.lost += u64::from(value.count),
        }
    }

    /// What tasks were in the middle of when the programs were detached.
    fn take_pending(&mut self, drained: &mut Drained) {
        let maps = &self.skel.maps;
        let values = |map: &dyn MapCore| -> Vec<Vec<u8>> {
            map.keys()
                .filter_map(|key| map.lookup(&key, MapFlags::ANY).ok().flatten())
                .collect()
        };
        let pendings = values(&maps.pendings);
        let runs = match self.options.layer {
            Layer::Fs => Vec::new(),
            Layer::Syscall => values(&maps.run_map),
        };
        let page = Bytes::kib(4);
        for pending in pendings
            .iter()
            .filter_map(|v| wire::read::<types::pending>(v))
        {
            if pending.to == 0 || pending.file == 0 {
                continue;
            }
            let from = FileOffset(pending.from).align_down(page);
            let range = FileRange::between(from, FileOffset(pending.to).align_up(page));
            let key = types::range_key {
                start: range.start.0,
                len: range.len.0,
                file: pending.file,
                kind: if pending.op == 0 { READ } else { WRITE },
            };
            let value = types::counters {
                count: 1,
                requests: pending.requests,
                ..types::counters::default()
            };
            self.tally(&key, &value, drained);
        }
        for run in runs.iter().filter_map(|v| wire::read::<types::run>(v)) {
            let key = types::range_key {
                start: run.start,
                len: run.end - run.start,
                file: run.file,
                kind: if run.reads > 1 { READ_RUN } else { READ },
            };
            let value = types::counters {
                count: 1,
                reads: run.reads,
                ..types::counters::default()
            };
            self.tally(&key, &value, drained);
        }
    }

    /// Files that came through the ring.
    fn learn_files(&mut self, drained: &mut Drained) {
        self.intake.catch_up();
        let files = std::mem::take(&mut self.intake.inbox().files);
        for event in files {
            self.learn(&event.key, &event.entry, drained);
        }
        if self.state().untold_files != self.untold {
            self.learn_from_map(drained);
        }
    }

    /// Before the kernel's map of files is full, empty it: files that are met with again get a new
    /// short name. Names of long ago, which no counter carries any more, are forgotten here, too.
    fn forget_files(&mut self, drained: &mut Drained) -> Result<(), TraceError> {
        let next = self.state().next_file;
        if next.wrapping_sub(self.forgotten) < FILES / 4 * 3 {
            return Ok(());
        }
        if self.state().untold_files != self.untold {
            self.learn_from_map(drained);
        }
        let kernel = |source| TraceError::Kernel {
            doing: "emptying the list of files".to_owned(),
            source,
            log: String::new(),
        };
        while self
            .skel
            .maps
            .files
            .lookup_and_delete_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
            .map_err(kernel)?
            .next()
            .is_some()
        {}
        self.files = self.files.split_off(&self.forgotten);
        self.forgotten = next;
        Ok(())
    }

    /// Files that the ring had no room for.
    fn learn_from_map(&mut self, drained: &mut Drained) {
        self.untold = self.state().untold_files;
        // In one batch: one that is not full looks like the last one.
        let entries: Vec<Entry> = self
            .skel
            .maps
            .files
            .lookup_batch(FILES, MapFlags::ANY, MapFlags::ANY)
            .map(Iterator::collect)
            .unwrap_or_default();
        for (key, value) in entries {
            if let (Some(key), Some(entry)) = (
                wire::read::<types::file_key>(&key),
                wire::read::<types::file_entry>(&value),
            ) && entry.wanted != 0
            {
                self.learn(&key, &entry, drained);
            }
        }
    }

    fn learn(&mut self, key: &types::file_key, entry: &types::file_entry, drained: &mut Drained) {
        let file = FileKey {
            dev: stat_device(key.dev),
            inode: key.inode,
            generation: key.generation,
            subvolume: key.subvolume,
        };
        if self.files.insert(entry.id, file).is_some() {
            return;
        }
        let fs = FsId {
            uuid: entry.uuid,
            magic: entry.magic,
        };
        let path = self.resolver.locate(&file, &fs, entry.sb_dev, entry.pid);
        drained.files.push(TracedFile {
            key: file,
            fs,
            path,
        });
    }

    /// Complete what is handed out: new files, single accesses, losses.
    fn deliver(&mut self, drained: &mut Drained) {
        self.learn_files(drained);
        let accesses = std::mem::take(&mut self.intake.inbox().accesses);
        for event in accesses {
            if let Some(file) = self.files.get(&event.range.file) {
                drained.accesses.push(Access {
                    file: *file,
                    range: FileRange::new(event.range.start, event.range.len),
                    write: event.range.kind == WRITE,
                    direct: event.direct != 0,
                    requests: event.requests,
                    pid: event.pid,
                    time: Nanos(event.time),
                });
            }
        }
        drained.accesses.sort_by_key(|access| access.time);
        let state = self.state();
        let inbox = self.intake.inbox();
        // Single accesses are counted, too, but whoever asks for them wants these to be complete.
        let lost = if self.options.raw {
            state.lost_events + inbox.lost_accesses
        } else {
            state.lost_tallies + inbox.lost_counts
        };
        drop(inbox);
        let lost = lost + state.lost_tasks + state.lost_files;
        drained.lost += lost - self.lost;
        self.lost = lost;
    }

    fn set_btrfs_devices(&mut self) {
        self.devices_set = Instant::now();
        let one = 1u32.to_ne_bytes();
        for device in btrfs::devices() {
            let map = &self.skel.maps.btrfs_devices;
            if let Err(error) = map.update(&device.to_ne_bytes(), &one, MapFlags::ANY) {
                tracing::debug!("device {device:#x}: {error}");
            }
        }
    }

    fn set_roots(&self) -> Result<(), TraceError> {
        let one = 1u32.to_ne_bytes();
        for root in config::roots(&self.options.filter)? {
            let map = &self.skel.maps.roots;
            map.update(wire::bytes(&root), &one, MapFlags::ANY)
                .map_err(|source| TraceError::Kernel {
                    doing: "setting the paths".to_owned(),
                    source,
                    log: String::new(),
                })?;
        }
        Ok(())
    }

    fn set_cgroup(&self) -> Result<(), TraceError> {
        let Some(path) = &self.options.filter.cgroup else {
            return Ok(());
        };
        let wrong = |problem: String| TraceError::Filter {
            path: path.clone(),
            problem,
        };
        let folder =
            File::open(path).map_err(|error| wrong(format!("cannot be opened: {error}")))?;
        let fd = (folder.as_raw_fd() as u32).to_ne_bytes();
        self.skel
            .maps
            .cgroups
            .update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(|_| {
                wrong(
                    "is not a control group; give a folder below a cgroup v2 mount, \
                       like /sys/fs/cgroup/system.slice"
                        .to_owned(),
                )
            })
    }
}

/// Settings, and which programs are loaded.
fn configure(
    open: &mut OpenCollectSkel<'static>,
    options: &TraceOptions,
    sources: &[Source],
) -> Result<(), TraceError> {
    let rodata = open
        .maps
        .rodata_data
        .as_deref_mut()
        .expect("the object has .rodata");
    config::fill(&mut rodata.config, options)?;
    for mut program in open.open_object_mut().progs_mut() {
        let wanted = sources
            .iter()
            .any(|source| source.program.is_some_and(|name| program.name() == name));
        program.set_autoload(wanted);
    }
    for mut map in open.open_object_mut().maps_mut() {
        if map
            .name()
            .to_str()
            .is_some_and(|name| unused(options.layer).contains(&name))
        {
            map.set_autocreate(false)
                .map_err(|source| TraceError::Kernel {
                    doing: "leaving out what this layer does not need".to_owned(),
                    source,
                    log: String::new(),
                })?;
        }
    }
    Ok(())
}

/// Maps of programs that are not loaded. Those that some program of both layers names stay.
const fn unused(layer: Layer) -> &'static [&'static str] {
    match layer {
        Layer::Fs => &["calls", "run_map", "uring", "misses"],
        Layer::Syscall => &["inflight", "dirtied"],
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What libbpf says while it loads; kept for the case that it fails.
struct Log;

static SAID: Mutex<String> = Mutex::new(String::new());

impl Log {
    fn begin() -> Self {
        set_print(Some((PrintLevel::Warn, |_, message| {
            tracing::debug!("libbpf: {}", message.trim_end());
            lock(&SAID).push_str(&message);
        })));
        Self
    }

    fn clear(&self) {
        lock(&SAID).clear();
    }

    /// The last lines, the telling ones of a verifier's refusal among them.
    fn tail(&self) -> String {
        let said = lock(&SAID);
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}
