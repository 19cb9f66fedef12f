//! FAST'24, Figure 12, SQLite: a query over rows that were inserted between writes to another file.

use units::Nanos;

use super::{
    error::FigureError,
    fast24::profile,
    measured::{Measured, Unit},
    parameters::Parameters,
    sqlite::{PAGE, Rows},
};
use crate::fast24::{device::without_separation, table::Table};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let table = table(parameters)?;
    let mut measured = speeds(&table);
    let without_host = Table {
        per_window: Nanos(0),
        ..table.clone()
    };
    measured.add_sensitivity("per_window", "0", speeds(&without_host));
    let published = Table {
        profile: without_separation(),
        ..table
    };
    measured.add_sensitivity("device", "without separate parts", speeds(&published));
    Ok(measured)
}

fn table(parameters: &Parameters) -> Result<Table, FigureError> {
    let rows = Rows::of(parameters.bytes("value")?);
    Ok(Table {
        profile: profile(parameters.text("device")?)?,
        rows: parameters.count("rows")?,
        page: PAGE,
        row_pages: rows.overflow,
        rows_in_leaf: rows.in_leaf,
        dummy: parameters.bytes("dummy")?,
        window: parameters.bytes("window")?,
        per_window: parameters.time("per_window")?,
    })
}

fn speeds(table: &Table) -> Measured {
    let mut measured = Measured::default();
    for (series, speed) in [
        ("contiguous", table.contiguous()),
        ("without hints", table.inserted(false)),
        ("with hints", table.inserted(true)),
    ] {
        measured.push(series, "select", speed, Unit::MbPerS);
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::{super::source::Figure, table};

    /// The host's time is the one number that was taken from the result.
    #[test]
    fn the_time_of_a_window_follows_from_the_contiguous_table() {
        let figure = Figure::load(source_tree::root(), "fast24/fig12-sqlite").unwrap();
        let taken = figure.published.iter().find(|value| value.taken).unwrap();
        let speed = table(&figure.parameters).unwrap().contiguous();
        assert!((speed / taken.value - 1.0).abs() < 0.005, "{speed}");
    }
}
