//! Pages and their results: what is stale, what is missing, and the project's own; and that
//! docs/evidence.md names what there is.

use std::{collections::BTreeSet, fs, path::Path};

use figures::{Machine, Record, Row, Session, Value, tree};
use tempfile::TempDir;

fn session(date: &str, rows: Vec<Row>) -> Session {
    Session {
        command: "cargo lab bench peers".into(),
        machine: Some(Machine {
            kernel: Some("6.12.1".into()),
            processors: Some(2),
            memory_bytes: Some(8 << 30),
            is_virtual: Some(true),
            device: None,
            tools: Vec::new(),
        }),
        date: Some(date.into()),
        version: Some("abcdef0".into()),
        runs: Some(3),
        note: None,
        rows,
    }
}

fn row(case: &str, contender: &str, seconds: &[f64]) -> Row {
    let samples: Vec<f64> = seconds.iter().map(|it| it * 1e9).collect();
    Row::new(case, contender).with("time_ns", Value::of(&samples))
}

/// A tree with one result, one template and one page, which is up to date.
fn small_tree() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("README.md", "no figure\n");
    write(
        "figures/peers.md",
        "| | ours | theirs | |\n|---|---|---|---|\n\
         {each peers / small}| {contender} | {.time_ns}{.size_bytes? : MiB} | {peers / small / theirs} | {peers / small / theirs ÷ ours} times |\n\
         {if peers / huge}| of a huge one: {peers / huge / ours} |\n\
         {unless peers / small}| small: not measured yet |\n\
         {unless peers / huge}| huge: not measured yet |\n\
         \n{measured peers} `{command peers}`\n",
    );
    write(
        "docs/a.md",
        "# A\n\n<!-- figures: peers -->\n<!-- end figures -->\n\
         It is <!-- figure: peers / small / theirs ÷ ours -->?<!-- end --> times as fast.\n",
    );
    let rows = vec![
        row("small", "ours", &[2.0, 1.8, 2.1]),
        row("small", "theirs", &[9.0, 10.0, 12.0]),
    ];
    let record = Record::of(session("2026-11-24", rows));
    record
        .write(&tree.path().join("figures/peers.json"))
        .unwrap();
    tree::regenerate(tree.path()).unwrap();
    tree
}

fn page(tree: &Path) -> String {
    fs::read_to_string(tree.join("docs/a.md")).unwrap()
}

fn replace(tree: &Path, path: &str, from: &str, to: &str) {
    let text = fs::read_to_string(tree.join(path)).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(tree.join(path), text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_page_shows_its_result_and_is_made_only_once() {
    let tree = small_tree();
    let text = page(tree.path());
    assert!(
        text.contains("| ours | 2 s– | 10 s | 5.0 times |\n| theirs | 10 s–"),
        "{text}"
    );
    assert!(!text.contains("of a huge one"), "{text}");
    assert!(!text.contains("small: not measured yet"), "{text}");
    assert!(text.contains("huge: not measured yet"), "{text}");
    assert!(text.contains("-->5.0<!-- end --> times as fast"), "{text}");
    assert!(
        text.contains(
            "Measured 2026-11-24 (commit abcdef0) on 2 processors of a virtual machine, 8 GiB, \
             Linux 6.12.1; medians of 3 runs, single runs from −10 to +20 % of them. \
             `cargo lab bench peers`"
        ),
        "{text}"
    );
    assert!(tree::stale(tree.path()).unwrap().is_empty());
    assert!(tree::regenerate(tree.path()).unwrap().is_empty());
    assert_eq!(page(tree.path()), text);
}

#[test]
fn a_stale_page_is_found() {
    let tree = small_tree();
    replace(
        tree.path(),
        "docs/a.md",
        "| ours | 2 s– |",
        "| ours | 1 s– |",
    );
    let stale = tree::stale(tree.path()).unwrap();
    assert_eq!(stale.len(), 1);
    assert!(
        stale[0].starts_with("docs/a.md:6: the result gives: | ours | 2 s– |"),
        "{stale:?}"
    );
    tree::regenerate(tree.path()).unwrap();
    replace(
        tree.path(),
        "docs/a.md",
        "-->5.0<!-- end -->",
        "-->9.0<!-- end -->",
    );
    assert_eq!(tree::stale(tree.path()).unwrap().len(), 1);
    tree::regenerate(tree.path()).unwrap();
    // The other way round: a result that changed.
    let new = session("2026-11-25", vec![row("small", "ours", &[4.0, 4.0, 4.0])]);
    tree::keep(tree.path(), "peers", new).unwrap();
    assert_eq!(tree::stale(tree.path()).unwrap().len(), 1);
    tree::regenerate(tree.path()).unwrap();
    let text = page(tree.path());
    assert!(
        text.contains("| ours | 4 s– | 10 s | 2.5 times |"),
        "{text}"
    );
    assert!(
        text.contains("Measured 2026-11-25") && text.contains("Measured 2026-11-24"),
        "{text}"
    );
}

#[test]
fn a_result_that_no_page_shows_is_an_error() {
    let tree = small_tree();
    let new = session("2026-11-25", vec![row("large", "ours", &[4.0])]);
    tree::keep(tree.path(), "peers", new).unwrap();
    let error = format!("{:#}", tree::stale(tree.path()).unwrap_err());
    assert_eq!(error, "figures/peers.json: large is on no page");
    assert!(tree::regenerate(tree.path()).is_err());
}

#[test]
fn what_does_not_fit_together_is_named() {
    let broken = |path: &str, from: &str, to: &str, said: &str| {
        let tree = small_tree();
        replace(tree.path(), path, from, to);
        let error = format!("{:#}", tree::stale(tree.path()).unwrap_err());
        assert!(error.contains(said), "{error}");
    };
    broken(
        "docs/a.md",
        "<!-- end figures -->",
        "",
        "there is no <!-- end figures -->",
    );
    broken(
        "docs/a.md",
        "figures: peers",
        "figures: other",
        "no figures/other.md",
    );
    broken(
        "docs/a.md",
        "theirs ÷ ours",
        "theirs ÷ nobody",
        "has no 'small / nobody'",
    );
    broken(
        "docs/a.md",
        "theirs ÷ ours",
        "theirs / size_bytes",
        "has no size_bytes",
    );
    broken(
        "figures/peers.md",
        "{.time_ns}",
        "{.time_ns : MiB}",
        "is not in MiB",
    );
    broken(
        "figures/peers.json",
        "\"case\": \"small\"",
        "\"case\": \"tiny\"",
        "has no '",
    );
    broken("figures/peers.json", "\"runs\"", "\"ran\"", "unknown field");
}

#[test]
fn spread_that_was_not_kept_is_said_so() {
    let tree = small_tree();
    let value = Value::Measured {
        median: 2e9,
        spread: None,
    };
    let rows = vec![
        Row::new("small", "ours").with("time_ns", value),
        Row::new("small", "theirs").with("time_ns", value),
    ];
    tree::keep(tree.path(), "peers", session("2026-11-20", rows)).unwrap();
    tree::regenerate(tree.path()).unwrap();
    let text = page(tree.path());
    assert!(
        text.contains("medians of 3 runs; the spread was not kept."),
        "{text}"
    );
}

/// The page of measurements has no table that is typed.
#[test]
fn all_tables_of_the_page_of_figures_are_generated() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/figures.md")).unwrap();
    let by_hand = figures::page::regenerate_as(&page, "figures", |_| Ok(String::new())).unwrap();
    let typed: Vec<&str> = by_hand
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    assert!(typed.is_empty(), "{typed:#?}");
}

/// `make figures` mends what this finds.
#[test]
fn the_projects_pages_show_their_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let stale = tree::stale(&root).unwrap();
    assert!(
        stale.is_empty(),
        "make figures would change:\n{}",
        stale.join("\n")
    );
}

/// The names of all tests below a folder, those of a suite (`NAME = crate::CASE`) included.
fn add_tests(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_tests(&path, names);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                let function = line
                    .strip_prefix("fn ")
                    .and_then(|rest| rest.split_once('('));
                if let Some((name, _)) = line.split_once(" = crate::") {
                    names.insert(name.to_owned());
                } else if let Some((name, _)) = function.filter(|_| is_test) {
                    names.insert(name.to_owned());
                }
                is_test = line == "#[test]" || (is_test && line.starts_with("#["));
            }
        }
    }
}

/// Whether a link of a page in docs/ leads to a page, and to a heading of it.
fn leads_somewhere(root: &Path, link: &str) -> bool {
    let (page, heading) = link.split_once('#').unwrap_or((link, ""));
    let anchor = |line: &str| -> String {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let words = words.replace(' ', "-");
        words.replace(|c: char| !c.is_alphanumeric() && c != '-' && c != '_', "")
    };
    fs::read_to_string(root.join("docs").join(page)).is_ok_and(|text| {
        let mut headings = text.lines().filter(|line| line.starts_with('#'));
        heading.is_empty() || headings.any(|line| anchor(line) == heading)
    })
}

/// Rows of docs/evidence.md that name a test or a page that there is not, or nothing.
fn unfounded(root: &Path) -> Vec<String> {
    let mut tests = BTreeSet::new();
    for folder in ["crates", "lab", "xtask"] {
        add_tests(&root.join(folder), &mut tests);
    }
    let page = fs::read_to_string(root.join("docs/evidence.md")).unwrap();
    let rows = page.lines().filter_map(|line| {
        let (_, shown) = line.strip_suffix(" |")?.rsplit_once(" | ")?;
        (shown != "shown by").then_some(shown)
    });
    let mut unfounded = Vec::new();
    for shown in rows {
        let names = shown.split('`').skip(1).step_by(2);
        let links = shown.split("](").skip(1);
        let links = links.map(|rest| rest.split(')').next().unwrap());
        let missing = (names.clone().filter(|name| !tests.contains(*name)))
            .chain(links.clone().filter(|link| !leads_somewhere(root, link)));
        unfounded.extend(missing.map(str::to_owned));
        if names.count() + links.count() == 0 {
            unfounded.push(shown.to_owned());
        }
    }
    unfounded
}

#[test]
fn what_evidence_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert_eq!(unfounded(&root), [""; 0]);
}

#[test]
fn evidence_that_is_gone_is_found() {
    let tree = small_tree();
    let write = |path: &str, text: &str| {
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "crates/a.rs",
        "#[test]\n#[ignore]\nfn it_is() {}\nfn helper() {}\n",
    );
    write("lab/suite.rs", "    loop_case = crate::case,\n");
    write("xtask/b.rs", "");
    write("docs/b.md", "## Of `a` and b/c: d\n");
    write(
        "docs/evidence.md",
        "| claim | shown by |\n|---|---|\n\
         | a `word` | `it_is`, `loop_case`, [d](b.md#of-a-and-bc-d), [a](a.md) |\n\
         | b | `helper`, `gone`, [d](b.md#of-b) and [c](c.md) |\n\
         | c | nothing |\n",
    );
    assert_eq!(
        unfounded(tree.path()),
        ["helper", "gone", "b.md#of-b", "c.md", "nothing"]
    );
}
