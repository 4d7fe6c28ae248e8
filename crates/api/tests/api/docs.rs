//! docs/api.md and the console's types are what the routes say, and the figures that the pages name exist.

use crate::common::*;
use node::metrics::Scope;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[test]
fn the_page_in_docs_is_that_of_the_routes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let page = std::fs::read_to_string(path).expect("docs/api.md is there");
    assert!(
        page == api::api_md(),
        "docs/api.md is out of date: cargo run -p flintkv-api --example api_md > docs/api.md"
    );
}

#[test]
fn the_types_of_the_console_are_those_of_the_routes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../console/src/lib/schema.ts");
    let file = std::fs::read_to_string(path).expect("schema.ts is there");
    assert!(
        file == api::api_ts(),
        "schema.ts is out of date: cargo run -p flintkv-api --example api_ts > console/src/lib/schema.ts"
    );
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder of the repository").map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The names that follow on `` `INFO section`: ``, with commas between them.
fn fields_of_info(page: &str) -> Vec<&str> {
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut fields = Vec::new();
    for rest in page.split("`INFO ").skip(1) {
        let Some((_, list)) = rest.split_once("`: `").filter(|(section, _)| is_word(section)) else { continue };
        for part in list.split("`, `") {
            let (field, after) = part.split_once('`').unwrap_or((part, ""));
            fields.extend(is_word(field).then_some(field));
            if !after.is_empty() || !is_word(field) {
                break;
            }
        }
    }
    fields
}

#[test]
fn the_figures_that_the_pages_name_exist() {
    let node = Node::start(&[]);
    let metrics = node.client().get("/metrics").text();
    let mut families: BTreeSet<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    // This node is a member of no cluster.
    let of_members = include_str!("../../src/metrics/cluster.rs");
    families.extend(of_members.split('"').filter(|text| text.starts_with("flintkv_cluster_")));
    let fields: BTreeSet<&str> = Scope::Database.rows().map(|row| row.name).collect();
    // Programs, fields and tests, not metrics.
    let others = ["redis_exporter", "redis_version", "redis_tools"];
    let (mut found, root) = (0, Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    for file in ["docs", "contrib"].iter().flat_map(|folder| files(&root.join(folder))) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let words = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|word| !word.contains(char::is_uppercase));
        for word in words.filter(|word| word.starts_with("flintkv_") || word.starts_with("redis_")) {
            let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            let is_metric = families.contains(word) || families.contains(name);
            // `flintkv_tier_…` stands for several.
            assert!(is_metric || word.ends_with('_') || others.contains(&word), "{}: {word}", file.display());
            found += 1;
        }
        for field in fields_of_info(&text) {
            assert!(fields.contains(field), "{}: INFO has no {field}", file.display());
            found += 1;
        }
    }
    assert!(found > 100, "{found}");
}
