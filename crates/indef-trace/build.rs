//! Compile the BPF programs, and generate what user space needs of them.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/bpf/collect.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("collect.skel.rs");
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    // Debian keeps asm/types.h of the kernel's headers in a folder of the architecture.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let headers = PathBuf::from(format!("/usr/include/{arch}-linux-gnu"));
    let built = SkeletonBuilder::new()
        .source(SOURCE)
        .clang(&clang)
        .clang_args([
            "-mcpu=v3".as_ref(),
            "-Wall".as_ref(),
            "-Werror".as_ref(),
            "-I".as_ref(),
            headers.as_os_str(),
        ])
        .build_and_generate(&out);
    if let Err(error) = built {
        let runs = Command::new(&clang)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        let mut missing = Vec::new();
        if runs.is_err() {
            missing.push("clang");
        }
        if !["/usr/include".as_ref(), headers.as_path()]
            .iter()
            .any(|folder: &&Path| folder.join("asm/types.h").exists())
        {
            missing.push("linux-libc-dev");
        }
        let advice = match missing[..] {
            [] => String::new(),
            _ => format!("\nMissing here (Debian's packages): {}", missing.join(" ")),
        };
        panic!("{SOURCE} does not compile: {error:#}{advice}");
    }
}
