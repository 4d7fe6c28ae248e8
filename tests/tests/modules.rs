//! The modules of a crate import each other in one direction only. A cycle is allowed only where it is listed here,
//! with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates");

/// Crate, the modules of a cycle, and why there is one. A cycle may become smaller, not larger.
const CYCLES: &[(&str, &str, &str)] = &[
    (
        "config",
        "table typed",
        "the table makes Config, whose fields are read by their types, and the checks between directives read the table by name",
    ),
    (
        "commands",
        "cx host row session",
        "a handler takes the context, which leads to the session and the host, and these speak of handlers and their rows",
    ),
    (
        "commands",
        "connection pubsub tracking",
        "CLIENT's subcommands are rows of several families, which use CLIENT's own helpers; RESET leaves all channels",
    ),
    ("commands", "acl server table", "the table lists all families, and ACL and COMMAND answer from the table"),
    ("resp", "inline request", "an inline command is read into the spans of a request"),
    ("value", "rdb stream", "a stream's bytes on flash are those of an RDB file, which knows all types"),
];

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The first names after a path's beginning: `a::b` gives a, `{a::{b, c}, d}` gives a and d.
fn first_names(path: &str) -> Vec<String> {
    let name = |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(list) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut names, mut start) = (0, vec![name(list)], false);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            _ if start && !c.is_whitespace() => {
                names.push(name(&list[at..]));
                start = false;
            }
            _ => {}
        }
    }
    names
}

/// Adds the imports of a file from its own crate, except those of its tests. In a file directly under src, `super` is
/// the crate.
fn add_imports(file: &Path, is_top: bool, imports: &mut BTreeSet<String>) {
    let text = fs::read_to_string(file).expect("a source file");
    let code = text.split("#[cfg(test)]\nmod ").next().expect("a first part");
    let code: String =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect();
    let beginnings: &[&str] = if is_top { &["crate::", "super::"] } else { &["crate::"] };
    for beginning in beginnings {
        for (at, _) in code.match_indices(beginning) {
            imports.extend(first_names(&code[at + beginning.len()..]));
        }
    }
}

fn add_folder(folder: &Path, imports: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("readable").path();
        match path.is_dir() {
            true => add_folder(&path, imports),
            false if is_source(&path) => add_imports(&path, false, imports),
            false => {}
        }
    }
}

fn is_source(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".rs") && !name.ends_with("tests.rs")
}

/// For each module directly under src: the other modules that it imports.
fn imports_of(name: &str) -> Imports {
    let mut imports = Imports::new();
    for entry in fs::read_dir(format!("{CRATES}/{name}/src")).expect("a crate's sources") {
        let path = entry.expect("readable").path();
        let module = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        match path.is_dir() {
            true => add_folder(&path, imports.entry(module).or_default()),
            false if is_source(&path) && !["lib", "main"].contains(&&*module) => {
                add_imports(&path, true, imports.entry(module).or_default());
            }
            false => {}
        }
    }
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    for (module, found) in &mut imports {
        found.retain(|other| other != module && modules.contains(other));
    }
    imports
}

fn reached_from(module: &str, imports: &Imports) -> BTreeSet<String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![module.to_owned()]);
    while let Some(module) = next.pop() {
        for other in &imports[&module] {
            if reached.insert(other.clone()) {
                next.push(other.clone());
            }
        }
    }
    reached
}

/// Modules that import each other, in groups.
fn cycles(imports: &Imports) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<&String, _> = imports.keys().map(|module| (module, reached_from(module, imports))).collect();
    let together = |module: &String| {
        reached[module].iter().filter(|other| reached[other].contains(module)).cloned().collect::<BTreeSet<_>>()
    };
    imports.keys().map(together).filter(|group| !group.is_empty()).collect()
}

#[test]
fn the_modules_of_a_crate_import_each_other_one_way() {
    let (mut counted, mut unlisted) = (0, Vec::new());
    for entry in fs::read_dir(CRATES).expect("the crates are there") {
        let name = entry.expect("readable").file_name().into_string().expect("a name");
        let imports = imports_of(&name);
        counted += imports.values().map(BTreeSet::len).sum::<usize>();
        for cycle in cycles(&imports) {
            let is_listed = CYCLES.iter().any(|(of, modules, _)| {
                let listed: BTreeSet<&str> = modules.split(' ').collect();
                *of == name && cycle.iter().all(|module| listed.contains(&**module))
            });
            if !is_listed {
                unlisted.push((name.clone(), cycle));
            }
        }
    }
    assert!(unlisted.is_empty(), "modules that import each other in a cycle: {unlisted:?}");
    assert!(counted > 400, "the imports are found: {counted}");
}

#[test]
fn imports_are_found_however_they_are_written() {
    assert_eq!(first_names("a::b;"), ["a"]);
    assert_eq!(first_names("{a, b::{c, d}, e::f};\nuse x;"), ["a", "b", "e"]);
    assert_eq!(first_names("{\n    a::{self, b},\n    c,\n};"), ["a", "c"]);
}
