//! Compile the BPF programs, and generate what user space needs of them.

use std::{env, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/bpf/collect.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("collect.skel.rs");
    // Debian keeps asm/types.h of the kernel's headers in a folder of the architecture.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let headers = format!("/usr/include/{arch}-linux-gnu");
    let built = SkeletonBuilder::new()
        .source(SOURCE)
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-I", &headers])
        .build_and_generate(&out);
    if let Err(error) = built {
        panic!(
            "{SOURCE} does not compile: {error:#}\n\
             It needs clang and the kernel's headers (Debian: apt-get install clang linux-libc-dev)."
        );
    }
}
