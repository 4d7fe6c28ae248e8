//! Owns how what clients change at one proxy gets to the others: users, and settings. Each proxy has them itself, and the cluster's record
//! has them for all. Never knows what a user or a setting means.
//!
//! Three lists are compared: what the record says, what this proxy has, and what both had when they last agreed. What differs from the
//! last is a change; changes of both sides are kept, and if both have changed one entry, this proxy's change wins, because it came later than
//! the record that it is about to replace.

use std::collections::BTreeMap;

/// By the name of the user or of the setting.
pub type Entries = BTreeMap<String, String>;

/// The entries with the changes of both sides.
pub fn merge(agreed: &Entries, mine: &Entries, recorded: &Entries) -> Entries {
    let mut merged = recorded.clone();
    for name in agreed.keys().chain(mine.keys()) {
        if mine.get(name) == agreed.get(name) {
            continue;
        }
        match mine.get(name) {
            Some(entry) => drop(merged.insert(name.clone(), entry.clone())),
            None => drop(merged.remove(name)),
        }
    }
    merged
}

/// The text after `user` of a directive, by the user's name.
pub fn users(lines: impl IntoIterator<Item = String>) -> Entries {
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    lines.into_iter().map(|line| (name(&line), line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[(&str, &str)]) -> Entries {
        list.iter().map(|(name, entry)| ((*name).to_owned(), (*entry).to_owned())).collect()
    }

    #[test]
    fn changes_of_both_sides_are_kept() {
        let agreed = entries(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
        // Here a was changed, b removed, e added; there c was changed, d removed, f added.
        let mine = entries(&[("a", "2"), ("c", "1"), ("d", "1"), ("e", "1")]);
        let recorded = entries(&[("a", "1"), ("b", "1"), ("c", "3"), ("f", "1")]);
        assert_eq!(merge(&agreed, &mine, &recorded), entries(&[("a", "2"), ("c", "3"), ("e", "1"), ("f", "1")]));
        // Without changes here, the record holds; without changes there, what is here.
        assert_eq!(merge(&agreed, &agreed, &recorded), recorded);
        assert_eq!(merge(&agreed, &mine, &agreed), mine);
        // The same change on both sides, and a change of the same entry.
        assert_eq!(merge(&agreed, &mine, &mine), mine);
        let other = entries(&[("a", "9"), ("b", "1"), ("c", "1"), ("d", "1")]);
        assert_eq!(merge(&agreed, &mine, &other), mine);
    }

    #[test]
    fn a_user_is_known_by_the_first_word() {
        let found = users(["default on nopass ~* &* +@all".to_owned(), "ann off".to_owned()]);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["ann", "default"]);
    }
}
