//! Progress on stderr: the current activity, the amount done, the speed, and the
//! remaining time.

use std::{borrow::Cow, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Console;

/// A line that is redrawn a few times a second, and removed when the work is done.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A progress line for things whose number is not known beforehand.
    pub(crate) fn counting(console: &Console, what: &'static str) -> Self {
        let bar = Self::bar(console, ProgressBar::no_length());
        bar.set_style(style(&format!(
            "{{spinner}} {what}: {{human_pos}} files  {{per_sec}}  {{msg}}"
        )));
        Self { bar }
    }

    /// A progress line that only says what is being done.
    pub(crate) fn saying(console: &Console, what: &'static str) -> Self {
        let bar = Self::bar(console, ProgressBar::no_length());
        bar.set_style(style("{spinner} {msg}"));
        bar.set_message(what);
        Self { bar }
    }

    /// A progress line for bytes up to `total`.
    pub(crate) fn bytes(console: &Console, total: u64) -> Self {
        let bar = Self::bar(console, ProgressBar::new(total));
        bar.set_style(style(
            "[{bar:30}] {percent:>3}%  {binary_bytes} of {binary_total_bytes}  \
             {binary_bytes_per_sec}  {eta} left  {msg}",
        ));
        Self { bar }
    }

    /// Set the total number of bytes.
    pub(crate) fn total(&self, total: u64) {
        self.bar.set_length(total);
    }

    fn bar(console: &Console, bar: ProgressBar) -> ProgressBar {
        if console.progress {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
            bar.enable_steady_tick(Duration::from_millis(125));
        } else {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar
    }

    /// Add this much to the amount done.
    pub(crate) fn add(&self, n: u64) {
        self.bar.inc(n);
    }

    /// Set the text after the numbers.
    pub(crate) fn message(&self, text: impl Into<Cow<'static, str>>) {
        self.bar.set_message(text);
    }

    /// Print something on stderr without tearing the line.
    pub(crate) fn suspend<T>(&self, say: impl FnOnce() -> T) -> T {
        self.bar.suspend(say)
    }

    /// Remove the line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_understood() {
        for template in [
            "{spinner} scanned: {human_pos} files  {per_sec}  {msg}",
            "[{bar:30}] {percent:>3}%  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left  {msg}",
        ] {
            ProgressStyle::with_template(template).unwrap();
        }
    }
}
