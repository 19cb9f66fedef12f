//! The F2FS of kernel/f2fs in guests: its ioctl, power cuts beside it, and a file system that changes its size.

mod fixture;
mod offload;
mod power_cuts;
mod several;
mod space;
