//! Waiting for io_uring.

use std::io;

use io_uring::IoUring;

/// Submit the queued requests and wait for at least one completion.
pub(crate) fn wait_for_one(ring: &mut IoUring) -> io::Result<()> {
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
