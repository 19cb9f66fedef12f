//! A volume of either kind.

use indef_core::layout::Layout;

use super::{InPlaceVolume, LogVolume, Placed};
use crate::{
    block::{Full, Moved},
    files::{FileId, Files},
};

/// A volume of either kind.
#[derive(Clone, Debug)]
pub enum Volume {
    /// F2FS's.
    Log(Box<LogVolume>),
    /// ext4's.
    InPlace(InPlaceVolume),
}

impl From<LogVolume> for Volume {
    fn from(volume: LogVolume) -> Self {
        Self::Log(Box::new(volume))
    }
}

impl From<InPlaceVolume> for Volume {
    fn from(volume: InPlaceVolume) -> Self {
        Self::InPlace(volume)
    }
}

impl Volume {
    /// The files and their blocks.
    #[must_use]
    pub fn files(&self) -> &Files {
        match self {
            Self::Log(volume) => volume.files(),
            Self::InPlace(volume) => volume.files(),
        }
    }

    /// The files of users, in order of their numbers.
    #[must_use]
    pub fn user_files(&self) -> Vec<FileId> {
        let own = match self {
            Self::Log(volume) => Some(volume.directory()),
            Self::InPlace(_) => None,
        };
        let ids = self.files().ids();
        ids.filter(|id| Some(*id) != own).collect()
    }

    /// Makes an empty file.
    pub fn create(&mut self) -> FileId {
        match self {
            Self::Log(volume) => volume.create(),
            Self::InPlace(volume) => volume.create(),
        }
    }

    /// Removes a file and frees its blocks.
    pub fn delete(&mut self, file: FileId) {
        match self {
            Self::Log(volume) => volume.delete(file),
            Self::InPlace(volume) => volume.delete(file),
        }
    }

    /// Gives `len` blocks of a file from `index` on a place to be written to, and adds it to `placed`.
    ///
    /// # Errors
    ///
    /// No block is free that the data could go to; the blocks before that are placed.
    pub fn place(
        &mut self,
        file: FileId,
        index: u32,
        len: u32,
        placed: &mut Vec<Placed>,
    ) -> Result<(), Full> {
        match self {
            Self::Log(volume) => volume.place(file, index, len, placed),
            Self::InPlace(volume) => volume.place(file, index, len, placed),
        }
    }

    /// Places the nodes of a file that an fsync writes; none where the map of a file is not part of the model.
    ///
    /// # Errors
    ///
    /// As [`Self::place`].
    pub fn place_nodes(&mut self, file: FileId, placed: &mut Vec<Placed>) -> Result<(), Full> {
        match self {
            Self::Log(volume) => volume.place_nodes(file, placed),
            Self::InPlace(_) => Ok(()),
        }
    }

    /// Gives blocks of a file new places that are as contiguous as the free space allows, and adds the moves in order
    /// of the file. Holes stay holes.
    ///
    /// # Errors
    ///
    /// As [`Self::place`].
    pub fn relocate(
        &mut self,
        file: FileId,
        index: u32,
        len: u32,
        moves: &mut Vec<Moved>,
    ) -> Result<(), Full> {
        match self {
            Self::Log(volume) => volume.relocate(file, index, len, moves),
            Self::InPlace(volume) => volume.relocate(file, index, len, moves),
        }
    }

    /// Whether so many blocks, of a section's at most, would be left where they are ([`LogVolume::refuses_to_move`]).
    #[must_use]
    pub fn refuses_to_move(&self, blocks: u32, reserved_sections: u32) -> bool {
        let Self::Log(volume) = self else {
            return false;
        };
        let section = volume.space().shape().section_blocks();
        volume.refuses_to_move(blocks.min(section), reserved_sections)
    }

    /// The pieces that blocks of a file would lie in, were they given new places now: what an engine looks at before it
    /// moves them. Of a log there is nothing to look at: it gives them one, where it is not refused
    /// ([`Self::refuses_to_move`]); where it goes on in another section, they are two after all.
    #[must_use]
    pub fn pieces_after(&self, file: FileId, index: u32, len: u32) -> u32 {
        match self {
            Self::Log(_) => 1,
            Self::InPlace(volume) => volume.pieces_after(file, index, len),
        }
    }

    /// The layout of a file, as the planner takes it.
    #[must_use]
    pub fn layout(&self, file: FileId) -> Layout {
        self.files().layout(file)
    }
}
