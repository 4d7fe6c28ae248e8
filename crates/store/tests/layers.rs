//! Checks that imports inside the store point one way: each layer imports only layers below it, and no two files of a folder
//! import each other. Time and random numbers come as arguments. Tests beside the code are not checked: they use the whole store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// From the lowest: a module imports what is in its own layer's folder, or in layers before.
const LAYERS: [&[&str]; 10] = [
    &["narrow"],
    &["effects"],
    &["mem"],
    &["counters"],
    &["log"],
    &["event_sinks", "stripe", "config"],
    &["store"],
    &["checkpoint_index", "keyspace"],
    &["lane", "page_import", "salvage", "snapshot", "stats"],
    &["digest"],
];

/// Imports against the order, as "from to", each with its reason beside it. A folder's `mod.rs` and the other files of the folder
/// are no exception to list: they hold one type, such as `Keyspace` or `Lane`, whose methods take several files.
const ALLOWED: [&str; 0] = [];

/// Files that read a clock, each with its reason.
const CLOCKS: [&str; 1] = [
    // How long a taker of several stripes has waited for them. It is asked only when they were not to be had at once, and
    // nothing but giving up depends on it: the caller's clock stands still while it waits.
    "keyspace/guards.rs",
];

type Module = Vec<String>;

/// The code of each module, without comments and tests, and the name of its file.
fn sources() -> BTreeMap<Module, (String, String)> {
    fn walk(folder: &Path, root: &Path, into: &mut BTreeMap<Module, (String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, into);
                continue;
            }
            let file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let Some(name) = file.strip_suffix(".rs").filter(|name| *name != "lib" && !name.ends_with("/tests")) else {
                continue;
            };
            let module = name.strip_suffix("/mod").unwrap_or(name).split('/').map(str::to_owned).collect();
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code = text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
            into.insert(module, (code, file));
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeMap::new();
    walk(&root, &root, &mut found);
    assert!(found.len() > 40, "the sources are found");
    found
}

/// The paths that a `use` tree or a path at the start of `text` names: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths(text: &str) -> (Vec<Module>, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let own = vec![name.to_owned()];
    let Some(rest) = rest.strip_prefix("::") else { return (vec![own], rest) };
    let Some(mut rest) = rest.strip_prefix('{') else {
        let (tails, rest) = paths(rest);
        return (tails.into_iter().map(|tail| [own.clone(), tail].concat()).collect(), rest);
    };
    let mut all = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix('}') {
            return (all, behind);
        }
        let (tails, behind) = paths(rest);
        all.extend(tails.into_iter().map(|tail| [own.clone(), tail].concat()));
        let end = behind.find([',', '}']).expect("a use tree ends");
        rest = behind[end..].strip_prefix(',').unwrap_or(&behind[end..]);
    }
}

/// What a module names of this crate, from the crate's root.
fn names(module: &Module, code: &str) -> BTreeSet<Module> {
    let mut all = BTreeSet::new();
    for word in ["crate::", "super::"] {
        for (at, _) in code.match_indices(word) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            for path in paths(&code[at..]).0 {
                let above = path.iter().take_while(|part| *part == "super").count();
                let base = if word == "crate::" { &[] } else { &module[..module.len() - above] };
                let path = &path[above.max(1)..];
                all.insert([base, path].concat());
            }
        }
    }
    all
}

#[test]
fn a_layer_imports_only_those_below_it() {
    let rank = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    let mut wrong = Vec::new();
    for (module, (code, file)) in &sources() {
        let own = rank(&module[0]).unwrap_or_else(|| panic!("{file} is in none of the layers"));
        for name in names(module, code).iter().filter(|name| name[0] != module[0]) {
            let other = rank(&name[0]).unwrap_or_else(|| panic!("{file} names {name:?}, which is no module"));
            if other >= own && !ALLOWED.contains(&&*format!("{} {}", module[0], name[0])) {
                wrong.push(format!("{file}: {}", name.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the order of the layers: {wrong:#?}");
}

#[test]
fn no_two_files_of_a_folder_import_each_other() {
    let sources = sources();
    // By folder and file: the other files of that folder that it names.
    let mut named: BTreeMap<(Module, String), BTreeSet<String>> = BTreeMap::new();
    for (module, (code, _)) in &sources {
        for name in names(module, code) {
            let same = module.iter().zip(&name).take_while(|(a, b)| a == b).count();
            let (Some(from), Some(to)) = (module.get(same), name.get(same)) else { continue };
            let is_module = sources.keys().any(|other| other.starts_with(&name[..=same]));
            if is_module {
                named.entry((module[..same].to_vec(), from.clone())).or_default().insert(to.clone());
            }
        }
    }
    for (folder, file) in named.keys() {
        let (mut seen, mut next) = (BTreeSet::new(), vec![file.clone()]);
        while let Some(at) = next.pop() {
            for to in named.get(&(folder.clone(), at)).into_iter().flatten() {
                assert_ne!(to, file, "{file} in /{} is imported by what it imports: {seen:?}", folder.join("/"));
                if seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
    }
}

#[test]
fn time_and_random_numbers_come_as_arguments() {
    let drawn = ["Instant::now", "SystemTime", "UNIX_EPOCH", "base::clock", "getrandom", "rand::", "RandomState"];
    let users: Vec<_> = sources()
        .into_values()
        .filter(|(code, _)| drawn.iter().any(|word| code.contains(word)))
        .map(|(_, file)| file)
        .collect();
    assert_eq!(users, CLOCKS, "these read a clock, or draw at random");
}
