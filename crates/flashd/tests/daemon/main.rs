//! The program: its command line, its mounted disk with what lies on top of it, its file, and its ends.

mod command_line;
mod harness;
mod kill;
mod loop_kill;
mod loop_mount;
mod loop_replay;
mod loop_store;
