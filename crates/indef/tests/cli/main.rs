//! The program: what it prints, refuses, moves and leaves, as users meet it.

mod common;
mod demo_zns;
mod doctor;
mod generic_defrag;
mod loop_claims;
mod loop_compact;
mod loop_demo;
mod loop_probe;
mod loop_profile;
mod loop_progress;
mod loop_reclaim;
mod loop_run;
mod loop_scan_memory;
mod loop_shared;
mod loop_stop;
mod loop_swapped;
mod loop_top;
mod loop_trace_screen;
mod loop_unit;
mod made;
mod profile;
mod refusals;
mod report;
mod trace_refusals;
mod usage;
