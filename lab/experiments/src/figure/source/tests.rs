use super::*;

const GOOD: &str = r#"title = "Reading in units"
place = "§3.1, Fig 7"
tier = "V"

[plot]
x = "unit, KiB"
y = "time, ms"
scale = "log"

[parameters]
file = { value = 8, unit = "MiB", kind = "paper", source = "§3.1" }

[[published]]
series = "depth 1"
x = 32
value = 85
unit = "us"
source = "§3.1"
"#;

fn mistake(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    Figure::parse("fast24/fig07", &text)
        .expect_err(to)
        .to_string()
}

#[test]
fn a_good_file_is_read() {
    let figure = Figure::parse("fast24/fig07", GOOD).unwrap();
    assert_eq!(figure.paper, Paper::Fast24);
    assert_eq!(figure.plot.scale, Scale::Log);
    assert!((figure.tolerance_pct - TOLERANCE_PCT).abs() < f64::EPSILON);
    assert_eq!(figure.published[0].x, X::Number(32.0));
    assert_eq!(figure.parameters.bytes("file").unwrap(), 8 << 20);
}

#[test]
fn a_bad_file_is_refused_with_its_line_and_the_remedy() {
    for (from, to, said) in [
        (
            "title = \"Reading in units\"",
            "title = \" \"",
            "fig07.toml:1: title is empty",
        ),
        (
            "tier = \"V\"",
            "tier = \"W\"",
            "fig07.toml:3: unknown variant",
        ),
        (
            "tier = \"V\"",
            "tier = \"none\"",
            ":3: tier 'none' needs why_not",
        ),
        (
            "tier = \"V\"",
            "tier = \"V\"\nwhy_not = \"no\"",
            ":4: why_not is for tier 'none' only",
        ),
        (
            "tier = \"V\"",
            "tier = \"V\"\ntolerance_pct = 90",
            ":4: tolerance_pct is 90",
        ),
        (
            "tier = \"V\"",
            "tier = \"V\"\ncolour = 1",
            ":4: unknown field `colour`",
        ),
        (
            "unit = \"MiB\"",
            "unit = \"MB\"",
            ":11: parameter 'file': unit 'MB' is none of",
        ),
        ("value = 8,", "value = 0.3,", "is no whole number"),
        (
            "kind = \"paper\"",
            "kind = \"free\"",
            ":11: parameter 'file' is free; name other values",
        ),
        (
            "source = \"§3.1\" }",
            "source = \"\" }",
            "the source of a parameter is empty",
        ),
        (
            "value = 85",
            "value = inf",
            ":13: 'depth 1' is no finite number",
        ),
        (
            "source = \"§3.1\"\n",
            "source = \"\"\n",
            "the source of a published value is empty",
        ),
        (
            "source = \"§3.1\"\n",
            "source = \"§3.1\"\ntaken = true\n",
            ":3: no published value is compared",
        ),
        (
            "unit = \"us\"",
            "unit = \"furlong\"",
            "unknown variant `furlong`",
        ),
    ] {
        let found = mistake(from, to);
        assert!(found.contains(said), "{found}\nwanted: {said}");
    }
    let twice = GOOD.to_owned() + &GOOD[GOOD.find("[[published]]").unwrap()..];
    let error = Figure::parse("fast24/fig07", &twice)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(":19: 'depth 1' at 32 is there twice"),
        "{error}"
    );
    let error = Figure::parse("cortex/fig07", GOOD).unwrap_err().to_string();
    assert!(
        error.contains("no paper has the folder 'cortex'"),
        "{error}"
    );
}
