//! Owns manual pages and shell completions, made from the tree of command lines and the table of directives. Never
//! parses a command line.

use std::fs;
use std::io;
use std::path::Path;

use clap_complete::shells::{Bash, Fish, PowerShell, Zsh};
use clap_mangen::roff::{Roff, bold, italic, roman};
use config::{Change, Effect, Group, ROWS, Row};

use crate::args::{Shell, tree};
use crate::failure::Failure;

const MANUAL: &str = "FlintKV Manual";

pub fn completions(shell: Shell) -> String {
    let mut tree = tree();
    let mut script = Vec::new();
    match shell {
        Shell::Bash => clap_complete::generate(Bash, &mut tree, "flintkv", &mut script),
        Shell::Zsh => clap_complete::generate(Zsh, &mut tree, "flintkv", &mut script),
        Shell::Fish => clap_complete::generate(Fish, &mut tree, "flintkv", &mut script),
        Shell::PowerShell => clap_complete::generate(PowerShell, &mut tree, "flintkv", &mut script),
    }
    String::from_utf8_lossy(&script).into_owned()
}

/// flintkv(1), or the list of the files written into `dir`.
pub fn man(dir: Option<&Path>) -> Result<String, Failure> {
    let pages = pages();
    let Some(dir) = dir else {
        let (_, page) = pages.into_iter().find(|(name, _)| name == "flintkv.1").expect("the tree has a root");
        return Ok(page);
    };
    let failed = |path: &Path, error: io::Error| Failure::failed(format!("{}: {error}", path.display()));
    fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    let mut written = String::new();
    for (name, page) in pages {
        let path = dir.join(name);
        fs::write(&path, page).map_err(|error| failed(&path, error))?;
        written.push_str(&format!("{}\n", path.display()));
    }
    Ok(written)
}

/// Every page, by file name.
fn pages() -> Vec<(String, String)> {
    let mut tree = tree().disable_help_subcommand(true);
    tree.build();
    let mut pages = Vec::new();
    collect(&tree, "flintkv", &mut pages);
    pages.push(("flintkv.conf.5".to_owned(), conf_page()));
    pages
}

fn collect(command: &clap::Command, name: &str, pages: &mut Vec<(String, String)>) {
    let page = clap_mangen::Man::new(command.clone().display_name(name.to_owned()).version(env!("CARGO_PKG_VERSION")))
        .title(name)
        .manual(MANUAL)
        .source(format!("flintkv {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text).expect("memory takes every write");
    pages.push((format!("{name}.1"), String::from_utf8_lossy(&text).into_owned()));
    for child in command.get_subcommands() {
        collect(child, &format!("{name}-{}", child.get_name()), pages);
    }
}

/// flintkv.conf(5), from the table of directives.
fn conf_page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["flintkv.conf", "5", "", concat!("flintkv ", env!("CARGO_PKG_VERSION")), MANUAL]);
    page.control("SH", ["NAME"]);
    page.text([roman("flintkv.conf - configuration of a FlintKV node")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([
        bold("flintkv server"),
        roman(" ["),
        italic("FILE"),
        roman("|-] [--"),
        italic("directive value"),
        roman(" ...]"),
    ]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in [
        "The syntax is that of redis.conf: a line is a name and words separated by spaces, with \"...\" (and backslash \
         escapes) or '...' around words with spaces. A line that begins with # is a comment. include FILE-OR-PATTERN reads \
         another file. Directives on the command line come after the file and win; lines of flash-path, save, \
         rename-command and, by class, client-output-buffer-limit add up.",
        "A size is a number of bytes or has a unit, in any case: 1k is 1000, 1kb 1024, 1m, 1mb, 1g, 1gb likewise. Relative \
         paths start from dir.",
        "Every directive of Redis 7.2 is accepted; those that are not listed here have no effect; the log says so once.",
    ] {
        page.control("PP", []);
        page.text([roman(paragraph)]);
    }
    for &group in Group::ALL {
        let mut rows = ROWS.iter().filter(|row| row.group == group && row.effect == Effect::Used).peekable();
        if rows.peek().is_some() {
            page.control("SH", [group.as_str().to_uppercase().as_str()]);
            rows.for_each(|row| entry(&mut page, row));
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("flintkv"),
        roman("(1), "),
        bold("flintkv-server"),
        roman("(1), "),
        bold("redis-cli"),
        roman("(1)"),
    ]);
    page.to_roff()
}

fn entry(page: &mut Roff, row: &Row) {
    page.control("TP", []);
    let mut names = vec![bold(row.name)];
    if !row.alias.is_empty() {
        names.extend([roman(", "), bold(row.alias)]);
    }
    names.extend([roman("  "), italic(row.kind.describe())]);
    page.text(names);
    let default = if row.default.is_empty() { "empty" } else { row.default };
    let change = match row.change {
        Change::Live => "CONFIG SET changes it.",
        Change::Protected => "CONFIG SET changes it if enable-protected-configs lets the client.",
        Change::Start | Change::FileOnly => "Only at start.",
    };
    // The table's text is Markdown; a manual page has no back-quotes.
    page.text([roman(format!("{} Default: {default}. {change}", row.about.replace('`', "")))]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page_and_every_directive_a_line() {
        let pages = pages();
        let page = |name: &str| {
            let found = pages.iter().find(|(known, _)| known == name);
            &found.unwrap_or_else(|| panic!("{name} is missing")).1
        };
        for name in
            ["flintkv.1", "flintkv-server.1", "flintkv-bench.1", "flintkv-scenario.1", "flintkv-prepare-flash.1"]
        {
            assert!(page(name).contains(".SH NAME"), "{name}");
        }
        assert!(page("flintkv-bench.1").contains("\\-\\-data\\-size"), "the load generator's options");
        assert!(page("flintkv-server.1").contains("memory\\-limit"), "the server's directives");
        let conf = page("flintkv.conf.5");
        for row in ROWS.iter().filter(|row| row.effect == Effect::Used) {
            assert!(conf.contains(&row.name.replace('-', "\\-")), "{}", row.name);
        }
        assert!(!conf.contains('`'));
    }

    #[test]
    fn pages_are_written_where_they_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let man1 = dir.path().join("man1");
        let written = man(Some(&man1)).unwrap();
        assert_eq!(written.lines().count(), std::fs::read_dir(&man1).unwrap().count());
        assert!(man1.join("flintkv.conf.5").is_file());
        let in_the_way = dir.path().join("file");
        std::fs::write(&in_the_way, "").unwrap();
        assert_eq!(man(Some(&in_the_way)).unwrap_err().code, 1);
    }

    #[test]
    fn every_shell_gets_what_the_subcommands_take() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell] {
            let script = completions(shell);
            for word in ["prepare-flash", "database", "no-wait", "memory-limit", "data-size", "keydb-flash"] {
                assert!(script.contains(word), "{shell:?} does not know {word}");
            }
        }
    }
}
