//! Owns the generator of docs/configuration.md. Never knows a current value.

use std::fmt::Write;

use super::row::{Change, Effect, Group, Row};
use super::table::ROWS;

/// The whole page.
pub fn configuration_md() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         Generated from the table of directives: `cargo run -p flintkv-config --example configuration_md > \
         docs/configuration.md`.\n\n\
         Directives come from a file (`flintkv server flintkv.conf`), from standard input (`flintkv server -`) and from \
         the command line (`flintkv server --port 7000`), in this order; the last value wins, except that lines of \
         `flash-path`, `save`, `rename-command` and, by class, `client-output-buffer-limit` add up. The syntax is that of \
         redis.conf: a name and words separated by spaces, `\"…\"` with backslash escapes or `'…'` around words with \
         spaces, `#` at the start of a comment line, `include FILE-OR-PATTERN`.\n\n\
         A size is a number of bytes or has a unit, in any case: `1k` is 1000, `1kb` 1024, `1m`, `1mb`, `1g`, `1gb` \
         likewise. The last column says whether CONFIG SET may change the value while the server runs; *protected* means: \
         only if `enable-protected-configs` allows it to the client. Relative paths start from `dir`.\n",
    );
    for &group in Group::ALL {
        let rows = || ROWS.iter().filter(move |row| row.group == group && row.effect == Effect::Used);
        if rows().next().is_none() {
            continue;
        }
        let _ = write!(page, "\n## {}\n\n| directive | type | default | meaning | CONFIG SET |\n", group.as_str());
        page.push_str("| --- | --- | --- | --- | --- |\n");
        for row in rows() {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} |",
                names(row),
                cell(&row.kind.describe()),
                default(row),
                cell(row.about),
                change(row)
            );
        }
    }
    page.push_str(
        "\n## Accepted without effect\n\n\
         The other directives of Redis 7.2 are accepted and checked. CONFIG GET shows them and CONFIG SET stores them. If a \
         value differs from its default, the log says once that the directive has no effect.\n\n\
         | directive | type | default | why |\n| --- | --- | --- | --- |\n",
    );
    for &group in Group::ALL {
        for row in ROWS.iter().filter(|row| row.group == group) {
            if let Effect::Inert(why) = row.effect {
                let _ = writeln!(
                    page,
                    "| {} | {} | {} | {} |",
                    names(row),
                    cell(&row.kind.describe()),
                    default(row),
                    cell(why)
                );
            }
        }
    }
    page
}

fn names(row: &Row) -> String {
    if row.alias.is_empty() { format!("`{}`", row.name) } else { format!("`{}`, `{}`", row.name, row.alias) }
}

fn default(row: &Row) -> String {
    if row.default.is_empty() { "empty".to_owned() } else { format!("`{}`", row.default) }
}

fn change(row: &Row) -> &'static str {
    match row.change {
        Change::Live => "yes",
        Change::Protected => "protected",
        Change::Start | Change::FileOnly => "no",
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    #[test]
    fn docs_configuration_md_agrees_with_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(path).expect("docs/configuration.md is there");
        assert!(
            page == super::configuration_md(),
            "docs/configuration.md is out of date: cargo run -p flintkv-config --example configuration_md > docs/configuration.md"
        );
    }
}
