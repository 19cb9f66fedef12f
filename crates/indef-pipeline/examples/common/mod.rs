//! The command line of a benchmark, and its memory.

use std::path::PathBuf;

/// `[NUMBER] PATH…`: the number, if there is one, and the paths.
pub(crate) fn arguments() -> (Option<usize>, Vec<PathBuf>) {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    let number = first
        .as_ref()
        .and_then(|first| first.to_str()?.parse().ok());
    let path = first.filter(|_| number.is_none());
    let paths = path.into_iter().chain(arguments);
    (number, paths.map(PathBuf::from).collect())
}

/// The most memory that this process ever had resident (`VmHWM` of proc(5)).
pub(crate) fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .map_or_else(|| "unknown".to_owned(), |peak| peak.trim().to_owned())
}
