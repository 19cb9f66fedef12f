//! One man page for each command: clap_mangen's sections from the definition of the command line, and those that a
//! man page is expected to have besides (man-pages(7)).

use std::{fs, io, path::Path};

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

/// Exit statuses, which all commands share.
const STATUSES: [(&str, &str); 4] = [
    ("0", "Done. Skipped files are no failure."),
    (
        "1",
        "Something failed; the rest was done, unless a limit or a signal stopped that. One line on standard error for each \
         failure names it and says what to do.",
    ),
    ("2", "Wrong usage; nothing was touched."),
    (
        "3",
        "Nothing failed, but a limit or a signal stopped it with work left; indef run --resume continues a run.",
    ),
];

/// Variables that the program looks at.
const VARIABLES: [(&str, &str); 9] = [
    ("NO_COLOR", "If it is not empty, --color auto means never."),
    (
        "TERM",
        "On a terminal called dumb, there are neither colours nor a progress line.",
    ),
    (
        "STATE_DIRECTORY",
        "Where indef keeps its state, in the place of /var/lib/indef (see FILES); a service manager sets it \
         (systemd.exec(5)).",
    ),
    (
        "XDG_STATE_HOME, HOME",
        "Where it is kept otherwise, but by root where /var/lib/indef can be written.",
    ),
    (
        "INDEF_HOST",
        "The host's name in JSON documents, where the kernel tells that of a container.",
    ),
    (
        "INDEF_TRACE_SOCKET",
        "The socket of whoever traces for indef watch, which else traces by itself; its unit sets it.",
    ),
    (
        "XDG_RUNTIME_DIR",
        "Where a user claims the file system of a run, if /run/user/UID does not exist.",
    ),
    (
        "TMPDIR",
        "Where indef demo makes its file system, and indef trace keeps what a profile does not take; /tmp if it is not set.",
    ),
    (
        "PATH",
        "Where indef demo looks for mkfs and fsck, and indef demo --zns for indef-lab.",
    ),
];

/// Files and folders of its own.
const FILES: [(&str, &str); 6] = [
    (
        "/etc/indef/indef.toml",
        "What indef run --config, indef watch --config and their services do; indef config example prints it with all keys.",
    ),
    (
        "/etc/indef/indef.toml.d/*.toml",
        "Drop-ins: values that take the place of those in the file, in the order of their names.",
    ),
    (
        "/var/lib/indef",
        "State of root: what is left of a stopped run, the history of runs, answers of indef probe, what scans remember, and what indef watch knows.",
    ),
    ("~/.local/state/indef", "The same of other users."),
    (
        "/run/indef",
        "File systems that a run of root works on at the moment; under systemd the socket of whoever traces for indef watch.",
    ),
    ("/run/user/UID/indef", "The same of other users."),
];

/// Write the pages of a command and of all commands below it.
pub(super) fn write(command: Command, dir: &Path) -> io::Result<()> {
    // A page for each `help` would only repeat the others.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_built(&command, None, dir)
}

fn write_built(command: &Command, above: Option<&str>, dir: &Path) -> io::Result<()> {
    let man = Man::new(command.clone())
        .source(format!("indef {}", env!("INDEF_VERSION")))
        .manual("User Commands");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut own = Roff::new();
    explain(&mut own, command);
    list(&mut own, "EXIT STATUS", &STATUSES);
    list(&mut own, "ENVIRONMENT", &VARIABLES);
    list(&mut own, "FILES", &FILES);
    see_also(&mut own, command, above);
    own.to_writer(&mut page)?;
    man.render_version_section(&mut page)?;
    fs::write(dir.join(man.get_filename()), page)?;
    let name = page_name(command);
    command
        .get_subcommands()
        .try_for_each(|below| write_built(below, Some(&name), dir))
}

/// Render what follows the options in `--help`: paragraphs, some of which have a title and then a line for each example or
/// word.
fn explain(roff: &mut Roff, command: &Command) {
    let Some(text) = command.get_after_help().map(ToString::to_string) else {
        return;
    };
    for paragraph in text.split("\n\n") {
        let mut lines = paragraph.lines();
        let Some(first) = lines.next() else { continue };
        match first.trim().strip_suffix(':') {
            Some("Examples" | "Try first") => section(roff, "EXAMPLES", lines),
            Some(title) => section(roff, &title.to_uppercase(), lines),
            // It has a section of its own.
            None if first.starts_with("Exit status:") => {}
            None => {
                roff.control("SH", ["NOTES"]);
                roff.text([roman(paragraph)]);
            }
        }
    }
}

/// A section of entries: what is to be typed, and perhaps two spaces or more and an explanation.
fn section<'a>(roff: &mut Roff, title: &str, lines: impl Iterator<Item = &'a str>) {
    roff.control("SH", [title]);
    for line in lines {
        // The second of two commands stands below that of the line before.
        let line = match line.trim().split_once("  ") {
            Some((one, two)) if two.trim_start().starts_with("&&") => {
                format!("{one} {}", two.trim_start())
            }
            _ => line.trim().to_owned(),
        };
        let (typed, meaning) = line.split_once("  ").unwrap_or((&line, ""));
        roff.control("TP", []);
        roff.text([bold(typed)]);
        roff.text([roman(meaning.trim_start())]);
    }
}

fn list(roff: &mut Roff, title: &str, entries: &[(&str, &str)]) {
    roff.control("SH", [title]);
    for (name, meaning) in entries {
        roff.control("TP", []);
        roff.text([bold(*name)]);
        roff.text([roman(*meaning)]);
    }
}

fn see_also(roff: &mut Roff, command: &Command, above: Option<&str>) {
    let below = command.get_subcommands().map(page_name);
    let mut pages: Vec<String> = above.map(str::to_owned).into_iter().chain(below).collect();
    pages.sort();
    if !pages.is_empty() {
        roff.control("SH", ["SEE ALSO"]);
        let pages: Vec<String> = pages.iter().map(|page| format!("{page}(1)")).collect();
        roff.text([roman(pages.join(", "))]);
    }
}

fn page_name(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}
