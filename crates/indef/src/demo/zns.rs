//! `indef demo --zns`: F2FS on a zoned SSD, in a virtual machine.
//!
//! Both are made by the laboratory's program, `indef-lab`, which is installed separately. It runs
//! this very program in a guest (`trace`, `scan`, `plan` and `run`, between the steps that age,
//! measure and check the files), and reports line by line what happens there ([`Said`]). This
//! module shows it and judges the result.
//!
//! The guest's times are divided by the factor by which the device was slowed down.

use std::{
    env,
    ffi::OsStr,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use indef_engine::Cancel;
use serde::Deserialize;
use units::{Bytes, Nanos};

use super::{
    end::{judge, stop_if},
    step::Measurement,
    text,
};
use crate::{
    args::DemoArgs,
    document::{DeviceFacts, Proof, RunDocument},
    made::Made,
    output::{Console, Ratio, counted, json},
};

const PROGRAM: &str = "indef-lab";
/// Interval of the check for a signal.
const LOOK: Duration = Duration::from_millis(50);

/// A line of indef-lab's standard output.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Said {
    /// A step begins.
    Note(String),
    /// A complaint of a command that succeeded.
    Detail(String),
    /// A result of a command, for the reader of the output.
    Output(String),
    /// All steps are done.
    Done(Box<Story>),
    /// A step failed, for this reason.
    Failed(String),
}

/// The measurements in the guest and on the device.
#[derive(Deserialize)]
struct Story {
    /// A [`Measurement`] as JSON, like `after`.
    before: String,
    after: String,
    /// A [`RunDocument`] as JSON.
    run: String,
    fsck_clean: bool,
    /// The name of flashd's profile.
    profile: String,
    /// The factor by which the device was slowed down.
    time_scale: f64,
    /// The device's own time for a cold read of all files.
    read_ns_before: u64,
    read_ns_after: u64,
    /// The device's own time during the run.
    run_ns: u64,
    bytes_moved_in_device: u64,
    bytes_over_bus: u64,
    die_utilization: f64,
}

/// Run `demo --zns` and show its result.
pub(super) fn show(args: &DemoArgs, console: &Console, cancel: &Cancel) -> Result<()> {
    let story = play(args, console, cancel)?;
    stop_if(cancel)?;
    let [before, after] = [measurement(&story.before)?, measurement(&story.after)?];
    let document = story.document(&before, &after)?;
    if console.json {
        json::print(&document, &Made::of(&[]))?;
    } else if !console.quiet {
        write(
            &mut io::stdout().lock(),
            console,
            &document,
            (&before, &after),
        )?;
    }
    let proof = document.proof.context("there is no proof")?;
    judge(proof.contents_equal, proof.fsck_clean)?;
    if document.totals.files_moved == 0 {
        console.note("nothing was moved; the reasons stand above");
    } else if story.read_ns_after >= story.read_ns_before {
        bail!(
            "the SSD took {} for a cold read before, and {} after: moving the files has gained nothing",
            Nanos(story.read_ns_before),
            Nanos(story.read_ns_after)
        );
    }
    Ok(())
}

/// Run indef-lab to its end. Ends early when `cancel` is set.
fn play(args: &DemoArgs, console: &Console, cancel: &Cancel) -> Result<Story> {
    let indef = env::current_exe().context("where is this program?")?;
    let program = lab_program()?;
    let mut lab = Command::new(&program)
        .arg("demo")
        .arg("--indef")
        .arg(&indef)
        .args(["--size", &args.size().get().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{}: cannot run it", program.display()))?;
    let input = lab.stdin.take();
    let output = lab.stdout.take().context("there is no pipe")?;
    let over = AtomicBool::new(false);
    let heard = thread::scope(|scope| {
        scope.spawn(|| {
            // Closing this input tells indef-lab to stop.
            let _held = input;
            while !over.load(Ordering::Relaxed) && !cancel.is_cancelled() {
                thread::sleep(LOOK);
            }
        });
        let heard = hear(output, console);
        over.store(true, Ordering::Relaxed);
        heard
    });
    let status = lab.wait().context("cannot wait for indef-lab")?;
    match heard? {
        Some(story) => Ok(story),
        None => bail!("{PROGRAM} has ended without a result: {status}"),
    }
}

/// The laboratory's program.
///
/// # Errors
///
/// It is not installed; the text says how it is.
pub(crate) fn lab_program() -> Result<PathBuf> {
    let indef = env::current_exe().context("where is this program?")?;
    find(&indef, &env::var_os("PATH").unwrap_or_default())
}

/// Find the program: in the folder of this one, else on the `PATH`.
fn find(indef: &Path, path: &OsStr) -> Result<PathBuf> {
    let beside = indef.parent().map(Path::to_owned);
    let folders = env::split_paths(path).filter(|folder| folder.is_absolute());
    let mut places = beside.into_iter().chain(folders);
    let found = places.find_map(|folder| Some(folder.join(PROGRAM)).filter(|file| file.is_file()));
    found.with_context(|| {
        format!(
            "the program {PROGRAM} is missing: it is neither beside {} nor on the PATH; \
             `indef demo --zns` runs its virtual machine with it. It is a package of its own \
             ({PROGRAM}-{}-{}-linux.tar.gz); in the source tree, `make install-lab` installs it",
            indef.display(),
            env!("CARGO_PKG_VERSION"),
            env::consts::ARCH
        )
    })
}

/// Show the lines up to the story; `None` where the program ends before that.
fn hear(output: ChildStdout, console: &Console) -> Result<Option<Story>> {
    for line in BufReader::new(output).lines() {
        let line = line.context("cannot hear indef-lab")?;
        let said = serde_json::from_str(&line)
            .context("indef-lab says what this indef does not know: install both of one version")?;
        match said {
            Said::Note(text) => console.note(text),
            Said::Detail(text) => console.detail(text),
            Said::Output(text) if !console.json && !console.quiet => {
                writeln!(io::stdout().lock(), "{text}")?;
            }
            Said::Output(_) => {}
            Said::Done(story) => return Ok(Some(*story)),
            Said::Failed(why) => bail!(why),
        }
    }
    Ok(None)
}

fn measurement(json: &str) -> Result<Measurement> {
    serde_json::from_str(json).context("the guest's measurement is not as written")
}

impl Story {
    /// The guest's result, with the proof and the facts of the device.
    fn document(&self, before: &Measurement, after: &Measurement) -> Result<RunDocument> {
        let mut document: RunDocument =
            serde_json::from_str(&self.run).context("the guest's result is not as written")?;
        let device_ns = |guest_ns: u64| (guest_ns as f64 / self.time_scale) as u64;
        document.proof = Some(Proof {
            contents_equal: before.sha256 == after.sha256,
            fsck_clean: Some(self.fsck_clean),
            read_ns_before: device_ns(before.read_ns),
            read_ns_after: device_ns(after.read_ns),
            requests_before: before.requests,
            requests_after: after.requests,
            device_reads_before: None,
            device_reads_after: None,
        });
        document.device = Some(DeviceFacts {
            profile: self.profile.clone(),
            time_scale: self.time_scale,
            extents_before: before.extents,
            extents_after: after.extents,
            read_ns_before: self.read_ns_before,
            read_ns_after: self.read_ns_after,
            run_ns: self.run_ns,
            bytes_moved_in_device: self.bytes_moved_in_device,
            bytes_over_bus: self.bytes_over_bus,
            die_utilization: self.die_utilization,
        });
        Ok(document)
    }
}

/// The result for a person.
fn write(
    out: &mut dyn Write,
    console: &Console,
    document: &RunDocument,
    (before, after): (&Measurement, &Measurement),
) -> io::Result<()> {
    let (Some(proof), Some(device)) = (&document.proof, &document.device) else {
        return Ok(());
    };
    let label = format!("cold read of {}, in the guest", Bytes(before.size_bytes));
    let aside = format!("{} times as fast", text::faster(proof));
    let extents = [before.extents, after.extents];
    text::compare(out, console, document, proof, extents, (&label, &aside))?;
    let gain = Ratio(device.read_ns_before as f64 / device.read_ns_after.max(1) as f64);
    writeln!(
        out,
        "\n{}\n  before           {}\n  after            {} ({gain} times as fast)",
        console.out.bold("The SSD during a cold read"),
        Nanos(device.read_ns_before),
        Nanos(device.read_ns_after),
    )?;
    writeln!(out, "\n{}", console.out.bold("The SSD during the run"))?;
    writeln!(
        out,
        "  moved inside it  {} (never on the bus)\n  over the bus     {}\n  its chips        busy {:.0} % of {}",
        Bytes(device.bytes_moved_in_device),
        Bytes(device.bytes_over_bus),
        100.0 * device.die_utilization,
        Nanos(device.run_ns),
    )?;
    let files = counted(before.sha256.len() as u64, "file", "files");
    let files = format!("{files}, read from the SSD again");
    text::prove(out, console, proof, &files, "fsck.f2fs")
}
