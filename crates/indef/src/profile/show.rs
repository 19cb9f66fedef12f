//! `indef profile show`.

use std::{
    fs::{self, File},
    io::{self, BufReader, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    slice,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, anyhow};
use indef_core::{
    access::{AccessRange, AccessRecord, Op},
    plan::PathJson,
    profile::{self, ProfileFile, ProfileSink},
};
use indef_trace::{
    collect::relative_error,
    store::{Session, Settings, Store},
};
use serde::Serialize;
use units::{Bytes, Nanos};

use super::tell::failed;
use crate::{
    args::ShowArgs,
    made::Made,
    output::{Align, Console, Count, Name, Ratio, Table, UNPRINTED, counted, json},
};

/// The information in a profile about one file.
#[derive(Clone, Debug, Default, Serialize)]
struct FileHeat {
    #[serde(flatten)]
    path: Option<PathJson>,
    device: Option<u64>,
    inode: Option<u64>,
    ranges: u64,
    ranges_bytes: u64,
    reads: u64,
    writes: u64,
    requests: u64,
    timed_reads: u64,
    read_ns: u64,
    #[serde(skip)]
    name: PathBuf,
}

impl FileHeat {
    fn add(&mut self, counted: &AccessRange) {
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        add(&mut self.ranges, 1);
        add(&mut self.ranges_bytes, counted.range.len.0);
        add(&mut self.reads, counted.reads);
        add(&mut self.writes, counted.writes);
        add(&mut self.requests, counted.observed.requests);
        add(&mut self.timed_reads, counted.observed.timed);
        add(&mut self.read_ns, counted.observed.time.0);
    }

    fn heat(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }
}

/// A session in JSON.
#[derive(Serialize)]
struct SessionJson {
    began_ns: u64,
    latest_ns: u64,
    ended_ns: Option<u64>,
    layer: String,
    command: String,
    kernel: String,
    reads: u64,
    writes: u64,
    lost: u64,
    one_in: f64,
    common_error: Option<f64>,
}

/// The fields after the files in JSON.
#[derive(Serialize)]
struct ProfileRest {
    kind: &'static str,
    sessions: Vec<SessionJson>,
    totals: ProfileTotals,
}

#[derive(Default, Serialize)]
struct ProfileTotals {
    files: u64,
    ranges: u64,
    ranges_bytes: u64,
    reads: u64,
    writes: u64,
    lost: u64,
    one_in: f64,
    common_error: Option<f64>,
    size_bytes: u64,
    max_size_bytes: Option<u64>,
    half_life_ns: Option<u64>,
}

/// A profile of either kind.
struct Shown {
    files: Vec<FileHeat>,
    sessions: Vec<Session>,
    settings: Option<Settings>,
    size: u64,
}

pub(super) fn show(args: &ShowArgs, console: &Console) -> Result<()> {
    let path = &args.profile;
    let size = fs::metadata(path)
        .map_err(|error| failed(path, &error))?
        .len();
    let mut shown = match Store::is_store(path).map_err(|error| failed(path, &error))? {
        true => of_store(path)?,
        false => of_lines(path)?,
    };
    shown.size = size;
    shown
        .files
        .sort_by(|a, b| b.heat().cmp(&a.heat()).then_with(|| a.name.cmp(&b.name)));
    if console.json {
        return print_json(&args.profile, &shown).context(UNPRINTED);
    }
    if console.quiet {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    print_text(&mut out, args, &shown, console).context(UNPRINTED)
}

fn of_store(path: &Path) -> Result<Shown> {
    let store = Store::open(path)?;
    let mut files: Vec<FileHeat> = Vec::new();
    let mut latest = None;
    store.visit(SystemTime::now(), |number, file, range| {
        if latest != Some(number) {
            latest = Some(number);
            let there = file.key.dev != 0;
            files.push(FileHeat {
                path: file.path.as_deref().map(PathJson::from),
                device: there.then_some(file.key.dev),
                inode: there.then_some(file.key.inode),
                name: file.path.clone().unwrap_or_else(|| {
                    format!("(inode {} of device {})", file.key.inode, file.key.dev).into()
                }),
                ..FileHeat::default()
            });
        }
        if let Some(file) = files.last_mut() {
            file.add(&range);
        }
    })?;
    Ok(Shown {
        files,
        sessions: store.sessions()?,
        settings: Some(store.settings()?),
        size: 0,
    })
}

/// Counts the accesses in lines one by one.
impl ProfileSink for Shown {
    fn file(&mut self, file: ProfileFile) -> ControlFlow<()> {
        self.files.push(FileHeat {
            path: Some(PathJson::from(&*file.path)),
            device: file.dev,
            inode: file.inode,
            name: file.path,
            ..FileHeat::default()
        });
        ControlFlow::Continue(())
    }

    fn record(&mut self, record: AccessRecord) -> ControlFlow<()> {
        let file = &mut self.files[record.file as usize];
        let count = match record.op {
            Op::Read => &mut file.reads,
            Op::Write => &mut file.writes,
        };
        *count += 1;
        ControlFlow::Continue(())
    }

    fn range(&mut self, file: u32, range: AccessRange) -> ControlFlow<()> {
        self.files[file as usize].add(&range);
        ControlFlow::Continue(())
    }
}

fn of_lines(path: &Path) -> Result<Shown> {
    let file = File::open(path).map_err(|error| failed(path, &error))?;
    let mut shown = Shown {
        files: Vec::new(),
        sessions: Vec::new(),
        settings: None,
        size: 0,
    };
    profile::stream(BufReader::new(file), &mut shown)
        .map_err(|error| anyhow!("{}: {error}", Name(path)))?;
    Ok(shown)
}

fn totals(shown: &Shown) -> ProfileTotals {
    let mut totals = ProfileTotals {
        files: shown.files.len() as u64,
        size_bytes: shown.size,
        max_size_bytes: shown.settings.map(|s| s.max_size.0),
        half_life_ns: shown.settings.map(|s| Nanos::from(s.half_life).0),
        ..ProfileTotals::default()
    };
    for file in &shown.files {
        totals.ranges += file.ranges;
        totals.ranges_bytes = totals.ranges_bytes.saturating_add(file.ranges_bytes);
        totals.reads = totals.reads.saturating_add(file.reads);
        totals.writes = totals.writes.saturating_add(file.writes);
    }
    totals.lost = shown
        .sessions
        .iter()
        .map(|s| s.lost)
        .fold(0, u64::saturating_add);
    totals.one_in = one_in(&shown.sessions);
    totals.common_error = common_error(&shown.sessions);
    totals
}

/// Accesses of a session, as they were counted then.
fn accesses(session: &Session) -> f64 {
    session.reads as f64 + session.writes as f64
}

/// One in so many accesses was counted, as a mean over the accesses of all sessions.
fn one_in(sessions: &[Session]) -> f64 {
    let all: f64 = sessions.iter().map(accesses).sum();
    let sum: f64 = sessions.iter().map(|s| s.one_in * accesses(s)).sum();
    if all > 0.0 { (sum / all).max(1.0) } else { 1.0 }
}

/// The relative standard error that the counts share: sessions err independently of each other. `None` if
/// one of them was sampled, and did not keep it.
fn common_error(sessions: &[Session]) -> Option<f64> {
    let mut square = 0.0;
    for session in sessions {
        // Of a session that told nothing, it is that of one access.
        square += (session.common_error? * accesses(session).max(1.0)).powi(2);
    }
    let all: f64 = sessions.iter().map(accesses).sum();
    Some(if all > 0.0 { square.sqrt() / all } else { 0.0 })
}

/// The relative standard error of all accesses of a session together.
fn error_of(session: &Session) -> String {
    if session.one_in <= 1.0 && session.common_error.is_none_or(|error| error == 0.0) {
        return "-".to_owned();
    }
    let single = relative_error(session.one_in, session.reads.saturating_add(session.writes));
    match session.common_error {
        Some(common) if common > 1.0 => "> 100 %".to_owned(),
        Some(common) => format!("{:.1} %", single.hypot(common) * 100.0),
        None => "?".to_owned(),
    }
}

fn print_json(path: &PathBuf, shown: &Shown) -> io::Result<()> {
    let document = json::Document::begin("files", &Made::of(slice::from_ref(path)), None);
    shown.files.iter().for_each(|file| document.entry(file));
    let ns = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Nanos::from(since).0
    };
    let session = |s: &Session| SessionJson {
        began_ns: ns(s.began),
        latest_ns: ns(s.latest),
        ended_ns: s.ended.map(ns),
        layer: s.info.layer.clone(),
        command: s.info.command.clone(),
        kernel: s.info.kernel.clone(),
        reads: s.reads,
        writes: s.writes,
        lost: s.lost,
        one_in: s.one_in,
        common_error: s.common_error,
    };
    document.end(&ProfileRest {
        kind: if shown.settings.is_some() {
            "store"
        } else {
            "lines"
        },
        sessions: shown.sessions.iter().map(session).collect(),
        totals: totals(shown),
    })
}

fn print_text(
    out: &mut dyn Write,
    args: &ShowArgs,
    shown: &Shown,
    console: &Console,
) -> io::Result<()> {
    let totals = totals(shown);
    writeln!(
        out,
        "{} {}",
        console.out.bold("Profile"),
        Name(&args.profile)
    )?;
    writeln!(
        out,
        "  {} in {} of {} ({})",
        counted(totals.reads, "read", "reads")
            + " and "
            + &counted(totals.writes, "write", "writes"),
        counted(totals.ranges, "range", "ranges"),
        counted(totals.files, "file", "files"),
        Bytes(totals.ranges_bytes)
    )?;
    match shown.settings {
        None => writeln!(out, "  lines: {}", Bytes(totals.size_bytes))?,
        Some(settings) => {
            let half_life = match settings.half_life.is_zero() {
                true => "heat never fades".to_owned(),
                false => {
                    let time = humantime::format_duration(settings.half_life);
                    format!("heat is halved every {time}")
                }
            };
            let (size, most) = (Bytes(totals.size_bytes), settings.max_size);
            writeln!(out, "  store: {size} of at most {most}; {half_life}")?;
        }
    }
    if totals.one_in > 1.0 {
        let common = totals.common_error;
        let error = |count| {
            let error = relative_error(totals.one_in, count).hypot(common.unwrap_or(0.0));
            format!("{:.1} %", error * 100.0)
        };
        writeln!(
            out,
            "  estimates: one access in {} was counted; a range of 1,000 accesses is right within {}, one of 100,000 \
             within {} (standard error{})",
            Ratio(totals.one_in),
            error(1000),
            error(100_000),
            match common {
                Some(_) => "",
                None => ", but for what all counts share, which an earlier version did not keep",
            }
        )?;
    }
    if totals.lost > 0 {
        let lost = counted(totals.lost, "access was", "accesses were");
        writeln!(
            out,
            "  {}",
            console.out.warn(&format!("{lost} lost while tracing"))
        )?;
    }
    if !shown.sessions.is_empty() {
        writeln!(out, "\n{}", console.out.bold("Sessions"))?;
        sessions(&shown.sessions).write(out, console.out)?;
    }
    if !shown.files.is_empty() {
        writeln!(out, "\n{}", console.out.bold("Hottest files"))?;
        let mut table = Table::new(&[
            ("reads", Align::Right),
            ("writes", Align::Right),
            ("ranges", Align::Right),
            ("bytes", Align::Right),
            ("file", Align::Left),
        ]);
        for file in shown.files.iter().take(args.top) {
            table.row(&[
                &Count(file.reads),
                &Count(file.writes),
                &Count(file.ranges),
                &Bytes(file.ranges_bytes),
                &Name(&file.name),
            ]);
        }
        table.write(out, console.out)?;
        let more = shown.files.len().saturating_sub(args.top);
        if more > 0 {
            writeln!(out, "  and {} more", Count(more as u64))?;
        }
    }
    out.flush()
}

/// A table of the latest sessions.
fn sessions(all: &[Session]) -> Table {
    const SHOWN: usize = 10;
    let mut table = Table::new(&[
        ("began", Align::Left),
        ("took", Align::Right),
        ("layer", Align::Left),
        ("reads", Align::Right),
        ("writes", Align::Right),
        ("lost", Align::Right),
        ("1 in", Align::Right),
        ("error", Align::Right),
        ("of", Align::Left),
    ]);
    for session in all.iter().rev().take(SHOWN) {
        let took = match session.ended {
            Some(ended) => {
                let span = ended.duration_since(session.began).unwrap_or_default();
                Nanos::from(span).to_string()
            }
            None => "not ended".to_owned(),
        };
        table.row(&[
            // What others made may be of before 1970, which is no time for it.
            &humantime::format_rfc3339_seconds(session.began.max(UNIX_EPOCH)),
            &took,
            &Name(Path::new(&session.info.layer)),
            &Count(session.reads),
            &Count(session.writes),
            &Count(session.lost),
            &Ratio(session.one_in),
            &error_of(session),
            &Name(Path::new(&session.info.command)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use indef_trace::store::{SessionId, SessionInfo};

    use super::*;

    #[test]
    fn the_error_of_a_session_that_told_nothing_of_what_was_made_is_shown_and_counts() {
        let session = |reads, one_in, common_error| Session {
            id: SessionId(1),
            info: SessionInfo::default(),
            began: UNIX_EPOCH,
            latest: UNIX_EPOCH,
            ended: None,
            reads,
            writes: 0,
            lost: 0,
            one_in,
            common_error: Some(common_error),
        };
        // 300 calls were made.
        let unmet = session(0, 1.0, 300.0);
        let other = session(1000, 16.0, 0.4);
        assert_eq!(error_of(&unmet), "> 100 %");
        assert_eq!(error_of(&session(1000, 1.0, 0.0)), "-");
        assert_eq!(common_error(&[unmet, other]), Some(0.5));
    }

    #[test]
    fn a_session_of_before_1970_is_shown() {
        let began = UNIX_EPOCH - Duration::from_secs(1);
        let session = Session {
            id: SessionId(1),
            info: SessionInfo::default(),
            began,
            latest: began,
            ended: None,
            reads: 1,
            writes: 0,
            lost: 0,
            one_in: 1.0,
            common_error: None,
        };
        let mut text = Vec::new();
        let style = Console::plain().out;
        sessions(&[session]).write(&mut text, style).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("1970-01-01T00:00:00Z"), "{text}");
    }
}
