//! Draws the state as a frame. Every size of terminal shows as much as fits, the list first.

use indef_core::layout::{Extent, ExtentFlags};
use indef_pipeline::watch::{RangeRow, Snapshot, SortBy};
use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Clear, Paragraph},
};
use units::Bytes;

use super::{
    columns::{self, count},
    keys::HELP,
    state::{Mode, ScreenState},
};
use crate::{
    advice::Advice,
    output::{Count, Margin, Name, Tone, counted, fit},
    trace::live::Clock,
};

/// Rows for the details, where there is room for them.
const DETAILS: u16 = 7;

/// The areas of the screen, from top to bottom.
struct Areas {
    head: Rect,
    titles: Rect,
    list: Rect,
    details: Rect,
    status: Rect,
    footer: Rect,
}

impl Areas {
    /// The list gets the room that the others leave; a low terminal keeps only the list and the
    /// status line, in which questions are asked.
    fn of(area: Rect) -> Self {
        let height = area.height;
        let head = match height {
            0..=4 => 0,
            5..=7 => 1,
            _ => 2,
        };
        let titles = u16::from(height >= 4);
        let details = if height >= 16 { DETAILS } else { 0 };
        let status = u16::from(height >= 2);
        let footer = u16::from(height >= 6);
        let list = height - (head + titles + details + status + footer);
        let mut y = area.y;
        let mut take = |height| {
            let part = Rect { y, height, ..area };
            y += height;
            part
        };
        Self {
            head: take(head),
            titles: take(titles),
            list: take(list),
            details: take(details),
            status: take(status),
            footer: take(footer),
        }
    }
}

/// Draw all of it.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut ScreenState) {
    let areas = Areas::of(frame.area());
    let width: usize = frame.area().width.into();
    let mut head = header(state, width);
    head.truncate(areas.head.height.into());
    frame.render_widget(Paragraph::new(head), areas.head);
    draw_list(frame, state, areas.titles, areas.list);
    if areas.details.height > 0 {
        draw_details(frame, state, areas.details);
    }
    frame.render_widget(status_line(state, width), areas.status);
    let keys = "↑↓ select  r repair  R file  / filter  s sort  p pause  ? help  q quit";
    let keys = fit::head(keys, width).into_owned();
    frame.render_widget(Line::styled(keys, dim()), areas.footer);
    if state.mode == Mode::Help {
        draw_help(frame, state);
    }
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

impl ScreenState {
    /// A colour, where colours are enabled.
    fn colour(&self, colour: Color) -> Style {
        if self.style.is_on() {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }
}

/// The header: the watched sources, and totals over all ranges.
fn header(state: &ScreenState, width: usize) -> Vec<Line<'static>> {
    let shown = &state.snapshot;
    let mut what = if !state.begun {
        "indef top".to_owned()
    } else if shown.live {
        format!(
            "indef top  {}  {} reads/s{}  {}/s",
            Clock(shown.elapsed),
            count(shown.reads.round()),
            margin(shown, shown.reads),
            Bytes(shown.read as u64)
        )
    } else {
        let (reads, bytes) = (count(shown.reads.round()), Bytes(shown.read as u64));
        format!("indef top  profile  {reads} reads  {bytes}")
    };
    if state.paused {
        what = format!("PAUSED  {what}");
    }
    let mut first = vec![Span::styled(fit::head(&what, width).into_owned(), bold())];
    if shown.lost > 0 {
        let text = format!("  {} events lost", Count(shown.lost));
        let room = width.saturating_sub(fit::columns(&what));
        let warning = state.colour(Color::Yellow);
        first.push(Span::styled(fit::head(&text, room).into_owned(), warning));
    }
    let mut sums = format!(
        "{} of {}",
        counted(shown.fragmented, "fragmented range", "fragmented ranges"),
        counted(shown.ranges, "hot one", "hot ones"),
    );
    for (number, what) in [
        (shown.waiting, "not looked at yet"),
        (shown.out_of_reach, "out of reach"),
    ] {
        if number > 0 {
            sums += &format!(", {} {what}", Count(number));
        }
    }
    if !state.filter.is_empty() || state.mode == Mode::Filter {
        let cursor = if state.mode == Mode::Filter { "_" } else { "" };
        sums = format!("filter: {}{cursor}  {sums}", state.filter);
    }
    vec![
        Line::from(first),
        Line::raw(fit::head(&sums, width).into_owned()),
    ]
}

fn draw_list(frame: &mut Frame<'_>, state: &mut ScreenState, titles: Rect, list: Rect) {
    let width: usize = list.width.into();
    let columns = columns::in_width(width);
    let (shown, sort, reversed) = (&state.snapshot, state.sort, state.reversed);
    let mut title: String = columns
        .iter()
        .map(|column| column.title(shown, sort, reversed))
        .collect();
    title += match (sort, reversed) {
        (SortBy::Path, false) => "path▼",
        (SortBy::Path, true) => "path▲",
        _ => "path",
    };
    let title = fit::head(&title, width).into_owned();
    frame.render_widget(Line::styled(title, bold()), titles);
    state.scroll(list.height.into());
    let lines: Vec<Line<'_>> = state
        .rows()
        .enumerate()
        .skip(state.first)
        .take(list.height.into())
        .map(|(at, row)| {
            let text = columns::line(&columns, row, width);
            let padding = " ".repeat(width.saturating_sub(fit::columns(&text)));
            let style = match row.skip {
                Some(_) => dim(),
                None => Style::new(),
            };
            let style = if at == state.selected {
                style.add_modifier(Modifier::REVERSED)
            } else {
                style
            };
            Line::styled(text + &padding, style)
        })
        .collect();
    if lines.is_empty() {
        let text = fit::head(nothing(state), width).into_owned();
        frame.render_widget(Line::styled(text, dim()), list);
    } else {
        frame.render_widget(Paragraph::new(lines), list);
    }
}

/// The reason for which the list is empty.
fn nothing(state: &ScreenState) -> &'static str {
    let shown = &state.snapshot;
    if !shown.rows.is_empty() {
        "no path matches the filter (Esc shows all)"
    } else if shown.waiting > 0 || !state.begun {
        "looking at the files …"
    } else if shown.ranges == 0 && shown.live {
        "nothing was read from a device yet"
    } else if shown.ranges == 0 {
        "the profile has no reads"
    } else if shown.out_of_reach == shown.ranges {
        "none of the files can be looked at"
    } else {
        "nothing that is read is fragmented"
    }
}

/// The selected range and its extents.
fn draw_details(frame: &mut Frame<'_>, state: &ScreenState, area: Rect) {
    let width: usize = area.width.into();
    let mut lines = vec![Line::styled("─".repeat(width), dim())];
    if let Some(row) = state.selected_row() {
        let mut push = |text: String| lines.push(Line::raw(fit::head(&text, width).into_owned()));
        push(fit::tail(&Name(&row.path).to_string(), width).into_owned());
        push(about(row, &state.snapshot));
        let extents = match &state.snapshot.details {
            Some((key, extents)) if *key == row.key => extents.as_deref(),
            _ => Some(&[][..]),
        };
        match extents {
            Some(extents) => {
                let room = usize::from(area.height).saturating_sub(3);
                for text in extent_lines(extents, width, room) {
                    push(text);
                }
            }
            None => push("its file can no longer be looked at".to_owned()),
        }
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// The error of a rate, if it is one.
fn margin(shown: &Snapshot, rate: f64) -> Margin {
    let error = shown.error;
    Margin { error, rate }
}

fn about(row: &RangeRow, shown: &Snapshot) -> String {
    let start = row.key.range.start.get();
    let reads = match margin(shown, row.reads).to_string() {
        margin if margin.is_empty() => margin,
        margin => format!(" {} reads/s{margin};", count(row.reads)),
    };
    let what = match row.skip {
        Some(reason) => format!("cannot be repaired: {}", reason.advice()),
        None => format!("repair writes up to {}", row.cost),
    };
    format!(
        "{} at {} (byte {start}):{reads} {} fragments, {} too many; {what}",
        row.key.range.len,
        Bytes(start),
        Count(row.dolf),
        Count(row.extra),
    )
}

/// The extents, as many as fit, several to a line.
fn extent_lines(extents: &[Extent], width: usize, room: usize) -> Vec<String> {
    const CELL: usize = 25;
    let per_line = (width / CELL).max(1);
    let mut lines = Vec::new();
    let all = extents.len();
    // The last cell shows how many more there are.
    let fit = (per_line * room).min(all);
    let shown = if fit < all {
        fit.saturating_sub(1)
    } else {
        fit
    };
    let mut cells: Vec<String> = extents[..shown].iter().map(extent).collect();
    if shown < all && room > 0 {
        cells.push(format!("… {} more", Count((all - shown) as u64)));
    }
    for cells in cells.chunks(per_line) {
        let padded = cells.iter().map(|cell| format!("{cell:<CELL$}"));
        lines.push(padded.collect::<String>().trim_end().to_owned());
    }
    lines
}

/// An extent: its length, and where it lies on the device.
fn extent(extent: &Extent) -> String {
    let place = if extent.flags.contains(ExtentFlags::UNPLACED) {
        "no place yet".to_owned()
    } else {
        format!("@{:#x}", extent.phys.get())
    };
    let what = if extent.flags.contains(ExtentFlags::SHARED) {
        " shared"
    } else if extent.flags.contains(ExtentFlags::UNWRITTEN) {
        " unwritten"
    } else {
        ""
    };
    format!("{} {place}{what}", extent.len)
}

/// A question, or the last message.
fn status_line(state: &ScreenState, width: usize) -> Line<'static> {
    if let Mode::Confirm(order) = &state.mode {
        let what = match order.ranges.as_slice() {
            [range] => format!("{} at {}", range.len, Bytes(range.start.get())),
            ranges => counted(ranges.len() as u64, "range", "ranges"),
        };
        let ask = format!("Repair {what}, writing up to {}? [y/n] ", order.cost);
        let room = width.saturating_sub(fit::columns(&ask));
        let text = format!("{ask}{}", fit::tail(&Name(&order.path).to_string(), room));
        return Line::styled(fit::head(&text, width).into_owned(), bold());
    }
    let Some((tone, text)) = &state.message else {
        return Line::default();
    };
    let style = match tone {
        Tone::Plain => Style::new(),
        Tone::Good => state.colour(Color::Green),
        Tone::Warn => state.colour(Color::Yellow),
        Tone::Bad => state.colour(Color::Red),
    };
    Line::styled(fit::head(text, width).into_owned(), style)
}

/// Draw the keys, on top of everything else.
fn draw_help(frame: &mut Frame<'_>, state: &ScreenState) {
    let area = frame.area();
    let wide = HELP
        .iter()
        .map(|(_, what)| fit::columns(what) + 16)
        .max()
        .unwrap_or(0) as u16;
    let (width, height) = (
        (wide + 4).min(area.width),
        (HELP.len() as u16 + 2).min(area.height),
    );
    let popup = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let lines: Vec<Line<'_>> = HELP
        .iter()
        .map(|(keys, what)| {
            Line::from(vec![
                Span::styled(format!(" {keys:<15}"), state.colour(Color::Cyan)),
                Span::raw(*what),
            ])
        })
        .collect();
    let block = Block::bordered().title(" Keys ");
    frame.render_widget(Clear, popup);
    frame.render_widget(Paragraph::new(lines).block(block), popup);
}
