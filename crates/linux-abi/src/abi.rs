//! This crate's view of the kernel's structures, as data: `cargo xtask abi-check` turns it into a C
//! file of static assertions and compiles that against the installed headers.

/// One structure, with the ioctl requests that take it.
#[derive(Clone, Copy, Debug)]
pub struct AbiItem {
    /// The header to include: `linux/fiemap.h`. Not every installation has every header. (Those of the
    /// project's own kernel patches are in `kernel/`.)
    pub header: &'static str,
    /// The type in C: `struct fiemap_extent`; empty for an item of constants only.
    pub c_type: &'static str,
    /// `sizeof`.
    pub size: usize,
    /// Member name and `offsetof`.
    pub fields: &'static [(&'static str, usize)],
    /// Name and value of request numbers and flags.
    pub requests: &'static [(&'static str, u32)],
}
