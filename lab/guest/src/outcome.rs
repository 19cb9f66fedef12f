//! The result of a command in a guest.

use std::time::Duration;

use crate::Accelerator;

/// Destination of the command's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// It is part of the [`Outcome`].
    #[default]
    Kept,
    /// It is written to our own standard output and error as it comes.
    Forwarded,
}

/// The result of a command.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit status; 128 and a signal's number where a signal ended it.
    pub status: i32,
    /// Its standard output, where that is kept.
    pub stdout: Vec<u8>,
    /// Its standard error, where that is kept.
    pub stderr: Vec<u8>,
    /// The guest's console: the kernel's warnings and errors.
    pub console: String,
    /// The accelerator that the guest ran on.
    pub accelerator: Accelerator,
    /// From QEMU's start to the command's.
    pub boot: Duration,
    /// From the command's start to its end.
    pub elapsed: Duration,
}
