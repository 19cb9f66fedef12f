//! FragPicker, §5.3.2 on mounted file systems: rows that SQLite inserted one by one, on Btrfs as in the paper, and on ext4
//! in turn with those of other databases.

use stage::Fs;

use super::{
    error::FigureError,
    measured::Measured,
    mounted::sqlite::{Runs, rows_of},
    parameters::Parameters,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let mut measured = Measured::default();
    let others = parameters.count("others_ext4")?;
    for (kind, prefix, others) in [(Fs::Btrfs, "Btrfs, ", 0), (Fs::Ext4, "ext4, ", others)] {
        let runs = Runs::measure(parameters, kind, others, turn)?;
        rows_of(&runs, prefix, &mut measured);
    }
    Ok(measured)
}
