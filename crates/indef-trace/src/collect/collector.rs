//! A running trace: take the counts from the programs.

use std::{
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use libbpf_rs::btf::Btf;
use linux_abi::barrier;
use units::{FileRange, Nanos};

use super::{
    contract::{Counters, KIND_WRITE, RangeKey},
    drained::{Access, Drained, Windowed},
    error::{Step, TraceError, check_permission},
    files::Files,
    hand::Hand,
    intake::{Intake, Limits, Pace},
    log::Log,
    meter::thread_time,
    options::{Layer, TraceOptions},
    programs::Programs,
    sampler::Sampler,
    sampling::Spent,
    sources::{Source, choose, watches_function},
    tallies::{counts_of_fault, expand, of_fault, of_run},
};
use crate::tally::FileKey;

/// Ranges that are held before they are handed out, due or not: with the ranges that arrive until the
/// next look, they fit into a table of 2^17 places.
const MANY: usize = (1 << 17) / 4 * 3;
/// Ranges that are handed out at once.
const BATCH: usize = 8192;
/// How often counters are taken, at most and at least.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(300);
/// How many reads are timed before the next [`Collector::drain`].
const TIMED_AT_ONCE: u32 = 250;

/// The programs, loaded and attached, with all that they have counted so far.
pub struct Collector {
    programs: Programs,
    intake: Intake,
    hand: Hand,
    sources: Vec<Source>,
    options: TraceOptions,
    files: Files,
    sampler: Sampler,
    /// Sampling went wrong in `keep_up`.
    failed: Option<TraceError>,
    /// Variance that was reported already.
    variance: u64,
    common: u64,
    /// Processor time that was reported already.
    spent: Spent,
    /// Losses that were reported already.
    lost: u64,
    emptied: Instant,
    /// When the programs last learned Btrfs' devices.
    devices_set: Instant,
    /// How long emptying took the last time.
    took: Duration,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector")
            .field("options", &self.options)
            .field("sources", &self.sources)
            .finish_non_exhaustive()
    }
}

impl Collector {
    /// Load and attach the programs. Accesses count from now on.
    ///
    /// # Errors
    ///
    /// No permission, a kernel without something that is required, a filter that cannot be set.
    pub fn start(options: &TraceOptions) -> Result<Self, TraceError> {
        check_permission()?;
        let btf = Btf::from_vmlinux().map_err(|_| TraceError::NoTypes)?;
        let log = Log::begin();
        // Functions may not be watched everywhere; only trying tells.
        let first = choose(options.layer, &btf, None);
        let mut programs = first.iter().filter_map(|source| source.program);
        if !programs.any(|program| watches_function(options.layer, program)) {
            return Self::begin(options, first, &log);
        }
        match Self::begin(options, first, &log) {
            Err(TraceError::Kernel { source, .. }) => {
                let refusal = Arc::new(source);
                Self::begin(options, choose(options.layer, &btf, Some(&refusal)), &log)
            }
            done => done,
        }
    }

    fn begin(options: &TraceOptions, sources: Vec<Source>, log: &Log) -> Result<Self, TraceError> {
        log.clear();
        for source in sources.iter().filter(|source| source.required) {
            if let Some(why) = &source.why_not {
                return Err(TraceError::NoSource {
                    what: source.what,
                    why: why.clone(),
                });
            }
        }
        let mut programs = Programs::load(options, &sources, log)?;
        let mut sampler = Sampler::new(options, &mut programs);
        let limits = Limits {
            ranges: options.held,
            accesses: options.held,
        };
        let intake = Intake::begin(&programs.events(), limits, !options.aside)
            .map_err(|error| log.error(Step::OpenRing, error))?;
        programs.variables.allow_timings(TIMED_AT_ONCE);
        let files = Files::new();
        programs.attach(&sources, options, log)?;
        sampler.start(&programs);
        Ok(Self {
            programs,
            intake,
            hand: Hand::new(),
            sources,
            options: options.clone(),
            files,
            sampler,
            failed: None,
            lost: 0,
            variance: 0,
            common: 0,
            spent: Spent::default(),
            emptied: Instant::now(),
            devices_set: Instant::now(),
            took: Duration::ZERO,
        })
    }

    /// The kinds of events that are seen, and those that are not.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Layers of the overlays of `--path` in which accesses are not seen: they lie below other mounts, where this kernel does not
    /// let anybody look, or not without `CAP_SYS_ADMIN`.
    #[must_use]
    pub fn hidden_layers(&self) -> &[PathBuf] {
        self.programs.hidden_layers()
    }

    /// Count the accesses of this process and of its future children.
    ///
    /// # Errors
    ///
    /// The kernel's map is full.
    pub fn follow(&self, pid: u32) -> Result<(), TraceError> {
        self.programs.follow(pid)
    }

    /// Let some more reads be timed, spread over the time, and see what tracing costs. Call it some
    /// twenty times a second, or after [`Self::wait`]. Returns whether so many ranges or
    /// files are held that they should be drained now.
    pub fn keep_up(&mut self) -> bool {
        self.programs.variables.allow_timings(TIMED_AT_ONCE / 20);
        let was_paused = self.programs.is_paused();
        if let Some(mut began) = self.sampler.tick(&mut self.programs, self.intake.busy()) {
            if self.options.layer == Layer::Syscall && self.sampler.opens_window(&self.programs) {
                self.weigh(false);
                began = self.sampler.took_counts(began);
            }
            if let Err(error) = self.sampler.go_on(&mut self.programs, began) {
                self.failed = Some(error);
            }
        }
        if self.programs.is_paused() && !was_paused {
            self.count_cut();
        }
        // What is still on its way is read when it is drained.
        self.intake.pace(match self.programs.is_paused() {
            true => Pace::Rests,
            false => self.sampler.pace(),
        });
        self.holds_many() || self.files.are_many(&self.programs)
    }

    /// Sleep until the next [`Self::keep_up`]: for as long as nothing is counted, within these bounds. It is part of the cost
    /// of the trace.
    pub fn wait(&mut self, shortest: Duration, longest: Duration) {
        self.sampler.waits();
        thread::sleep(self.sampler.rest().clamp(shortest, longest));
    }

    /// Count the runs that a pause has cut off.
    fn count_cut(&mut self) {
        if self.options.layer != Layer::Syscall {
            return;
        }
        // A program that is still running may end one.
        wait_for_programs();
        for run in self.programs.take_cut() {
            let (range, counters) = of_run(&run);
            self.hand.cut(counters.count);
            self.sampler.chose_also();
            self.intake.count(&range, &counters);
        }
    }

    fn holds_many(&self) -> bool {
        self.intake.inbox().ranges() + self.hand.len() >= MANY.min(self.options.held / 2)
    }

    /// Take the counts. Call it about once a second; most of it stays in the kernel until it is
    /// worth the effort.
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
    /// The kernel refused. The parts that `sink` received before were counted.
    pub fn drain_into(&mut self, sink: &mut dyn FnMut(Drained)) -> Result<(), TraceError> {
        let began = thread_time();
        let drained = self.drain_now(sink);
        self.sampler.took_counts(began);
        match self.failed.take() {
            Some(failed) => drained.and(Err(failed)),
            None => drained,
        }
    }

    fn drain_now(&mut self, sink: &mut dyn FnMut(Drained)) -> Result<(), TraceError> {
        self.intake.catch_up();
        self.programs.variables.allow_timings(TIMED_AT_ONCE);
        // Raw accesses are drained many times a second, but file systems are not mounted that often.
        if self.options.layer == Layer::Fs && self.devices_set.elapsed() >= SOONEST / 2 {
            self.devices_set = Instant::now();
            self.programs.set_btrfs_devices();
        }
        let mut rest = Drained::default();
        let waited = self.emptied.elapsed();
        // Emptying costs in proportion to the ranges there are, including the work of `sink`: at most
        // a percent of the time, or half of what tracing may cost, but it is not put off for ever.
        let rest_of_time = self.took.div_f64(Sampler::emptying(&self.options));
        let due = waited >= rest_of_time.clamp(SOONEST, LATEST);
        let many_files = self.files.are_many(&self.programs);
        let is_full = many_files || self.holds_many();
        let began = Instant::now();
        if is_full || (due && !self.hand.waits(self.options.layer, &self.sampler)) {
            self.weigh(false);
        }
        if is_full || due {
            self.empty(&mut rest, sink);
            self.took = began.elapsed();
        } else {
            rest.windows = self.sampler.is_windowed().then(Windowed::default);
        }
        if many_files {
            let layer = self.options.layer;
            self.files.forget(&self.programs, layer, &mut rest.files)?;
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
    /// The kernel refused. The parts that `sink` received before were counted.
    pub fn finish_into(mut self, sink: &mut dyn FnMut(Drained)) -> Result<(), TraceError> {
        self.sampler.end(&self.programs);
        // A task that ends meanwhile still counts what it has under way, or it is counted here.
        self.programs.pause();
        wait_for_programs();
        let settled = match self.options.layer {
            Layer::Fs => self.programs.settle(),
            Layer::Syscall => Ok(()),
        };
        self.programs.detach();
        wait_for_programs();
        let mut rest = Drained::default();
        self.weigh(true);
        self.empty(&mut rest, sink);
        self.take_unfinished(&mut rest);
        self.deliver(&mut rest);
        sink(rest);
        settled
    }

    /// Empty the slots and the ring: what was in them becomes ready.
    fn weigh(&mut self, is_end: bool) {
        let hand = &mut self.hand;
        hand.weigh(&mut self.programs, &self.intake, &mut self.sampler, is_end);
    }

    /// Hand out the counts that are ready. Of several parts, the last one tells of the windows in which they
    /// were counted.
    fn empty(&mut self, drained: &mut Drained, sink: &mut dyn FnMut(Drained)) {
        let windows = self.hand.take_windows(&self.sampler);
        let counted = self.hand.take();
        self.learn_files(drained);
        for (range, counters) in counted {
            self.tally(&range, &counters, drained);
            if drained.tallies.len() >= BATCH {
                drained.windows = windows.map(|_| Windowed::default());
                sink(std::mem::take(drained));
            }
        }
        drained.windows = windows;
        self.emptied = Instant::now();
    }

    fn tally(&mut self, range: &RangeKey, counters: &Counters, drained: &mut Drained) {
        let file = self.file_of(range.file, drained);
        drained.sampled.counted += u64::from(counters.count);
        let told = self.options.readahead;
        let readahead = told.unwrap_or_else(|| self.files.readahead(range.file));
        match file {
            Some(file) => expand(file, range, counters, readahead, &mut drained.tallies),
            // Cannot be: a file is in the map before its ranges are.
            None => drained.lost += u64::from(counters.count),
        }
    }

    /// The file with this short name. One that another processor has named may still be on its way
    /// into the ring; it is in the kernel's map.
    fn file_of(&mut self, name: u32, drained: &mut Drained) -> Option<FileKey> {
        self.files.get(name).or_else(|| {
            self.files.learn_all(&self.programs, &mut drained.files);
            self.files.get(name)
        })
    }

    /// Take the accesses that go on at layer syscall.
    fn take_unfinished(&mut self, drained: &mut Drained) {
        if self.options.layer != Layer::Syscall {
            return;
        }
        let faults = self.programs.faults();
        let reads = faults
            .iter()
            .map(|fault| (of_fault(fault).range, counts_of_fault(fault)));
        let unfinished: Vec<_> = reads
            .chain(self.programs.runs().iter().map(of_run))
            .collect();
        if self.options.raw {
            let accesses = faults.iter().map(of_fault);
            self.intake.inbox().accesses.extend(accesses);
        }
        for (range, counters) in unfinished {
            let (range, counters) = self.hand.weighed(&range, &counters);
            self.tally(&range, &counters, drained);
        }
    }

    /// Learn the files that came through the ring, or had no room in it.
    fn learn_files(&mut self, drained: &mut Drained) {
        self.intake.catch_up();
        let files = std::mem::take(&mut self.intake.inbox().files);
        for event in files {
            self.files
                .learn(&event.key, &event.entry, &mut drained.files);
        }
        self.files.learn_untold(&self.programs, &mut drained.files);
    }

    /// Complete the results: new files, single accesses, losses.
    fn deliver(&mut self, drained: &mut Drained) {
        // Before the files: the reader of the ring goes on, and adds accesses to files that are not
        // learned yet.
        let accesses = std::mem::take(&mut self.intake.inbox().accesses);
        self.learn_files(drained);
        for event in accesses {
            let Some(file) = self.file_of(event.range.file, drained) else {
                drained.lost += 1;
                continue;
            };
            drained.accesses.push(Access {
                file,
                range: FileRange::new(event.range.start, event.range.len),
                write: event.range.kind == KIND_WRITE,
                direct: event.direct != 0,
                requests: event.requests,
                pid: event.pid,
                time: Nanos(event.time),
            });
        }
        drained.accesses.sort_by_key(|access| access.time);
        let state = self.programs.variables.state();
        let inbox = self.intake.inbox();
        // With --raw, each access is counted as well, but it is the single accesses that have to be
        // complete.
        let lost = if self.options.raw {
            state.lost_events + inbox.lost_accesses
        } else {
            state.lost_tallies + inbox.lost_counts
        };
        drop(inbox);
        let (variance, common) =
            (self.hand).variance(|growth, slowed| self.sampler.common(growth, slowed));
        drained.sampled.variance += variance - self.variance;
        self.variance = variance;
        // An estimate may fall; what was handed out stays.
        drained.sampled.common += common.saturating_sub(self.common);
        self.common = self.common.max(common);
        drained.untold = self.hand.untold();
        let spent = self.sampler.spent(self.intake.busy());
        drained.spent.add(spent.since(self.spent));
        self.spent = spent;
        let lost = lost + state.lost_tasks + state.lost_files;
        drained.lost += lost - self.lost;
        self.lost = lost;
    }
}

/// Wait until programs that were detached do not run any more.
fn wait_for_programs() {
    if barrier::wait_for_readers().is_err() {
        // They are done within a time that is long for a program.
        thread::sleep(Duration::from_millis(20));
    }
}
