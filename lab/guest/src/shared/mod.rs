//! Guests that several processes use, one after the other.
//!
//! A guest takes seconds to come up. Where the environment variable `INDEF_GUESTS` names a folder, the command
//! of a guest that may be shared ([`Guest::shared`](crate::Guest::shared)) runs in one that is up already. The folder belongs to
//! whoever runs these processes (`cargo xtask test`); a link `keeper` in it leads to the program that
//! keeps a guest ([`keep`]). Files for `/share` must lie below that folder.
//!
//! - Guests differ in what is settled when they boot ([`Spec`]). There are as many of a kind as are used
//!   at the same time; each has one user at a time, which holds a lock.
//! - After a command the guest is put back (`files/reset`): processes, mounts, modules of file systems and
//!   temporary files of the command are gone, its disks and the kernel's log are empty.
//! - A guest that was not put back, because that failed, its kernel has complained, the command came to
//!   no result, or its process was killed, is ended, and the next command boots another one.
//!
//! A keeper ends when nobody has used it for ten minutes; the folder's owner ends it earlier, by its
//! environment.

mod keeper;
mod request;
mod spec;

pub use keeper::keep;
pub(crate) use request::Request;
pub(crate) use spec::Spec;
