//! The configuration: what `indef run --config`, `indef watch --config` and the services do, from files.
//!
//! A key is named as the option that it stands for, and takes its values by the same parsers. What an option does is
//! said once, in its help text, and defaults are those of the libraries; limits are those of the
//! service that looks after file systems (`indef_pipeline::tend::Settings`), for runs by the configuration, too. A section is a file here: a structure with its defaults, and its keys.
//!
//! Nothing but `--config` reads it, so no command typed by hand does something else because of it.

mod error;
mod example;
mod file;
mod key;
mod keys;
mod limits;
mod load;
mod metrics;
mod paths;
mod run;
mod select;
mod values;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use error::SettingsError;
pub(crate) use example::example;
pub(crate) use key::Shown;
pub(crate) use keys::{KEYS, Settings};
pub(crate) use load::{Loaded, check, load};
pub(crate) use metrics::Metrics;
pub(crate) use paths::Paths;

/// Where it is, unless another file is named.
pub(crate) const FILE: &str = "/etc/indef/indef.toml";
