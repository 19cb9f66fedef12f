//! The contract with the BPF programs: the structures, numbers and limits of `src/bpf/contract.h`.

#![allow(dead_code, reason = "user space does not need all of them")]

include!(concat!(env!("OUT_DIR"), "/contract.rs"));
