use super::*;

#[test]
fn every_built_in_profile_can_be_read_and_names_its_sources() {
    for name in BUILTIN {
        let profile = Profile::builtin(name).unwrap();
        assert_eq!(profile.name(), name);
        assert!(!profile.description().is_empty());
        assert_eq!(profile.is_instant(), name == "zero");
        assert!(profile.parameters().len() > 30);
    }
    assert!(Profile::builtin("no-such").is_none());
}

/// The text of a built-in profile with something replaced, and the error that it gives.
fn error_with(from: &str, to: &str) -> String {
    let text = include_str!("../../profiles/indef-femu.toml");
    assert!(text.contains(from), "{from}");
    Profile::parse("my.toml", &text.replacen(from, to, 1))
        .unwrap_err()
        .to_string()
}

#[test]
fn a_bad_profile_is_refused_with_file_line_and_reason() {
    for (from, to, expected) in [
        (
            "read = { value = 80, ",
            "read = { ",
            "my.toml:14: flash.read has no value",
        ),
        (
            "kind = \"paper\", source = \"InDeF Table I: page read latency\"",
            "kind = \"paper\"",
            "my.toml:14: flash.read has no source",
        ),
        (
            "value = 80,",
            "value = -80,",
            "my.toml:14: flash.read.value must be",
        ),
        (
            "value = 80,",
            "value = inf,",
            "my.toml:14: flash.read.value must be",
        ),
        (
            "value = 80, unit = \"us\"",
            "value = 80, unit = \"KiB\"",
            "unit 'KiB' is none of ns, us",
        ),
        (
            "value = 80, unit = \"us\", kind = \"paper\"",
            "value = 80, unit = \"us\", kind = \"guess\"",
            "my.toml:14: flash.read: kind 'guess' is none of datasheet",
        ),
        (
            "program = {",
            "programme = {",
            "there is no program in table [flash]",
        ),
        (
            "[migration]",
            "[extra]\nfoo = { value = 1, unit = \"us\", kind = \"paper\", source = \"x\" }\n[migration]",
            "there is no parameter extra.foo",
        ),
        (
            "page = { value = 16,",
            "page = { value = 16.3,",
            "my.toml:9: geometry.page: 16.3 is no whole number",
        ),
        (
            "channels = { value = 8,",
            "channels = { value = 0,",
            "my.toml:6: geometry.channels: it must be between 1",
        ),
        (
            "interleave = { value = 4,",
            "interleave = { value = 3,",
            "zones.interleave: it must be a whole part",
        ),
        (
            "capacity = { value = 32,",
            "capacity = { value = 33,",
            "zones.capacity: it must be a multiple",
        ),
        ("[flash]", "[flash", "my.toml:13: no valid TOML"),
        ("[flash]", "x = 1\n[flash]", "geometry.x is a bare value"),
        (
            "name = \"indef-femu\"",
            "",
            "there is no name in a table [device]",
        ),
        (
            "value = 8, unit = \"MiB\"",
            "value = 16, unit = \"KiB\"",
            "buffer.size: the buffer must hold two pages",
        ),
    ] {
        let error = error_with(from, to);
        assert!(error.contains(expected), "{from} → {to}: {error}");
    }
}

#[test]
fn a_policy_is_read_or_refused_and_an_older_profile_has_the_usual_one() {
    let text = Profile::builtin_text("indef-femu").unwrap();
    let added = [
        "collect_below",
        "cost_benefit",
        "wear_spread",
        "die_wear_spread",
    ];
    let added = [&added[..], &["separate_parts", "endurance", "read_cache"]].concat();
    let older: Vec<&str> = text
        .lines()
        .filter(|line| !added.iter().any(|name| line.starts_with(name)))
        .collect();
    assert_eq!(older.len() + added.len(), text.lines().count());
    let older = Profile::parse("older", &older.join("\n")).unwrap();
    assert_eq!(older.ftl, Profile::builtin("indef-femu").unwrap().ftl);
    assert_eq!(older.endurance(), None);

    let added = "[ftl]\ncollect_idle = { value = 12, unit = \"count\", kind = \"assumed\", source = \"mine\" }\n\
                 idle_after = { value = 3, unit = \"ms\", kind = \"assumed\", source = \"mine\" }";
    let changed = text
        .replace("[ftl]", added)
        .replace("collect_below = { value = 6", "collect_below = { value = 9")
        .replace(
            "cost_benefit = { value = false",
            "cost_benefit = { value = true",
        )
        .replace(
            "\nwear_spread = { value = 20",
            "\nwear_spread = { value = 21",
        )
        .replace(
            "die_wear_spread = { value = 10",
            "die_wear_spread = { value = 11",
        )
        .replace(
            "separate_parts = { value = true",
            "separate_parts = { value = false",
        );
    let options = FtlOptions {
        collect_below: 9,
        victim: VictimChoice::CostBenefit,
        wear_spread: 21,
        die_wear_spread: 11,
        separate_parts: false,
        collect_idle: 12,
        in_place: false,
    };
    let changed = Profile::parse("mine", &changed).unwrap();
    assert_eq!(changed.ftl.options, options);
    assert_eq!(changed.timing.idle_after, 3_000_000);
    let error = error_with("collect_below = { value = 6", "collect_below = { value = 4");
    assert!(
        error.contains("ftl.collect_below: it must be between 5"),
        "{error}"
    );
}

#[test]
fn times_by_type_of_page_are_complete_and_stand_alone() {
    let text = Profile::builtin_text("tlc").unwrap();
    let without = |key: &str| {
        let kept = text.lines().filter(|line| !line.starts_with(key));
        kept.collect::<Vec<_>>().join("\n")
    };
    let added = |line: &str| text.replace("[flash]\n", &format!("[flash]\n{line}\n"));
    let time = "{ value = 9, unit = \"us\", kind = \"assumed\", source = \"mine\" }";
    for (text, expected) in [
        (without("read_csb"), "there is no read_csb in table [flash]"),
        (
            added(&format!("read = {time}")),
            "flash.read: it must not stand beside flash.read_lsb, flash.read_csb, flash.read_msb",
        ),
        (
            added(&format!("read_csb1 = {time}")),
            "there is no parameter flash.read_csb1",
        ),
        (
            text.replace("bits_per_cell = { value = 3", "bits_per_cell = { value = 5"),
            "flash.bits_per_cell: it must be between 1 and 4",
        ),
        (
            text.replace(
                "read_msb = { value = 106, unit = \"us\", kind = \"paper\", source",
                "read_msb = { value = 106, unit = \"us\", kind = \"paper\", note",
            ),
            "flash.read_msb",
        ),
    ] {
        let error = Profile::parse("my.toml", &text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // The mean of the programs may be known, and the times of the reads one by one.
    let mean = without("program_lsb").replace("program_csb = {", "program = {");
    let mean: Vec<&str> = mean
        .lines()
        .filter(|line| !line.starts_with("program_msb"))
        .collect();
    let profile = Profile::parse("my.toml", &mean.join("\n")).unwrap();
    assert_eq!(profile.timing.die.program, PageTimes::new(&[2_225_000]));
    assert_eq!(
        profile.timing.die.read,
        PageTimes::new(&[56_500, 77_500, 106_000])
    );
}

#[test]
fn a_cache_and_handles_that_cannot_work_are_refused() {
    let text = Profile::builtin_text("qlc").unwrap();
    let without = |key: &str| {
        let kept = text.lines().filter(|line| !line.starts_with(key));
        kept.collect::<Vec<_>>().join("\n")
    };
    let handles = "reclaim_unit_handles = { value = 129, unit = \"count\", kind = \"assumed\", source = \"mine\" }";
    for (text, expected) in [
        (
            text.replace("\nread = { value = 40,", "\nreed = { value = 40,"),
            "there is no read in table [slc]",
        ),
        (
            text.replace(
                ", source = \"FEMU's default for a page without a cell type, which is that of SLC (pg_rd_lat)\"",
                "",
            ),
            "slc.read has no source",
        ),
        (
            text.replace(
                "pages_per_block = { value = 96",
                "pages_per_block = { value = 3",
            ),
            "a flash block must have a unit in it",
        ),
        (
            text.replace("[ftl]\n", &format!("[ftl]\n{handles}\n")),
            "ftl.reclaim_unit_handles: 129 are more than 128",
        ),
    ] {
        let error = Profile::parse("my.toml", &text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // Cells of one bit leave nothing to gain.
    let single = without("bits_per_cell")
        .lines()
        .filter(|line| !line.starts_with("read_csb") && !line.starts_with("read_msb"))
        .map(|line| line.replace("read_lsb =", "read ="))
        .collect::<Vec<_>>()
        .join("\n");
    let error = Profile::parse("my.toml", &single).unwrap_err().to_string();
    assert!(error.contains("it needs flash.bits_per_cell"), "{error}");
    assert_eq!(Profile::builtin("fdp").unwrap().reclaim_unit_handles(), 8);
    assert_eq!(Profile::builtin("tlc").unwrap().reclaim_unit_handles(), 0);
}

#[test]
fn no_text_panics() {
    for text in [
        "",
        "[device]\nname = 3",
        "a",
        "[[x]]",
        "[device]\nname=\"a\"\n[flash]\nread={}",
    ] {
        assert!(Profile::parse("x", text).is_err(), "{text}");
    }
}

proptest::proptest! {
    /// A profile in which something was cut out or replaced is refused, or makes a device.
    #[test]
    fn damaged_profiles_do_not_panic(
        at in proptest::prelude::any::<proptest::sample::Index>(),
        len in 0usize..30,
        with in "[0-9a-z\"={}. \n]{0,6}",
    ) {
        let mut text = include_str!("../../profiles/indef-femu.toml").to_owned();
        let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let start = at.index(bounds.len());
        let end = bounds.get(start + len).copied().unwrap_or(text.len());
        text.replace_range(bounds[start]..end, &with);
        if let Ok(profile) = Profile::parse("damaged", &text) {
            let kind = crate::NamespaceKind::Zoned;
            let size = profile.geometry().zone.size;
            let spec = crate::NamespaceSpec { kind, size };
            let device = crate::Device::new(&profile, &[spec]);
            proptest::prop_assert!(device.is_ok());
        }
    }
}
