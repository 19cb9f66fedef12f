//! All contenders on an ext4, in turns.

use stage::Fs;
use units::Bytes;

use super::{
    super::{
        super::{error::FigureError, parameters::Parameters, states::States, turn::Turn},
        files::Contents,
        ground::Ground,
        tool::Tool,
    },
    client::{Workload, tables},
    holes::Filled,
    state::{DATABASE, State},
};

/// While it is made, a database is there several times.
const ROOM_FOR_MAKING: u64 = 4;

/// The states of each contender, run by run.
pub(in super::super::super) struct Runs(States<Option<Tool>, State>);

impl Runs {
    /// The contenders in their turns; `None` is the database as it is.
    pub(in super::super::super) const CONTENDERS: [Option<Tool>; 4] = [
        None,
        Some(Tool::Conventional),
        Some(Tool::FragPicker),
        Some(Tool::Indef),
    ];

    pub(in super::super::super) fn measure(
        parameters: &Parameters,
        turn: &Turn<'_>,
    ) -> Result<Self, FigureError> {
        let ground = Ground::new(parameters)?;
        let workload = Workload::new(parameters)?;
        let hole = Bytes(parameters.bytes("hole")?);
        let free = Bytes(ROOM_FOR_MAKING * parameters.bytes("database")?);
        let seed = parameters.count("seed")?;
        let mut states = States::new(Self::CONTENDERS);
        for run in 1..=ground.runs {
            let what = ground.what(Fs::Ext4, run, "the database is made");
            turn.begin(&what)?;
            let made = ground.aged(Fs::Ext4, |root| {
                let filled = Filled::new(root, hole, free, seed + run)?;
                let folder = root.join(DATABASE);
                workload.make(&folder)?;
                filled.let_go()?;
                Ok(Contents::of(&tables(&folder)?)?)
            });
            let (image, contents) = made.map_err(FigureError::machine(what))?;
            states.run(|tool| {
                let what = ground.what(Fs::Ext4, run, tool.map_or("before", Tool::series));
                turn.begin(&what)?;
                let state = State::measure(&ground, &image, &workload, &contents, tool);
                state.map_err(FigureError::machine(what))
            })?;
        }
        Ok(Self(states))
    }

    /// A value of each run of a contender.
    pub(in super::super::super) fn of(
        &self,
        tool: Option<Tool>,
        value: impl Fn(&State) -> f64,
    ) -> Vec<f64> {
        self.0.of(tool).map(value).collect()
    }
}
