//! Prints FAST'24's Figures 8, 11 and 12 as this model gives them, beside the published ones, and
//! how they change while garbage is collected:
//!
//! ```text
//! cargo run --release -p flash-model --example fast24
//! ```
//!
//! docs/fast24.md explains them.

#![forbid(unsafe_code)]

mod collecting;
mod compare;
mod dummy;
mod figures;
mod host;
mod print;
mod published;

fn main() {
    print::print();
}
