//! The modules that measure a figure, by its name. A figure that is not here is not built yet.

use std::path::Path;

use super::{
    class::check_use,
    error::{FigureError, Mistake},
    fast24_fig03, fast24_fig04, fast24_fig07, fast24_fig08, fast24_fig11, fast24_fig12_fileserver,
    fast24_fig12_random, fast24_fig12_sqlite, fast24_fig12_worst, fragpicker_fig02,
    fragpicker_fig04, fragpicker_fig08_btrfs, fragpicker_fig08_ext4, fragpicker_fig08_f2fs,
    fragpicker_fig08_guest, fragpicker_fig08_mounted, fragpicker_fig09, fragpicker_fig09_mounted,
    fragpicker_fig10, fragpicker_fig10_mounted, fragpicker_fig11, fragpicker_fig11_guest,
    fragpicker_fig12, fragpicker_sqlite, fragpicker_sqlite_mounted, fragpicker_table1, indef_fig01,
    indef_fig03, indef_fig04, indef_fig11_a, indef_fig11_b, indef_fig12_fileserver,
    indef_fig12_guest_fileserver, indef_fig12_guest_varmail, indef_fig12_varmail, indef_fig13,
    indef_fig14_chips, indef_fig14_elapsed, indef_fig14_guest_chips, indef_fig14_guest_elapsed,
    indef_fig15, indef_fig15_guest, indef_fig16, indef_rocksdb,
    measured::Measured,
    parameters::Parameters,
    scaledefrag_fig10, scaledefrag_fig10_mounted, scaledefrag_fig11, scaledefrag_fig11_mounted,
    scaledefrag_fig12, scaledefrag_fig12_mounted, scaledefrag_fig13, scaledefrag_fig14,
    source::Figure,
    turn::Turn,
};

/// The function of a module in virtual time.
pub type Measure = fn(&Parameters) -> Result<Measured, FigureError>;

/// That of a module that measures on this machine, or in a guest on it.
pub type MeasureHere = fn(&Parameters, &Turn<'_>) -> Result<Measured, FigureError>;

/// The function of a module.
#[derive(Clone, Copy)]
pub enum Module {
    /// Of tier V.
    Virtual(Measure),
    /// Of tier M or G.
    Here(MeasureHere),
}

/// `PAPER/FIGURE`, and the function of the module `PAPER_FIGURE`; in the order of the names.
const MODULES: &[(&str, Measure)] = &[
    ("fast24/fig03", fast24_fig03::measure),
    ("fast24/fig07", fast24_fig07::measure),
    ("fast24/fig08", fast24_fig08::measure),
    ("fast24/fig11", fast24_fig11::measure),
    ("fast24/fig12-fileserver", fast24_fig12_fileserver::measure),
    ("fast24/fig12-random", fast24_fig12_random::measure),
    ("fast24/fig12-sqlite", fast24_fig12_sqlite::measure),
    ("fast24/fig12-worst", fast24_fig12_worst::measure),
    ("fragpicker/fig02", fragpicker_fig02::measure),
    ("fragpicker/fig04", fragpicker_fig04::measure),
    ("fragpicker/fig08-btrfs", fragpicker_fig08_btrfs::measure),
    ("fragpicker/fig08-ext4", fragpicker_fig08_ext4::measure),
    ("fragpicker/fig08-f2fs", fragpicker_fig08_f2fs::measure),
    ("fragpicker/fig09", fragpicker_fig09::measure),
    ("fragpicker/fig10", fragpicker_fig10::measure),
    ("fragpicker/fig11", fragpicker_fig11::measure),
    ("fragpicker/fig12", fragpicker_fig12::measure),
    ("fragpicker/sqlite", fragpicker_sqlite::measure),
    ("fragpicker/table1", fragpicker_table1::measure),
    ("indef/fig01", indef_fig01::measure),
    ("indef/fig03", indef_fig03::measure),
    ("indef/fig04", indef_fig04::measure),
    ("indef/fig11-a", indef_fig11_a::measure),
    ("indef/fig11-b", indef_fig11_b::measure),
    ("indef/fig12-fileserver", indef_fig12_fileserver::measure),
    ("indef/fig12-varmail", indef_fig12_varmail::measure),
    ("indef/fig13", indef_fig13::measure),
    ("indef/fig14-chips", indef_fig14_chips::measure),
    ("indef/fig14-elapsed", indef_fig14_elapsed::measure),
    ("indef/fig15", indef_fig15::measure),
    ("indef/rocksdb", indef_rocksdb::measure),
    ("scaledefrag/fig10", scaledefrag_fig10::measure),
    ("scaledefrag/fig11", scaledefrag_fig11::measure),
    ("scaledefrag/fig12", scaledefrag_fig12::measure),
    ("scaledefrag/fig13", scaledefrag_fig13::measure),
    ("scaledefrag/fig14", scaledefrag_fig14::measure),
];

/// The same of those that measure on this machine, or in a guest on it.
const HERE: &[(&str, MeasureHere)] = &[
    ("fast24/fig04", fast24_fig04::measure),
    ("fragpicker/fig08-guest", fragpicker_fig08_guest::measure),
    (
        "fragpicker/fig08-mounted",
        fragpicker_fig08_mounted::measure,
    ),
    (
        "fragpicker/fig09-mounted",
        fragpicker_fig09_mounted::measure,
    ),
    (
        "fragpicker/fig10-mounted",
        fragpicker_fig10_mounted::measure,
    ),
    ("fragpicker/fig11-guest", fragpicker_fig11_guest::measure),
    (
        "fragpicker/sqlite-mounted",
        fragpicker_sqlite_mounted::measure,
    ),
    (
        "indef/fig12-guest-fileserver",
        indef_fig12_guest_fileserver::measure,
    ),
    (
        "indef/fig12-guest-varmail",
        indef_fig12_guest_varmail::measure,
    ),
    ("indef/fig14-guest-chips", indef_fig14_guest_chips::measure),
    (
        "indef/fig14-guest-elapsed",
        indef_fig14_guest_elapsed::measure,
    ),
    ("indef/fig15-guest", indef_fig15_guest::measure),
    ("indef/fig16", indef_fig16::measure),
    (
        "scaledefrag/fig10-mounted",
        scaledefrag_fig10_mounted::measure,
    ),
    (
        "scaledefrag/fig11-mounted",
        scaledefrag_fig11_mounted::measure,
    ),
    (
        "scaledefrag/fig12-mounted",
        scaledefrag_fig12_mounted::measure,
    ),
];

/// The function that measures a figure.
#[must_use]
pub fn module(figure: &str) -> Option<Module> {
    let found = MODULES.iter().find(|(name, _)| *name == figure);
    let here = || HERE.iter().find(|(name, _)| *name == figure);
    found
        .map(|(_, measure)| Module::Virtual(*measure))
        .or_else(|| here().map(|(_, measure)| Module::Here(*measure)))
}

/// Measure a figure; `None` if it has no module.
///
/// # Errors
///
/// It came to no result, or the module does not fit to the figure's file.
pub fn measure(figure: &Figure, turn: &Turn<'_>) -> Option<Result<Measured, FigureError>> {
    let measured = match module(&figure.name)? {
        Module::Virtual(measure) => measure(&figure.parameters),
        Module::Here(measure) => measure(&figure.parameters, turn),
    };
    let measured = measured.and_then(|measured| {
        check_use(figure, &measured)?;
        Ok(measured)
    });
    Some(measured)
}

/// All figures of the tree, checked against the modules.
///
/// # Errors
///
/// A file says what cannot be, or a module is without its file.
pub fn figures(root: &Path) -> Result<Vec<Figure>, FigureError> {
    let figures = Figure::all(root)?;
    let names = MODULES.iter().map(|(name, _)| *name);
    for name in names.chain(HERE.iter().map(|(name, _)| *name)) {
        if !figures.iter().any(|figure| figure.name == name) {
            let mistake = Mistake::NoFile(name.to_owned());
            return Err(FigureError::Measured {
                figure: name.to_owned(),
                mistake: Box::new(mistake),
            });
        }
    }
    Ok(figures)
}
