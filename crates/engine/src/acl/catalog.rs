//! Owns the commands as ACL rules name them: by their original names, even if they were renamed. Never knows a user.

use commands::{Row, row, table};
use std::ops::Range;
use std::sync::OnceLock;

pub struct Catalog {
    /// Indexed by [`crate::directory::Command::id`].
    pub entries: Vec<Entry>,
}

pub struct Entry {
    /// `get`, `config|set`.
    pub name: String,
    pub row: &'static Row,
    pub is_subcommand: bool,
    pub subcommands: Range<usize>,
    pub categories: Vec<&'static str>,
}

impl Catalog {
    pub fn get() -> &'static Catalog {
        static CATALOG: OnceLock<Catalog> = OnceLock::new();
        CATALOG.get_or_init(|| {
            let mut entries: Vec<Entry> = Vec::new();
            for row in table::all() {
                let from = entries.len() + 1;
                let subcommands = from..from + row.subcommands.len();
                entries.push(Entry::new(row.name.to_owned(), row, false, subcommands));
                for sub in row.subcommands {
                    entries.push(Entry::new(format!("{}|{}", row.name, sub.name), sub, true, 0..0));
                }
            }
            Catalog { entries }
        })
    }

    /// The index of `name` or `container|name`; case is ignored.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The category with that name; case is ignored.
    pub fn category(&self, name: &[u8]) -> Option<&'static str> {
        row::CATEGORIES
            .iter()
            .map(|&category| row::category_name(category))
            .find(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }
}

impl Entry {
    fn new(name: String, row: &'static Row, is_subcommand: bool, subcommands: Range<usize>) -> Entry {
        Entry { name, row, is_subcommand, subcommands, categories: row::categories(row) }
    }
}
