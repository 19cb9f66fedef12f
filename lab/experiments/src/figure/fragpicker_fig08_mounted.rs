//! FragPicker, Figure 8 on mounted file systems: its file on ext4 and Btrfs, and on XFS, which the paper leaves out.

use stage::Fs;

use super::{
    error::FigureError,
    measured::Measured,
    mounted::{Rig, Runs, rows_of},
    parameters::Parameters,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let rig = Rig::new(parameters)?;
    let mut measured = Measured::default();
    for kind in Fs::ALL {
        let runs = Runs::measure(&rig, kind, false, turn)?;
        rows_of(&runs, &format!("{}, ", title(kind)), &mut measured);
    }
    Ok(measured)
}

fn title(kind: Fs) -> &'static str {
    match kind {
        Fs::Ext4 => "ext4",
        Fs::Xfs => "XFS",
        Fs::Btrfs => "Btrfs",
    }
}
