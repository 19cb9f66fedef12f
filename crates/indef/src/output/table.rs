//! Plain aligned tables: numbers to the right, names to the left and last, so that their width
//! never matters.

use std::{
    fmt,
    io::{self, Write},
};

use super::style::Style;

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table in memory. The caller keeps it small (the worst files, not all).
pub(crate) struct Table {
    header: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column titles.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            header: columns
                .iter()
                .map(|(title, align)| ((*title).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Add a row: as many cells as there are columns.
    pub(crate) fn row(&mut self, cells: &[&dyn fmt::Display]) {
        debug_assert_eq!(cells.len(), self.header.len());
        self.rows
            .push(cells.iter().map(ToString::to_string).collect());
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Write it, indented by two spaces; titles are underlined by style only.
    pub(crate) fn write(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        let widths: Vec<usize> = self
            .header
            .iter()
            .enumerate()
            .map(|(i, (title, _))| {
                let cells = self.rows.iter().map(|row| width(&row[i]));
                cells.chain([width(title)]).max().unwrap_or(0)
            })
            .collect();
        let titles: Vec<String> = self.header.iter().map(|(title, _)| title.clone()).collect();
        writeln!(
            out,
            "  {}",
            style.dim(self.line(&titles, &widths).trim_end())
        )?;
        for row in &self.rows {
            writeln!(out, "  {}", self.line(row, &widths).trim_end())?;
        }
        Ok(())
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (i, cell) in cells.iter().enumerate() {
            let padding = " ".repeat(widths[i].saturating_sub(width(cell)));
            if i > 0 {
                line.push_str("  ");
            }
            match self.header[i].1 {
                Align::Right => line.extend([padding.as_str(), cell]),
                Align::Left if i + 1 == cells.len() => line.push_str(cell),
                Align::Left => line.extend([cell.as_str(), padding.as_str()]),
            }
        }
        line
    }
}

/// The width of a cell: cells are numbers, units and words, for which one column per character
/// is right.
fn width(cell: &str) -> usize {
    cell.chars().count()
}

/// A number with a thousands separator.
pub(crate) struct Count(pub(crate) u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A ratio with a useful number of decimals: `1.00`, `23.4`, `65,536`.
pub(crate) struct Ratio(pub(crate) f64);

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            r if r < 9.995 => format!("{r:.2}"),
            r if r < 999.95 => format!("{r:.1}"),
            r => Count(r.round() as u64).to_string(),
        };
        f.pad(&text)
    }
}

/// A number with the noun in singular or plural: `1 file`, `2 files`.
pub(crate) fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", Count(n), if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_last_one_is_not_padded() {
        let mut table = Table::new(&[
            ("extents", Align::Right),
            ("fs", Align::Left),
            ("path", Align::Left),
        ]);
        table.row(&[&Count(65_536), &"ext4", &"a"]);
        table.row(&[&Count(1), &"xfs", &"long name"]);
        let mut text = Vec::new();
        table.write(&mut text, Style::plain()).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "  extents  fs    path\n   65,536  ext4  a\n        1  xfs   long name\n"
        );
    }

    #[test]
    fn numbers_are_grouped_and_ratios_stay_short() {
        assert_eq!(Count(0).to_string(), "0");
        assert_eq!(Count(1_234_567).to_string(), "1,234,567");
        for (ratio, text) in [
            (1.0, "1.00"),
            (9.999, "10.0"),
            (23.44, "23.4"),
            (65_536.0, "65,536"),
        ] {
            assert_eq!(Ratio(ratio).to_string(), text);
        }
    }
}
