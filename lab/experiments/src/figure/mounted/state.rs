//! One contender on a new device: the speeds before and after, and its work between.

use std::{fs, process::Command, time::Duration};

use stage::{Fs, Stage, text};

use super::{
    super::workload::Pattern, contender::Contender, file::Laid, ground::Failed, rig::Rig,
    work::Work,
};
use crate::calls;

/// Durations of the calls of each pattern that was measured.
type Times = [Option<Duration>; Pattern::ALL.len()];

/// See the module.
#[derive(Debug, Default)]
pub(in super::super) struct State {
    reads_before: Times,
    reads: Times,
    updates: Times,
    /// The defragmenter's.
    pub(super) work: Work,
    /// Extents of the file afterwards.
    pub(super) extents: f64,
    /// Commands that discarded the free space after the file was deleted.
    pub(super) discards: Option<f64>,
}

impl State {
    pub(super) fn measure(
        rig: &Rig,
        kind: Fs,
        contender: Contender,
        trims: bool,
    ) -> Result<Self, Failed> {
        let workload = &rig.workload;
        let stage = rig.ground.fresh(kind)?;
        let mut laid = Laid::new(kind, &stage.path(), workload)?;
        stage.sync()?;
        let mut state = Self::default();
        let patterns = contender.patterns();
        for pattern in patterns {
            let ranges = workload.ranges(*pattern);
            let time = calls::read(&laid.file, ranges, rig.passes)?;
            state.reads_before[*pattern as usize] = Some(time);
        }
        let own = tempfile::tempdir()?;
        let (path, folder) = (laid.path.clone(), own.path());
        let indef = &rig.ground.indef;
        if let Some(mut command) = contender.command(kind, indef, workload, &path, folder)? {
            state.work = Work::of(&stage, &mut command)?;
        }
        state.extents = scratch_fs::fragments(&laid.file)? as f64;
        for pattern in patterns {
            let ranges = workload.ranges(*pattern);
            let time = calls::read(&laid.file, ranges, rig.passes)?;
            state.reads[*pattern as usize] = Some(time);
        }
        // Now: updates write the contents anew, whatever a defragmenter has made of them.
        laid.verify()?;
        for pattern in patterns {
            // Btrfs gives what is updated a new place: from then on it is another file.
            let (is_other, passes) = match kind {
                Fs::Btrfs => (*pattern != patterns[0], 1),
                Fs::Ext4 | Fs::Xfs => (false, rig.passes),
            };
            if !is_other {
                let ranges = workload.ranges(*pattern);
                let time = calls::update(&laid.file, ranges, laid.contents.slice(), passes)?;
                state.updates[*pattern as usize] = Some(time);
            }
        }
        if trims {
            state.discards = Some(trim(&stage, laid)? as f64);
        }
        Ok(state)
    }

    /// Speed of reads ÷ that of the same reads before.
    pub(super) fn read_gain(&self, pattern: Pattern) -> Option<f64> {
        let times = [&self.reads_before, &self.reads].map(|times| times[pattern as usize]);
        let [Some(before), Some(now)] = times else {
            return None;
        };
        Some(before.as_secs_f64() / now.as_secs_f64())
    }

    /// Updates of all ranges in a second.
    pub(super) fn update_rate(&self, pattern: Pattern) -> Option<f64> {
        let time = self.updates[pattern as usize]?;
        Some(1.0 / time.as_secs_f64())
    }
}

/// Delete the file and have the free space discarded, which was discarded just before. Returns the commands that the
/// device got. Their time would be that of the way to flashd, which answers a discard at once, and no drive's.
fn trim(stage: &Stage, laid: Laid) -> Result<u64, Failed> {
    let fstrim = || text(Command::new("fstrim").arg(stage.path()));
    fstrim()?;
    fs::remove_file(&laid.path)?;
    // Its blocks are free when nobody has it open.
    drop(laid);
    stage.sync()?;
    let before = stage.discards()?;
    fstrim()?;
    Ok((stage.discards()? - before).count)
}
