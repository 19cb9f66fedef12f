//! The page cache: windows of read-ahead, dirty pages on their way to the device, clean pages.

mod dirty;
mod pages;
mod readahead;

pub use self::{dirty::DirtyPages, pages::PageCache, readahead::Windows};
