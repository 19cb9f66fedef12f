//! A figure with both sides.

use anyhow::Result;

use crate::figure::{Comparison, Conditions, Figure, Measured, compare, reference};

/// A figure with our side of it, compared.
pub struct Outcome {
    /// The figure.
    pub figure: Figure,
    /// Ours, if it is built.
    pub measured: Option<Measured>,
    /// Both sides.
    pub comparison: Comparison,
    /// How it was measured, if on a machine.
    pub conditions: Option<Conditions>,
    /// Whether ours is as the reference has it; `None`: there is no reference, or nothing was measured.
    pub as_committed: Option<bool>,
    /// The time that it took, if it was measured just now.
    pub seconds: Option<f64>,
}

impl Outcome {
    /// A figure as it is committed.
    ///
    /// # Errors
    ///
    /// The reference cannot be read, or does not fit to the figure.
    pub fn committed(figure: Figure) -> Result<Self> {
        let reference = reference(source_tree::root(), &figure.name)?;
        let (measured, conditions) = match reference {
            Some(reference) => (Some(reference.measured), reference.conditions),
            None => (None, None),
        };
        let comparison = compare(&figure, measured.as_ref())?;
        Ok(Self {
            figure,
            measured,
            comparison,
            conditions,
            as_committed: None,
            seconds: None,
        })
    }
}
