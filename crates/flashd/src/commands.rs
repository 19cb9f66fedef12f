//! The work of each command: call the library, render its answer.

use std::{fs::File, io::Write as _, path::Path, sync::Arc};

use anyhow::{Context, Result, anyhow, bail};
use flash_model::{NamespaceKind, Profile};
use flashd::{
    device::{Access, Device, ErrorFault, NamespaceOptions, SlowDie},
    mount::{self, Mounted},
    operate::{Ask, OperateOptions, Operation, Told, ask, find_socket},
    record::{self, Keep, Replayed, marks},
    serve::{Target, TargetOptions},
    store::{FileOptions, Store, ZoneRest},
};
use serde_json::{Value, json};
use units::{Bytes, Nanos};

use crate::{
    args::{
        AskArgs, DeviceArgs, FailingAccess, InjectArgs, InjectCommand, MountArgs, ProfilesArgs,
        RecordArgs, RecordCommand, ReplayArgs, ServeArgs,
    },
    table::{faults_table, stats_table},
};

pub(crate) fn profiles(args: &ProfilesArgs) -> Result<()> {
    let wanted = |name: &&&str| args.name.as_deref().is_none_or(|only| only == **name);
    if args.toml {
        for name in flash_model::BUILTIN.iter().filter(wanted) {
            print!("{}", Profile::builtin_text(name).unwrap_or_default());
        }
        return Ok(());
    }
    let profiles: Vec<Profile> = flash_model::BUILTIN
        .iter()
        .filter(wanted)
        .filter_map(|name| Profile::builtin(name))
        .collect();
    if args.json {
        let list: Vec<Value> = profiles
            .iter()
            .map(|profile| {
                json!({
                    "name": profile.name(),
                    "description": profile.description(),
                    "geometry": profile.geometry(),
                    "buffer_bytes": profile.buffer_size(),
                })
            })
            .collect();
        return print_json(&json!({ "schema": 1, "profiles": list }));
    }
    let widest = profiles.iter().map(|profile| profile.name().len()).max();
    let width = widest.unwrap_or(0);
    for profile in profiles {
        let geometry = profile.geometry();
        println!("{:width$}  {}", profile.name(), profile.description());
        println!(
            "{:width$}  {} channels, {} dies, pages of {}, zones of {}, buffer of {}",
            "",
            geometry.channels,
            geometry.dies(),
            geometry.page,
            geometry.zone.size,
            profile.buffer_size()
        );
    }
    Ok(())
}

pub(crate) fn serve(args: &ServeArgs) -> Result<()> {
    let namespaces = args.namespaces.iter().map(|arg| arg.0).collect();
    let device = Device::open(&args.device.options(namespaces, false)?)?;
    let mut operation = operate(&args.device, &device)?;
    if !args.listen.ip().is_loopback() {
        tracing::warn!(
            address = %args.listen,
            "whoever reaches this address can read and write the device: there is no authentication"
        );
    }
    let options = TargetOptions {
        nqn: args.nqn.clone(),
        advertise: args.advertise,
        private: args.private,
        standard_only: args.standard_only,
        ..TargetOptions::default()
    };
    let target = Target::listen(device, args.listen, options)
        .with_context(|| format!("cannot listen at {}", args.listen))?;
    println!("{} {}", target.address(), target.nqn());
    operation.wait_for_signal();
    drop(target);
    operation.finish()?;
    Ok(())
}

pub(crate) fn mount_disk(args: &MountArgs) -> Result<()> {
    mount::become_io_path();
    let namespaces = args.size.map(|size| NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size,
    });
    let options = args
        .device
        .options(namespaces.into_iter().collect(), true)?;
    let device = Device::open(&options)?;
    check_one_disk(&device)?;
    let mut operation = operate(&args.device, &device)?;
    mount::lock_memory();
    let mut mounted = Mounted::start(&device, &args.dir, operation.stopper())?;
    tracing::info!(
        "mounted; losetup --direct-io=on -b {} -f --show {}",
        args.device.block_size,
        mounted.disk().display()
    );
    operation.wait_for_signal();
    if let Err(error) = mounted.unmount() {
        tracing::warn!("{error}");
        mounted.unmount_when_unused(&mut || operation.signal_came());
    }
    drop(mounted);
    operation.finish()?;
    Ok(())
}

/// A file is one conventional namespace.
fn check_one_disk(device: &Device) -> Result<()> {
    match device.namespaces() {
        [only] if only.kind == NamespaceKind::Conventional => Ok(()),
        [_] => bail!("the store holds a zoned namespace; a file cannot be one, use `flashd serve`"),
        several => bail!(
            "the store holds {} namespaces; a file can be one, use `flashd serve`",
            several.len()
        ),
    }
}

fn operate(args: &DeviceArgs, device: &Arc<Device>) -> Result<Operation> {
    let options = OperateOptions {
        name: args.name.clone(),
        metrics: args.metrics,
        max_lateness: args.max_lateness,
    };
    Ok(Operation::start(device, &options)?)
}

/// Ask a daemon. A request that the daemon could not carry out is an error.
fn tell(args: &AskArgs, question: &Ask) -> Result<Value> {
    let socket = find_socket(args.name.as_deref())?;
    match ask(&socket, question).with_context(|| socket.display().to_string())? {
        Told::Done(value) => Ok(value),
        Told::Failed(reason) => bail!(reason),
    }
}

pub(crate) fn status(args: &AskArgs) -> Result<()> {
    let stats = tell(args, &Ask::Stats)?;
    if args.json {
        let wanted = [
            "schema",
            "profile",
            "time_scale",
            "uptime_ns",
            "power_cuts",
            "namespaces",
            "recording",
        ];
        let status = wanted.map(|field| (field.to_owned(), stats[field].clone()));
        return print_json(&Value::Object(status.into_iter().collect()));
    }
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    println!(
        "{} at 1/{} of its speed, up {}, {} power cuts",
        stats["profile"].as_str().unwrap_or("?"),
        stats["time_scale"],
        Nanos(number(&stats["uptime_ns"])),
        stats["power_cuts"],
    );
    for namespace in stats["namespaces"].as_array().into_iter().flatten() {
        println!(
            "namespace {}: {}, {} in blocks of {}, {} not durable, {}",
            namespace["id"],
            namespace["kind"].as_str().unwrap_or("?"),
            Bytes(number(&namespace["size_bytes"])),
            namespace["block_bytes"],
            Bytes(number(&namespace["volatile_bytes"])),
            namespace["problem"].as_str().unwrap_or("healthy"),
        );
    }
    if let Some(path) = stats["recording"]["path"].as_str() {
        println!(
            "recording to {path}: {} entries, {} flushes",
            stats["recording"]["entries"], stats["recording"]["flushes"]
        );
    }
    if let Some(reason) = stats["recording"]["failed"].as_str() {
        println!("the recording has ended: {reason}");
    }
    Ok(())
}

pub(crate) fn stats(args: &AskArgs) -> Result<()> {
    let stats = tell(args, &Ask::Stats)?;
    if args.json {
        return print_json(&stats);
    }
    print!("{}", stats_table(&stats));
    Ok(())
}

pub(crate) fn power_cut(args: &AskArgs) -> Result<()> {
    let answer = tell(args, &Ask::PowerCut)?;
    if args.json {
        return print_json(&answer);
    }
    let lost = answer["lost_bytes"].as_u64().unwrap_or(0);
    println!("the power was cut; {} were lost", Bytes(lost));
    Ok(())
}

pub(crate) fn inject(args: &InjectArgs) -> Result<()> {
    let (ask, question) = match &args.what {
        InjectCommand::Error {
            offset,
            length,
            on,
            times,
            delay,
            namespace,
            ask,
        } => {
            let fault = ErrorFault {
                namespace: *namespace,
                offset_bytes: offset.get(),
                length_bytes: length.get(),
                access: match on {
                    FailingAccess::Read => Some(Access::Read),
                    FailingAccess::Write => Some(Access::Write),
                    FailingAccess::Both => None,
                },
                left: *times,
                delay_ns: delay.saturating_mul(1_000_000),
                failed: 0,
            };
            (ask, Ask::InjectError(fault))
        }
        InjectCommand::SlowDie { die, factor, ask } => {
            let (die, factor) = (*die, *factor);
            (ask, Ask::InjectSlowDie(SlowDie { die, factor }))
        }
        InjectCommand::List(ask) => (ask, Ask::InjectList),
        InjectCommand::Clear(ask) => (ask, Ask::InjectClear),
    };
    let faults = tell(ask, &question)?;
    if ask.json {
        return print_json(&json!({ "schema": 1, "faults": faults }));
    }
    print!("{}", faults_table(&faults));
    Ok(())
}

pub(crate) fn record(args: &RecordArgs) -> Result<()> {
    let (ask, question) = match &args.what {
        RecordCommand::Start { file, ask } => {
            let file = std::path::absolute(file)?;
            (ask, Ask::RecordStart { file })
        }
        RecordCommand::Mark { label, ask } => {
            let label = label.clone();
            (ask, Ask::RecordMark { label })
        }
        RecordCommand::Stop(ask) => (ask, Ask::RecordStop),
    };
    let state = tell(ask, &question)?;
    if ask.json {
        return print_json(&state);
    }
    println!(
        "{}: {} entries, {} flushes",
        state["path"].as_str().unwrap_or("not recording"),
        state["entries"],
        state["flushes"]
    );
    Ok(())
}

pub(crate) fn replay(args: &ReplayArgs) -> Result<()> {
    if args.list {
        let marks = marks(&args.recording)?;
        if args.json {
            return print_json(&json!({ "schema": 1, "marks": marks }));
        }
        for mark in marks {
            println!("{:24} {:>10} entries", mark.mark, mark.entries);
        }
        return Ok(());
    }
    let keep = match (args.durable_only, args.reorder) {
        (true, _) => Keep::Durable,
        (false, Some(seed)) => Keep::Reordered(seed),
        (false, None) => Keep::Everything,
    };
    if let Some(path) = args.store.as_ref().filter(|path| path.exists()) {
        bail!("{} exists; a replay makes a new store", path.display());
    }
    let file = args.store.clone().map(|path| FileOptions {
        path,
        sparse: true,
        host_sync: false,
    });
    let (store, replayed) = record::replay(&args.recording, &args.until, keep, file.as_ref())?;
    if let Some(output) = &args.output {
        write_image(&store, args.namespace, output)?;
    }
    print_replayed(args, &store, &replayed)
}

fn print_replayed(args: &ReplayArgs, store: &Store, replayed: &Replayed) -> Result<()> {
    if args.json {
        let zones: Vec<Vec<u64>> = store
            .namespaces
            .iter()
            .map(|namespace| {
                namespace
                    .zones_now()
                    .iter()
                    .map(|z: &ZoneRest| z.written())
                    .collect()
            })
            .collect();
        return print_json(&json!({
            "schema": 1, "replayed": replayed, "zones_written_bytes": zones,
        }));
    }
    println!(
        "{} entries with {} flushes; of {} that could be lost, {} are left out{}",
        replayed.entries,
        replayed.flushes,
        Bytes(replayed.volatile_bytes),
        Bytes(replayed.left_out_bytes),
        if replayed.torn {
            "; the recording is torn off at its end"
        } else {
            ""
        }
    );
    Ok(())
}

/// The bytes of a namespace as a sparse file.
fn write_image(store: &Store, id: u32, output: &Path) -> Result<()> {
    let namespace = (id as usize)
        .checked_sub(1)
        .and_then(|index| store.namespaces.get(index))
        .ok_or_else(|| anyhow!("the recording has no namespace {id}"))?;
    let context = || output.display().to_string();
    let file = File::create_new(output).with_context(context)?;
    namespace.copy_to(&file).with_context(context)
}

fn print_json(value: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}
