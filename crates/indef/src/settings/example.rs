//! The configuration with all keys, their meaning and their defaults, each commented out.

use clap::CommandFactory;

use super::keys::{AnyKey, KEYS, Settings};
use crate::args::Cli;

const HEAD: &str = "\
# Configuration of indef: of its services (indef.service, indef-watch.service), which are `indef run --config` and
# `indef watch --config`. No other command reads it.
#
# What is commented out is the default. Values are written as for the option of the same name; numbers need no quotes.
# Drop-ins in indef.toml.d/*.toml beside this file are read after it, in the order of their names: a later value takes
# the place of an earlier one, also where it is a list. Options on the command line win over all of them, but what they
# exclude is excluded in addition. If root reads it, only root may be able to write it, and the folders above it.
#
# `indef config check` finds mistakes, `indef config show` tells what holds and why.
";

const WIDTH: usize = 110;

/// The text.
pub(crate) fn example() -> String {
    let defaults = Settings::default();
    let mut text = HEAD.to_owned();
    let mut section = "";
    for key in KEYS.iter() {
        if key.section != section {
            section = key.section;
            text.push_str(&format!("\n[{section}]\n"));
        }
        text.push('\n');
        for line in wrapped(&about(key)) {
            text.push_str(&format!("# {line}\n"));
        }
        text.push_str(&format!("#{} = {}\n", key.name, key.show(&defaults).toml()));
    }
    text
}

/// What a key means: the help of its option, without the default that holds on the command line.
fn about(key: &AnyKey) -> String {
    let mut about = match key.about {
        Some(about) => about.to_owned(),
        None => help_of(key.command(), key.name),
    };
    if !about.ends_with('.') {
        about.push('.');
    }
    if let Some(also) = key.also {
        about.push(' ');
        about.push_str(also);
    }
    if key.is_of_runs_alone() {
        about.push_str(" (Not for indef watch.)");
    }
    about
}

fn help_of(command: &str, option: &str) -> String {
    let cli = Cli::command();
    let command = cli.find_subcommand(command);
    let mut arguments = command.into_iter().flat_map(clap::Command::get_arguments);
    let help = arguments
        .find(|argument| argument.get_long() == Some(option))
        .and_then(clap::Arg::get_help)
        .map(ToString::to_string)
        .unwrap_or_default();
    let (before, default) = help.split_once(" [default:").unwrap_or((&help, "]"));
    let after = default.split_once(']').map_or("", |(_, after)| after);
    format!("{before}{after}")
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines
            .last_mut()
            .filter(|line| line.len() + word.len() < WIDTH);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
