/// Words in a kernel's log that tell of a fault of its own, as an extended regular expression: a warning, a
/// bug that lockdep or KASAN found, an oops, a task that hangs.
///
/// A file system's errors are not among them, as a device that fails on purpose makes some.
pub const KERNEL_FAULTS: &str = "WARNING:|BUG:|Oops|INFO: task|Call Trace";
