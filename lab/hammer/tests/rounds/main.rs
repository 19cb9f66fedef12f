//! Short rounds of the hammer: on this machine's kernel, and in guests.

mod indef;
mod loop_rounds;
mod vm_rounds;
