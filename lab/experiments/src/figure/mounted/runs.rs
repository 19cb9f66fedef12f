//! All contenders on a file system, in turns.

use stage::Fs;
use units::Bytes;

use super::{
    super::{error::FigureError, states::States, turn::Turn},
    contender::Contender,
    rig::Rig,
    state::State,
};

/// The states of each contender on a file system, run by run.
pub(in super::super) struct Runs {
    /// Of the file.
    pub(super) size: Bytes,
    pub(super) states: States<Contender, State>,
}

impl Runs {
    /// All contenders on a file system, in turns; with `trims`, the discards of the file as well.
    pub(in super::super) fn measure(
        rig: &Rig,
        kind: Fs,
        trims: bool,
        turn: &Turn<'_>,
    ) -> Result<Self, FigureError> {
        let mut states = States::new(Contender::all(kind));
        for run in 1..=rig.ground.runs {
            states.run(|contender| {
                let what = rig.ground.what(kind, run, &contender.to_string());
                turn.begin(&what)?;
                let state = State::measure(rig, kind, contender, trims);
                state.map_err(FigureError::machine(what))
            })?;
        }
        Ok(Self {
            size: rig.workload.size,
            states,
        })
    }
}
