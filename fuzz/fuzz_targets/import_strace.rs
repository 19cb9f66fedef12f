//! The importer of the text of strace (see common/import.rs for what has to hold).

#![no_main]

#[path = "common/import.rs"]
mod check;

use indef_trace::import::Format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| check::check(Format::Strace, text));
