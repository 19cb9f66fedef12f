//! The aged SSD: files that a guest has aged, and the profile of a program that reads them all.
//!
//! It is an image file, of which every way gets a copy. Beside it, in a folder that is kept, lie the profile
//! and the notes, so that a later run can begin with the same SSD.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use flash_model::Zone;
use guest::ZnsSetup;
use serde::{Deserialize, Serialize};

use super::{
    ageing::Aged,
    bench::{Bench, DIR},
    experiment::Options,
    image,
    layout::Layout,
    room::{Room, path},
    virtual_time::ZONED,
};

const IMAGE: &str = "aged";
const NOTES: &str = "aged.json";
const PROFILE: &str = "aged.profile";

/// Have F2FS collect garbage until no more free segments come of it. So a way begins with all the room that the fill
/// leaves, and what moves data later is the way alone. It is done as on a full device (`background_gc=sync`): blocks move
/// one by one, in the order in which they lie. On an idle one they only become dirty, and are written file by file, which
/// joins their fragments (`move_data_page`, fs/f2fs/gc.c, v6.12).
const COLLECT: &str = r#"
mount -o remount,background_gc=sync $ZNS_MOUNT
settings=/sys/fs/f2fs/$(basename $(readlink -f $ZNS_CONVENTIONAL))
echo 1 >$settings/gc_urgent_sleep_time
echo 1 >$settings/gc_urgent
most=0
without=0
while [ $without -lt 5 ]; do
  sleep 2
  sync
  free=$(cat $settings/free_segments)
  if [ $free -gt $most ]; then most=$free without=0; else without=$((without + 1)); fi
done
echo 0 >$settings/gc_urgent
"#;

/// The aged SSD.
pub(super) struct AgedSsd {
    pub(super) image: PathBuf,
    pub(super) notes: Notes,
    pub(super) hash: String,
    pub(super) zones: Vec<Zone>,
}

/// The facts about it.
#[derive(Serialize, Deserialize)]
pub(super) struct Notes {
    /// The plan of its ageing, and its device.
    made_by: String,
    /// The kernel under which it aged.
    pub(super) kernel: String,
    pub(super) aged: Aged,
    pub(super) layout: Layout,
}

impl AgedSsd {
    /// The one in the folder that the options name; if there is none, make it.
    pub(super) fn obtain(bench: &Bench, options: &Options) -> Result<Self> {
        let is_traced = !options.age_only;
        let Some(folder) = &options.aged else {
            return Self::make(bench, bench.folder.path(), is_traced);
        };
        if folder.join(NOTES).exists() {
            return Self::open(bench, folder).with_context(|| folder.display().to_string());
        }
        fs::create_dir_all(folder)?;
        let made = Self::make(bench, folder, is_traced)?;
        if is_traced {
            fs::copy(bench.share().join(PROFILE), folder.join(PROFILE))?;
            fs::write(folder.join(NOTES), serde_json::to_vec(&made.notes)?)?;
        }
        Ok(made)
    }

    /// Age in an image in this folder, trace, and look.
    pub(super) fn make(bench: &Bench, folder: &Path, is_traced: bool) -> Result<Self> {
        let image = folder.join(IMAGE);
        let room = bench.enter(&image, ZnsSetup::Mounted, false)?;
        let kernel = room.kernel.clone();
        let aged = age(bench, &room)?;
        room.shell(COLLECT)?;
        if is_traced {
            trace(bench, &room)?;
        }
        let layout = room.layout(DIR)?;
        room.leave()?;
        let notes = Notes {
            made_by: made_by(bench),
            kernel,
            aged,
            layout,
        };
        Self::of(bench, image, notes)
    }

    fn open(bench: &Bench, folder: &Path) -> Result<Self> {
        let notes: Notes = serde_json::from_slice(&fs::read(folder.join(NOTES))?)?;
        ensure!(
            notes.made_by == made_by(bench),
            "there is another SSD: {}, not {}",
            notes.made_by,
            made_by(bench)
        );
        fs::copy(folder.join(PROFILE), bench.share().join(PROFILE))?;
        Self::of(bench, folder.join(IMAGE), notes)
    }

    fn of(bench: &Bench, image: PathBuf, notes: Notes) -> Result<Self> {
        let device = bench.setup.ssd.open(&image)?;
        Ok(Self {
            hash: image::hash(&device, &notes.layout)?,
            zones: device.zones(ZONED),
            image,
            notes,
        })
    }
}

fn made_by(bench: &Bench) -> String {
    let setup = &bench.setup;
    let (ageing, writes) = (setup.ageing, setup.writes.name());
    let (profile, zoned) = (setup.ssd.profile.name(), setup.ssd.zoned);
    format!("{ageing:?}, {writes}, on {profile} of {zoned}")
}

/// Have the flows age the files.
fn age(bench: &Bench, room: &Room) -> Result<Aged> {
    let ageing = bench.setup.ageing;
    let (files, mean) = (ageing.files.to_string(), ageing.mean_bytes.to_string());
    let (rounds, seed) = (ageing.rounds.to_string(), ageing.seed.to_string());
    let reads = ageing.reads_percent.to_string();
    let mut words = vec!["age", ageing.personality.name(), DIR];
    words.extend(["--writes", bench.setup.writes.name()]);
    words.extend(["--files", &files, "--mean", &mean, "--rounds", &rounds]);
    words.extend(["--reads", &reads, "--seed", &seed]);
    let said = room.inside(&words)?;
    serde_json::from_str(&said).context(said)
}

/// Have `indef trace` see a program that reads all files.
fn trace(bench: &Bench, room: &Room) -> Result<()> {
    let indef = path(&bench.setup.indef)?;
    let reader = format!("cat {DIR}/* >/dev/null");
    room.shell("echo 3 >/proc/sys/vm/drop_caches")?;
    let trace = "trace --quiet --max-overhead off -o /tmp/aged.profile -- sh -c";
    let trace: Vec<&str> = trace.split(' ').collect();
    room.run(&[&[indef.as_str()], trace.as_slice(), &[reader.as_str()]].concat())?;
    room.shell("cp /tmp/aged.profile /share/")?;
    Ok(())
}
