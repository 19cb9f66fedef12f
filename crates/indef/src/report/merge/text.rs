//! The table as text.

use std::io::{self, Write};

use super::{
    fleet::Fleet,
    summary::{Fact, Row, facts, sentence},
};
use crate::output::{Align, Console, Table, counted};

/// Write it, with the `top` hosts that need somebody most.
pub(super) fn write(
    out: &mut dyn Write,
    console: &Console,
    fleet: &Fleet,
    top: usize,
) -> io::Result<()> {
    let sums = fleet.sums();
    if sums.hosts == 0 {
        return writeln!(out, "No document tells of a host");
    }
    writeln!(out, "{}", console.out.bold(&sentence(&sums)))?;
    let columns = [
        ("host", Align::Left),
        ("extents", Align::Right),
        ("moved", Align::Right),
        ("fewer requests", Align::Right),
        ("predicted", Align::Right),
        ("last success (UTC)", Align::Left),
        ("verdict", Align::Left),
        ("left alone", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let hosts = fleet.hosts();
    for (who, host) in hosts.iter().take(top) {
        let row = Row::new(who, host);
        table.row(&[
            &row.host,
            &row.extents,
            &row.moved,
            &row.saved,
            &row.predicted,
            &row.last_success,
            &row.verdict,
            &row.left_alone,
        ]);
    }
    if !table.is_empty() {
        table.write(out, console.out)?;
    }
    let more = hosts.len().saturating_sub(top) as u64;
    if more > 0 {
        let more = format!("and {} (--top)", counted(more, "more host", "more hosts"));
        writeln!(out, "  {}", console.out.dim(&more))?;
    }
    writeln!(out)?;
    let facts = facts(&sums);
    let width = facts.iter().map(|fact| fact.name.len()).max().unwrap_or(0);
    for Fact { name, value, aside } in facts {
        let aside = match aside.is_empty() {
            true => aside,
            false => format!("  ({aside})"),
        };
        writeln!(out, "  {name:<width$}  {value}{}", console.out.dim(&aside))?;
    }
    Ok(())
}
