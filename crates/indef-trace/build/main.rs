//! Compile the BPF objects, one for each layer, and translate what they share with user space.

mod contract;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use libbpf_cargo::SkeletonBuilder;

const OBJECTS: [&str; 2] = ["fs", "syscall"];

fn main() {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let header = fs::read_to_string("src/bpf/contract.h").expect("the contract is there");
    fs::write(out.join("contract.rs"), contract::translate(&header)).expect("OUT_DIR is writable");
    for name in OBJECTS {
        compile(
            Path::new(&format!("src/bpf/{name}.bpf.c")),
            &out.join(format!("{name}.bpf.o")),
        );
    }
}

/// Debian keeps asm/types.h of the kernel's headers in a folder of the architecture. For another one than this
/// machine's, this machine's will do: the programs take nothing from there that differs.
fn headers() -> PathBuf {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let host = env::var("HOST").expect("cargo sets it");
    let own = host.split('-').next().unwrap_or_default();
    let [of_target, of_host] =
        [&arch, own].map(|arch| PathBuf::from(format!("/usr/include/{arch}-linux-gnu")));
    let is_there = |folder: &PathBuf| folder.join("asm/types.h").exists();
    match !is_there(&of_target) && is_there(&of_host) {
        true => of_host,
        false => of_target,
    }
}

fn compile(source: &Path, object: &Path) {
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let headers = headers();
    // Debug information, which a packaged program contains, names no folder of the building machine.
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let map = format!("-fdebug-prefix-map={here}=/usr/src/indef/crates/indef-trace");
    let built = SkeletonBuilder::new()
        .source(source)
        .obj(object)
        .clang(&clang)
        .clang_args([
            "-mcpu=v3".as_ref(),
            "-Wall".as_ref(),
            "-Werror".as_ref(),
            "-I".as_ref(),
            headers.as_os_str(),
            map.as_ref(),
        ])
        .build();
    let Err(error) = built else { return };
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
    panic!("{} does not compile: {error:#}{advice}", source.display());
}
