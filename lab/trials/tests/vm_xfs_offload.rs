//! `xfs-offload`, and the facts that it rests on, in guests with Debian's 6.12 and an NVMe device that
//! copies: flashd's, over NVMe/TCP, and QEMU's own, on PCI Express with a partition.
//!
//! Each test has two sides, and is started twice: on the host, where it makes a device and boots a
//! guest, and in that guest, on an XFS on the device.

#[path = "vm_xfs_offload/facts.rs"]
mod facts;
#[allow(dead_code, reason = "tests on loop devices use more of it")]
#[path = "xfs/flavour.rs"]
mod flavour;
#[allow(dead_code, reason = "tests on loop devices use more of it")]
#[path = "xfs/hammer.rs"]
mod hammer;
#[path = "vm_xfs_offload/host.rs"]
mod host;
#[path = "vm_xfs_offload/lost.rs"]
mod lost;
#[path = "vm_xfs_offload/moves.rs"]
mod moves;
#[path = "vm_xfs_offload/power.rs"]
mod power;
