//! The reclaim units of a namespace, for NVMe's Flexible Data Placement.

use serde::Serialize;

use super::ConventionalNamespace;

/// The reclaim unit handles of a conventional namespace. Data written with different handles lies
/// in different flash blocks, until garbage collection moves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReclaimUnits {
    /// Bytes of a reclaim unit: a flash block of all planes on each die.
    pub size_bytes: u64,
    /// For each handle, the bytes that its reclaim unit still takes.
    pub left_bytes: Vec<u64>,
}

impl ConventionalNamespace {
    /// Returns its reclaim units; `None` if the profile gives it no handles.
    pub(crate) fn reclaim_units(&self) -> Option<ReclaimUnits> {
        let geometry = self.ftl.geometry();
        let left = self.ftl.reclaim_units_left();
        (self.handles > 0).then(|| ReclaimUnits {
            size_bytes: geometry.slots_per_reclaim_unit() * self.logical_page,
            left_bytes: left.map(|left| left * self.logical_page).collect(),
        })
    }
}
