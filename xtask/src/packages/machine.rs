//! The machines that packages are made for, and how programs for another one than this are compiled and started.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::command::output_of;

/// The version of elfutils whose static library needs functions that are in none (`eu_search_tree_init`).
const BROKEN: &str = "0.192";

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Machine {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
}

impl Machine {
    /// This one.
    pub(super) fn own() -> Result<Self> {
        Self::from_str(std::env::consts::ARCH, false)
            .ok()
            .with_context(|| format!("no packages are made for {}", std::env::consts::ARCH))
    }

    /// Its name, which is also rpm's.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Debian's name of it.
    pub(super) const fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// rustc's name of Linux on it.
    pub(super) fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.name())
    }

    /// The program that starts programs for it here; none is needed for this machine's own.
    ///
    /// # Errors
    ///
    /// There is none.
    pub(super) fn emulator(self) -> Result<Option<String>> {
        if self == Self::own()? {
            return Ok(None);
        }
        // The first is Debian 12's, of the package that works whatever C library a system has; since Debian 13
        // there is one package, and it is that one.
        let names = ["-static", ""].map(|ending| format!("qemu-{}{ending}", self.name()));
        let found = names.iter().find(|name| is_there(name));
        let found = found.with_context(|| {
            let [name, _] = &names;
            format!("no {name} (Debian's package qemu-user-static, or qemu-user)")
        })?;
        Ok(Some(found.clone()))
    }

    /// The folder of its static libraries, and those that libelf needs beside zlib.
    pub(super) fn libelf(self) -> Result<(PathBuf, Vec<String>)> {
        let ask = |what: &str| {
            let mut command = Command::new("pkg-config");
            command.args(["--static", what, "libelf"]);
            if self != Self::own()? {
                let folder = format!("/usr/lib/{}-linux-gnu/pkgconfig", self.name());
                command.env("PKG_CONFIG_LIBDIR", folder);
            }
            output_of(&mut command)
        };
        let folder = ask("--variable=libdir").with_context(|| {
            format!(
                "the static libraries for {} are missing (Debian's libelf-dev:{arch} and zlib1g-dev:{arch})",
                self.name(),
                arch = self.debian()
            )
        })?;
        ensure!(
            ask("--modversion")? != BROKEN,
            "libelf.a of elfutils {BROKEN} (Debian 13) lacks a part of itself; the libelf-dev of Debian 13's backports is whole"
        );
        // elfutils of Debian 13 compress with zstd, so there are further libraries.
        let libraries = ask("--libs")?;
        let further = |word: &&str| word.starts_with("-l") && !["-lelf", "-lz"].contains(word);
        let words = libraries.split_whitespace().filter(further);
        Ok((folder.into(), words.map(str::to_owned).collect()))
    }

    /// Let `cargo` compile for it. `folder` gets a file that is needed for that.
    ///
    /// # Errors
    ///
    /// What this machine lacks for that, by Debian's names.
    pub(super) fn prepare(self, cargo: &mut Command, folder: &Path) -> Result<()> {
        cargo.args(["--target", &self.triple()]);
        let own = Self::own()?;
        // The build scripts of this machine link statically, too.
        for machine in [own, self] {
            let name = format!("LIBBPF_SYS_LIBRARY_PATH_{}", machine.underscored());
            cargo.env(name, machine.libelf()?.0);
        }
        let (_, further) = own.libelf()?;
        if !further.is_empty() {
            // No flags of rustc's reach build scripts.
            let linker = folder.join("link-build-scripts");
            fs::create_dir_all(folder)?;
            let script = format!("#!/bin/sh\nexec cc \"$@\" {}\n", further.join(" "));
            fs::write(&linker, script)?;
            fs::set_permissions(&linker, fs::Permissions::from_mode(0o755))?;
            cargo.env(own.linker_variable(), linker);
        }
        if self != own {
            self.ensure_library()?;
            let linker = format!("{}-linux-gnu-gcc", self.name());
            let package = format!("gcc-{}-linux-gnu", self.name());
            ensure!(
                is_there(&linker),
                "no {linker} (Debian's package {package})"
            );
            cargo.env(self.linker_variable(), linker);
        }
        Ok(())
    }

    /// Make sure that the compiler has Rust's library for it.
    fn ensure_library(self) -> Result<()> {
        let triple = self.triple();
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "target-libdir", "--target", &triple]);
        let folder = output_of(rustc.current_dir(source_tree::root()))?;
        ensure!(
            Path::new(&folder).is_dir(),
            "this compiler has no library for {triple}: `rustup target add {triple}` brings it, and \
             `cargo xtask fresh --cross` needs none, as it builds with Debian's compilers in a root of its own"
        );
        Ok(())
    }

    fn linker_variable(self) -> String {
        format!("CARGO_TARGET_{}_LINKER", self.underscored().to_uppercase())
    }

    fn underscored(self) -> String {
        self.triple().replace('-', "_")
    }
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}
