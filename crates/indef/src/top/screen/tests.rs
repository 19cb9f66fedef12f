use std::path::Path;

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags},
};
use indef_fs::TargetId;
use indef_pipeline::{
    learn::{Batch, Live},
    watch::{Lost, RangeKey, RangeRow, Snapshot},
};
use indef_trace::{FileKey, collect::Sampled};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::{Color, Modifier},
};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use super::{
    draw::draw,
    state::{Action, Mode, ScreenState},
};
use crate::output::{Style, Tone};

/// A sample row.
pub(in crate::top) fn sample_row() -> RangeRow {
    row(1, "/file", 0, 1.0)
}

fn row(inode: u64, path: &str, n: u64, lost_ms: f64) -> RangeRow {
    RangeRow {
        key: RangeKey {
            file: FileKey {
                dev: 1,
                inode,
                generation: 0,
                subvolume: 0,
            },
            range: FileRange::new(n << 20, 128 << 10),
        },
        path: Path::new(path).into(),
        id: TargetId { dev: 1, inode },
        reads: lost_ms * 10.0,
        dolf: 32,
        extra: 31,
        requests_per_read: Some(31.5),
        mean_ns: Some(800_000.0),
        lost: Lost::Timed(lost_ms * 1e6),
        cost: Bytes::kib(128),
        skip: None,
    }
}

fn snapshot(rows: Vec<RangeRow>) -> Snapshot {
    Snapshot {
        fragmented: rows.len() as u64,
        ranges: 100,
        out_of_reach: 2,
        live: true,
        timed: true,
        reads: 1234.0,
        read: 161_742_848.0,
        elapsed: std::time::Duration::from_secs(83),
        rows,
        ..Snapshot::default()
    }
}

fn state() -> ScreenState {
    let mut state = ScreenState::new(Style::new(true));
    let mut shared = row(3, "/srv/snapshots/old", 0, 1.0);
    shared.skip = Some(SkipReason::Shared);
    state.update(snapshot(vec![
        row(1, "/srv/db/main.sqlite", 1, 40.0),
        row(1, "/srv/db/main.sqlite", 7, 20.0),
        row(2, "/srv/log/events", 0, 5.0),
        shared,
    ]));
    state
}

fn press(state: &mut ScreenState, code: KeyCode) -> Action {
    state.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn letter(state: &mut ScreenState, letter: char) -> Action {
    press(state, KeyCode::Char(letter))
}

/// The screen as lines, and the terminal itself for its styles.
fn screen(
    state: &mut ScreenState,
    columns: u16,
    rows: u16,
) -> (Vec<String>, Terminal<TestBackend>) {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect();
    ((0..rows).map(line).collect(), terminal)
}

#[test]
fn the_screen_shows_head_list_details_and_keys() {
    let mut state = state();
    let (lines, terminal) = screen(&mut state, 110, 20);
    assert!(
        lines[0].starts_with("indef top  0:01:23  1,234 reads/s  154.2 MiB/s"),
        "{lines:#?}"
    );
    assert!(
        lines[1].starts_with("4 fragmented ranges of 100 hot ones, 2 out of reach"),
        "{lines:#?}"
    );
    assert!(
        lines[2].contains("lost/s▼") && lines[2].contains("DoLF"),
        "{lines:#?}"
    );
    assert!(lines[3].contains("40.0 ms") && lines[3].contains("400") && lines[3].contains("31.5"));
    assert!(
        lines[3].contains("128 KiB") && lines[3].contains("1 MiB"),
        "{lines:#?}"
    );
    assert!(lines[3].trim_end().ends_with("main.sqlite"), "{lines:#?}");
    let text = lines.join("\n");
    assert!(
        text.contains("128 KiB at 1 MiB (byte 1048576): 32 fragments, 31 too many"),
        "{text}"
    );
    assert!(lines[19].contains("q quit"), "{lines:#?}");
    let buffer = terminal.backend().buffer();
    assert!(buffer[(0, 3)].modifier.contains(Modifier::REVERSED));
    assert!(!buffer[(0, 4)].modifier.contains(Modifier::REVERSED));
    assert!(
        buffer[(0, 6)].modifier.contains(Modifier::DIM),
        "what cannot be repaired is dim"
    );
}

#[test]
fn every_size_is_drawn_and_keeps_the_selection_in_sight() {
    let mut state = state();
    for columns in 1..40 {
        for rows in 1..25 {
            for mode in [Mode::List, Mode::Help, Mode::Filter] {
                state.mode = mode;
                for selected in 0..4 {
                    state.selected = selected;
                    screen(&mut state, columns, rows);
                    let shown = state.first..state.first + state.page;
                    assert!(
                        shown.contains(&selected),
                        "{columns}×{rows}: {selected} in {shown:?}"
                    );
                }
            }
        }
    }
    state.mode = Mode::List;
    state.selected = 0;
    let (lines, _) = screen(&mut state, 20, 5);
    assert!(
        lines[2].contains("40.0 ms") && lines[2].contains(".sqlite"),
        "{lines:#?}"
    );
    // A question is asked even with only two lines.
    letter(&mut state, 'r');
    let (lines, _) = screen(&mut state, 30, 2);
    assert!(
        lines[1].starts_with("Repair 128 KiB at 1 MiB"),
        "{lines:#?}"
    );
}

#[test]
fn odd_names_move_nothing() {
    let mut state = ScreenState::new(Style::plain());
    let long = format!("/{}end", "very/".repeat(900));
    state.update(snapshot(vec![
        row(1, "/a\n\x1b[2J/\u{202e}x", 0, 2.0),
        row(2, &long, 0, 1.0),
        row(3, "/名前/名前/名前/名前/名前/名前/名前", 0, 0.5),
    ]));
    let (lines, _) = screen(&mut state, 80, 20);
    assert!(lines[3].contains(r"/a\n\u{1b}[2J/\u{202e}x"), "{lines:#?}");
    assert!(
        lines[4].contains("…") && lines[4].trim_end().ends_with("/end"),
        "{lines:#?}"
    );
    for columns in 1..100 {
        screen(&mut state, columns, 20);
    }
}

#[test]
fn without_colours_there_are_none() {
    for on in [true, false] {
        let mut state = state();
        state.style = Style::new(on);
        state.say(Tone::Bad, "failed");
        letter(&mut state, '?');
        let (_, terminal) = screen(&mut state, 80, 24);
        let coloured = |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset;
        let any = terminal.backend().buffer().content().iter().any(coloured);
        assert_eq!(any, on);
    }
}

/// Where reads are sampled, the total and the selected range have their error.
#[test]
fn estimates_have_an_error() {
    let mut live = Live::default();
    let sampled = Sampled {
        counted: 10_000,
        variance: 15 * 10_000,
        common: 0,
    };
    let batch = Batch {
        sampled,
        ..Batch::default()
    };
    live.add(&batch, std::time::Duration::from_secs(10));
    let mut state = state();
    let mut shown = snapshot(vec![row(1, "/srv/db/main.sqlite", 1, 40.0)]);
    shown.error = Some(live.rate_error());
    state.update(shown);
    let (lines, _) = screen(&mut state, 110, 20);
    assert!(
        lines[0].starts_with("indef top  0:01:23  1,234 reads/s ±4.7 %  154.2 MiB/s"),
        "{lines:#?}"
    );
    let text = lines.join("\n");
    assert!(
        text.contains("(byte 1048576): 400 reads/s ±8.3 %; 32 fragments"),
        "{text}"
    );
}

#[test]
fn an_empty_list_says_why() {
    let mut state = ScreenState::new(Style::plain());
    for (snapshot, why) in [
        (
            Snapshot {
                live: true,
                ..Snapshot::default()
            },
            "nothing was read from a device yet",
        ),
        (Snapshot::default(), "the profile has no reads"),
        (
            Snapshot {
                ranges: 5,
                waiting: 5,
                ..Snapshot::default()
            },
            "looking at the files",
        ),
        (
            Snapshot {
                ranges: 5,
                out_of_reach: 5,
                ..Snapshot::default()
            },
            "none of the files",
        ),
        (
            Snapshot {
                ranges: 5,
                ..Snapshot::default()
            },
            "nothing that is read is fragmented",
        ),
    ] {
        state.update(snapshot);
        let (lines, _) = screen(&mut state, 60, 10);
        assert!(lines[3].contains(why), "{lines:#?}");
        assert_eq!(letter(&mut state, 'r'), Action::None);
        assert_eq!(
            state.message,
            Some((Tone::Warn, "nothing is selected".into()))
        );
    }
}

#[test]
fn the_selection_stays_on_its_range() {
    let mut state = state();
    let second = state.snapshot.rows[1].key;
    assert_eq!(
        press(&mut state, KeyCode::Down),
        Action::Details(Some(second))
    );
    let mut rows = state.snapshot.rows.clone();
    rows[1].lost = Lost::Timed(90e6);
    rows.rotate_left(1);
    state.update(snapshot(rows.clone()));
    assert_eq!(
        (state.selected, state.selected_row().unwrap().key),
        (0, second)
    );
    // It is gone: the row at its position is selected.
    rows.retain(|row| row.key != second);
    let first = rows.iter().find(|row| row.key.file.inode == 1).unwrap().key;
    assert_eq!(state.update(snapshot(rows)), Action::Details(Some(first)));
    let last = state.rows().last().unwrap().key;
    assert_eq!(press(&mut state, KeyCode::End), Action::Details(Some(last)));
    press(&mut state, KeyCode::PageDown);
    press(&mut state, KeyCode::Home);
    assert_eq!(state.selected, 0);
}

#[test]
fn the_filter_is_typed_and_cleared() {
    let mut state = state();
    letter(&mut state, '/');
    for typed in "LOGq".chars() {
        letter(&mut state, typed);
    }
    assert_eq!(state.visible.len(), 0);
    press(&mut state, KeyCode::Backspace);
    assert_eq!(state.visible.len(), 1);
    let (lines, _) = screen(&mut state, 80, 10);
    assert!(lines[1].starts_with("filter: LOG_"), "{lines:#?}");
    press(&mut state, KeyCode::Enter);
    assert_eq!(
        (
            state.mode.clone(),
            state.selected_row().unwrap().key.file.inode
        ),
        (Mode::List, 2)
    );
    press(&mut state, KeyCode::Esc);
    assert_eq!((state.filter.as_str(), state.visible.len()), ("", 4));
    letter(&mut state, '/');
    letter(&mut state, 'x');
    state.key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
    assert_eq!(state.filter, "");
}

#[test]
fn sorting_goes_through_the_columns_and_back() {
    let mut state = state();
    let paths = |state: &ScreenState| {
        state
            .rows()
            .map(|row| row.path.to_path_buf())
            .collect::<Vec<_>>()
    };
    let by_lost = paths(&state);
    letter(&mut state, 'S');
    let mut reversed = paths(&state);
    reversed.reverse();
    assert_eq!(reversed, by_lost);
    letter(&mut state, 'S');
    for _ in 0..6 {
        letter(&mut state, 's');
    }
    let mut by_path = by_lost.clone();
    by_path.sort();
    assert_eq!(paths(&state), by_path);
    letter(&mut state, 's');
    assert_eq!(paths(&state), by_lost);
}

#[test]
fn nothing_is_repaired_without_a_yes() {
    let mut state = state();
    letter(&mut state, 'r');
    for no in [KeyCode::Char('x'), KeyCode::Down, KeyCode::Tab] {
        assert_eq!(press(&mut state, no), Action::None);
        assert!(matches!(state.mode, Mode::Confirm(_)));
    }
    assert_eq!(press(&mut state, KeyCode::Esc), Action::None);
    assert_eq!(state.mode, Mode::List);
    letter(&mut state, 'r');
    let Action::Repair(order) = letter(&mut state, 'y') else {
        panic!("no repair")
    };
    assert_eq!(
        (order.id.inode, order.ranges),
        (1, vec![FileRange::new(1 << 20, 128 << 10)])
    );
    letter(&mut state, 'R');
    let Action::Repair(order) = press(&mut state, KeyCode::Enter) else {
        panic!("no repair")
    };
    assert_eq!((order.ranges.len(), order.cost), (2, Bytes::kib(256)));
    // Repair is not offered for a range that cannot be moved.
    press(&mut state, KeyCode::End);
    letter(&mut state, 'r');
    assert_eq!(state.mode, Mode::List);
    assert!(
        state
            .message
            .as_ref()
            .unwrap()
            .1
            .contains("--allow-unshare")
    );
    letter(&mut state, 'R');
    assert_eq!(state.mode, Mode::List);
}

#[test]
fn a_pause_holds_the_list_and_keys_still_work() {
    let mut state = state();
    letter(&mut state, 'p');
    let (lines, _) = screen(&mut state, 80, 10);
    assert!(lines[0].starts_with("PAUSED"), "{lines:#?}");
    let mut next = snapshot(vec![row(9, "/new", 0, 1.0)]);
    let extent = Extent {
        file: FileOffset(0),
        phys: PhysOffset(0x1000),
        len: Bytes::kib(4),
        flags: ExtentFlags::SHARED,
    };
    let key = state.snapshot.rows[0].key;
    next.details = Some((key, Some(vec![extent; 40])));
    state.update(next.clone());
    assert_eq!(state.snapshot.rows.len(), 4);
    let (lines, _) = screen(&mut state, 80, 20);
    let text = lines.join("\n");
    assert!(text.contains("4 KiB @0x1000 shared"), "{text}");
    assert!(text.contains("… 29 more"), "{text}");
    letter(&mut state, 'p');
    state.update(next);
    assert_eq!(state.snapshot.rows.len(), 1);
}

#[test]
fn leaving_is_always_possible() {
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for before in ["", "/", "r", "?"] {
        let mut state = state();
        for key in before.chars() {
            letter(&mut state, key);
        }
        assert_eq!(state.key(interrupt), Action::Quit, "after {before:?}");
    }
    assert_eq!(letter(&mut state(), 'q'), Action::Quit);
}
