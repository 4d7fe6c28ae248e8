//! Owns docs/commands.md, generated from the rows. Never knows a server or its data.

use crate::row::{Example, Expect, Flag, Group, Row};
use crate::table;
use std::fmt::Write;

/// The whole page: a table of contents, then every command with its examples, by group and name.
pub fn commands_md() -> String {
    let mut page = String::from(
        "# Commands\n\n\
         Generated from the commands' rows: `cargo run -p flintkv-commands --example commands_md > docs/commands.md`. \
         The examples run as tests against FlintKV, with values in RAM and on flash, and against Redis 7.0; \
         those marked *here* are newer than that server or FlintKV's own. What differs from Redis 7.2 is in \
         [compatibility.md](compatibility.md).\n\n\
         A command costs the same number of steps wherever its value is; a value on flash adds one read of 4 KiB or \
         more, and a pipeline's reads are made at once.\n",
    );
    for group in Group::ALL {
        let names: Vec<String> = rows_of(group).iter().map(|row| link(row.name)).collect();
        if !names.is_empty() {
            let _ = write!(page, "\n**{}**: {}\n", group.title(), names.join(" · "));
        }
    }
    for group in Group::ALL {
        let rows = rows_of(group);
        if rows.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## {}\n", group.title());
        for row in rows {
            command(&mut page, row, "");
            let mut subcommands: Vec<&Row> = row.subcommands.iter().collect();
            subcommands.sort_by_key(|row| row.name);
            for subcommand in subcommands {
                command(&mut page, subcommand, row.name);
            }
        }
    }
    page
}

fn rows_of(group: Group) -> Vec<&'static Row> {
    let mut rows: Vec<_> = table::all().filter(|row| row.group == group).collect();
    rows.sort_by_key(|row| row.name);
    rows
}

fn link(name: &str) -> String {
    format!("[{}](#{name})", name.to_uppercase())
}

fn command(page: &mut String, row: &Row, container: &str) {
    let name = format!("{container} {}", row.name).trim_start().to_uppercase();
    let level = if container.is_empty() { "###" } else { "####" };
    let _ = write!(page, "\n{level} {name}\n\n");
    if row.subcommands.is_empty() {
        let _ = write!(page, "`{}`\n\n", format!("{name} {}", row.syntax).trim_end());
    }
    let kind = if row.flags.contains(&Flag::Write) {
        " Writes."
    } else if row.flags.contains(&Flag::Readonly) {
        " Reads."
    } else {
        ""
    };
    let _ = writeln!(
        page,
        "{}{kind} {}. Since {}.",
        sentence(row.summary),
        row.complexity.trim_end_matches('.'),
        row.since
    );
    if !row.examples.is_empty() {
        page.push_str("\n```\n");
        row.examples.iter().for_each(|example| transcript(page, example));
        page.push_str("```\n");
    }
}

fn sentence(text: &str) -> String {
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

fn transcript(page: &mut String, example: &Example) {
    let (reply, mark) = match example.reply {
        Expect::Is(reply) => (reply.to_owned(), ""),
        Expect::Starts(reply) => (format!("{reply}…"), ""),
        Expect::OnlyHere(reply) => (reply.to_owned(), "   # here"),
    };
    let _ = writeln!(page, "> {}{mark}\n{reply}", example.command);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_that_of_the_rows() {
        let page = include_str!("../../../docs/commands.md");
        assert!(
            page == super::commands_md(),
            "docs/commands.md is out of date: cargo run -p flintkv-commands --example commands_md > docs/commands.md"
        );
    }
}
