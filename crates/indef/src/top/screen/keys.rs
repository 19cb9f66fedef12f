//! The effect of each key.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::{Action, Mode, ScreenState};
use crate::output::Tone;

/// The keys, for the help.
pub(super) const HELP: [(&str, &str); 14] = [
    ("↑ ↓ k j", "select a range"),
    ("PgUp PgDn", "a page up, down"),
    ("Home End g G", "the first, the last range"),
    ("r", "repair the selected range"),
    ("R", "repair all listed ranges of its file"),
    ("x", "stop the repair after its current step"),
    ("/", "show only paths that contain a text"),
    ("Esc", "show all paths again"),
    ("s", "sort by the next column"),
    ("S", "reverse the order"),
    ("p Space", "pause, go on"),
    ("? h", "this help"),
    ("q Ctrl-C", "leave"),
    (
        "",
        "lost: device time that the fragments cost; ~ is an estimate",
    ),
];

impl ScreenState {
    /// Handle a pressed key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'C')) {
            return Action::Quit;
        }
        match &self.mode {
            Mode::List => self.list_key(key.code),
            Mode::Filter => self.filter_key(key.code, control),
            Mode::Confirm(_) => self.confirm_key(key.code),
            Mode::Help => {
                self.mode = Mode::List;
                Action::None
            }
        }
    }

    fn list_key(&mut self, code: KeyCode) -> Action {
        let page = isize::try_from(self.page).unwrap_or(isize::MAX);
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Up | KeyCode::Char('k') => return self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => return self.step(1),
            KeyCode::PageUp => return self.step(-page),
            KeyCode::PageDown => return self.step(page),
            KeyCode::Home | KeyCode::Char('g') => return self.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => return self.step(isize::MAX),
            KeyCode::Char('r') => self.ask_range(),
            KeyCode::Char('R') => self.ask_file(),
            KeyCode::Char('x') => return Action::Stop,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                self.message = None;
            }
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                return self.rearrange();
            }
            KeyCode::Char('S') => {
                self.reversed = !self.reversed;
                return self.rearrange();
            }
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                return self.rearrange();
            }
            _ => {}
        }
        Action::None
    }

    fn filter_key(&mut self, code: KeyCode, control: bool) -> Action {
        match code {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.mode = Mode::List;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char('u') if control => self.filter.clear(),
            KeyCode::Char(typed) if !control && !typed.is_control() => self.filter.push(typed),
            _ => return Action::None,
        }
        self.rearrange()
    }

    fn confirm_key(&mut self, code: KeyCode) -> Action {
        let Mode::Confirm(order) = std::mem::replace(&mut self.mode, Mode::List) else {
            return Action::None;
        };
        match code {
            KeyCode::Char('y' | 'Y') | KeyCode::Enter => Action::Repair(order),
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {
                self.say(Tone::Plain, "not repaired");
                Action::None
            }
            // Any other key is no answer.
            _ => {
                self.mode = Mode::Confirm(order);
                Action::None
            }
        }
    }

    fn rearrange(&mut self) -> Action {
        let selected = self.selected_row().map(|row| row.key);
        self.arrange(selected)
    }
}
