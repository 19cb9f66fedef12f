//! FragPicker, Figure 11: grep over the files of a fileserver on F2FS, before and after two defragmenters.

use std::sync::Arc;

use indef_core::layout::Layout;
use lfs_sim::{
    FileId,
    ageing::age,
    device,
    disk::Disk,
    host::{Access, Carrier, Writes},
    migration::migrate,
    planning,
    readers::read,
};
use units::Bytes;
use workloads::filebench::{Ageing, Personality};

use super::{
    database::Aged,
    error::FigureError,
    fragpicker::{Contender, FileSystem, System},
    measured::{Measured, Unit, change},
    memo::Memo,
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["turn_blocks", "block_time"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let mut measured = Measured::default();
    let files = parameters.counts("files")?;
    for (drive, files) in parameters.texts("devices")?.iter().zip(files) {
        let name = label(drive);
        let mut system = System::new(parameters, drive)?;
        system.simulated.log.turn_blocks = parameters.count("turn_blocks")? as u32;
        let works = works(&system, ageing(parameters, files)?)?;
        let grep = Grep::new(parameters, system)?;
        let [before, conventional, fragpicker] = [
            &works.before,
            &works.conventional.place,
            &works.fragpicker.place,
        ];
        let cost = |place: &Aged| grep.cost(place.disk.clone(), place.layouts());
        let costs = [before, conventional, fragpicker].map(cost);
        let [cost_before, cost_conventional, cost] = costs;
        let (cost_before, cost_conventional, cost) = (cost_before?, cost_conventional?, cost?);
        let series = format!("FragPicker, {name}");
        let mut push = |x: &str, now: f64, then: f64| {
            measured.push(&series, x, change(now, then), Unit::ChangePct);
        };
        push("grep cost, from before", cost, cost_before);
        push("grep cost, from conventional", cost, cost_conventional);
        push(
            "writes, from conventional",
            works.fragpicker.written,
            works.conventional.written,
        );
        for (who, place) in [("before", before), ("FragPicker", fragpicker)] {
            let series = format!("{who}, {name}");
            let fragments = place.fragments();
            measured.push(&series, "fragments of a file", fragments, Unit::Count);
        }
    }
    Ok(measured)
}

/// The paper's name of a drive.
pub(super) fn label(drive: &str) -> &str {
    match drive {
        "optane-905p" => "Optane",
        "sata-850-pro" => "Flash",
        other => other,
    }
}

/// grep, and the host on which it runs.
pub(super) struct Grep {
    system: System,
    access: Access,
}

impl Grep {
    /// By the parameters `grep_call` and `block_time`, on this system.
    pub(super) fn new(parameters: &Parameters, mut system: System) -> Result<Self, FigureError> {
        system.simulated.host.block = parameters.time("block_time")?;
        let access = Access::Buffered {
            call: Bytes(parameters.bytes("grep_call")?),
            readahead: system.io_size,
        };
        Ok(Self { system, access })
    }

    /// Nanoseconds for each byte of files that lie so, one after the other.
    pub(super) fn cost(&self, mut disk: Disk, files: Vec<Layout>) -> Result<f64, FigureError> {
        let read = read(&self.system.simulated, &mut disk, files, self.access, 1)
            .map_err(FigureError::simulation)?;
        Ok(read.elapsed.time.0 as f64 / read.bytes.0 as f64)
    }
}

/// The fileserver with so many files in the paper.
pub(super) fn ageing(parameters: &Parameters, files: u64) -> Result<Ageing, FigureError> {
    Ok(Ageing {
        personality: Personality::Fileserver,
        files: (files / parameters.count("factor")?) as usize,
        mean_bytes: parameters.bytes("mean")?,
        rounds: parameters.number("rounds")? / 100.0,
        reads_percent: parameters.number("reads")? as u32,
        seed: parameters.count("seed")?,
    })
}

/// The work of a defragmenter.
struct Work {
    place: Aged,
    /// Bytes.
    written: f64,
}

/// An aged device, and two works on it.
struct Works {
    before: Aged,
    conventional: Work,
    fragpicker: Work,
}

/// All that reading does not change, once for all.
fn works(system: &System, ageing: Ageing) -> Result<Arc<Works>, FigureError> {
    static WORKS: Memo<(System, Ageing), Works> = Memo::new();
    WORKS.get((system.clone(), ageing), || {
        let before = aged(system, ageing)?;
        Ok(Works {
            conventional: before.defragmented(system, true)?,
            fragpicker: before.defragmented(system, false)?,
            before,
        })
    })
}

fn aged(system: &System, ageing: Ageing) -> Result<Aged, FigureError> {
    // The paper's drives are far from full: nothing is ever cleaned, and there is room for the files once more.
    let times = 2.5 + ageing.rounds;
    let room = Bytes((ageing.fill_bytes() as f64 * times) as u64);
    let volume = system.volume(FileSystem::F2fs, room);
    let size = System::size_of(&volume);
    let device = device::conventional(&system.profile, size).map_err(FigureError::simulation)?;
    let mut disk = Disk::new(device, system.simulated.host.queue_depth);
    let aged = age(&system.simulated, volume, &mut disk, ageing, Writes::Direct)
        .map_err(FigureError::simulation)?;
    Ok(Aged {
        disk,
        volume: aged.volume,
        files: aged.files,
    })
}

impl Aged {
    fn layouts(&self) -> Vec<Layout> {
        let layout = |file: &FileId| self.volume.layout(*file);
        self.files.iter().map(layout).collect()
    }

    /// Extents of a file, on average.
    fn fragments(&self) -> f64 {
        let fragments: u64 = self.layouts().iter().map(Layout::fragments).sum();
        fragments as f64 / self.files.len() as f64
    }

    fn defragmented(&self, system: &System, is_whole: bool) -> Result<Work, FigureError> {
        let plan = |file: &FileId| {
            let layout = self.volume.layout(*file);
            let accesses = planning::sequential_reads(layout.allocated(), system.io_size);
            let contender = match is_whole {
                true => Contender::Conventional,
                false => Contender::FragPicker {
                    accesses: &accesses,
                    hot: 100.0,
                },
            };
            (*file, system.plan(&layout, contender))
        };
        let plans: Vec<_> = self.files.iter().map(plan).collect();
        let call = system.io_size;
        let carrier = Carrier::Host(Access::Direct { call });
        let (volume, mut disk) = (self.volume.clone(), self.disk.clone());
        let migrated = migrate(&system.simulated, volume, &mut disk, &plans, carrier)
            .map_err(FigureError::simulation)?;
        Ok(Work {
            place: Self {
                disk,
                volume: migrated.volume,
                files: self.files.clone(),
            },
            written: migrated.bytes.0 as f64,
        })
    }
}
