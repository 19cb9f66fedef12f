//! A hole in a file that is moved; and the file system changes its size, and is mounted anew, with the log
//! for moved data open.

use crate::fixture::{PROGRAM, trial};
use guest::{Release, Zns, ZnsOptions};
use units::Bytes;

/// On a device of few sections, F2FS keeps so many for itself that the log could not be cut off.
fn space(release: Release) {
    let zns = Zns::new(ZnsOptions {
        size: Bytes::gib(3),
        ..ZnsOptions::default()
    })
    .unwrap();
    let mounted = match release {
        Release::Linux6_1 => "checkpointed",
        Release::Linux6_12 | Release::Newest => "any",
    };
    trial(
        release,
        &zns,
        &format!("{PROGRAM} space $ZNS_MOUNT $ZNS_CONVENTIONAL $ZNS_ZONED {mounted}"),
    );
}

#[test]
fn vm_6_12_moved_files_survive_a_smaller_file_system() {
    space(Release::Linux6_12);
}

#[test]
fn vm_6_1_moved_files_survive_a_smaller_file_system() {
    space(Release::Linux6_1);
}
