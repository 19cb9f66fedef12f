//! Space that no file reaches, as text.

use std::io::{self, Write};

use indef_pipeline::scan::Tally;

use crate::output::{Align, Console, Name, Table, counted};

/// The reason for which it cannot be told of all files, if it cannot.
pub(super) fn untold(tally: &Tally) -> Option<String> {
    (tally.untold > 0).then(|| {
        let files = counted(tally.untold, "file", "files");
        format!("not known of {files}: it is told on ext4, XFS and F2FS, and to root on Btrfs")
    })
}

/// The files that hold most of it.
pub(super) fn files(out: &mut dyn Write, console: &Console, tally: &Tally) -> io::Result<()> {
    let holders = tally.holders();
    if holders.is_empty() {
        return Ok(());
    }
    let title = "Files that hold space which nobody reaches";
    writeln!(out, "{}", console.out.bold(title))?;
    let columns = [
        ("unreachable", Align::Right),
        ("in shared extents", Align::Right),
        ("path", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for (held, path) in holders {
        table.row(&[&held.alone, &held.shared, &Name(path)]);
    }
    table.write(out, console.out)?;
    writeln!(out)
}

/// The sums, each a line; none where there is nothing to tell.
pub(super) fn lines(tally: &Tally) -> Vec<String> {
    let held = tally.unreachable;
    let mut lines = Vec::new();
    if !held.alone.is_zero() {
        let next = "indef run --reclaim gives back what pays";
        lines.push(format!("{} held by files; {next}", held.alone));
    }
    if !held.shared.is_zero() {
        let shared = "in extents that reflinks or snapshots refer to, too: they may reach it";
        lines.push(format!("{} at most {shared}", held.shared));
    }
    lines.extend(untold(tally));
    lines
}
