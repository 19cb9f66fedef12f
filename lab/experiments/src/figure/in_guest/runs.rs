//! All contenders, run by run.

use super::{
    super::{error::FigureError, states::States, turn::Turn},
    contender::Contender,
    guests::Acts,
    rig::Rig,
    state::State,
};

/// The states of each contender, run by run.
pub(in super::super) struct Runs {
    /// Bytes of the file.
    pub(super) size: f64,
    /// The drive on which only reads are done again.
    pub(super) other: String,
    pub(super) states: States<Contender, State>,
}

impl Runs {
    /// All contenders, each run in a guest of its own.
    pub(in super::super) fn measure(rig: &Rig, turn: &Turn<'_>) -> Result<Self, FigureError> {
        let mut states = States::new(Contender::ALL);
        let what = format!("F2FS on {}", rig.drives.system.profile.name());
        for run in 1..=rig.runs {
            let acts = Acts::of(turn, &what, run, rig.runs);
            let room = acts.act("it boots", || rig.enter(turn.stop))?;
            states.run(|contender| {
                acts.act(&contender.to_string(), || {
                    State::measure(rig, &room, contender)
                })
            })?;
            acts.act("fsck.f2fs", || room.leave())?;
        }
        Ok(Self {
            size: rig.workload.size.get() as f64,
            other: rig.drives.other.name().to_owned(),
            states,
        })
    }
}
