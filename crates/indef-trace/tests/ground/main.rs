//! Ground truth: the accesses collected equal those made, at both layers, on real file systems.
//!
//! A child process ([`actor`]) does reads and writes that the test dictates step by step; the test
//! knows each of them, and holds what the collector hands out against it ([`harness`]). Nothing may
//! be missing, and nothing invented. The collector looks only at the test's own mount, so other
//! tracers and other I/O on the machine do not matter.

mod actor;
mod harness;

mod calls;
mod direct;
mod filters;
mod fs_layer;
mod losses;
mod mapped;
mod names;
mod programs;
mod sampling;
mod syscall_layer;
mod volumes;
