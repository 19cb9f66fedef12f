//! The power is cut while files are moved: flashd records a guest's operations on it, each state
//! that a power cut may have left is built from that, and another guest has to find every file
//! whole.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::fixture::{self, PROGRAM};
use flash_model::{Zone, ZoneState};
use flashd::{
    device::{Device, StoreOptions},
    record::{Keep, Mark, marks, replay},
    serve::{Target, TargetOptions},
    store::FileOptions,
};
use guest::{Release, Zns, ZnsOptions, ZnsSetup};
use tempfile::TempDir;
use units::Bytes;

/// Number of states that one guest examines, one after the other.
const STATES_IN_A_GUEST: usize = 12;

/// For each target in /share/targets: attach it, mount, look, move again, check, detach.
const LOOK: &str = r#"
host=6e0b3a5c-91b1-4c53-9d1c-6d3d1a9f0c11
# Namespaces one after the other until they are there: see lab/guest/files/zns.
unbound=/sys/devices/virtual/workqueue/cpumask
processors=$(cat $unbound)
while read -r name port nqn marks; do
  {
    echo 1 >$unbound &&
    echo "transport=tcp,traddr=10.0.2.2,trsvcid=$port,nqn=$nqn,nr_io_queues=2,hostid=$host,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$host" >/dev/nvme-fabrics &&
    controller= zoned= flat= &&
    for directory in /sys/class/nvme/nvme*; do
      if [ "$(cat $directory/subsysnqn)" = "$nqn" ]; then controller=$directory; fi
    done &&
    for _ in $(seq 100); do
      for disk in $controller/nvme*n*; do
        disk=${disk##*/}
        case $(cat /sys/block/$disk/nsid 2>/dev/null) in
          1) zoned=/dev/$disk ;;
          2) flat=/dev/$disk ;;
        esac
      done
      # The queue comes after the disk, and may refuse for a moment.
      scheduler=/sys/block/${zoned#/dev/}/queue/scheduler
      if [ -b "$zoned" ] && [ -b "$flat" ] && [ -e $scheduler ] &&
        echo mq-deadline 2>/dev/null >$scheduler; then break; fi
      usleep 50000
    done &&
    echo "$processors" >$unbound &&
    grep -qF '[mq-deadline]' $scheduler &&
    ln -sf $zoned /dev/zoned &&
    ln -sf $flat $ZNS_CONVENTIONAL &&
    mount -t f2fs $ZNS_CONVENTIONAL $ZNS_MOUNT &&
    PROGRAM after $ZNS_MOUNT "$marks" &&
    umount $ZNS_MOUNT &&
    fsck.f2fs $ZNS_CONVENTIONAL >/tmp/fsck 2>&1 &&
    ! grep -q 'Fail\|ASSERT' /tmp/fsck &&
    echo 1 >$controller/delete_controller
  } || { echo "state $name"; dmesg | tail -30; cat /tmp/fsck; exit 1; } >&2
  echo "$name"
done </share/targets
if dmesg | grep -qE 'KERNEL_FAULTS'; then dmesg >&2; exit 9; fi
"#;

/// Enough for F2FS to have spare sections.
fn options() -> ZnsOptions {
    ZnsOptions {
        size: Bytes::gib(2),
        ..ZnsOptions::default()
    }
}

/// Record a guest's operations on a device while it moves files, by this subject of the program. Returns the
/// recording, in a folder of its own.
fn record(release: Release, subject: &str, options: ZnsOptions) -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    let zns = Zns::new(options).unwrap();
    let prepare = format!("{PROGRAM} prepare $ZNS_MOUNT && umount $ZNS_MOUNT");
    fixture::run(release, &zns, ZnsSetup::Mounted, &prepare, 300, None)?;
    let device = zns.flashd().unwrap();
    device.flush_all().unwrap();
    device.record_to(&recording).unwrap();
    let share = tempfile::tempdir().unwrap();
    let asked = share.path().join("marks");
    fs::create_dir(&asked).unwrap();
    let migrate = format!("{PROGRAM} {subject} $ZNS_MOUNT /share/marks && umount $ZNS_MOUNT");
    let share = Some(share.path());
    fixture::answering(
        &asked,
        |mark| device.recording().mark(mark).unwrap(),
        || fixture::run(release, &zns, ZnsSetup::Kept, &migrate, 300, share),
    )?;
    device.recording().end().unwrap();
    Some((folder, recording))
}

/// The device as a power cut may have left it.
fn state(recording: &Path, mark: &Mark, keep: Keep, to: &Path) -> Arc<Device> {
    let file = FileOptions {
        path: to.to_owned(),
        sparse: true,
        host_sync: false,
    };
    replay(recording, mark, keep, Some(&file)).unwrap();
    let mut device = options().flashd().unwrap();
    device.store = StoreOptions::File(file);
    Device::open(&device).unwrap()
}

/// A cut: its place, the kept writes, and the marks before it.
struct Cut {
    mark: Mark,
    keep: Keep,
    before: String,
}

fn look(release: Release, recording: &Path, states: &[Cut]) -> Option<()> {
    let folder = tempfile::tempdir().unwrap();
    let share = folder.path().join("share");
    fs::create_dir(&share).unwrap();
    let mut list = String::new();
    let targets: Vec<Target> = states
        .iter()
        .enumerate()
        .map(|(number, Cut { mark, keep, before })| {
            let to = folder.path().join(format!("store{number}"));
            let device = state(recording, mark, *keep, &to);
            let target = Target::listen(
                device,
                "127.0.0.1:0".parse().unwrap(),
                TargetOptions::default(),
            )
            .unwrap();
            let port = target.address().port();
            let nqn = target.nqn();
            list += &format!("{mark}/{keep:?} {port} {nqn} {before}\n")
                .replace("(", "-")
                .replace(")", "");
            target
        })
        .collect();
    fs::write(share.join("targets"), list).unwrap();
    // For its network; its content does not matter.
    let zns = Zns::new(options()).unwrap();
    let script = LOOK
        .replace("PROGRAM", PROGRAM)
        .replace("KERNEL_FAULTS", guest::KERNEL_FAULTS);
    let outcome = fixture::run(
        release,
        &zns,
        ZnsSetup::Attached,
        &script,
        600,
        Some(&share),
    )?;
    let seen = String::from_utf8_lossy(&outcome.stdout).lines().count();
    assert_eq!(seen, states.len());
    drop(targets);
    Some(())
}

/// `INDEF_POWER_CUTS` states anywhere, as any order of writing may have left them, as many at boundaries of
/// flushes, with the least that is durable there, and as many right after a checkpoint that came while a
/// moved file was being written (all of these if there are no more).
fn power_cuts(release: Release) {
    let Some((_folder, recording)) = record(release, "migrate", options()) else {
        return;
    };
    let marks = marks(&recording).unwrap();
    let (first, last) = (marks[0].entries, marks.last().unwrap().entries);
    let names = named(&recording);
    let flushes: Vec<u64> = marks
        .iter()
        .filter(|mark| mark.mark.starts_with("flush:"))
        .map(|mark| mark.entries)
        .collect();
    let early: Vec<u64> = names
        .iter()
        .filter(|(name, _)| name.starts_with("early-"))
        .map(|(_, entries)| *entries)
        .collect();
    assert!(!early.is_empty());
    let wanted = fixture::setting("INDEF_POWER_CUTS", 3);
    println!(
        "{} flushes, {} early checkpoints, {} entries",
        flushes.len(),
        early.len(),
        last - first
    );
    let anywhere = (0..wanted).map(|number| {
        let at = first + 1 + (last - first - 1) * number / wanted;
        (at, Keep::Reordered(number))
    });
    let of = |places| some(places, wanted).map(|at| (at, Keep::Durable));
    let states: Vec<Cut> = of(&early)
        .chain(of(&flushes))
        .chain(anywhere)
        .map(|(at, keep)| Cut {
            mark: Mark::Entry(at),
            keep,
            before: marks_until(&names, at),
        })
        .collect();
    for (number, states) in states.chunks(STATES_IN_A_GUEST).enumerate() {
        look(release, &recording, states);
        println!("{} states", number * STATES_IN_A_GUEST + states.len());
    }
}

/// The marks that were asked for, and the number of entries before each.
fn named(recording: &Path) -> Vec<(String, u64)> {
    marks(recording)
        .unwrap()
        .iter()
        .filter_map(|mark| Some((mark.mark.strip_prefix("mark:")?.to_owned(), mark.entries)))
        .collect()
}

/// The names of those until this entry, as the program takes them.
fn marks_until(names: &[(String, u64)], at: u64) -> String {
    names
        .iter()
        .filter(|(_, entries)| *entries <= at)
        .map(|(name, _)| format!("{name},"))
        .collect()
}

/// This many of them, evenly chosen, or all.
fn some(places: &[u64], wanted: u64) -> impl Iterator<Item = u64> {
    let count = places.len().min(wanted as usize);
    (0..count).map(move |number| places[number * places.len() / count])
}

#[test]
fn vm_6_12_power_cuts_leave_every_file_whole() {
    power_cuts(Release::Linux6_12);
}

#[test]
fn vm_6_1_power_cuts_leave_every_file_whole() {
    power_cuts(Release::Linux6_1);
}

/// Bytes of a zone that fsync writes at most, beside the data; a move writes more, and so does who overwrites data.
const NODES: u64 = 64 << 10;

/// The writes of the recording to keep at this place, right before a flush, so that all nodes are
/// there and no more than half of the data; `None` where there are not both.
fn nodes_without_data(recording: &Path, at: u64, folder: &Path) -> Option<Keep> {
    const SEEDS: u64 = 200;
    let written = |keep| -> Vec<u64> {
        let store = folder.join("store");
        let device = state(recording, &Mark::Entry(at), keep, &store);
        fs::remove_file(&store).unwrap();
        device.zones(0).iter().map(filled).collect()
    };
    let durable = written(Keep::Durable);
    let volatile: Vec<u64> = written(Keep::Everything)
        .iter()
        .zip(&durable)
        .map(|(all, durable)| all.saturating_sub(*durable))
        .collect();
    let is_nodes = |bytes: u64| bytes <= NODES;
    if !volatile.iter().any(|&bytes| bytes > 0 && is_nodes(bytes))
        || volatile.iter().all(|&bytes| is_nodes(bytes))
    {
        return None;
    }
    (0..SEEDS)
        .map(|n| Keep::Reordered(at * SEEDS + n))
        .find(|keep| {
            let kept = written(*keep);
            (0..kept.len()).all(|zone| {
                let kept = kept[zone].saturating_sub(durable[zone]);
                match volatile[zone] {
                    bytes if is_nodes(bytes) => kept == bytes,
                    bytes => kept <= bytes / 2,
                }
            })
        })
}

/// Number of written bytes of a zone.
fn filled(zone: &Zone) -> u64 {
    match zone.state {
        ZoneState::Full => zone.capacity,
        _ => zone.write_pointer - zone.start,
    }
}

/// An fsync during a move must not make durable that the file is at a new place before the copies
/// are: the power is cut when nodes are written and nothing is flushed yet, and the copies are
/// lost.
fn beside_fsync(release: Release) {
    let Some((folder, recording)) = record(release, "synced", options()) else {
        return;
    };
    let marks = marks(&recording).unwrap();
    let begun = marks.iter().position(|mark| mark.mark == "mark:synced");
    let flushes: Vec<u64> = marks[begun.unwrap()..]
        .iter()
        .filter(|mark| mark.mark.starts_with("flush:"))
        .map(|mark| mark.entries - 1)
        .collect();
    let states: Vec<Cut> = some(&flushes, u64::MAX)
        .filter_map(|at| {
            Some(Cut {
                mark: Mark::Entry(at),
                keep: nodes_without_data(&recording, at, folder.path())?,
                before: "synced,".to_owned(),
            })
        })
        .take(fixture::setting("INDEF_POWER_CUTS", 6) as usize)
        .collect();
    println!("{} flushes, {} states", flushes.len(), states.len());
    assert!(!states.is_empty());
    for states in states.chunks(STATES_IN_A_GUEST) {
        look(release, &recording, states);
    }
}

#[test]
fn vm_6_12_an_fsync_beside_a_move_loses_nothing() {
    beside_fsync(Release::Linux6_12);
}

#[test]
fn vm_6_1_an_fsync_beside_a_move_loses_nothing() {
    beside_fsync(Release::Linux6_1);
}

/// Data that fdatasync acknowledges while a checkpoint is under way is durable from then on, whether or not the
/// checkpoint comes to its end.
fn beside_checkpoints(release: Release) {
    // Checkpoints are written by who asks for them, and not by a thread of the kernel.
    let options = ZnsOptions {
        mount: "nocheckpoint_merge".into(),
        ..options()
    };
    what_was_acknowledged(release, "checkpointed", options, 10);
}

/// Cut the power right after this many of the calls that promised durable data, and all that was not flushed is lost.
fn what_was_acknowledged(release: Release, subject: &str, options: ZnsOptions, wanted: u64) {
    let Some((_folder, recording)) = record(release, subject, options) else {
        return;
    };
    let names = named(&recording);
    let acknowledged: Vec<u64> = names
        .iter()
        .filter(|(name, _)| name.starts_with("durable-"))
        .map(|(_, entries)| *entries)
        .collect();
    let wanted = fixture::setting("INDEF_POWER_CUTS", wanted);
    let states: Vec<Cut> = some(&acknowledged, wanted)
        .map(|at| Cut {
            mark: Mark::Entry(at),
            keep: Keep::Durable,
            before: marks_until(&names, at),
        })
        .collect();
    assert!(!states.is_empty());
    for states in states.chunks(STATES_IN_A_GUEST) {
        look(release, &recording, states);
    }
}

/// Of several fsyncs of a file at the same time, each returns when what was written before it is durable.
fn beside_each_other(release: Release) {
    what_was_acknowledged(release, "synced-together", options(), 12);
}

#[test]
fn vm_6_12_fsyncs_of_one_file_at_once_lose_nothing() {
    beside_each_other(Release::Linux6_12);
}

#[test]
fn vm_6_1_fsyncs_of_one_file_at_once_lose_nothing() {
    beside_each_other(Release::Linux6_1);
}

#[test]
fn vm_6_12_an_fsync_beside_a_checkpoint_loses_nothing() {
    beside_checkpoints(Release::Linux6_12);
}

#[test]
fn vm_6_1_an_fsync_beside_a_checkpoint_loses_nothing() {
    beside_checkpoints(Release::Linux6_1);
}

/// A power cut in the middle of an fsync must not take what was durable before: at each flush, the nodes that were written
/// before it may be there, and the data not.
fn amid_fsync(release: Release) {
    let Some((folder, recording)) = record(release, "overwritten", options()) else {
        return;
    };
    let names = named(&recording);
    let begun = names.iter().find(|(name, _)| name.starts_with("written-"));
    let (_, begun) = begun.expect("something was written");
    let flushes: Vec<u64> = marks(&recording)
        .unwrap()
        .iter()
        .filter(|mark| mark.mark.starts_with("flush:") && mark.entries > *begun)
        .map(|mark| mark.entries - 1)
        .collect();
    let cut = |at, keep| Cut {
        mark: Mark::Entry(at),
        keep,
        before: marks_until(&names, at),
    };
    let wanted = fixture::setting("INDEF_POWER_CUTS", 12);
    let worst: Vec<Cut> = some(&flushes, u64::MAX)
        .filter_map(|at| Some(cut(at, nodes_without_data(&recording, at, folder.path())?)))
        .take(wanted as usize)
        .collect();
    // With data in order before nodes, there may be none of these.
    let any = some(&flushes, wanted).map(|at| cut(at, Keep::Reordered(at)));
    println!(
        "{} flushes, {} with nodes and data",
        flushes.len(),
        worst.len()
    );
    assert!(!flushes.is_empty());
    let states: Vec<Cut> = worst.into_iter().chain(any).collect();
    for states in states.chunks(STATES_IN_A_GUEST) {
        look(release, &recording, states);
    }
}

#[test]
fn vm_6_12_a_cut_amid_an_fsync_loses_nothing() {
    amid_fsync(Release::Linux6_12);
}

#[test]
fn vm_6_1_a_cut_amid_an_fsync_loses_nothing() {
    amid_fsync(Release::Linux6_1);
}
