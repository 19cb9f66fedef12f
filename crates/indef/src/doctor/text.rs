//! The answers for a person.

use std::{
    fmt,
    io::{self, Write},
    path::Path,
};

use indef_pipeline::doctor::{Mounted, State};

use super::examine::{Examined, Missing};
use crate::{
    advice::Advice,
    output::{Align, Console, Name, Table, counted},
};

pub(super) fn write(out: &mut dyn Write, console: &Console, found: &Examined) -> io::Result<()> {
    let style = console.out;
    writeln!(
        out,
        "indef {} on Linux {} ({})",
        env!("INDEF_VERSION"),
        found.host.release,
        found.host.machine
    )?;
    writeln!(out, "\n{}", style.bold("File systems"))?;
    match &found.file_systems {
        Ok(mounted) if !mounted.is_empty() => file_systems(out, console, mounted)?,
        Ok(_) => writeln!(out, "  none on a device")?,
        Err(error) => writeln!(out, "  {}", style.bad(&error.to_string()))?,
    }
    writeln!(out, "\n{}", style.bold("Rights of this process"))?;
    for right in &found.rights {
        let held = match right.held {
            Some(true) => style.good("yes    "),
            Some(false) => style.warn("no     "),
            None => style.dim("unknown"),
        };
        writeln!(
            out,
            "  {:<19}  {held}  {}",
            right.name,
            style.dim(right.purpose)
        )?;
    }
    writeln!(out, "\n{}", style.bold("Tracing"))?;
    for layer in &found.layers {
        let seen = layer.sources.iter().filter(|source| source.seen).count();
        let works = match &layer.error {
            None => style.good(&format!(
                "works, {seen} of {} are seen (indef trace --check)",
                counted(
                    layer.sources.len() as u64,
                    "kind of event",
                    "kinds of events"
                )
            )),
            Some(_) => style.warn("does not work"),
        };
        writeln!(out, "  layer {:<13}  {works}", layer.layer)?;
    }
    writeln!(out, "\n{}", style.bold("Laboratory"))?;
    match &found.lab {
        Ok(path) => writeln!(out, "  {}", Name(path))?,
        Err(_) => writeln!(out, "  {}", style.dim("not installed"))?,
    }
    writeln!(out, "\n{}", style.bold("State"))?;
    match &found.state {
        Ok(Some(state)) => writeln!(out, "  {}", describe(state))?,
        Ok(None) => writeln!(out, "  {}", style.warn("there is no place for it"))?,
        Err(error) => writeln!(out, "  {}", style.bad(&shown(error)))?,
    }
    let missing = found.missing();
    if missing.is_empty() {
        return writeln!(out, "\n{}", style.good("Nothing is missing."));
    }
    writeln!(out, "\n{}", style.bold("Missing, and how to get it"))?;
    for Missing { what, how } in missing {
        writeln!(
            out,
            "  {}\n      {}",
            style.warn(&shown(&what)),
            shown(&how)
        )?;
    }
    Ok(())
}

fn file_systems(out: &mut dyn Write, console: &Console, mounted: &[Mounted]) -> io::Result<()> {
    let mut table = Table::new(&[
        ("type", Align::Left),
        ("free", Align::Right),
        ("engine", Align::Left),
        ("device", Align::Left),
        ("mounted at", Align::Left),
    ]);
    for one in mounted {
        let served = one.served.as_ref().ok();
        let space = served.and_then(|served| served.space);
        let free = space.map_or_else(|| "-".to_owned(), |(free, _)| free.to_string());
        let engine = match &one.served {
            Ok(served) => match (served.engine, served.refused) {
                (Some(engine), None) => engine.to_string(),
                (Some(engine), Some(why)) => format!("not {engine}: {}", why.as_str()),
                (None, _) => "none".to_owned(),
            },
            // With names as they are.
            Err(error) => format!("unknown: {}", shown(error)),
        };
        let device = match served.and_then(|served| served.drive.as_ref()) {
            Some(drive) => match &drive.model {
                // As the drive tells it.
                Some(model) => format!("{} ({})", Name(&drive.path), Name(Path::new(model))),
                None => Name(&drive.path).to_string(),
            },
            None => Name(&one.mount.source).to_string(),
        };
        table.row(&[
            // Of FUSE, whoever mounts it gives it a name.
            &shown(&one.mount.fs_type),
            &free,
            &engine,
            &device,
            &Name(&one.mount.point),
        ]);
    }
    table.write(out, console.out)?;
    for one in mounted {
        if let Ok(served) = &one.served
            && let (Some(engine), Some(why)) = (served.engine, served.refused)
        {
            let place = Name(&one.mount.point);
            writeln!(out, "  {engine} on {place}: {}", why.advice())?;
        }
    }
    Ok(())
}

/// A text that may have names in it, as one line.
fn shown(text: &dyn fmt::Display) -> String {
    Name(Path::new(&text.to_string())).to_string()
}

fn describe(state: &State) -> String {
    let place = Name(&state.directory);
    if !state.exists {
        return format!("nothing yet; it would be in {place}");
    }
    let running = state.running();
    let mut text = format!("{place}, {}", state.bytes);
    match state.stopped() {
        0 => text.push_str("; no run was stopped with work left"),
        n => text.push_str(&format!(
            "; {} stopped with work left (indef run --resume)",
            counted(n, "run was", "runs were")
        )),
    }
    if running > 0 {
        text.push_str(&format!(
            "; {} on at the moment",
            counted(running, "run goes", "runs go")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use indef_fs::Mount;

    use super::*;

    /// Of FUSE, any user gives names to type and source.
    #[test]
    fn whatever_a_mount_is_called_moves_no_cursor() {
        let odd = "odd\u{1b}[2J";
        let mount = Mount {
            id: 1,
            root: "/".into(),
            point: format!("/{odd}").into(),
            fs_type: format!("fuse.{odd}"),
            source: format!("/dev/{odd}").into(),
            options: Vec::new(),
        };
        let mounted = Mounted {
            mount,
            served: Err(io::Error::other(odd)),
        };
        let mut text = Vec::new();
        file_systems(&mut text, &Console::plain(), &[mounted]).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches("odd\\u{1b}[2J").count(), 4, "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
