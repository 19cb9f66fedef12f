//! All ways of migrating, run by run.

use std::sync::Arc;

use super::{
    super::{
        super::{error::FigureError, memo::Memo, turn::Turn},
        guests::Acts,
    },
    rig::Rig,
};
use crate::{
    aged::AgedSsd,
    ageing::Aged,
    bench::{Bench, State},
    layout::Layout,
    migration::Migration,
    way::Way,
};

/// An aged SSD, and what each way did on a copy of it.
pub(in super::super::super) struct Run {
    pub(in super::super::super) aged: Aged,
    pub(in super::super::super) before: State,
    pub(in super::super::super) layout: Layout,
    pub(super) ways: Vec<Migration>,
}

/// See the module.
pub(in super::super::super) struct Runs(pub(super) Vec<Run>);

impl Run {
    /// What this way did; `None` if it took no part.
    pub(in super::super::super) fn way(&self, way: Way) -> Option<&Migration> {
        self.ways.iter().find(|it| it.way == way)
    }
}

impl Runs {
    /// Those of a figure; measured if no figure before has done so.
    pub(in super::super::super) fn measure(
        rig: &Rig,
        turn: &Turn<'_>,
    ) -> Result<Arc<Self>, FigureError> {
        static RUNS: Memo<Rig, Runs> = Memo::new();
        RUNS.get(rig.clone(), || Self::of_guests(rig, turn))
    }

    fn of_guests(rig: &Rig, turn: &Turn<'_>) -> Result<Self, FigureError> {
        let indef = source_tree::release_binary("indef").map_err(FigureError::machine("indef"))?;
        let what = format!("{} on {}", rig.ageing.personality, rig.ssd.profile.name());
        let mut runs = Vec::new();
        for run in 1..=rig.runs {
            let acts = Acts::of(turn, &what, run, rig.runs);
            let (bench, ssd, before) = acts.act("files age", || {
                let bench = Bench::new(rig.setup(run, &indef, turn.stop))?;
                let ssd = AgedSsd::make(&bench, bench.folder.path(), true)?;
                let before = bench.state(&ssd.notes.layout, &ssd.zones)?;
                Ok((bench, ssd, before))
            })?;
            let ways = rig.ways.iter().map(|(way, is_recorded)| {
                acts.act(&way.to_string(), || {
                    Migration::measure(&bench, &ssd, *way, *is_recorded)
                })
            });
            runs.push(Run {
                ways: ways.collect::<Result<_, _>>()?,
                before,
                aged: ssd.notes.aged,
                layout: ssd.notes.layout,
            });
        }
        Ok(Self(runs))
    }

    pub(in super::super::super) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.0.iter()
    }

    /// A value of each run, of what a way did; none where it has no such value.
    pub(in super::super::super) fn of(
        &self,
        way: Way,
        value: impl Fn(&Run, &Migration) -> Option<f64>,
    ) -> Vec<f64> {
        let runs = self.iter();
        runs.filter_map(|run| value(run, run.way(way)?)).collect()
    }
}
