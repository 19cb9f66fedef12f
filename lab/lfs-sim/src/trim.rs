//! `fstrim`: the device is told which blocks nobody has.

use flash_model::Command;

use crate::{
    disk::{Disk, Elapsed, Failure, Next, Program},
    volume::Volume,
};

/// Deallocates every free block of an in-place volume; a log-structured one gives its sections back by itself.
///
/// # Errors
///
/// The device refuses a command.
pub fn trim(volume: &Volume, disk: &mut Disk) -> Result<Elapsed, Failure> {
    let mut program = Trim {
        volume,
        stage: Stage::Begins,
    };
    disk.run(&mut program, 1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begins,
    Waits,
    Over,
}

struct Trim<'a> {
    volume: &'a Volume,
    stage: Stage,
}

impl Program for Trim<'_> {
    fn step(&mut self, _: usize, disk: &mut Disk) -> Result<Next, Failure> {
        if self.stage != Stage::Begins {
            self.stage = Stage::Over;
            return Ok(Next::Parked);
        }
        let Volume::InPlace(volume) = self.volume else {
            self.stage = Stage::Over;
            return Ok(Next::Parked);
        };
        self.stage = Stage::Waits;
        let batch = disk.begin();
        // Of those that wait for no command the batch would never end.
        disk.submit(&Command::Flush, &[batch])?;
        for run in volume.space().free_runs() {
            let span = run.span();
            let (offset, len) = (span.offset, span.len);
            disk.submit(&Command::Deallocate { offset, len }, &[batch])?;
        }
        Ok(Next::Done(batch))
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }
}

#[cfg(test)]
mod tests {
    use flash_model::Profile;
    use units::Bytes;

    use super::*;
    use crate::{BLOCK, device, volume::InPlaceVolume};

    #[test]
    fn the_device_holds_what_files_have() {
        let profile = Profile::builtin("sata-mx500").unwrap();
        let size = Bytes::mib(8);
        let mut disk = Disk::new(device::written(&profile, size).unwrap(), 32);
        assert_eq!(disk.device().used_bytes(0), size.0);
        let blocks = (size.0 / BLOCK.0) as u32;
        let mut volume = Volume::from(InPlaceVolume::new(blocks, blocks, true));
        let files = [0, 1].map(|_| volume.create());
        for file in files {
            volume.place(file, 0, 200, &mut Vec::new()).unwrap();
        }
        volume.delete(files[0]);
        let kept = |volume: &Volume| match volume {
            Volume::InPlace(volume) => BLOCK.0 * u64::from(blocks - volume.space().free_blocks()),
            Volume::Log(_) => unreachable!(),
        };
        trim(&volume, &mut disk).unwrap();
        assert_eq!(disk.device().used_bytes(0), kept(&volume));
        assert!(kept(&volume) < Bytes::mib(2).0);
    }
}
