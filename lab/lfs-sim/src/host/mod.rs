//! The host: what the kernel does for threads, in virtual time.
//!
//! A call ([`Host::write`], [`Host::sync`] …) leaves *work* with the thread that makes it, and
//! [`Host::step`] does the next piece of it. Two threads that write meet at the log: each adds a few blocks when it has
//! its turn, and waits like all others when the device has as many requests as it takes. That, and nothing else,
//! decides how their files lie.
//!
//! ```text
//! write ─▶ dirty pages ─▶ place ─▶ plug ─▶ device         a cached write ends at the dirty pages; the flusher,
//!                            ▲                            or fsync, goes on with them
//!              no room: clean, checkpoint, reset
//! ```

mod cleaning;
mod cpus;
mod kernel;
mod perform;
mod plug;
mod reading;
mod relocation;
mod work;

pub use self::{
    cpus::Cpus,
    kernel::{Counters, Host, Writes},
    plug::Limits,
    reading::{Access, Reading},
    work::Carrier,
};
