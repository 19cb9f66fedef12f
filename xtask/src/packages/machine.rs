//! The machines that packages are made for, and how programs for another one than this are compiled and started.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::command::output_of;

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
    pub(super) fn emulator(self) -> Result<Option<String>> {
        let foreign = self != Self::own()?;
        Ok(foreign.then(|| format!("qemu-{}-static", self.name())))
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
        // elfutils of Debian 13 compress with zstd, so there are further libraries.
        let libraries = ask("--libs")?;
        let further = |word: &&str| word.starts_with("-l") && !["-lelf", "-lz"].contains(word);
        let words = libraries.split_whitespace().filter(further);
        Ok((folder.into(), words.map(str::to_owned).collect()))
    }

    /// Let `cargo` compile for it.
    ///
    /// # Errors
    ///
    /// What this machine lacks for that, by Debian's names.
    pub(super) fn prepare(self, cargo: &mut Command) -> Result<()> {
        cargo.args(["--target", &self.triple()]);
        // The build scripts of this machine link statically, too.
        for machine in [Self::own()?, self] {
            let name = format!("LIBBPF_SYS_LIBRARY_PATH_{}", machine.underscored());
            cargo.env(name, machine.libelf()?.0);
        }
        if let Some(emulator) = self.emulator()? {
            let linker = format!("{}-linux-gnu-gcc", self.name());
            for (program, package) in [
                (&linker, format!("gcc-{}-linux-gnu", self.name())),
                (&emulator, "qemu-user-static".to_owned()),
            ] {
                let there = Command::new(program).arg("--version").output();
                ensure!(there.is_ok(), "no {program} (Debian's package {package})");
            }
            let triple = self.underscored().to_uppercase();
            cargo.env(format!("CARGO_TARGET_{triple}_LINKER"), linker);
        }
        Ok(())
    }

    fn underscored(self) -> String {
        self.triple().replace('-', "_")
    }
}
