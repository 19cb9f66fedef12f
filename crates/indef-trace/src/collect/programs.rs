//! The BPF object of one layer: configured, loaded, attached, and its maps in Rust's types.

use std::{
    collections::HashSet,
    fs::File,
    io::Read,
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
};

use libbpf_rs::{Iter, Link, Map, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, Program};

use super::{
    btrfs, config,
    contract::{FILES, Fault, FileEntry, FileKey, Run, TASKS, TaskCalls},
    error::{FilterProblem, Step, TraceError},
    log::Log,
    meter::Watched,
    options::{Layer, TraceOptions},
    sources::{self, Source},
    wire::{self, Variables, Wire},
};

/// An object file, aligned as libelf reads it.
#[repr(C, align(8))]
struct Elf<T: ?Sized>(T);

static FS: &Elf<[u8]> = &Elf(*include_bytes!(concat!(env!("OUT_DIR"), "/fs.bpf.o")));
static SYSCALL: &Elf<[u8]> = &Elf(*include_bytes!(concat!(env!("OUT_DIR"), "/syscall.bpf.o")));

const ONE: [u8; 4] = 1u32.to_ne_bytes();

/// Programs that pauses leave alone: they follow processes and what these made dirty, and end what a
/// task had begun.
const STAYS: [&str; 3] = ["on_dirtied", "on_fork", "on_exit"];

/// Programs that no event runs, but this process, for each task: of both objects, of layer fs, and of layer syscall.
const EACH_TASK: &str = "each_task";
const SETTLE_EACH_TASK: &str = "settle_each_task";
const CALLS_OF_EACH_TASK: &str = "calls_of_each_task";
const FOR_EACH: [&str; 3] = [EACH_TASK, SETTLE_EACH_TASK, CALLS_OF_EACH_TASK];

/// A layer's programs with their maps. Detached when it is dropped.
pub(super) struct Programs {
    /// Of programs that stay attached.
    links: Vec<Link>,
    /// Of the others.
    pausing: Vec<Link>,
    pausable: Vec<&'static str>,
    watched: Vec<Watched>,
    layer: Layer,
    /// Layers of overlays in which accesses are not seen.
    hidden_layers: Vec<PathBuf>,
    /// The variables that the programs share with this process.
    pub(super) variables: Variables,
    object: Object,
}

impl Programs {
    /// Load the programs of `sources`, with the filters of `options`. Nothing is attached yet.
    pub(super) fn load(
        options: &TraceOptions,
        sources: &[Source],
        log: &Log,
    ) -> Result<Self, TraceError> {
        let mut open = open(options.layer).map_err(|error| log.error(Step::ReadPrograms, error))?;
        let settings = config::settings(options)?;
        open.maps_mut()
            .find(|map| map.name() == ".rodata.config")
            .expect("the BPF object has settings")
            .set_initial_value(wire::bytes(&settings))
            .map_err(|error| log.error(Step::Configure, error))?;
        for mut program in open.progs_mut() {
            let name = program.name();
            let wanted = needed(sources, options).any(|it| name == it);
            let for_each = FOR_EACH.iter().any(|it| name == *it);
            program.set_autoload(wanted || for_each);
        }
        let object = open.load().map_err(|error| log.error(Step::Load, error))?;
        let variables = Variables::map(&map(&object, ".bss.state"), &map(&object, ".bss.slots"))
            .map_err(|source| TraceError::System {
                doing: Step::MapVariables,
                source,
            })?;
        let loaded = object.progs().filter(Program::autoload);
        let watched = loaded.map(|program| Watched {
            fd: program.as_fd().as_raw_fd(),
            stays: STAYS.iter().any(|it| program.name() == *it),
        });
        let watched = watched.collect();
        let mut programs = Self {
            links: Vec::new(),
            pausing: Vec::new(),
            pausable: Vec::new(),
            watched,
            layer: options.layer,
            hidden_layers: Vec::new(),
            variables,
            object,
        };
        if options.layer == Layer::Fs {
            programs.set_btrfs_devices();
        }
        programs.set_cgroup(options)?;
        programs.set_roots(options)?;
        for pid in &options.filter.pids {
            programs.follow(*pid)?;
        }
        Ok(programs)
    }

    /// Attach the programs: accesses count from now on.
    pub(super) fn attach(
        &mut self,
        sources: &[Source],
        options: &TraceOptions,
        log: &Log,
    ) -> Result<(), TraceError> {
        // The programs that see bios come first in the sources, and last here: before them those that
        // tell which read a bio belongs to.
        for name in needed(sources, options).rev() {
            let link = self
                .attach_one(name)
                .map_err(|error| log.error(Step::Attach(name), error))?;
            if STAYS.contains(&name) {
                self.links.push(link);
            } else {
                self.pausing.push(link);
                self.pausable.push(name);
            }
        }
        Ok(())
    }

    fn attach_one(&mut self, name: &str) -> libbpf_rs::Result<Link> {
        let mut programs = self.object.progs_mut();
        let program = programs.find(|program| program.name() == name);
        program
            .expect("a source names a program of its layer's object")
            .attach()
    }

    /// Detach the programs; some may still be running on other processors.
    pub(super) fn detach(&mut self) {
        self.pause();
        self.links.clear();
    }

    /// Detach the programs that see accesses, for a time.
    pub(super) fn pause(&mut self) {
        // The last one first.
        while self.pausing.pop().is_some() {}
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pausing.is_empty()
    }

    /// Attach them again.
    pub(super) fn resume(&mut self) -> Result<(), TraceError> {
        self.forget_timed();
        self.variables.next_window();
        for at in 0..self.pausable.len() {
            let name = self.pausable[at];
            let link = self
                .attach_one(name)
                .map_err(|source| refused(Step::AttachAgain(name), source))?;
            self.pausing.push(link);
        }
        Ok(())
    }

    /// Forget timed reads that took longer than the programs were attached.
    fn forget_timed(&mut self) {
        if self.layer != Layer::Fs || self.variables.state().timing == 0 {
            return;
        }
        for name in ["inflight", "timings"] {
            let map = self.map(name);
            for key in map.keys() {
                // Nobody else deletes them now; one that is gone is as good.
                let _ = map.delete(&key);
            }
        }
        self.variables.forget_timing();
    }

    /// The programs, for their statistics.
    pub(super) fn watched(&self) -> &[Watched] {
        &self.watched
    }

    /// The ring.
    pub(super) fn events(&self) -> Map<'_> {
        self.map("events")
    }

    /// Count the accesses of this process and of its future children.
    pub(super) fn follow(&self, pid: u32) -> Result<(), TraceError> {
        self.map("followed")
            .update(&pid.to_ne_bytes(), &ONE, MapFlags::ANY)
            .map_err(|source| refused(Step::Follow(pid), source))
    }

    /// Tell the programs of layer fs which devices belong to Btrfs.
    pub(super) fn set_btrfs_devices(&self) {
        let map = self.map("btrfs_devices");
        for device in btrfs::devices() {
            if let Err(error) = map.update(&device.to_ne_bytes(), &ONE, MapFlags::ANY) {
                tracing::debug!("device {device:#x}: {error}");
            }
        }
    }

    /// Layers of overlays of `--path` that cannot be looked at, though they may be there.
    pub(super) fn hidden_layers(&self) -> &[PathBuf] {
        &self.hidden_layers
    }

    fn set_roots(&mut self, options: &TraceOptions) -> Result<(), TraceError> {
        for root in config::roots(&options.filter, &mut self.hidden_layers)? {
            self.map("roots")
                .update(wire::bytes(&root), &ONE, MapFlags::ANY)
                .map_err(|source| refused(Step::SetPaths, source))?;
        }
        Ok(())
    }

    fn set_cgroup(&self, options: &TraceOptions) -> Result<(), TraceError> {
        let Some(path) = &options.filter.cgroup else {
            return Ok(());
        };
        let wrong = |problem| TraceError::Filter {
            path: path.clone(),
            problem,
        };
        let folder = File::open(path).map_err(|error| wrong(FilterProblem::NotOpened(error)))?;
        let fd = (folder.as_raw_fd() as u32).to_ne_bytes();
        self.map("cgroups")
            .update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(|_| wrong(FilterProblem::NoCgroup))
    }

    /// Every file of the kernel's map, wanted or not; as far as the kernel lists them.
    pub(super) fn files(&self) -> Vec<(FileKey, FileEntry)> {
        let files = self.map("files");
        // In one batch: one that is not full looks like the last one.
        let listed = files.lookup_batch(FILES, MapFlags::ANY, MapFlags::ANY);
        listed.map_or_else(|_| Vec::new(), entries)
    }

    /// Empty the kernel's map of files; returns what was in it.
    pub(super) fn take_files(&self) -> Result<Vec<(FileKey, FileEntry)>, TraceError> {
        let files = self.map("files");
        // In one batch, too: beside an application that opens file after file, the map is never empty.
        let taken = files.lookup_and_delete_batch(FILES, MapFlags::ANY, MapFlags::ANY);
        taken
            .map(entries)
            .map_err(|source| refused(Step::TakeFiles, source))
    }

    /// The short names that tasks carry with them, for however long; 0 among them for none.
    pub(super) fn carried_files(&self, layer: Layer) -> Result<HashSet<u32>, TraceError> {
        Ok(match layer {
            Layer::Fs => self.names_of_each_task()?.into_iter().collect(),
            Layer::Syscall => {
                let runs = self.runs();
                let of_runs = runs.iter().map(|run| run.file);
                of_runs.chain(self.names_of_each_task()?).collect()
            }
        })
    }

    /// Layer fs: count what tasks have under way as complete.
    pub(super) fn settle(&self) -> Result<(), TraceError> {
        self.run_for_each_task(SETTLE_EACH_TASK).map(drop)
    }

    /// Layer syscall: the calls of each task of which some were chosen with a weight.
    pub(super) fn calls_of_each_task(&self) -> Result<Vec<TaskCalls>, TraceError> {
        if self.layer != Layer::Syscall {
            return Ok(Vec::new());
        }
        let written = self.run_for_each_task(CALLS_OF_EACH_TASK)?;
        let calls = written.chunks_exact(size_of::<TaskCalls>());
        Ok(calls.filter_map(wire::read).collect())
    }

    fn names_of_each_task(&self) -> Result<Vec<u32>, TraceError> {
        let written = self.run_for_each_task(EACH_TASK)?;
        let names = written.chunks_exact(size_of::<u32>());
        Ok(names.filter_map(wire::read).collect())
    }

    /// The output of a program that runs for each task in this process's PID namespace.
    fn run_for_each_task(&self, name: &str) -> Result<Vec<u8>, TraceError> {
        let failed = |source| refused(Step::AskTasks, source);
        let mut programs = self.object.progs_mut();
        let program = programs.find(|program| program.name() == name);
        let link = program
            .expect("the BPF object has a program for each task")
            .attach()
            .map_err(failed)?;
        let mut written = Vec::new();
        Iter::new(&link)
            .map_err(failed)?
            .read_to_end(&mut written)
            .map_err(|error| failed(error.into()))?;
        Ok(written)
    }

    /// Layer syscall: the runs that go on.
    pub(super) fn runs(&self) -> Vec<Run> {
        values(&self.map("runs"))
    }

    /// Layer syscall, paused: take the runs that went on, and forget the requests under way. What
    /// ends them is not seen, and they would fill the tables.
    pub(super) fn take_cut(&self) -> Vec<Run> {
        let uring = self.map("uring");
        for key in uring.keys() {
            // Nobody else deletes them now; one that is gone is as good.
            let _ = uring.delete(&key);
        }
        let runs = self.map("runs");
        let taken = runs.lookup_and_delete_batch(TASKS, MapFlags::ANY, MapFlags::ANY);
        let taken = taken.into_iter().flatten();
        taken.filter_map(|(_, run)| wire::read(&run)).collect()
    }

    /// Layer syscall: the last fault of each task.
    pub(super) fn faults(&self) -> Vec<Fault> {
        values(&self.map("faults"))
    }

    fn map(&self, name: &str) -> Map<'_> {
        map(&self.object, name)
    }
}

/// The programs of `sources` that can have something to do.
fn needed<'s>(
    sources: &'s [Source],
    options: &'s TraceOptions,
) -> impl DoubleEndedIterator<Item = &'static str> + use<'s> {
    let programs = sources.iter().filter_map(|source| source.program);
    programs.filter(|program| sources::is_needed(program, options))
}

fn open(layer: Layer) -> libbpf_rs::Result<OpenObject> {
    let (name, object) = match layer {
        Layer::Fs => ("indef_fs", FS),
        Layer::Syscall => ("indef_syscall", SYSCALL),
    };
    ObjectBuilder::default().name(name)?.open_memory(&object.0)
}

fn map<'o>(object: &'o Object, name: &str) -> Map<'o> {
    let map = object.maps().find(|map| map.name() == name);
    map.unwrap_or_else(|| panic!("the BPF object has no map {name}"))
}

fn entries(raw: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Vec<(FileKey, FileEntry)> {
    raw.filter_map(|(key, value)| Some((wire::read(&key)?, wire::read(&value)?)))
        .collect()
}

fn values<T: Wire>(map: &dyn MapCore) -> Vec<T> {
    map.keys()
        .filter_map(|key| map.lookup(&key, MapFlags::ANY).ok().flatten())
        .filter_map(|value| wire::read(&value))
        .collect()
}

/// The kernel refused to change a map.
fn refused(doing: Step, source: libbpf_rs::Error) -> TraceError {
    TraceError::Kernel {
        doing,
        source,
        log: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn maps(layer: Layer) -> BTreeSet<String> {
        let open = open(layer).unwrap();
        let names = open
            .maps()
            .map(|map| map.name().to_str().unwrap().to_owned());
        names.collect()
    }

    #[test]
    fn each_object_has_the_programs_of_its_layer() {
        for layer in [Layer::Fs, Layer::Syscall] {
            let open = open(layer).unwrap();
            let programs = open.progs();
            let compiled: BTreeSet<String> = programs
                .map(|program| program.name().to_str().unwrap().to_owned())
                .collect();
            let named: BTreeSet<String> = sources::ways(layer)
                .map(|(program, _)| *program)
                .chain([EACH_TASK])
                .chain([match layer {
                    Layer::Fs => SETTLE_EACH_TASK,
                    Layer::Syscall => CALLS_OF_EACH_TASK,
                }])
                .map(str::to_owned)
                .collect();
            assert_eq!(compiled, named, "{layer:?}");
        }
    }

    #[test]
    fn each_object_has_the_maps_that_are_asked_for() {
        let common = [
            ".rodata.config",
            ".bss.state",
            ".bss.slots",
            "events",
            "files",
            "followed",
            "cgroups",
            "roots",
        ];
        for (layer, own) in [
            (
                Layer::Fs,
                ["pendings", "btrfs_devices", "inflight", "timings"].as_slice(),
            ),
            (Layer::Syscall, &["runs", "faults"]),
        ] {
            let maps = maps(layer);
            for name in common.iter().chain(own) {
                assert!(maps.contains(*name), "{layer:?}: {name} in {maps:?}");
            }
        }
    }
}
