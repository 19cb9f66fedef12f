//! The built-in profiles against closed forms and published figures (docs/flash-model.md).

use std::path::Path;

use figures::{Record, Row};

#[path = "../examples/profiles/collection.rs"]
mod collection;
#[path = "../examples/profiles/drive.rs"]
mod drive;
#[path = "../examples/profiles/indef_femu.rs"]
mod indef_femu;
#[path = "../examples/profiles/qlc.rs"]
mod qlc;
#[path = "../examples/profiles/results.rs"]
mod results;
#[path = "../examples/profiles/tlc.rs"]
mod tlc;
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
    near("tlc", 1.0);
    near("qlc", 12.0);
    each_part_has_its_effect(&rows);
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

/// Each part of the model must do at least so much of what it is for.
fn each_part_has_its_effect(rows: &[Row]) {
    let of = |case: &str, what: &str, quantity: &str| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row.case == case && row.contender == what);
        row.unwrap().values[quantity].median()
    };
    let amplification = |what| of("write amplification", what, "times");
    assert!(amplification("cost-benefit") < 0.95 * amplification("greedy"));
    let (together, apart) = (amplification("one handle"), amplification("two handles"));
    assert!(together > 1.3 && apart - 1.0 < (together - 1.0) / 2.0);
    // A suspension, an MSB page, and a row of data on the channel before it.
    let slowest = |quantity| of("tlc", "slowest read beside writes", quantity);
    assert!(slowest("time_ns") < 700_000.0 && slowest("without_suspension_ns") > 4_000_000.0);
    assert!((1.6..2.05).contains(&of("tlc", "reads by planes on their own", "times")));
    // Two blocks of each die are never full, and the buffer hides 8 MiB.
    let (fall, cache) = (
        of("qlc", "fall", "written_bytes"),
        of("qlc", "fall", "cache_bytes"),
    );
    assert!((0.75 * cache..cache + f64::from(12 << 20)).contains(&fall));
    let burst = |quantity| of("qlc", "32 MiB", quantity);
    assert!(burst("after_idle_mb_per_s") > 0.8 * burst("first_mb_per_s"));
}
