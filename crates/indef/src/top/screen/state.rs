//! The state of the screen: content, selection and input. Independent of the terminal.

use indef_pipeline::watch::{Order, RangeKey, RangeRow, Snapshot, SortBy};
use units::Bytes;

use crate::{
    advice::Advice,
    output::{Name, Style, Tone},
};

/// The current meaning of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// They move the selection in the list.
    List,
    /// They edit the filter.
    Filter,
    /// They answer whether to repair.
    Confirm(Order),
    /// They close the help.
    Help,
}

/// The action to take after a key or a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Quit,
    /// Another range is selected.
    Details(Option<RangeKey>),
    Repair(Order),
    /// Stop the repair.
    Stop,
}

/// Everything on which the screen depends.
pub(super) struct ScreenState {
    pub(super) snapshot: Snapshot,
    /// Whether the snapshot is a real one already.
    pub(super) begun: bool,
    pub(super) paused: bool,
    pub(super) sort: SortBy,
    pub(super) reversed: bool,
    pub(super) filter: String,
    pub(super) mode: Mode,
    pub(super) message: Option<(Tone, String)>,
    pub(super) style: Style,
    /// Rows that pass the filter, in order: indexes into the snapshot's.
    pub(super) visible: Vec<usize>,
    /// The index in `visible` of the selected row, if there are any.
    pub(super) selected: usize,
    /// The index of the first row on the screen.
    pub(super) first: usize,
    /// The number of rows that fit the screen, as of the last drawing.
    pub(super) page: usize,
}

impl ScreenState {
    pub(super) fn new(style: Style) -> Self {
        Self {
            snapshot: Snapshot::default(),
            begun: false,
            paused: false,
            sort: SortBy::default(),
            reversed: false,
            filter: String::new(),
            mode: Mode::List,
            message: None,
            style,
            visible: Vec::new(),
            selected: 0,
            first: 0,
            page: 1,
        }
    }

    /// Take a new snapshot. While paused, only the details are new.
    pub(super) fn update(&mut self, snapshot: Snapshot) -> Action {
        if self.paused {
            self.snapshot.details = snapshot.details;
            return Action::None;
        }
        let selected = self.selected_row().map(|row| row.key);
        self.begun = true;
        self.snapshot = snapshot;
        self.arrange(selected)
    }

    /// Filter and sort; keep the selection on its range, or, if that is gone, at its position.
    pub(super) fn arrange(&mut self, selected: Option<RangeKey>) -> Action {
        let rows = &self.snapshot.rows;
        let filter = self.filter.to_lowercase();
        let passes = |row: &RangeRow| Name(&row.path).to_string().to_lowercase().contains(&filter);
        let all = 0..rows.len();
        self.visible = if filter.is_empty() {
            all.collect()
        } else {
            all.filter(|at| passes(&rows[*at])).collect()
        };
        let (sort, reversed) = (self.sort, self.reversed);
        self.visible.sort_by(|a, b| {
            let order = sort.order(&rows[*a], &rows[*b]);
            if reversed { order.reverse() } else { order }
        });
        if let Some(key) = selected
            && let Some(at) = self.visible.iter().position(|at| rows[*at].key == key)
        {
            self.selected = at;
        }
        self.select(self.selected, selected)
    }

    /// Select a row, or the nearest that exists.
    fn select(&mut self, at: usize, before: Option<RangeKey>) -> Action {
        self.selected = at.min(self.visible.len().saturating_sub(1));
        let now = self.selected_row().map(|row| row.key);
        let known = self.snapshot.details.as_ref().map(|(key, _)| *key);
        if now == before && (now == known || self.paused) {
            Action::None
        } else {
            Action::Details(now)
        }
    }

    /// Move the selection by this many rows.
    pub(super) fn step(&mut self, by: isize) -> Action {
        let before = self.selected_row().map(|row| row.key);
        self.select(self.selected.saturating_add_signed(by), before)
    }

    pub(super) fn selected_row(&self) -> Option<&RangeRow> {
        let at = self.visible.get(self.selected)?;
        self.snapshot.rows.get(*at)
    }

    /// The rows that pass the filter, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = &RangeRow> {
        self.visible.iter().map(|at| &self.snapshot.rows[*at])
    }

    /// Scroll so that the selected row is among the `page` that fit.
    pub(super) fn scroll(&mut self, page: usize) {
        self.page = page.max(1);
        let last_first = self.visible.len().saturating_sub(self.page);
        self.first = self
            .first
            .min(self.selected)
            .max((self.selected + 1).saturating_sub(self.page))
            .min(last_first);
    }

    /// Show a message in the status line.
    pub(super) fn say(&mut self, tone: Tone, text: impl Into<String>) {
        self.message = Some((tone, text.into()));
    }

    /// Ask whether to repair the selected range.
    pub(super) fn ask_range(&mut self) {
        let Some(row) = self.selected_row() else {
            return self.say(Tone::Warn, "nothing is selected");
        };
        match row.skip {
            Some(reason) => {
                let text = format!("it cannot be repaired: {}", reason.advice());
                self.say(Tone::Warn, text);
            }
            None => self.mode = Mode::Confirm(order(&[row])),
        }
    }

    /// Ask whether to repair all listed ranges of the selected range's file.
    pub(super) fn ask_file(&mut self) {
        let Some(file) = self.selected_row().map(|row| row.key.file) else {
            return self.say(Tone::Warn, "nothing is selected");
        };
        let rows: Vec<_> = self
            .rows()
            .filter(|row| row.key.file == file && row.skip.is_none())
            .collect();
        if rows.is_empty() {
            return self.say(Tone::Warn, "none of its ranges can be repaired");
        }
        self.mode = Mode::Confirm(order(&rows));
    }
}

/// Rows of one file, of which there is at least one.
fn order(rows: &[&RangeRow]) -> Order {
    let mut ranges: Vec<_> = rows.iter().map(|row| row.key.range).collect();
    ranges.sort_unstable();
    Order {
        file: rows[0].key.file,
        id: rows[0].id,
        path: rows[0].path.clone(),
        ranges,
        cost: rows
            .iter()
            .fold(Bytes::ZERO, |sum, row| sum.saturating_add(row.cost)),
    }
}
