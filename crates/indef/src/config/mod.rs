//! `indef config`: shows, checks and explains the configuration.

mod json;

use std::{
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result, anyhow, bail};

use crate::{
    args::{ConfigArgs, ConfigCommand},
    made::Made,
    outcome::Outcome,
    output::{Console, Name, UNPRINTED, json::print},
    settings::{FILE, KEYS, Loaded, check, example, load},
};

/// Do what is asked for.
pub(crate) fn config(args: &ConfigArgs, console: &Console) -> Result<Outcome> {
    match &args.command {
        ConfigCommand::Show(args) => show(args.file.as_deref(), console),
        ConfigCommand::Check(args) => {
            let files: Vec<Option<&Path>> = match args.files.is_empty() {
                true => vec![None],
                false => args.files.iter().map(|file| Some(file.as_path())).collect(),
            };
            examine(&files, console)
        }
        ConfigCommand::Example(_) => {
            let printed = match console.json {
                true => print(&json::example(&example()), &Made::of(&[])),
                false => io::stdout().lock().write_all(example().as_bytes()),
            };
            printed.context(UNPRINTED)?;
            Ok(Outcome::Done)
        }
    }
}

/// The configuration for a command that is to follow it; without it nothing is done. `has_paths`: the command line says
/// where to look.
pub(crate) fn required(file: Option<&Path>, has_paths: bool, console: &Console) -> Result<Loaded> {
    let loaded = load(file).or_else(|errors| {
        for error in errors {
            console.error(error, "");
        }
        bail!(
            "the configuration has mistakes, nothing was done (indef config check{})",
            named(file)
        )
    })?;
    ensure_said(&loaded, has_paths).map_err(|why| anyhow!(why))?;
    Ok(loaded)
}

/// Make sure that somebody has said where to look: a file that nobody has written does not mean all that is mounted.
///
/// # Errors
///
/// Neither the command line nor a configuration does.
pub(crate) fn ensure_said(loaded: &Loaded, has_paths: bool) -> Result<(), String> {
    match loaded.files.is_empty() && !has_paths {
        true => Err(format!(
            "{FILE}: there is no configuration, nor a drop-in in {FILE}.d, which would say where to look; nothing was \
             done. Make one (mkdir -p /etc/indef && indef config example >{FILE}; if it leaves paths alone, they are all \
             mounted file systems), or give a PATH or --all-mounts"
        )),
        false => Ok(()),
    }
}

/// Behind `indef config check`.
pub(crate) fn named(file: Option<&Path>) -> String {
    file.map_or_else(String::new, |file| format!(" {}", Name(file)))
}

/// Show what holds; mistakes beside it, as nothing runs with them.
fn show(file: Option<&Path>, console: &Console) -> Result<Outcome> {
    let (loaded, errors) = check(file);
    for error in &errors {
        console.error(error, "");
    }
    let printed = match console.json {
        true => print(&json::shown(&loaded, &errors), &Made::of(&[])),
        false if console.quiet => Ok(()),
        false => text(&mut io::stdout().lock(), &loaded),
    };
    printed.context(UNPRINTED)?;
    Ok(Outcome::Done)
}

/// As a configuration that says the same, each value with its origin.
fn text(out: &mut dyn Write, loaded: &Loaded) -> io::Result<()> {
    let lines: Vec<(&str, String)> = (KEYS.iter())
        .map(|key| {
            let value = key.show(&loaded.settings).toml();
            (key.section, format!("{} = {value}", key.name))
        })
        .collect();
    // A long list does not move the others' remarks away.
    let widths = lines.iter().map(|(_, line)| line.chars().count());
    let width = widths
        .filter(|width| *width <= 40)
        .max()
        .unwrap_or_default();
    let mut section = "";
    for (key, (in_section, line)) in KEYS.iter().zip(&lines) {
        if *in_section != section {
            section = in_section;
            writeln!(out, "\n[{section}]")?;
        }
        let origin = match loaded.origins.get(&key.full_name()) {
            Some(origin) => format!("{}:{}", Name(&origin.file), origin.line),
            None => "default".to_owned(),
        };
        writeln!(out, "{line:<width$}  # {origin}")?;
    }
    Ok(())
}

fn examine(files: &[Option<&Path>], console: &Console) -> Result<Outcome> {
    let mut checked = Vec::new();
    let mut errors = Vec::new();
    for file in files {
        let (loaded, mut found) = check(*file);
        if found.is_empty() && !console.json && !console.quiet {
            let name = Name(file.unwrap_or(Path::new(FILE))).to_string();
            let said = match loaded.files.len() {
                0 => format!("{name}: there is none, the defaults hold"),
                1 => format!("{name}: no mistakes"),
                2 => format!("{name}: no mistakes, nor in 1 drop-in"),
                many => format!("{name}: no mistakes, nor in {} drop-ins", many - 1),
            };
            writeln!(io::stdout(), "{said}").context(UNPRINTED)?;
        }
        for error in &found {
            console.error(error, "");
        }
        checked.extend(loaded.files);
        errors.append(&mut found);
    }
    if console.json {
        print(&json::checked(&checked, &errors), &Made::of(&[])).context(UNPRINTED)?;
    }
    Ok(Outcome::Done)
}
