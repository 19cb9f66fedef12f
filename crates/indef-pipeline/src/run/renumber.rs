//! Devices that have another number than when files on them were planned.
//!
//! Numbers are given anew with each boot, and to subvolumes of Btrfs with each mount, in the order in which they are met
//! (`get_anon_bdev`, fs/super.c, v6.1). A plan for tonight and the rest of a stopped run outlive that. One file tells the
//! number of all on its device: one that still lies where it was planned, with the same inode number and time of birth.

use std::collections::HashMap;

use indef_core::plan::FilePlan;
use indef_fs::Roots;

use super::claim::find;

/// Give planned files the numbers that their devices have now.
pub(super) fn renumber(roots: &Roots, files: &mut [FilePlan]) {
    let mut numbers: HashMap<u64, u64> = HashMap::new();
    for plan in files.iter() {
        if numbers.contains_key(&plan.dev) {
            continue;
        }
        // Of one that is gone or was replaced nothing can be told; of another one perhaps.
        let Some(found) = find(roots, plan) else {
            continue;
        };
        let is_same = found.id().inode == plan.inode
            && plan.born.is_some_and(|born| found.born() == Some(born));
        if found.id().dev == plan.dev || is_same {
            numbers.insert(plan.dev, found.id().dev);
        }
    }
    for plan in files {
        plan.dev = numbers.get(&plan.dev).copied().unwrap_or(plan.dev);
    }
}
