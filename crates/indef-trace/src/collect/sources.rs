//! The BPF programs of each layer, and which of several ways to see the same event this kernel has.
//!
//! Tracepoints come first: they work everywhere and are meant for this. Where a kernel has none,
//! the function itself is watched (fentry), if that is allowed. Most programs are optional; an event
//! that is not seen for want of a program is reported.

use std::{fmt, sync::Arc};

use libbpf_rs::btf::{
    Btf, ReferencesType,
    types::{Func, FuncProto, Ptr, Typedef},
};

use super::options::{Layer, TraceOptions};

/// One kind of event, and whether it is seen.
#[derive(Clone, Debug)]
pub struct Source {
    /// The kind of event.
    pub what: &'static str,
    /// The program that sees it; `None` if it cannot be seen.
    pub program: Option<&'static str>,
    /// Where it is attached; where it is not, all hooks that would do.
    pub hooks: Hooks,
    /// Whether nothing can be collected without it.
    pub required: bool,
    /// Why it is not seen; `None` if it is.
    pub why_not: Option<WhyNot>,
}

/// Why a kind of event is not seen.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WhyNot {
    /// The kernel has none of the hooks that would do.
    #[error("this kernel does not have {0}")]
    Absent(Hooks),
    /// Only functions would do, and the kernel refused to have them watched.
    #[error("this kernel has no tracepoint for it, and functions cannot be watched: {0}")]
    NoFunctions(Arc<libbpf_rs::Error>),
}

/// Hooks, in order of preference: `tracepoint block_bio_queue or function …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks(pub Vec<Hook>);

impl fmt::Display for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, hook) in self.0.iter().enumerate() {
            let before = if index > 0 { " or " } else { "" };
            write!(f, "{before}{hook}")?;
        }
        Ok(())
    }
}

/// A place in the kernel where a program can be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A tracepoint, with its arguments in the kernel's BTF.
    Tracepoint(&'static str),
    /// A tracepoint whose arguments changed: only with this number of them.
    TracepointWith(&'static str, usize),
    /// The entry of a kernel function of at most [`MAX_ARGUMENTS`] arguments.
    Function(&'static str),
    /// The same by kprobe: slower, but for any number of arguments.
    Probe(&'static str),
}

/// The most arguments of a function that can be watched on x86-64 before v6.6 (`save_args` in
/// arch/x86/net/bpf_jit_comp.c); with more, attaching is refused.
const MAX_ARGUMENTS: usize = 6;

struct Wanted {
    what: &'static str,
    required: bool,
    /// In order of preference.
    ways: &'static [(&'static str, Hook)],
}

use Hook::{Function, Probe, Tracepoint, TracepointWith};

const COMMON: &[Wanted] = &[Wanted {
    what: "children of followed processes",
    required: true,
    ways: &[("on_fork", Tracepoint("sched_process_fork"))],
}];

const FS: &[Wanted] = &[
    Wanted {
        what: "requests to the device",
        required: true,
        ways: &[("on_bio_queue", Tracepoint("block_bio_queue"))],
    },
    Wanted {
        what: "the end of tasks",
        required: true,
        ways: &[("on_exit", Tracepoint("sched_process_exit"))],
    },
    Wanted {
        what: "read-ahead windows",
        required: true,
        ways: &[
            ("on_readahead", Tracepoint("page_cache_ra_unbounded")),
            ("on_readahead_function", Function("page_cache_ra_unbounded")),
            ("on_page_added", Tracepoint("mm_filemap_add_to_page_cache")),
        ],
    },
    Wanted {
        what: "read-ahead in large folios",
        required: false,
        ways: &[
            ("on_readahead_order", Tracepoint("page_cache_ra_order")),
            (
                "on_readahead_order_function",
                Function("page_cache_ra_order"),
            ),
        ],
    },
    Wanted {
        what: "direct I/O",
        required: false,
        ways: &[
            ("on_direct", Tracepoint("iomap_dio_rw_begin")),
            ("on_direct_function", Function("__iomap_dio_rw")),
            ("on_direct_probe", Probe("__iomap_dio_rw")),
        ],
    },
    Wanted {
        what: "the end of direct I/O",
        required: false,
        ways: &[
            ("on_direct_end", Tracepoint("iomap_dio_complete")),
            ("on_direct_end_function", Function("iomap_dio_complete")),
        ],
    },
    Wanted {
        what: "time of requests",
        required: false,
        ways: &[("on_request_complete", Tracepoint("block_rq_complete"))],
    },
    Wanted {
        what: "time of requests to devices without a queue",
        required: false,
        ways: &[("on_bio_complete", Tracepoint("block_bio_complete"))],
    },
    Wanted {
        what: "requests in flight",
        required: false,
        ways: &[("on_request_start", Tracepoint("block_io_start"))],
    },
    Wanted {
        what: "requests no longer in flight",
        required: false,
        ways: &[("on_request_end", Tracepoint("block_io_done"))],
    },
    Wanted {
        what: "requests merged with others",
        required: false,
        ways: &[("on_request_merge", Tracepoint("block_rq_merge"))],
    },
    Wanted {
        what: "requests that were split",
        required: false,
        ways: &[("on_split", Tracepoint("block_split"))],
    },
    Wanted {
        what: "requests that were merged",
        required: false,
        ways: &[("on_backmerge", Tracepoint("block_bio_backmerge"))],
    },
    Wanted {
        what: "requests that were merged in front",
        required: false,
        ways: &[("on_frontmerge", Tracepoint("block_bio_frontmerge"))],
    },
    Wanted {
        what: "whose writes are written back",
        required: false,
        ways: &[("on_dirtied", Tracepoint("writeback_dirty_folio"))],
    },
];

const SYSCALL: &[Wanted] = &[
    Wanted {
        what: "system calls that begin",
        required: true,
        ways: &[("on_enter", Tracepoint("sys_enter"))],
    },
    Wanted {
        what: "system calls that end",
        required: true,
        ways: &[("on_leave", Tracepoint("sys_exit"))],
    },
    Wanted {
        what: "the end of tasks",
        required: true,
        ways: &[("on_exit", Tracepoint("sched_process_exit"))],
    },
    Wanted {
        what: "io_uring submissions",
        required: false,
        ways: &[
            ("on_uring_submit", Tracepoint("io_uring_submit_req")),
            // v6.0 to v6.2; in earlier kernels it has other arguments.
            (
                "on_uring_submit_sqe",
                TracepointWith("io_uring_submit_sqe", 2),
            ),
        ],
    },
    Wanted {
        what: "io_uring completions",
        required: false,
        ways: &[
            ("on_uring_complete", TracepointWith("io_uring_complete", 3)),
            (
                "on_uring_complete_parts",
                TracepointWith("io_uring_complete", 7),
            ),
        ],
    },
    Wanted {
        what: "page faults of mapped files",
        required: false,
        ways: &[
            ("on_fault", Tracepoint("mm_filemap_fault")),
            ("on_fault_function", Function("filemap_fault")),
        ],
    },
    Wanted {
        what: "pages mapped around a fault",
        required: false,
        ways: &[
            ("on_mapped", Tracepoint("mm_filemap_map_pages")),
            ("on_mapped_function", Function("filemap_map_pages")),
        ],
    },
];

/// The sources of a layer on the kernel whose types are `btf`. After a `refusal` to watch functions,
/// only tracepoints are considered.
pub(super) fn choose(
    layer: Layer,
    btf: &Btf<'_>,
    refusal: Option<&Arc<libbpf_rs::Error>>,
) -> Vec<Source> {
    let choose = |wanted: &Wanted| {
        let mut ways = wanted.ways.iter();
        let way =
            ways.find(|(_, hook)| !(refusal.is_some() && hook.is_function()) && hook.is_in(btf));
        let all = || Hooks(wanted.ways.iter().map(|(_, hook)| *hook).collect());
        let has_function = wanted.ways.iter().any(|(_, hook)| hook.is_function());
        let why_not = match (way, refusal) {
            (Some(_), _) => None,
            (None, Some(refusal)) if has_function => Some(WhyNot::NoFunctions(Arc::clone(refusal))),
            (None, _) => Some(WhyNot::Absent(all())),
        };
        Source {
            what: wanted.what,
            program: way.map(|(program, _)| *program),
            hooks: way.map_or_else(all, |(_, hook)| Hooks(vec![*hook])),
            required: wanted.required,
            why_not,
        }
    };
    wanted(layer).map(choose).collect()
}

/// The kinds of events that a layer needs.
fn wanted(layer: Layer) -> impl Iterator<Item = &'static Wanted> {
    let layer = match layer {
        Layer::Fs => FS,
        Layer::Syscall => SYSCALL,
    };
    COMMON.iter().chain(layer)
}

/// The programs of a layer, each with its hook.
pub(super) fn ways(layer: Layer) -> impl Iterator<Item = &'static (&'static str, Hook)> {
    wanted(layer).flat_map(|wanted| wanted.ways)
}

/// Whether a program has anything to do with these options. What none needs is not attached: each
/// program costs something wherever it is run.
pub(super) fn is_needed(program: &str, options: &TraceOptions) -> bool {
    let filter = &options.filter;
    let by_task = filter.only_followed || !filter.pids.is_empty();
    let by_process =
        by_task || filter.uid.is_some() || filter.cgroup.is_some() || !filter.comms.is_empty();
    match program {
        "on_fork" => by_task,
        // Without such a filter, nobody asks who it was.
        "on_dirtied" => options.writes && by_process,
        "on_readahead"
        | "on_readahead_function"
        | "on_readahead_order"
        | "on_readahead_order_function"
        | "on_page_added"
        | "on_request_start"
        | "on_request_end"
        | "on_request_merge"
        | "on_request_complete"
        | "on_bio_complete"
        | "on_fault"
        | "on_fault_function"
        | "on_mapped"
        | "on_mapped_function" => options.reads,
        _ => true,
    }
}

/// Whether a program of a layer watches a function rather than a tracepoint.
pub(super) fn watches_function(layer: Layer, program: &str) -> bool {
    ways(layer).any(|(name, hook)| *name == program && hook.is_function())
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tracepoint(name) | TracepointWith(name, _) => write!(f, "tracepoint {name}"),
            Function(name) => write!(f, "function {name}"),
            Probe(name) => write!(f, "kprobe {name}"),
        }
    }
}

impl Hook {
    /// Whether it is a function rather than a tracepoint.
    const fn is_function(self) -> bool {
        matches!(self, Function(_) | Probe(_))
    }

    fn is_in(self, btf: &Btf<'_>) -> bool {
        match self {
            Tracepoint(name) => arguments(btf, name).is_some(),
            TracepointWith(name, count) => arguments(btf, name) == Some(count),
            Function(name) => {
                function(btf, name).is_some_and(|function| function.iter().count() <= MAX_ARGUMENTS)
            }
            Probe(name) => function(btf, name).is_some(),
        }
    }
}

/// The prototype of a kernel function; `None` where the kernel has no such function.
fn function<'btf>(btf: &'btf Btf<'_>, name: &str) -> Option<FuncProto<'btf>> {
    let function: Func<'_> = btf.type_by_name(name)?;
    function.referenced_type().try_into().ok()
}

/// How many arguments a tracepoint has: those of `btf_trace_NAME` but the first, the kernel's own.
fn arguments(btf: &Btf<'_>, tracepoint: &str) -> Option<usize> {
    let typedef: Typedef<'_> = btf.type_by_name(&format!("btf_trace_{tracepoint}"))?;
    let pointer: Ptr<'_> = typedef.referenced_type().try_into().ok()?;
    let function: FuncProto<'_> = pointer.referenced_type().try_into().ok()?;
    function.iter().count().checked_sub(1)
}
