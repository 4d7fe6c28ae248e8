//! ARCHITECTURE.md's table of crates is correct: it has all crates, and each imports exactly those crates of FlintKV that
//! the table names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The words between backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// From the table, in its order: a crate, and the crates of FlintKV that it imports.
fn claimed() -> Vec<(String, BTreeSet<String>)> {
    let page = fs::read_to_string(format!("{ROOT}/ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    let table = page.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    let rows: Vec<_> = table
        .take_while(|line| line.starts_with('|'))
        .map(|row| match row.trim_matches('|').split('|').collect::<Vec<_>>()[..] {
            [name, _owns, imports, _never] => (quoted(name).remove(0), quoted(imports).into_iter().collect()),
            _ => panic!("a row has four cells: {row}"),
        })
        // Skip folders that are not crates.
        .filter(|(name, _)| !name.ends_with('/'))
        .collect();
    assert!(rows.len() > 10, "the table is found: {rows:?}");
    rows
}

/// From the manifests: a crate, and the crates of FlintKV in a section.
fn actual(section: &str) -> BTreeMap<String, BTreeSet<String>> {
    let folders = fs::read_dir(format!("{ROOT}/crates")).expect("the crates are there");
    let names: BTreeSet<String> =
        folders.map(|folder| folder.expect("readable").file_name().into_string().expect("a name")).collect();
    let imports = |name: &String| {
        let manifest = fs::read_to_string(format!("{ROOT}/crates/{name}/Cargo.toml")).expect("a manifest");
        let section = manifest.lines().skip_while(|line| *line != section).skip(1);
        section
            .take_while(|line| !line.starts_with('['))
            .filter_map(|line| line.split(['.', ' ', '=']).next().map(str::to_owned))
            .filter(|dependency| names.contains(dependency))
            .collect()
    };
    names.iter().map(|name| (name.clone(), imports(name))).collect()
}

#[test]
fn each_crate_imports_what_the_table_says() {
    let claimed: BTreeMap<_, _> = claimed().into_iter().collect();
    for (name, imports) in actual("[dependencies]") {
        let said = claimed.get(&name).unwrap_or_else(|| panic!("crate {name} is not in ARCHITECTURE.md's table"));
        assert_eq!(*said, imports, "crate {name}: left by ARCHITECTURE.md's table, right by its manifest");
    }
}

#[test]
fn each_crate_of_the_table_is_there() {
    let actual = actual("[dependencies]");
    for (name, _) in claimed() {
        assert!(actual.contains_key(&name), "ARCHITECTURE.md's table has a crate {name}, crates/ does not");
    }
}

/// The table reads from the bottom up. Also tests import only what is above: those of `commands` once ran the engine, and so no test
/// of a row could be built without it.
#[test]
fn each_crate_imports_only_what_stands_above_it_in_the_table() {
    let for_tests = actual("[dev-dependencies]");
    let mut known = BTreeSet::new();
    for (name, imports) in claimed() {
        for import in imports.iter().chain(&for_tests[&name]) {
            assert!(
                known.contains(import),
                "{name} imports {import}, which stands below it in ARCHITECTURE.md's table"
            );
        }
        known.insert(name);
    }
}
