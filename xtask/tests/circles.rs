//! The files of a crate that use each other form no circle, in every crate.
//!
//! Edges are `use` declarations and paths (`super::name`) outside of tests, followed through re-exports to
//! the file that they name. A file that only re-exports from its own children does not use them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, mem, path,
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, ItemMod, ItemUse, Macro, Meta, MetaList, Path, UseTree, VisRestricted, Visibility,
    visit::{self, Visit},
};

/// A module's path in its crate: `["collect", "wire"]`.
type Module = Vec<String>;

/// A path that a `use` declaration names, and the name that it gets.
struct Import {
    path: Vec<String>,
    name: String,
    is_reexport: bool,
}

#[derive(Default)]
struct Source {
    imports: Vec<Import>,
    /// Paths elsewhere in the code.
    paths: Vec<Vec<String>>,
    /// While it is read: how many modules within the file are around.
    inline: usize,
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
        found.extend(circles.into_iter().map(|circle| (name.clone(), circle)));
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
    let a = ("a", "fn f() { assert!(1 < super::b::g()); }");
    assert_eq!(of(&[root, a, b]), [["a", "b"]]);
    // The module's `super` is the file.
    let a = ("a", "mod inner { use super::b; use super::super::b::g; }");
    assert_eq!(of(&[root, a, b]), [["a", "b"]]);
    let a = ("a", "mod inner { use super::b::g; }");
    assert!(of(&[root, a, b]).is_empty());
    let a = (
        "a",
        "const TEXT: &str = \"super::b\";\n#[cfg(test)]\nmod tests { use super::super::b; }",
    );
    assert!(of(&[root, a, b]).is_empty());
    let root = ("", "mod a;\nstruct Common;\nfn main() { a::run() }");
    assert_eq!(of(&[root, ("a", "use crate::Common;")]), [["", "a"]]);
}

/// Read the modules below a folder. Tests and the program of a library are left out.
fn read(folder: &path::Path, module: &Module, sources: &mut Crate) {
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
    let mut source = Source::default();
    source.visit_file(&syn::parse_file(text).unwrap());
    source
}

impl Visit<'_> for Source {
    fn visit_item_mod(&mut self, module: &ItemMod) {
        if !module.attrs.iter().any(is_for_tests) {
            self.inline += 1;
            visit::visit_item_mod(self, module);
            self.inline -= 1;
        }
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, &[], is_reexport);
    }

    fn visit_path(&mut self, path: &Path) {
        let segments = path.segments.iter();
        self.path(segments.map(|part| part.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &MetaList) {
        self.tokens(list.tokens.clone());
    }

    fn visit_vis_restricted(&mut self, _: &VisRestricted) {}
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && matches!(&attribute.meta, Meta::List(list) if list.tokens.to_string() == "test")
}

impl Source {
    /// Add the paths of a tree like `a::{b, c::{d as e}}`.
    fn import(&mut self, tree: &UseTree, before: &[String], is_reexport: bool) {
        let with = |part: &dyn ToString| [before, &[part.to_string()]].concat();
        let (path, name) = match tree {
            UseTree::Path(path) => {
                return self.import(&path.tree, &with(&path.ident), is_reexport);
            }
            UseTree::Group(group) => {
                let trees = group.items.iter();
                return trees.for_each(|tree| self.import(tree, before, is_reexport));
            }
            UseTree::Name(name) => (with(&name.ident), name.ident.to_string()),
            UseTree::Rename(renamed) => (with(&renamed.ident), renamed.rename.to_string()),
            UseTree::Glob(_) => (before.to_vec(), "*".to_owned()),
        };
        self.imports.push(Import {
            path: self.in_file(path),
            name,
            is_reexport,
        });
    }

    fn path(&mut self, path: Vec<String>) {
        if path.len() > 1 {
            let path = self.in_file(path);
            self.paths.push(path);
        }
    }

    /// The paths in what a macro or an attribute gets.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.path(mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                other => {
                    self.path(mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.path(path);
    }

    /// The path as the file has it: in a module within the file, the first `super` is the file.
    fn in_file(&self, path: Vec<String>) -> Vec<String> {
        let up = path.iter().take_while(|part| *part == "super").count();
        match up.checked_sub(self.inline) {
            _ if self.inline == 0 || up == 0 => path,
            Some(0) => [&["self".to_owned()][..], &path[up..]].concat(),
            Some(_) => path[self.inline..].to_vec(),
            None => vec!["self".to_owned()],
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
