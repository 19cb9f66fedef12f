//! The files of a crate that use each other form no circle: in every crate of the product, and in those of
//! the laboratory but `LEFT`.
//!
//! Edges are `use` declarations and paths (`super::name`) outside of tests, followed through re-exports to
//! the file that they name. A file that only re-exports from its own children does not use them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Crates of the laboratory that have some yet.
const LEFT: [&str; 0] = [];

/// A module's path in its crate: `["collect", "wire"]`.
type Module = Vec<String>;

/// A path that a `use` declaration names, and the name that it gets.
struct Import {
    path: Vec<String>,
    name: String,
    is_reexport: bool,
}

struct Source {
    imports: Vec<Import>,
    /// Paths elsewhere in the code.
    paths: Vec<Vec<String>>,
}

type Crate = BTreeMap<Module, Source>;

#[test]
fn the_files_of_a_crate_form_no_circle() {
    let root = source_tree::root();
    let mut crates = vec!["xtask".to_owned()];
    for folder in ["crates", "lab"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            crates.push(format!("{folder}/{name}"));
        }
    }
    let mut found = Vec::new();
    for name in crates {
        let mut sources = Crate::new();
        read(&root.join(&name).join("src"), &Module::new(), &mut sources);
        let circles = circles(&sources);
        assert!(
            !LEFT.contains(&name.as_str()) || !circles.is_empty(),
            "{name} has none any more"
        );
        if !LEFT.contains(&name.as_str()) {
            found.extend(circles.into_iter().map(|circle| (name.clone(), circle)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_circle_is_found_and_a_reexport_is_none() {
    let of = |files: &[(&str, &str)]| {
        let sources = files.iter().map(|(name, text)| {
            let module: Module = name.split_terminator("::").map(str::to_owned).collect();
            (module, parse(text))
        });
        circles(&sources.collect())
    };
    // `crate::Thing` is a use of `a`, not of the root.
    let root = ("", "mod a;\nmod b;\npub use a::Thing;");
    let a = ("a", "pub struct Thing;");
    let b = ("b", "use crate::{Thing as Other, /* none */ std::fs};");
    assert!(of(&[root, a, b]).is_empty());
    let a = (
        "a",
        "use std::fs;\n// use super::b;\nfn f() { super::b::g() }",
    );
    assert_eq!(of(&[root, a, b]), [["a", "b"]]);
    let a = (
        "a",
        "const TEXT: &str = \"super::b\";\n#[cfg(test)]\nmod tests { use super::super::b; }",
    );
    assert!(of(&[root, a, b]).is_empty());
    let root = ("", "mod a;\nstruct Common;\nfn main() { a::run() }");
    assert_eq!(of(&[root, ("a", "use crate::Common;")]), [["", "a"]]);
}

/// Read the modules below a folder. Tests and the program of a library are left out.
fn read(folder: &Path, module: &Module, sources: &mut Crate) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let has_library = folder.join("lib.rs").is_file();
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut own = module.clone();
        match name {
            "tests" | "bin" => continue,
            "main" if has_library => continue,
            "mod" | "lib" | "main" => {}
            name => own.push(name.to_owned()),
        }
        if path.is_dir() {
            read(&path, &own, sources);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            sources.insert(own, parse(&fs::read_to_string(&path).unwrap()));
        }
    }
}

fn parse(text: &str) -> Source {
    let code = code_of(text);
    let mut source = Source {
        imports: Vec::new(),
        paths: Vec::new(),
    };
    let mut rest = code.as_str();
    while let Some((before, found)) = split_at_use(rest) {
        source.paths.extend(paths(before));
        let (tree, after) = found.split_once(';').unwrap_or((found, ""));
        let visibility = before.rsplit([';', '}', '\n']).next().unwrap_or_default();
        expand(tree, &[], visibility.contains("pub"), &mut source.imports);
        rest = after;
    }
    source.paths.extend(paths(rest));
    source
}

/// The text without comments, literals, visibilities like `pub(in crate::a)`, and the tests at its end.
fn code_of(text: &str) -> String {
    let text = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let mut code = String::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        // Every other part is inside of quotes.
        let line = line.replace("\\\"", "");
        let outside: Vec<&str> = line.split('"').step_by(2).collect();
        code += &outside.join("\"\"");
        code.push('\n');
    }
    let mut kept = String::new();
    let mut parts = code.split("pub(in ");
    kept += parts.next().unwrap_or_default();
    for part in parts {
        kept += "pub";
        kept += part.split_once(')').map_or("", |(_, after)| after);
    }
    kept
}

/// The text before the next `use`, and after it.
fn split_at_use(code: &str) -> Option<(&str, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices("use ").map(|(at, _)| at).find_map(|at| {
        let before = &code[..at];
        (!before.ends_with(is_word)).then(|| (before, &code[at + 4..]))
    })
}

/// The paths of lower-case segments in code, with the name after them.
fn paths(code: &str) -> Vec<Vec<String>> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .filter(|word| word.contains("::"))
        .map(|word| {
            word.split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        })
        .collect()
}

/// Add the paths of a tree like `a::{b, c::{d as e}}`.
fn expand(tree: &str, before: &[String], is_reexport: bool, imports: &mut Vec<Import>) {
    let (mut depth, mut begin) = (0, 0);
    let ends = tree.char_indices().filter(|(_, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        *c == ',' && depth == 0
    });
    let ends: Vec<usize> = ends.map(|(at, _)| at).chain([tree.len()]).collect();
    for end in ends {
        let part = tree[begin..end].trim();
        begin = end + 1;
        let segments = |text: &str| -> Vec<String> {
            let parts = text
                .split("::")
                .map(str::trim)
                .filter(|part| !part.is_empty());
            before
                .iter()
                .cloned()
                .chain(parts.map(str::to_owned))
                .collect()
        };
        if let Some((prefix, inner)) = part.split_once('{') {
            let inner = inner.trim_end().trim_end_matches('}');
            // Only the last brace is this one's.
            let missing = inner
                .matches('{')
                .count()
                .saturating_sub(inner.matches('}').count());
            let inner = format!("{inner}{}", "}".repeat(missing));
            expand(&inner, &segments(prefix), is_reexport, imports);
        } else if !part.is_empty() {
            let (path, name) = part.split_once(" as ").unwrap_or((part, ""));
            let path = segments(path);
            let last = path.last().cloned().unwrap_or_default();
            imports.push(Import {
                name: if name.is_empty() {
                    last
                } else {
                    name.trim().to_owned()
                },
                path,
                is_reexport,
            });
        }
    }
}

/// The file that a path in `module` leads to; `None` for another crate.
fn target(crate_: &Crate, module: &Module, path: &[String], depth: usize) -> Option<Module> {
    let (mut at, mut rest) = (module.clone(), path);
    match path.first()?.as_str() {
        "crate" => (at, rest) = (Module::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                at.pop();
                rest = &rest[1..];
            }
        }
        first => {
            at.push(first.to_owned());
            if !crate_.contains_key(&at) {
                return None;
            }
            rest = &path[1..];
        }
    }
    while let Some((first, after)) = rest.split_first() {
        at.push(first.clone());
        if !crate_.contains_key(&at) {
            at.pop();
            break;
        }
        rest = after;
    }
    let through = rest.first().filter(|_| depth < 8).and_then(|name| {
        let imports = &crate_.get(&at)?.imports;
        let import = imports.iter().find(|import| import.name == *name)?;
        target(crate_, &at, &import.path, depth + 1)
    });
    through.or(Some(at))
}

/// The files that a file uses.
fn uses(crate_: &Crate, module: &Module, source: &Source) -> BTreeSet<Module> {
    let imports = source.imports.iter().filter_map(|import| {
        let to = target(crate_, module, &import.path, 0)?;
        (!import.is_reexport || !to.starts_with(module)).then_some(to)
    });
    let paths = source
        .paths
        .iter()
        .filter_map(|path| target(crate_, module, path, 0));
    imports
        .chain(paths)
        .filter(|to| to != module && crate_.contains_key(to))
        .collect()
}

/// The sets of files that all use each other, directly or by way of others.
fn circles(crate_: &Crate) -> Vec<Vec<String>> {
    let edges: BTreeMap<&Module, BTreeSet<Module>> = crate_
        .iter()
        .map(|(module, source)| (module, uses(crate_, module, source)))
        .collect();
    let reach = |from: &Module| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(next) = left.pop() {
            for to in &edges[&next] {
                if seen.insert(to.clone()) {
                    left.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = crate_
        .keys()
        .map(|module| (module, reach(module)))
        .collect();
    let mut circles = BTreeSet::new();
    for (module, others) in &reached {
        if others.contains(*module) {
            let circle = others
                .iter()
                .filter(|other| reached[other].contains(*module));
            circles.insert(circle.map(|module| module.join("::")).collect::<Vec<_>>());
        }
    }
    circles.into_iter().collect()
}
