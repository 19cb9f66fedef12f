//! All contenders on copies of a workload's files, in turns.

use std::{path::Path, sync::Arc};

use stage::Fs;
use units::Bytes;

use super::{
    super::{
        super::{error::FigureError, memo::Memo, scaledefrag::Workload, turn::Turn},
        files::{Contents, Places, files_of},
        ground::{Failed, Image},
        work::Work,
    },
    contender::Contender,
    fio::Fio,
    made::{make, make_contiguous},
    setup::Setup,
};

/// The folder with the workload's files.
const AGED: &str = "aged";
/// fio's file.
const LOAD: &str = "load";

/// The files of a run before anybody moved them.
#[derive(Debug)]
pub(in super::super::super) struct Before {
    places: Places,
    contents: Contents,
}

impl Before {
    fn of(folder: &Path) -> Result<Self, Failed> {
        let files = files_of(folder)?;
        Ok(Self {
            places: Places::of(&files)?,
            contents: Contents::of(&files)?,
        })
    }

    pub(in super::super::super) fn files(&self) -> u64 {
        self.contents.files()
    }

    pub(in super::super::super) fn bytes(&self) -> Bytes {
        self.places.bytes()
    }

    pub(in super::super::super) fn extents(&self) -> u64 {
        self.places.extents()
    }

    pub(in super::super::super) fn fragmented(&self) -> u64 {
        self.places.fragmented()
    }
}

/// What a contender did in a run.
#[derive(Clone, Copy, Debug)]
pub(in super::super::super) struct State {
    pub(in super::super::super) work: Work,
    /// Bytes of the files that lie elsewhere afterwards.
    pub(in super::super::super) moved: Bytes,
    /// Extents of all files afterwards.
    pub(in super::super::super) extents: u64,
}

/// All runs.
#[derive(Debug)]
pub(in super::super::super) struct Runs(Vec<(Before, Vec<(Contender, State)>)>);

impl Runs {
    /// A value of the files of each run.
    pub(in super::super::super) fn before(&self, value: impl Fn(&Before) -> f64) -> Vec<f64> {
        self.0.iter().map(|(before, _)| value(before)).collect()
    }

    /// A value of a contender in each run.
    pub(in super::super::super) fn of(
        &self,
        contender: Contender,
        value: impl Fn(&Before, &State) -> f64,
    ) -> Vec<f64> {
        let of_run = |(before, states): &(Before, Vec<(Contender, State)>)| {
            let (_, state) = states.iter().find(|(it, _)| *it == contender)?;
            Some(value(before, state))
        };
        self.0.iter().filter_map(of_run).collect()
    }
}

/// All contenders on a workload's files, measured once for all figures.
pub(in super::super::super) fn runs(
    setup: &Setup,
    workload: Workload,
    turn: &Turn<'_>,
) -> Result<Arc<Runs>, FigureError> {
    static RUNS: Memo<(Setup, Workload), Runs> = Memo::new();
    RUNS.get((setup.clone(), workload), || {
        let mut runs = Vec::new();
        for run in 1..=setup.ground.runs {
            let (image, before) = begin(setup, workload, run, turn, |_| Ok(()))?;
            let mut states = Vec::new();
            for contender in Contender::all(setup.workers) {
                let what = what(setup, workload, run, &contender.to_string());
                turn.begin(&what)?;
                let state = State::measure(setup, &image, &before, contender);
                states.push((contender, state.map_err(FigureError::machine(what))?));
            }
            runs.push((before, states));
        }
        Ok(Runs(runs))
    })
}

/// fio's time, alone or beside a contender, and the contender's.
#[derive(Clone, Copy, Debug)]
pub(in super::super::super) struct Beside {
    /// Seconds.
    pub(in super::super::super) fio: f64,
    /// Seconds; 0 where there is none.
    pub(in super::super::super) contender: f64,
}

/// Each run of fio alone, and beside `e4defrag`, many workers, and indef on a workload's files.
pub(in super::super::super) fn beside(
    setup: &Setup,
    fio: &Fio,
    workload: Workload,
    turn: &Turn<'_>,
) -> Result<[Vec<Beside>; 4], FigureError> {
    let contenders = [
        None,
        Some(Contender::E4defrag),
        Some(Contender::Whole(setup.workers)),
        Some(Contender::Indef),
    ];
    let mut all = [const { Vec::new() }; 4];
    for run in 1..=setup.ground.runs {
        let load = |root: &Path| make_contiguous(&root.join(LOAD), fio.file, setup.sizes.seed);
        let (image, before) = begin(setup, workload, run, turn, load)?;
        for (contender, all) in contenders.into_iter().zip(&mut all) {
            let act = contender.map_or("fio alone".to_owned(), |it| format!("fio beside {it}"));
            let what = what(setup, workload, run, &act);
            turn.begin(&what)?;
            let one = Beside::measure(setup, &image, &before, fio, contender);
            all.push(one.map_err(FigureError::machine(what))?);
        }
    }
    Ok(all)
}

/// An act, for a person.
fn what(setup: &Setup, workload: Workload, run: u64, act: &str) -> String {
    let act = format!("{}, {act}", workload.name());
    setup.ground.what(Fs::Ext4, run, &act)
}

/// The files of a run; `and` makes others beside them, after them.
fn begin(
    setup: &Setup,
    workload: Workload,
    run: u64,
    turn: &Turn<'_>,
    and: impl FnOnce(&Path) -> Result<(), Failed>,
) -> Result<(Image, Before), FigureError> {
    let what = what(setup, workload, run, "files are made");
    turn.begin(&what)?;
    let made = setup.ground.aged(Fs::Ext4, |root| {
        let folder = root.join(AGED);
        make(&setup.sizes, workload, &folder)?;
        and(root)?;
        Before::of(&folder)
    });
    made.map_err(FigureError::machine(what))
}

impl State {
    fn measure(
        setup: &Setup,
        image: &Image,
        before: &Before,
        contender: Contender,
    ) -> Result<Self, Failed> {
        let stage = setup.ground.copy(image)?;
        let folder = stage.path().join(AGED);
        let own = tempfile::tempdir()?;
        let mut command = contender.command(&setup.ground.indef, &folder, own.path());
        let work = Work::of(&stage, &mut command)?;
        let files = files_of(&folder)?;
        let places = Places::of(&files)?;
        Contents::of(&files)?.ensure_same(&before.contents)?;
        Ok(Self {
            work,
            moved: places.moved_from(&before.places),
            extents: places.extents(),
        })
    }
}

impl Beside {
    fn measure(
        setup: &Setup,
        image: &Image,
        before: &Before,
        fio: &Fio,
        contender: Option<Contender>,
    ) -> Result<Self, Failed> {
        let stage = setup.ground.copy(image)?;
        let folder = stage.path().join(AGED);
        let own = tempfile::tempdir()?;
        let running = fio.start(&stage.path().join(LOAD))?;
        let mut seconds = 0.0;
        if let Some(contender) = contender {
            let mut command = contender.command(&setup.ground.indef, &folder, own.path());
            seconds = Work::of(&stage, &mut command)?.seconds;
        }
        let fio = running.finish()?;
        Contents::of(&files_of(&folder)?)?.ensure_same(&before.contents)?;
        Ok(Self {
            fio,
            contender: seconds,
        })
    }
}
