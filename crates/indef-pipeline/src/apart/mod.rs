//! A trace that another process makes, which has the rights for it: the service asks, and needs none of them itself.
//!
//! ```text
//! asks (trace)                                  traces (serve), at the other end of a local socket
//!   the order, a line  ───────────────────────▶
//!                      ◀───────────────────────  "Begins"
//!   shuts its half down, to end it early  ─────▶
//!                      ◀───────────────────────  what was found, or why nothing was; then it closes
//! ```
//!
//! What is counted goes into the profile on the side that traces, where all work is made beside others; the connection has
//! sums only. Whoever traces ends, and keeps what it has, as soon as the other side says something more, or is gone.
//! Each side takes the other only if that is root, or the same user as itself.
//!
//! Where nobody listens, the service traces by itself ([`trace`]).

mod ask;
mod here;
mod order;
mod serve;
#[cfg(test)]
mod tests;

pub use ask::trace;
pub use order::{Findings, NotTraced, Order};
pub use serve::{Refused, serve};
