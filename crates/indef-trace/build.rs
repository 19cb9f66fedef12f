//! Compile the BPF programs, and generate what user space needs of them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/bpf/collect.bpf.c";

/// The structures that user space takes from bytes, or hands to the kernel as bytes. Each gets
/// derives that do not compile if it has padding, or if some bytes are no value of it.
const WIRE: [&str; 12] = [
    "range_key",
    "counters",
    "slot",
    "file_key",
    "file_entry",
    "file_event",
    "range_event",
    "counted_event",
    "pending",
    "run",
    "state",
    "root",
];
const DERIVE: &str =
    "#[derive(::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::Immutable)]";

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
    let generated = fs::read_to_string(&out).expect("it was generated");
    fs::write(&out, share(derive(generated))).expect("it was written before");
}

/// Let the compiler check the layout of what is in [`WIRE`].
fn derive(mut generated: String) -> String {
    for name in WIRE {
        let head = format!("pub struct {name} {{");
        let found: Vec<usize> = generated.match_indices(&head).map(|(at, _)| at).collect();
        let [at] = found[..] else {
            panic!("{name} is generated {} times", found.len());
        };
        let body = generated[at..].split('}').next().unwrap_or_default();
        // The generator gives names to the padding of C.
        assert!(!body.contains("__pad"), "struct {name} has padding");
        generated.insert_str(at, DERIVE);
    }
    generated
}

/// The programs write their variables while this process reads them: the generated references
/// (`Option<&mut bss>`) become pointers, which promise nothing.
fn share(generated: String) -> String {
    let replaced = generated.replace("Option<&'obj mut types::bss>", "*mut types::bss");
    let mut parts = replaced.split(".cast::<types::bss>()");
    let mut shared = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start().strip_prefix(".as_mut()");
        shared += ".cast::<types::bss>()";
        shared += rest.expect("the pointer becomes a reference");
    }
    // One in the object that is open, one in the loaded one, and the structure itself.
    let named = shared.matches("types::bss").count();
    assert_eq!(named, 4, "the variables are reached in other ways, too");
    shared
}
