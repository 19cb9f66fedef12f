//! The generated part: the BPF object, and the contract's structures as Rust types.

#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_unsafe,
    reason = "generated from src/bpf/contract.h when the crate is built"
)]

include!(concat!(env!("OUT_DIR"), "/collect.skel.rs"));
