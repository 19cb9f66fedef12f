//! The papers' figures as a whole: their files, their modules, their references, and the page.

use std::{
    fs,
    num::NonZero,
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use experiments::{
    figure::{Figure, Paper, Tier, Turn, reference, registry},
    report,
};

fn root() -> &'static Path {
    source_tree::root()
}

#[test]
fn every_figure_can_be_read_and_says_why_it_has_no_result() {
    let figures = registry::figures(root()).unwrap();
    assert!(figures.len() >= 34, "{}", figures.len());
    for figure in &figures {
        let is_built = registry::module(&figure.name).is_some();
        let has_reason = figure.needs.is_some() || figure.tier == Tier::None;
        assert!(
            is_built || has_reason,
            "{}: a figure has a module, or `needs` (or why_not) tells the part that it lacks",
            figure.name
        );
        let has_reference = reference(root(), &figure.name).unwrap().is_some();
        assert_eq!(
            !has_reason, has_reference,
            "{}: `cargo lab experiments --only {} --keep` writes its reference",
            figure.name, figure.name
        );
    }
}

/// What is measured on a machine says how, and of how many runs.
#[test]
fn a_module_is_of_its_figures_tier_and_a_reference_of_a_machine_has_conditions() {
    for figure in registry::figures(root()).unwrap() {
        let is_here = match registry::module(&figure.name) {
            Some(registry::Module::Here(_)) => true,
            Some(registry::Module::Virtual(_)) => false,
            None => continue,
        };
        assert_eq!(is_here, figure.tier.is_measured(), "{}", figure.name);
        if is_here {
            let runs = figure.parameters.count("runs").unwrap();
            assert!(runs >= 3, "{}: {runs}", figure.name);
        }
        let Some(reference) = reference(root(), &figure.name).unwrap() else {
            continue;
        };
        let name = &figure.name;
        assert_eq!(is_here, reference.conditions.is_some(), "{name}");
        for row in &reference.measured.rows {
            assert_eq!(is_here, row.spread.is_some(), "{name}: {row:?}");
            let holds = row
                .spread
                .is_none_or(|[least, most]| (least..=most).contains(&row.ours));
            assert!(holds, "{name}: {row:?}");
        }
        let is_loaded = reference.conditions.is_some_and(|it| it.loaded);
        assert!(!is_loaded, "{name}: a reference is of an idle machine");
    }
}

#[test]
fn every_module_and_every_reference_belongs_to_a_figure() {
    let figures = Figure::all(root()).unwrap();
    let mut modules = 0;
    for entry in fs::read_dir(root().join("lab/experiments/src/figure")).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let is_of_paper = |paper: &Paper| stem.starts_with(&format!("{}_", paper.folder()));
        if !Paper::ALL.iter().any(is_of_paper) || path.is_dir() {
            continue;
        }
        modules += 1;
        let module = |figure: &Figure| figure.name.replace(['/', '-'], "_");
        // What the figures of one number share.
        let shared = format!("{stem}_");
        if (figures.iter()).any(|figure| module(figure).starts_with(&shared)) {
            continue;
        }
        let figure = figures.iter().find(|figure| module(figure) == stem);
        let figure = figure.unwrap_or_else(|| panic!("{stem} has no file in experiments/"));
        assert!(
            registry::module(&figure.name).is_some(),
            "{stem} is not in the registry"
        );
    }
    assert!(modules >= 6, "{modules}");
    for entry in fs::read_dir(root().join("experiments/reference")).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let mut names = figures.iter().map(|figure| figure.name.replace('/', "-"));
        assert!(names.any(|name| name == stem), "{stem} is of no figure");
    }
}

/// Figures that age a device by varmail: together they take some 150 s of a processor. `make proof` has them come out
/// again, or `INDEF_WHOLE_FIGURES=1`.
const LONG: [&str; 5] = [
    "indef/fig01",
    "indef/fig12-varmail",
    "indef/fig13",
    "indef/fig14-chips",
    "indef/fig14-elapsed",
];

/// Virtual time: done again, a result is equal.
fn come_out_again(paper: Paper) {
    let figures = Figure::all(root()).unwrap();
    let of_paper = figures.iter().filter(|figure| figure.paper == paper);
    let has_result = |figure: &&Figure| figure.tier == Tier::V && figure.needs.is_none();
    let is_whole = std::env::var_os("INDEF_WHOLE_FIGURES").is_some();
    let is_due = |figure: &&Figure| is_whole || !LONG.contains(&figure.name.as_str());
    let figures = Mutex::new(of_paper.filter(has_result).filter(is_due));
    let next = || figures.lock().unwrap().next();
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(figure) = next() {
                    comes_out_again(figure);
                }
            });
        }
    });
}

fn comes_out_again(figure: &Figure) {
    let turn = Turn {
        stop: &Arc::default(),
        say: &|_| {},
    };
    let Some(measured) = registry::measure(figure, &turn) else {
        return;
    };
    let measured = measured.unwrap();
    let committed = reference(root(), &figure.name).unwrap().unwrap();
    assert!(
        committed.measured == measured,
        "{}: not as committed; `cargo lab experiments --only {} --keep` writes it anew",
        figure.name,
        figure.name
    );
}

#[test]
fn the_figures_of_indef_come_out_again() {
    come_out_again(Paper::Indef);
}

#[test]
fn the_figures_of_fragpicker_come_out_again() {
    come_out_again(Paper::Fragpicker);
}

#[test]
fn the_figures_of_scaledefrag_come_out_again() {
    come_out_again(Paper::Scaledefrag);
}

#[test]
fn the_figures_of_fast24_come_out_again() {
    come_out_again(Paper::Fast24);
}

#[test]
fn the_page_shows_the_references() {
    let stale = report::stale(root()).unwrap();
    assert!(
        stale.is_empty(),
        "`cargo lab experiments --pages` would change {}",
        stale.join(", ")
    );
}
