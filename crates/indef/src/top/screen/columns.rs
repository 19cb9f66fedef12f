//! The columns of the list: their content, and the choice of those for which there
//! is room.

use indef_pipeline::watch::{Lost, RangeRow, Snapshot, SortBy};
use units::{Bytes, Nanos};

use crate::output::{Count, Name, Ratio, fit};

/// A path never gets fewer columns than this, as long as another column can be
/// dropped.
const MIN_PATH: usize = 24;

/// A column of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) by: SortBy,
    what: What,
    width: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Lost,
    Reads,
    Dolf,
    Requests,
    Time,
    Size,
    Start,
}

const fn column(by: SortBy, what: What, width: usize) -> Column {
    Column { by, what, width }
}

/// All columns from left to right.
const COLUMNS: [Column; 7] = [
    column(SortBy::Lost, What::Lost, 9),
    column(SortBy::Reads, What::Reads, 9),
    column(SortBy::Dolf, What::Dolf, 7),
    column(SortBy::Requests, What::Requests, 8),
    column(SortBy::Time, What::Time, 9),
    column(SortBy::Size, What::Size, 9),
    column(SortBy::Path, What::Start, 10),
];

/// The columns by usefulness: a narrow terminal keeps the first ones.
const BY_USE: [What; 7] = [
    What::Lost,
    What::Dolf,
    What::Reads,
    What::Start,
    What::Requests,
    What::Time,
    What::Size,
];

/// The columns that fit beside a path.
pub(super) fn in_width(width: usize) -> Vec<Column> {
    let mut room = width.saturating_sub(MIN_PATH.min(width / 2));
    let mut fitting = Vec::new();
    for what in BY_USE {
        let Some(column) = COLUMNS.iter().find(|column| column.what == what) else {
            continue;
        };
        if column.width + 1 > room {
            break;
        }
        room -= column.width + 1;
        fitting.push(what);
    }
    let fits = |column: &Column| fitting.contains(&column.what);
    COLUMNS.into_iter().filter(fits).collect()
}

impl Column {
    /// Its title, with an arrow where the list is sorted by it.
    pub(super) fn title(&self, snapshot: &Snapshot, sort: SortBy, reversed: bool) -> String {
        let rate = if snapshot.live { "/s" } else { "" };
        let title = match self.what {
            What::Lost if snapshot.timed => format!("lost{rate}"),
            What::Lost => format!("extra{rate}"),
            What::Reads => format!("reads{rate}"),
            What::Dolf => "DoLF".to_owned(),
            What::Requests => "req/read".to_owned(),
            What::Time => "mean".to_owned(),
            What::Size => "size".to_owned(),
            What::Start => "at".to_owned(),
        };
        let arrow = match self.what {
            What::Start => "",
            _ if self.by != sort => "",
            _ if reversed => "▲",
            _ => "▼",
        };
        self.padded(&format!("{title}{arrow}"))
    }

    /// Its cell.
    pub(super) fn cell(&self, row: &RangeRow) -> String {
        let text = match self.what {
            What::Lost => lost(row),
            What::Reads => count(row.reads),
            What::Dolf => Count(row.dolf).to_string(),
            What::Requests => {
                let requests = row.requests_per_read;
                requests.map_or_else(dash, |ratio| Ratio(ratio).to_string())
            }
            What::Time => row.mean_ns.map_or_else(dash, time),
            What::Size => row.key.range.len.to_string(),
            What::Start => Bytes(row.key.range.start.get()).to_string(),
        };
        self.padded(&text)
    }

    fn padded(&self, text: &str) -> String {
        let text = fit::head(text, self.width);
        let padding = self.width - fit::columns(&text);
        format!("{}{text} ", " ".repeat(padding))
    }
}

/// A row in this many columns of the terminal.
pub(super) fn line(columns: &[Column], row: &RangeRow, width: usize) -> String {
    let mut line: String = columns.iter().map(|column| column.cell(row)).collect();
    let room = width.saturating_sub(fit::columns(&line));
    line += &fit::tail(&Name(&row.path).to_string(), room);
    fit::head(&line, width).into_owned()
}

/// The device time lost; where nothing was timed, the number of excess fragments
/// read.
pub(in crate::top) fn lost(row: &RangeRow) -> String {
    match row.lost {
        Lost::Timed(ns) => time(ns),
        Lost::Estimated(ns) => format!("~{}", time(ns)),
        Lost::Unknown => count(row.extra_reads()),
    }
}

pub(in crate::top) fn time(ns: f64) -> String {
    Nanos(ns.round() as u64).to_string()
}

/// A number, with a decimal where it matters.
pub(in crate::top) fn count(number: f64) -> String {
    if number < 99.95 && number.fract() != 0.0 {
        format!("{number:.1}")
    } else {
        Count(number.round() as u64).to_string()
    }
}

fn dash() -> String {
    "-".to_owned()
}
