//! ScaleDefrag, Figure 12: fio beside a defragmenter.

use lfs_sim::{
    BLOCK,
    beside::{Call, Ends, Load, race},
    calls::Direction,
    script,
};
use units::{Bytes, Nanos};
use workloads::Numbers;

use super::{
    error::FigureError,
    measured::{Measured, Unit},
    parameters::Parameters,
    scaledefrag::{FREE, Ground, System, Way, Workload},
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let mut free = FREE.to_vec();
    free.extend(["defraggers", "fio_calls", "fio_direction", "fio_threads"]);
    let mut measured = parameters.measure(&free, |parameters| rows(parameters, false))?;
    measured.rows = rows(parameters, true)?.rows;
    Ok(measured)
}

/// fio: calls of 4 KiB anywhere in a file of its own.
struct Fio {
    file: Bytes,
    direction: Direction,
    calls: u64,
    threads: usize,
    seed: u64,
}

impl Fio {
    fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        Ok(Self {
            file: Bytes(parameters.bytes("fio_file")?),
            direction: match parameters.text("fio_direction")? {
                "read" => Direction::Read,
                "write" => Direction::Update,
                other => {
                    let text = format!("fio reads or writes; '{other}' is neither");
                    return Err(FigureError::simulation(text));
                }
            },
            calls: parameters.count("fio_calls")?,
            threads: parameters.count("fio_threads")? as usize,
            seed: parameters.count("seed")?,
        })
    }

    /// The ground with fio's file.
    fn on(&self, system: &System, ground: &Ground) -> Result<(Ground, Vec<Call>), FigureError> {
        let mut ground = ground.clone();
        let file = ground.volume.create();
        let blocks = self.file.div_ceil(BLOCK) as u32;
        let writes = [(file, 0..blocks)];
        let (volume, _) = script::write(&system.simulated, ground.volume, &mut ground.disk, writes)
            .map_err(FigureError::simulation)?;
        ground.volume = volume;
        let mut numbers = Numbers::stream(self.seed, 0xF10);
        let call = |_| {
            let block = numbers.below(blocks);
            Call {
                file,
                blocks: block..block + 1,
                direction: self.direction,
            }
        };
        Ok((ground, (0..self.calls).map(call).collect()))
    }
}

/// `with_alone`: also against fio alone.
fn rows(parameters: &Parameters, with_alone: bool) -> Result<Measured, FigureError> {
    let fio = Fio::new(parameters)?;
    let system = System::new(parameters)?.with_room_for(fio.file);
    let defraggers = parameters.count("defraggers")? as usize;
    let mut measured = Measured::default();
    for workload in Workload::ALL {
        let aged = system.aged(workload)?;
        let (ground, calls) = fio.on(&system, &aged)?;
        let load = Load {
            calls: &calls,
            threads: fio.threads,
            plug: 1,
        };
        let ends = |way: Option<Way>| -> Result<Ends, FigureError> {
            let plans = way.map_or(&[][..], |_| &ground.plans);
            let way = way.unwrap_or(Way::E4DEFRAG);
            let by = (system.carrier(way), way.defraggers);
            let (volume, mut disk) = (ground.volume.clone(), ground.disk.clone());
            let simulated = &system.simulated;
            race(simulated, volume, &mut disk, plans, by, load, fio.calls)
                .map_err(FigureError::simulation)
        };
        let e4defrag = ends(Some(Way::E4DEFRAG))?;
        let scaledefrag = ends(Some(Way::scaledefrag(defraggers)))?;
        let times = |now: Nanos, then: Nanos| now.0 as f64 / then.0 as f64;
        let mut push = |series: &str, value| {
            measured.push(series, workload.name(), value, Unit::Times);
        };
        push("fio", times(scaledefrag.program, e4defrag.program));
        let defragmentation = times(scaledefrag.migration, e4defrag.migration);
        push("defragmentation", defragmentation);
        if !with_alone {
            continue;
        }
        let alone = ends(None)?;
        for (series, beside) in [("e4defrag", e4defrag), ("ScaleDefrag", scaledefrag)] {
            let series = format!("fio beside {series}, × alone");
            push(&series, times(beside.program, alone.program));
        }
    }
    Ok(measured)
}
