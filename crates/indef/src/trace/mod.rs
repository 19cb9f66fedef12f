//! `indef trace`: learn what applications really read.

#![allow(
    dead_code,
    unused_imports,
    reason = "the view comes before the collector that feeds it"
)]

pub(crate) mod live;
