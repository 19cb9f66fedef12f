//! The built-in profiles against closed forms and published figures (docs/flash-model.md).

use std::path::Path;

use figures::Record;

#[path = "../examples/profiles/drive.rs"]
mod drive;
#[path = "../examples/profiles/indef_femu.rs"]
mod indef_femu;
#[path = "../examples/profiles/results.rs"]
mod results;
#[path = "../examples/profiles/zn540.rs"]
mod zn540;

#[test]
fn the_figures_are_as_committed_and_near_the_published_ones() {
    let rows = results::all();
    let near = |case: &str, percent: f64| {
        for row in rows.iter().filter(|row| row.case == case) {
            if let Some(off) = row.values.get("off_pct") {
                assert!(off.median().abs() <= percent, "{row}");
            }
        }
    };
    near("indef-femu", 2.0);
    near("zn540", 10.0);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../figures/profiles.json");
    let committed = Record::read(&file).unwrap();
    for row in &rows {
        assert!(
            committed.rows().any(|it| it == row),
            "{}: the example profiles with --keep writes it anew: {row}",
            file.display()
        );
    }
}
