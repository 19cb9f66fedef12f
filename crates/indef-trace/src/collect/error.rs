//! Errors of collecting, and advice.

use std::{fmt, fs, io, path::PathBuf};

use super::sources::WhyNot;

/// Collecting cannot begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The process may not load BPF programs.
    #[error(
        "tracing needs {}, which this process does not have; run as root, or give the \
         program these capabilities (setcap cap_bpf,cap_perfmon,cap_dac_read_search+ep)",
        .missing.iter().map(|capability| capability.as_str()).collect::<Vec<_>>().join(" and ")
    )]
    NotPermitted {
        /// The capabilities, at least one.
        missing: Vec<Capability>,
    },
    /// The kernel was built without type information.
    #[error(
        "this kernel has no type information (/sys/kernel/btf/vmlinux); tracing needs one that was \
         built with CONFIG_DEBUG_INFO_BTF, as those of all larger distributions are since Linux 5.10"
    )]
    NoTypes,
    /// The kernel lacks a source that is required.
    #[error("{what} cannot be seen on this kernel: {why}")]
    NoSource {
        /// The kind of access or event.
        what: &'static str,
        /// Why.
        why: WhyNot,
    },
    /// A filter cannot be set.
    #[error("{}: {problem}", .path.display())]
    Filter {
        /// The path of the filter.
        path: PathBuf,
        /// The problem, with advice.
        problem: FilterProblem,
    },
    /// A number of a process may mean another one than `/proc` shows.
    #[error(
        "/proc shows the numbers of another PID namespace than that of indef, so --pid could mean \
         either; mount /proc anew (unshare --mount-proc, or mount -t proc proc /proc)"
    )]
    ForeignProc,
    /// More of something than the programs have room for.
    #[error("too many {what}: at most {limit} can be given")]
    TooMany {
        /// The kind of thing.
        what: Limited,
        /// How many there may be.
        limit: usize,
    },
    /// The kernel refused a program or a map.
    #[error("{doing}: {source}{}", explained(.log))]
    Kernel {
        /// The operation that failed.
        doing: Step,
        /// The error that it returned.
        #[source]
        source: libbpf_rs::Error,
        /// The last messages of libbpf and the kernel's verifier.
        log: String,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// The operation that failed.
        doing: Step,
        /// The error that it returned.
        #[source]
        source: io::Error,
    },
}

/// The PID namespace of this process.
pub(super) const OWN_NAMESPACE: &str = "/proc/self/ns/pid";

/// A step of collecting that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Step {
    /// Find the namespace that this process's numbers belong to.
    #[error("looking up the PID namespace of this process ({OWN_NAMESPACE})")]
    LookUpNamespace,
    /// Read the compiled object.
    #[error("reading the BPF programs")]
    ReadPrograms,
    /// Set the filters.
    #[error("configuring the BPF programs")]
    Configure,
    /// Give the programs to the kernel.
    #[error("loading the BPF programs")]
    Load,
    /// Map the memory that the programs share with this process.
    #[error("mapping the variables of the BPF programs")]
    MapVariables,
    /// Let the program with this name run.
    #[error("attaching the BPF program {0}")]
    Attach(&'static str),
    /// Let it run again after a pause.
    #[error("attaching {0} again")]
    AttachAgain(&'static str),
    /// Ask each task.
    #[error("reading what tasks have under way")]
    AskTasks,
    /// Read the ring.
    #[error("opening the ring")]
    OpenRing,
    /// Count the accesses of a process.
    #[error("following process {0}")]
    Follow(u32),
    /// Tell the programs what `--path` names.
    #[error("setting the paths")]
    SetPaths,
    /// Take the files out of the kernel's map.
    #[error("emptying the list of files")]
    TakeFiles,
}

/// Something that the programs have room for a number of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limited {
    /// `--comm`.
    Names,
    /// `--path`, and the mounts below.
    Paths,
    /// `--device`, and the file systems on them.
    Devices,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Names => "names of processes",
            Self::Paths => "paths, with the mounts below them",
            Self::Devices => "devices, with the file systems on them",
        })
    }
}

/// A right that tracing needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// `CAP_BPF`.
    Bpf,
    /// `CAP_PERFMON`.
    Perfmon,
}

impl Capability {
    /// Its name in capabilities(7).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
        }
    }

    /// Its bit in a set.
    const fn bit(self) -> u32 {
        match self {
            Self::Bpf => CAP_BPF,
            Self::Perfmon => CAP_PERFMON,
        }
    }
}

/// A fault of the path of a filter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterProblem {
    /// It is not there.
    #[error("cannot be found: {0}")]
    NotFound(io::Error),
    /// It has no status.
    #[error("cannot be looked at: {0}")]
    NoStatus(io::Error),
    /// It cannot be opened.
    #[error("cannot be opened: {0}")]
    NotOpened(io::Error),
    /// `--path` names something else.
    #[error("is neither a file nor a folder")]
    NoFile,
    /// `--path` is on an overlay of another place.
    #[error(
        "is on an overlay whose layers cannot be seen from here; trace where it was mounted, or give the \
         layers' folders"
    )]
    HiddenLayers,
    /// `--device` names something else.
    #[error(
        "is not a block device; give one like /dev/nvme0n1p1, or --path for a mounted file system"
    )]
    NoBlockDevice,
    /// `--cgroup` names something else.
    #[error(
        "is not a control group; give a folder below a cgroup v2 mount, like \
         /sys/fs/cgroup/system.slice"
    )]
    NoCgroup,
}

fn explained(log: &str) -> String {
    match log.trim() {
        "" => String::new(),
        log => format!("\n{log}"),
    }
}

/// Bits of capability sets (linux/capability.h, v6.1).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Check the capabilities, before the kernel refuses with a bare `EPERM`.
pub(super) fn check_permission() -> Result<(), TraceError> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(effective) = effective(&status) else {
        // Without /proc the kernel decides.
        return Ok(());
    };
    let has = |bit: u32| effective & (1 << bit) != 0;
    let needed = [Capability::Bpf, Capability::Perfmon].into_iter();
    let missing: Vec<Capability> = needed.filter(|it| !has(it.bit())).collect();
    if has(CAP_SYS_ADMIN) || missing.is_empty() {
        return Ok(());
    }
    Err(TraceError::NotPermitted { missing })
}

/// The effective capabilities: `CapEff` of `/proc/PID/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let status = "Name:\tindef\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n";
        assert_eq!(effective(status), Some(0x1ff_ffff_ffff));
        assert_eq!(effective("Name:\tindef\n"), None);
        assert_eq!(effective("CapEff:\tx\n"), None);
    }
}
