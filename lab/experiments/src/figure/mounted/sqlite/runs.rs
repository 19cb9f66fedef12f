//! All contenders on a file system, in turns.

use std::fs;

use stage::Fs;

use super::{
    super::{
        super::{error::FigureError, parameters::Parameters, states::States, turn::Turn},
        ground::Ground,
        tool::Tool,
    },
    database::Workload,
    state::State,
};

/// In their turns; `None`: the file as it is.
const CONTENDERS: [Option<Tool>; 5] = [
    None,
    Some(Tool::Conventional),
    Some(Tool::Bypass),
    Some(Tool::FragPicker),
    Some(Tool::Indef),
];

/// The states of each contender, run by run.
pub(in super::super::super) struct Runs {
    pub(super) workload: Workload,
    states: States<Option<Tool>, State>,
}

impl Runs {
    /// All contenders on a file system; `others`: databases that were written in turn with this one.
    pub(in super::super::super) fn measure(
        parameters: &Parameters,
        kind: Fs,
        others: u64,
        turn: &Turn<'_>,
    ) -> Result<Self, FigureError> {
        let ground = Ground::new(parameters)?;
        let workload = Workload::new(parameters)?;
        let mut states = States::new(CONTENDERS);
        for run in 1..=ground.runs {
            let what = ground.what(kind, run, "the database is made");
            turn.begin(&what)?;
            let made = ground.aged(kind, |folder| {
                workload.make(folder, others)?;
                Ok(fs::read(Workload::file(folder))?)
            });
            let (image, contents) = made.map_err(FigureError::machine(what))?;
            states.run(|tool| {
                let what = ground.what(kind, run, tool.map_or("before", Tool::series));
                turn.begin(&what)?;
                let state = State::measure(&ground, kind, &image, &workload, &contents, tool);
                state.map_err(FigureError::machine(what))
            })?;
        }
        Ok(Self { workload, states })
    }

    /// A value of each run of a contender.
    pub(super) fn of(&self, tool: Option<Tool>, value: impl Fn(&State) -> f64) -> Vec<f64> {
        self.states.of(tool).map(value).collect()
    }
}
