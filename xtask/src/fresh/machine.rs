//! The parts of this machine that a clean root gets.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use debian_mirror::Mirror;

use crate::command::output_of;

/// Settings of apt for the way to a mirror.
const REACH: [&str; 6] = [
    "Acquire::http::",
    "Acquire::https::",
    "Acquire::Check-",
    "Acquire::ForceIPv",
    "Acquire::Retries",
    "Acquire::Send-URI-Encoded",
];

/// Variables of the environment for the way to the network.
const PROXIES: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
];

/// The program that makes a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bootstrap {
    Mmdebstrap,
    Debootstrap,
}

/// The parts of this machine that a root gets.
pub(super) struct MachineParts {
    bootstrap: Bootstrap,
    /// Debian's name of the processor.
    pub(super) architecture: String,
    pub(super) mirror: Mirror,
    /// apt's settings for the way to the mirror.
    pub(super) apt: String,
    /// The toolchain that builds this workspace.
    pub(super) toolchain: PathBuf,
    /// The folder in which cargo keeps fetched packages.
    pub(super) cargo_home: PathBuf,
}

impl MachineParts {
    /// Examine this machine, and let cargo fetch everything that the build and the checks need.
    pub(super) fn this() -> Result<Self> {
        let bootstrap = [Bootstrap::Mmdebstrap, Bootstrap::Debootstrap]
            .into_iter()
            .find(|program| is_there(program.name()));
        let Some(bootstrap) = bootstrap else {
            bail!(
                "clean roots are made by mmdebstrap (or debootstrap), and neither is installed: \
                 apt-get install mmdebstrap"
            );
        };
        let rustc = |arguments: &[&str]| {
            output_of(
                Command::new("rustc")
                    .args(arguments)
                    .current_dir(source_tree::root()),
            )
        };
        // Of all platforms: the check of licences looks at each of them.
        output_of(source_tree::cargo().args(["fetch", "--locked", "--quiet"]))?;
        let cargo_home = env::var_os("CARGO_HOME").map_or_else(
            || env::home_dir().map(|home| home.join(".cargo")),
            |folder| Some(folder.into()),
        );
        Ok(Self {
            bootstrap,
            architecture: output_of(Command::new("dpkg").arg("--print-architecture"))?,
            mirror: Mirror::of_machine()?,
            apt: reach(&output_of(Command::new("apt-config").arg("dump"))?),
            toolchain: rustc(&["--print", "sysroot"])?.into(),
            cargo_home: cargo_home.context("no home folder, and no CARGO_HOME")?,
        })
    }

    pub(super) fn bootstrap(&self) -> &'static str {
        self.bootstrap.name()
    }

    /// The command that makes a root of this suite in a folder that does not exist, with apt's
    /// settings and sources from these files.
    pub(super) fn make(
        &self,
        suite: &str,
        folder: &Path,
        settings: &Path,
        sources: &Path,
    ) -> Result<Command> {
        // The packages of a machine on which a user can fetch Rust and type `make`.
        let include = "--include=make,ca-certificates";
        // If apt's hooks and the like mount something, they mount it for themselves.
        let mut command = Command::new("unshare");
        command.args(["--mount", self.bootstrap(), "--variant=minbase", include]);
        match self.bootstrap {
            Bootstrap::Mmdebstrap => command
                .arg("--mode=root")
                .arg("--format=directory")
                .arg(format!("--aptopt={}", settings.display()))
                .args([suite.as_ref(), folder, sources]),
            Bootstrap::Debootstrap => {
                if let Some(keys) = self.mirror.keyring() {
                    command.arg(format!("--keyring={}", keys.display()));
                }
                if let Some(proxy) = self.proxy() {
                    command.env("http_proxy", proxy);
                }
                let uri = self.mirror.uris().first().context("no mirror")?;
                command.arg(suite).arg(folder).arg(uri)
            }
        };
        Ok(command)
    }

    /// The proxy that apt uses, for a program that does not ask apt.
    fn proxy(&self) -> Option<&str> {
        let mut lines = self.apt.lines();
        let value = lines.find_map(|line| line.strip_prefix("Acquire::http::Proxy \""))?;
        value
            .strip_suffix("\";")
            .filter(|proxy| !proxy.is_empty() && *proxy != "DIRECT")
    }

    /// Files outside of the root that its apt reads.
    pub(super) fn files_of_apt(&self) -> Vec<PathBuf> {
        let named = self.apt.lines().filter_map(|line| {
            let (name, value) = line.split_once(" \"")?;
            let path = PathBuf::from(value.strip_suffix("\";")?);
            (name.ends_with("::CaInfo") && path.is_absolute()).then_some(path)
        });
        let keys = self.mirror.keyring().map(Path::to_owned);
        named.chain(keys).collect()
    }

    /// cargo's registries, as they are configured here; without them it would look for the
    /// fetched packages under other names.
    pub(super) fn cargo_config(&self) -> Result<String> {
        let config = ["config.toml", "config"]
            .iter()
            .find_map(|name| fs::read_to_string(self.cargo_home.join(name)).ok());
        registries(&config.unwrap_or_default())
    }

    /// The variables for the way to the network.
    pub(super) fn proxies() -> Vec<(&'static str, String)> {
        PROXIES
            .into_iter()
            .filter_map(|name| Some((name, env::var(name).ok()?)))
            .collect()
    }
}

impl Bootstrap {
    fn name(self) -> &'static str {
        match self {
            Self::Mmdebstrap => "mmdebstrap",
            Self::Debootstrap => "debootstrap",
        }
    }
}

fn is_there(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// The settings in the output of `apt-config dump` for the way to a mirror. A program that finds
/// the proxy is not in the root.
pub(super) fn reach(dump: &str) -> String {
    dump.lines()
        .filter(|line| REACH.iter().any(|prefix| line.starts_with(prefix)))
        .filter(|line| !line.contains("Auto-Detect") && !line.contains("AutoDetect"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The sources of packages in cargo's configuration. Tokens are left out.
pub(super) fn registries(config: &str) -> Result<String> {
    let mut config: toml::Table = config.parse().context("cargo's configuration")?;
    config.retain(|name, _| ["source", "registries", "registry"].contains(&name));
    config.iter_mut().for_each(|(_, table)| drop_tokens(table));
    Ok(config.to_string())
}

fn drop_tokens(value: &mut toml::Value) {
    if let Some(table) = value.as_table_mut() {
        table.retain(|name, _| name != "token" && name != "secret-key");
        table.iter_mut().for_each(|(_, value)| drop_tokens(value));
    }
}
