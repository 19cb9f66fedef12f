//! The numbers as text, in two forms that have the same samples: that of OpenMetrics (prometheus/OpenMetrics, version 1.0)
//! and Prometheus' older one (version 0.0.4).
//!
//! Names are a contract, as the dashboard and the alerts of `packaging/metrics` use them: families may be added, and
//! none is renamed or given another meaning. Counters begin at 0 with the service.

use std::{
    fmt::Write as _,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use units::Bytes;

use super::{event::Hold, status::Status};

/// The media type of [`Form::OpenMetrics`], for HTTP.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How families are told; a reader of one form loses the types of the other's counters, without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0, which Prometheus asks for: counters have `_total` after the name of their family, and families
    /// have units.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, the only one that node_exporter's textfile collector reads: a family has the name
    /// of its samples, and no unit. The last line is the end of OpenMetrics, which is a comment here.
    Prometheus,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }

    /// What samples have after the name that is given to [`Family::new`].
    const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge => "",
        }
    }
}

/// A text that is being written.
struct Page {
    text: String,
    form: Form,
}

/// A family of metrics, and the page that it is written on.
struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
    kind: Kind,
}

/// Labels, as names and values.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl<'a> Family<'a> {
    fn new(page: &'a mut Page, kind: Kind, name: &'static str, unit: &str, help: &str) -> Self {
        let text = &mut page.text;
        let (is_open, suffix) = (page.form == Form::OpenMetrics, kind.suffix());
        let family = if is_open { "" } else { suffix };
        // Writing into a String does not fail.
        let _ = writeln!(text, "# TYPE {name}{family} {}", kind.as_str());
        if is_open && !unit.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name}{family} {help}");
        Self { text, name, kind }
    }

    fn sample(&mut self, labels: Labels<'_>, value: f64) -> &mut Self {
        let _ = write!(self.text, "{}{}", self.name, self.kind.suffix());
        for (nth, (name, value)) in labels.iter().enumerate() {
            let begin = if nth == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{begin}{name}=\"{}\"", escape(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
        self
    }
}

/// A path as the value of a label: no two are the same.
fn label(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => path.as_os_str().as_bytes().escape_ascii().to_string(),
    }
}

/// The value of a label.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn bytes(bytes: Bytes) -> f64 {
    bytes.get() as f64
}

/// What the numbers are of, so that those of many machines can be put side by side.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Of indef.
    pub version: String,
    /// The machine's name.
    pub host: String,
    /// Its kernel's release.
    pub kernel: String,
    /// The machine's kind.
    pub machine: String,
    /// The file systems, as far as they can be told.
    pub file_systems: Vec<FileSystemInfo>,
}

/// A file system by names that outlive this boot. What is not known is empty.
#[derive(Clone, Debug, Default)]
pub struct FileSystemInfo {
    /// Its path in the status.
    pub path: PathBuf,
    /// Its type.
    pub fs: String,
    /// Its UUID.
    pub uuid: String,
    /// Its drive.
    pub device: String,
    /// The maker's name of that.
    pub model: String,
}

/// The whole text, with its end.
#[must_use]
pub fn render(status: &Status, about: &About, form: Form) -> String {
    let mut page = Page {
        text: String::new(),
        form,
    };
    let out = &mut page;
    let totals = &status.totals;
    Family::new(
        out,
        Kind::Gauge,
        "indef_watch_info",
        "",
        "The running version, and where it runs.",
    )
    .sample(
        &[
            ("version", &about.version),
            ("host", &about.host),
            ("kernel", &about.kernel),
            ("machine", &about.machine),
        ],
        1.0,
    );
    let mut known = Family::new(
        out,
        Kind::Gauge,
        "indef_file_system_info",
        "",
        "A file system that is looked after, by names that outlive a boot.",
    );
    for one in &about.file_systems {
        let path = label(&one.path);
        let labels = [
            ("file_system", path.as_str()),
            ("fs", &one.fs),
            ("uuid", &one.uuid),
            ("device", &one.device),
            ("model", &one.model),
        ];
        known.sample(&labels, 1.0);
    }
    moves(out, status);
    Family::new(
        out,
        Kind::Counter,
        "indef_removed_extents",
        "",
        "Extents that moved files have less, as found before and after.",
    )
    .sample(&[], totals.extents_removed as f64);
    Family::new(
        out,
        Kind::Counter,
        "indef_stalls",
        "",
        "Steps that held a file's locks longer than --max-stall.",
    )
    .sample(&[], totals.stalls as f64);
    Family::new(
        out,
        Kind::Gauge,
        "indef_longest_step_seconds",
        "seconds",
        "The longest time for which one step held a file's locks.",
    )
    .sample(&[], totals.longest_step.get() as f64 / 1e9);
    Family::new(
        out,
        Kind::Counter,
        "indef_failures",
        "",
        "Things that failed; the log names them.",
    )
    .sample(&[], totals.failures as f64);
    Family::new(
        out,
        Kind::Counter,
        "indef_scans",
        "",
        "Looks at a file system.",
    )
    .sample(&[], totals.scans as f64);
    let mut skipped = Family::new(
        out,
        Kind::Counter,
        "indef_skipped_files",
        "",
        "Files that a look or a move left alone, by reason.",
    );
    for (reason, files) in &totals.skipped {
        skipped.sample(&[("reason", reason.as_str())], *files as f64);
    }
    places(out, status);
    readings(out, status);
    traces(out, status);
    let mut left = Family::new(
        out,
        Kind::Gauge,
        "indef_budget_left_bytes",
        "bytes",
        "Bytes that may still be written in the day or the year.",
    );
    for (period, bytes_left) in [("day", status.left_day), ("year", status.left_year)] {
        if let Some(bytes_left) = bytes_left {
            left.sample(&[("period", period)], bytes(bytes_left));
        }
    }
    page.text.push_str("# EOF\n");
    page.text
}

fn moves(out: &mut Page, status: &Status) {
    let mut moved = Family::new(
        out,
        Kind::Counter,
        "indef_moved_bytes",
        "bytes",
        "Bytes that got new, contiguous blocks.",
    );
    for place in &status.places {
        let path = label(&place.path);
        moved.sample(&[("file_system", &path)], bytes(place.relocated));
    }
    let mut written = Family::new(
        out,
        Kind::Counter,
        "indef_written_bytes",
        "bytes",
        "Bytes that moves have written, or may have.",
    );
    for place in &status.places {
        let path = label(&place.path);
        written.sample(&[("file_system", &path)], bytes(place.written));
    }
    Family::new(
        out,
        Kind::Counter,
        "indef_moved_files",
        "",
        "Files that were moved.",
    )
    .sample(&[], status.totals.files_moved as f64);
}

fn places(out: &mut Page, status: &Status) {
    let paths: Vec<String> = { status.places.iter() }
        .map(|place| label(&place.path))
        .collect();
    let mut wanted = Family::new(
        out,
        Kind::Gauge,
        "indef_worth_moving_bytes",
        "bytes",
        "Bytes that the last decision wants to move and that are not moved yet.",
    );
    for (place, path) in status.places.iter().zip(&paths) {
        wanted.sample(&[("file_system", path)], bytes(place.wanted));
    }
    let mut requests = Family::new(
        out,
        Kind::Gauge,
        "indef_predicted_saved_requests",
        "",
        "Requests a day that the moves of the last decision save, as predicted.",
    );
    for (place, path) in status.places.iter().zip(&paths) {
        requests.sample(&[("file_system", path)], place.saved_requests);
    }
    let mut saved = Family::new(
        out,
        Kind::Gauge,
        "indef_predicted_saved_seconds",
        "seconds",
        "Device time a day that the moves of the last decision save, as predicted, where times are known.",
    );
    for (place, path) in status.places.iter().zip(&paths) {
        if let Some(seconds) = place.saved_s {
            saved.sample(&[("file_system", path)], seconds);
        }
    }
    let mut paused = Family::new(
        out,
        Kind::Gauge,
        "indef_paused",
        "",
        "1 for the reason for which work on a file system waits.",
    );
    for (place, path) in status.places.iter().zip(&paths) {
        for reason in Hold::NAMES {
            let is_it = place.held.as_ref().is_some_and(|(name, _)| *name == reason);
            let labels = [("file_system", path.as_str()), ("reason", reason)];
            paused.sample(&labels, f64::from(u8::from(is_it)));
        }
    }
    let mut success = Family::new(
        out,
        Kind::Gauge,
        "indef_last_success_timestamp_seconds",
        "seconds",
        "When a round of a file system last came to its end with nothing left to do.",
    );
    for (place, path) in status.places.iter().zip(&paths) {
        if let Some(seconds) = place.last_success_s {
            success.sample(&[("file_system", path)], seconds as f64);
        }
    }
}

fn readings(out: &mut Page, status: &Status) {
    // The machine's own are the same for all file systems: each once, the newest first known.
    let mut seen = Vec::new();
    for reading in status.places.iter().flat_map(|place| &place.readings) {
        let key = (reading.quantity, reading.drive.clone().unwrap_or_default());
        if !seen.iter().any(|(known, _)| *known == key) {
            seen.push((key, reading));
        }
    }
    let mut values = Family::new(
        out,
        Kind::Gauge,
        "indef_reading",
        "",
        "What was read of the machine and its drives: percent, milliseconds, degrees Celsius, or 1 on battery.",
    );
    for ((quantity, drive), reading) in &seen {
        if let Ok(value) = reading.value {
            values.sample(&[("quantity", quantity.as_str()), ("drive", drive)], value);
        }
    }
    let mut limits = Family::new(
        out,
        Kind::Gauge,
        "indef_reading_limit",
        "",
        "The value from which on work pauses.",
    );
    for ((quantity, drive), reading) in &seen {
        if reading.limit.is_finite() {
            let labels = [("quantity", quantity.as_str()), ("drive", drive.as_str())];
            limits.sample(&labels, reading.limit);
        }
    }
    let mut known = Family::new(
        out,
        Kind::Gauge,
        "indef_reading_known",
        "",
        "1 if it could be told, else 0.",
    );
    for ((quantity, drive), reading) in &seen {
        let is_known = f64::from(u8::from(reading.value.is_ok()));
        known.sample(
            &[("quantity", quantity.as_str()), ("drive", drive)],
            is_known,
        );
    }
}

fn traces(out: &mut Page, status: &Status) {
    Family::new(
        out,
        Kind::Counter,
        "indef_traced_seconds",
        "seconds",
        "Time for which reads were traced.",
    )
    .sample(&[], status.traced_s);
    let traced = status.traced.unwrap_or_default();
    let mut time = Family::new(
        out,
        Kind::Gauge,
        "indef_traced_read_seconds",
        "seconds",
        "Mean device time of a read in the last trace: the measured effect of the moves.",
    );
    if let Some(mean) = traced.read_time {
        time.sample(&[], mean.get() as f64 / 1e9);
    }
    let mut requests = Family::new(
        out,
        Kind::Gauge,
        "indef_traced_read_requests",
        "",
        "Requests for a read in the last trace: the measured effect of the moves.",
    );
    if let Some(mean) = traced.requests_per_read {
        requests.sample(&[], mean);
    }
}

#[cfg(test)]
mod tests;
