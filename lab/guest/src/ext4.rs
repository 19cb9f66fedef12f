//! ext4 that loses nothing while a mover works on it: the patches of
//! `kernel/ext4`.

use crate::recipe::{Patch, Recipe, patches};

pub(crate) static RECIPE: Recipe = Recipe {
    sources: &["fs/ext4"],
    patches: PATCHES,
    make: &[],
};

const PATCHES: &[(&str, &[Patch])] = patches! { "ext4";
    "6.1":
        "0001-ext4-have-fdatasync-commit-extents-that-were-swapped.patch";
    "6.12":
        "0001-ext4-have-fdatasync-commit-extents-that-were-swapped.patch";
};
