//! Parts that all users of io_uring share: asking whether it is there, and waiting.

use std::io;

use io_uring::{IoUring, Probe};

/// A ring for so many requests of these operations.
///
/// # Errors
///
/// io_uring is missing or not allowed here, or older than one of the operations (the first kernels with
/// rings had neither READ nor WRITE, which came with 5.6).
pub(crate) fn ring_for(requests: u32, operations: &[u8]) -> io::Result<IoUring> {
    let ring = IoUring::builder().dontfork().build(requests)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    match operations.iter().all(|code| probe.is_supported(*code)) {
        true => Ok(ring),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Submit the queued requests and wait for at least one completion.
///
/// # Errors
///
/// Those for which no retry helps. Requests may still be in flight then.
pub(crate) fn wait(ring: &mut IoUring) -> io::Result<()> {
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => return Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted
                        | io::ErrorKind::WouldBlock
                        | io::ErrorKind::ResourceBusy
                ) =>
            {
                if !ring.completion().is_empty() {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
}
