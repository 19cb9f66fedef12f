//! Tests the harness on a small file: that it runs to its end, and that the results that do not
//! depend on chance are right. Times of so few reads prove nothing.

use super::*;

#[test]
fn loop_the_harness_measures_what_it_should() {
    if scratch_fs::require(ScratchFs::builder("ext4", Bytes::mib(64)).build()).is_none() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let args = ZipfArgs {
        common: Common {
            keep: false,
            runs: 1,
            json: None,
            images: Some(images.path().to_owned()),
            indef: Some(source_tree::binary_for_test("indef").unwrap()),
        },
        fs: "ext4".into(),
        size: Bytes::mib(32),
        skews: vec![1.4],
        shares: vec![10.0, 50.0],
        reads: 4096,
        sample: 256,
        known: true,
    };
    let mut report = Report::new("zipf", std::path::Path::new("/"), 1);
    let curve = ZipfBench::new(&args).unwrap().curve(1.4).unwrap();
    judge(&curve, &mut report).unwrap();
    assert!(!report.verdicts.is_empty());
    let gains = |name: &str| -> Vec<f64> {
        let of = curve.points.iter().filter(|p| p.contender == name);
        of.map(|p| p.request_gain_pct).collect()
    };
    // 256 ranges, of which the hottest tenth has some 85 % of the reads.
    for name in ["oracle", "indef", "fragpicker"] {
        let found = gains(name);
        assert!(found[0] > 75.0 && found[1] > 90.0, "{name}: {found:?}");
    }
    assert!(gains("whole")[0] < 40.0, "{:?}", gains("whole"));
    // The same ranges are moved; two that are adjacent by chance are one request less.
    for (oracle, indef) in gains("oracle").iter().zip(gains("indef")) {
        assert!((oracle - indef).abs() < 1.0, "{oracle} and {indef}");
    }
    for target in &curve.targets {
        let off = target.request_gain_pct - target.predicted_pct;
        assert!(off.abs() < 5.0, "{target:?}");
        assert!(target.moved_pct < 50.0, "{target:?}");
    }
    assert!(!curve.to_string().is_empty());
}
