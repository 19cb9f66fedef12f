//! fio's own tests of zoned devices (t/zbd in its source, of the same version as the installed fio) against a target of
//! flashd in this process, with Debian's Linux 6.12 as the host, in a guest.
//!
//! The disks ([`Disk`]) are three of those for which fio's `run-tests-against-nullb` has a section. A case passes, or
//! is an exception ([`is_expected`]): skipped for the reason that is known of it, or failed. One that fails is run on the
//! kernel's own null_blk with the same zones, too: only what fails there as well may fail here. That no exception is a
//! fault of flashd is argued in docs/flashd.md, case by case (figures/zbd-cases.md).

#![forbid(unsafe_code)]

mod case;
mod disk;
mod exceptions;
mod suite;
mod trial;

pub use case::{Case, Verdict};
pub use disk::Disk;
pub use exceptions::{LAST_KNOWN, excepted, is_expected, may_be};
pub use suite::Suite;
pub use trial::{CONNECT, HOST, PROGRAMS, Ran, run};
