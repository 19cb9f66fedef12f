//! Errors of collecting, and advice.

use std::{fs, io, path::PathBuf};

/// Collecting cannot begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The process may not load BPF programs.
    #[error(
        "tracing needs {missing}, which this process does not have; run as root, or give the \
         program these capabilities (setcap cap_bpf,cap_perfmon,cap_dac_read_search+ep)"
    )]
    NotPermitted {
        /// The names of the capabilities.
        missing: String,
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
        why: String,
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
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The kernel refused a program or a map.
    #[error("{doing}: {source}{}", explained(.log))]
    Kernel {
        /// The operation that failed.
        doing: String,
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
        doing: String,
        /// The error that it returned.
        #[source]
        source: io::Error,
    },
}

/// What is wrong with the path of a filter.
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
    if has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON)) {
        return Ok(());
    }
    let missing: Vec<&str> = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter(|(bit, _)| !has(*bit))
        .map(|(_, name)| name)
        .collect();
    Err(TraceError::NotPermitted {
        missing: missing.join(" and "),
    })
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
