//! Files that grow by appends in any order, and where their pieces lie.

use flash_model::{Device, Profile};
use units::Nanos;
use workloads::Numbers;

use super::{
    device::drive,
    host::{File, Host},
};

/// The files of a fileserver that only appends, and the device that they are on.
#[derive(Clone, Debug)]
pub struct Fileset {
    /// The device.
    pub profile: Profile,
    /// Files.
    pub files: u64,
    /// Bytes with which each of them begins.
    pub first: u64,
    /// Bytes of an append.
    pub append: u64,
    /// Bytes of a file in the end, on average.
    pub mean: u64,
    /// Any.
    pub seed: u64,
}

impl Fileset {
    /// The device and the files, each written in one go.
    #[must_use]
    pub fn contiguous(&self) -> (Device, Vec<File>) {
        let lengths = self.appended(false).1;
        let mut host = self.host(false);
        let files = lengths.iter().map(|grown| {
            let mut file = File::default();
            host.append_unsynced(&mut file, grown.len());
            file
        });
        let files = files.collect();
        host.sync();
        (host.device().clone(), files)
    }

    /// The device and the files, as appends to any of them made them, in the order of the appends.
    #[must_use]
    pub fn appended(&self, hints: bool) -> (Device, Vec<File>) {
        let mut host = self.host(hints);
        let mut files = vec![File::default(); self.files as usize];
        for file in &mut files {
            host.append_unsynced(file, self.first);
        }
        let mut numbers = Numbers::new(self.seed);
        for _ in 0..self.files * (self.mean - self.first) / self.append {
            let any = numbers.below(files.len());
            host.append_unsynced(&mut files[any], self.append);
        }
        host.sync();
        (host.device().clone(), files)
    }

    fn host(&self, hints: bool) -> Host {
        // A part of it is never written: there is nothing to collect.
        let size = 2 * self.files * self.mean;
        let granule = u64::from(self.profile.geometry().dies()) << 20;
        let device = drive(&self.profile, size.next_multiple_of(granule));
        Host::new(device, hints, Nanos(0))
    }
}
