//! The papers' figures, each by one command: ours beside theirs.
//!
//! A figure is a file `experiments/PAPER/FIGURE.toml` ([`Figure`]: its place in the paper, parameters with
//! their sources, published values) and, where it is built, a module here named `PAPER_FIGURE` with
//!
//! ```ignore
//! pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError>
//! ```
//!
//! and its line in [`registry`]. A module knows no published value: it gets parameters and returns rows.
//! [`Class`] follows from both sides by one rule, and is written nowhere by hand.
//!
//! Modules of tier V are pure and in virtual time: done again, a result is equal to its reference
//! (`experiments/reference/`). Those of tier M measure on file systems of this machine (`mounted`), those of tier G on F2FS in
//! guests (`in_guest`): they get a [`Turn`] as well, their rows are medians with a spread, and a result agrees with its
//! reference or not ([`agree`]).

pub mod agree;
mod class;
mod database;
mod error;
mod in_guest;
mod measured;
mod memo;
mod mounted;
mod parameters;
mod reference;
pub mod registry;
mod source;
mod sqlite;
mod states;
mod told;
mod turn;
mod workload;

mod fast24;
mod fast24_fig03;
mod fast24_fig04;
mod fast24_fig07;
mod fast24_fig08;
mod fast24_fig11;
mod fast24_fig12_fileserver;
mod fast24_fig12_random;
mod fast24_fig12_sqlite;
mod fast24_fig12_worst;
mod fragpicker;
mod fragpicker_fig02;
mod fragpicker_fig04;
mod fragpicker_fig08;
mod fragpicker_fig08_btrfs;
mod fragpicker_fig08_ext4;
mod fragpicker_fig08_f2fs;
mod fragpicker_fig08_guest;
mod fragpicker_fig08_mounted;
mod fragpicker_fig09;
mod fragpicker_fig09_mounted;
mod fragpicker_fig10;
mod fragpicker_fig10_mounted;
mod fragpicker_fig11;
mod fragpicker_fig11_guest;
mod fragpicker_fig12;
mod fragpicker_sqlite;
mod fragpicker_sqlite_mounted;
mod fragpicker_table1;
mod indef;
mod indef_fig01;
mod indef_fig03;
mod indef_fig04;
mod indef_fig11;
mod indef_fig11_a;
mod indef_fig11_b;
mod indef_fig12;
mod indef_fig12_fileserver;
mod indef_fig12_guest;
mod indef_fig12_guest_fileserver;
mod indef_fig12_guest_varmail;
mod indef_fig12_varmail;
mod indef_fig13;
mod indef_fig14;
mod indef_fig14_chips;
mod indef_fig14_elapsed;
mod indef_fig14_guest;
mod indef_fig14_guest_chips;
mod indef_fig14_guest_elapsed;
mod indef_fig15;
mod indef_fig15_guest;
mod indef_fig16;
mod indef_rocksdb;
mod scaledefrag;
mod scaledefrag_fig10;
mod scaledefrag_fig10_mounted;
mod scaledefrag_fig11;
mod scaledefrag_fig11_mounted;
mod scaledefrag_fig12;
mod scaledefrag_fig12_mounted;
mod scaledefrag_fig13;
mod scaledefrag_fig14;

pub use class::{Class, Compared, Comparison, Verdict, compare};
pub use error::{FigureError, Mistake};
pub use fast24::fast24_target;
pub use measured::{Measured, Row, Sensitivity, Unit, X};
pub use parameters::{Kind, Parameter, Parameters, Setting};
pub use reference::{Conditions, Reference, keep, reference};
pub use source::{Bound, Figure, Paper, Plot, Published, Scale, Tier};
pub use turn::Turn;
