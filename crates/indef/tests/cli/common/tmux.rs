//! A real terminal for tests of screens: tmux, on a socket of its own.

use std::{
    ffi::OsStr,
    path::PathBuf,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Time limit for a screen to show the expected content: slow machines are slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a shell in it. Dropping the value ends it.
pub(crate) struct Tmux {
    socket: PathBuf,
    _dir: TempDir,
}

impl Tmux {
    /// A terminal of this size; `None` (reported as a skip) if there is no tmux.
    pub(crate) fn start(columns: u16, rows: u16) -> Option<Self> {
        if !scratch_fs::require_program("tmux") {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let tmux = Self {
            socket: dir.path().join("socket"),
            _dir: dir,
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        tmux.run([
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            "env PS1='ready$ ' LC_ALL=C.UTF-8 sh",
        ]);
        tmux.wait_for("ready$");
        Some(tmux)
    }

    #[track_caller]
    fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = Command::new("tmux")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .arg("-u")
            .arg("-S")
            .arg(&self.socket)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "tmux: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Press keys, by tmux's names for them.
    #[track_caller]
    pub(crate) fn press(&self, keys: &[&str]) {
        self.run(["send-keys"].iter().chain(keys));
    }

    /// Type a text.
    #[track_caller]
    pub(crate) fn type_text(&self, text: &str) {
        self.run(["send-keys", "-l", text]);
    }

    /// Type a command line for the shell.
    #[track_caller]
    pub(crate) fn command(&self, line: &str) {
        self.type_text(line);
        self.press(&["Enter"]);
    }

    /// Resize the terminal.
    #[track_caller]
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.run(["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// The content of the screen.
    #[track_caller]
    pub(crate) fn screen(&self) -> String {
        self.run(["capture-pane", "-p"])
    }

    /// A property of the terminal, like `alternate_on` or `cursor_flag`.
    #[track_caller]
    pub(crate) fn property(&self, name: &str) -> String {
        let format = format!("#{{{name}}}");
        self.run(["display-message", "-p", &format])
            .trim()
            .to_owned()
    }

    /// Check that there is no screen, that lines and echo work as usual, and
    /// that the cursor is visible.
    #[track_caller]
    pub(crate) fn assert_as_before(&self) {
        assert_eq!(self.property("alternate_on"), "0");
        assert_eq!(self.property("cursor_flag"), "1");
        self.command(
            "clear; stty -a | tr ' ;' '\\n\\n' | grep -x -e icanon -e echo -e isig | sort \
             | tr '\\n' ,; echo e''nd",
        );
        self.wait_for("echo,icanon,isig,end");
    }

    /// Wait until the screen has the expected content, and return it.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "never seen: {what}\n{screen}");
            sleep(Duration::from_millis(50));
        }
    }

    /// Wait until this text is on the screen.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contains(text))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .output();
    }
}
