//! `flashd serve` as a host sees it: a target in this process, and hosts of our own.

mod admin;
mod commands;
mod durability;
mod fuzz;
mod life;
mod malformed;
mod once;
mod patience;
mod placement;
mod target;
