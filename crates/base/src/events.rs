//! Owns the classes of keyspace events, and the letters of `notify-keyspace-events`. Never knows who receives the events.

/// A set of classes of keyspace events, one bit for each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class(u32);

impl Class {
    pub const GENERIC: Class = Class(1);
    pub const STRING: Class = Class(1 << 1);
    pub const LIST: Class = Class(1 << 2);
    pub const SET: Class = Class(1 << 3);
    pub const HASH: Class = Class(1 << 4);
    pub const SORTED_SET: Class = Class(1 << 5);
    pub const EXPIRED: Class = Class(1 << 6);
    pub const EVICTED: Class = Class(1 << 7);
    pub const STREAM: Class = Class(1 << 8);
    pub const MODULE: Class = Class(1 << 9);
    /// A read command did not find the key.
    pub const MISS: Class = Class(1 << 10);
    /// The key did not exist before.
    pub const NEW: Class = Class(1 << 11);
    /// Not an event. The bit says that the effects of commands are recorded.
    pub const EFFECT: Class = Class(1 << 30);
    /// Not an event. The bit says that there is a listener for all changes of keys.
    pub const CHANGE: Class = Class(1 << 31);

    /// The class that a letter of `notify-keyspace-events` stands for.
    pub fn from_letter(letter: char) -> Option<Class> {
        Some(match letter {
            'g' => Class::GENERIC,
            '$' => Class::STRING,
            'l' => Class::LIST,
            's' => Class::SET,
            'h' => Class::HASH,
            'z' => Class::SORTED_SET,
            'x' => Class::EXPIRED,
            'e' => Class::EVICTED,
            't' => Class::STREAM,
            'd' => Class::MODULE,
            'm' => Class::MISS,
            'n' => Class::NEW,
            _ => return None,
        })
    }

    #[must_use]
    pub const fn and(self, other: Class) -> Class {
        Class(self.0 | other.0)
    }

    /// One bit for each class of the set.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// `notify-keyspace-events`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events {
    /// Publish the event's name on `__keyspace@<db>__:<key>`.
    pub by_key: bool,
    /// Publish the key's name on `__keyevent@<db>__:<event>`.
    pub by_event: bool,
    classes: Class,
}

/// The letters that `A` stands for: all classes except misses and new keys.
const ALL: &str = "g$lshzxetd";

/// The letters that `A` does not include: the two channels, misses and new keys.
const BESIDE_ALL: &str = "KEmn";

impl Events {
    pub fn parse(letters: &str) -> Events {
        let letters = letters.replace('A', ALL);
        let classes = letters.chars().filter_map(Class::from_letter).fold(Class::default(), Class::and);
        Events { by_key: letters.contains('K'), by_event: letters.contains('E'), classes }
    }

    /// The classes that the store must report. None if neither channel is switched on.
    pub fn classes(self) -> Class {
        if self.by_key || self.by_event { self.classes } else { Class::default() }
    }
}

/// The letters as Redis shows them: each letter once, in Redis's order, abbreviated by `A` where possible. None if a letter is
/// unknown.
pub fn shown(letters: &str) -> Option<String> {
    if !letters.chars().all(|c| c == 'A' || BESIDE_ALL.contains(c) || ALL.contains(c)) {
        return None;
    }
    let has = |c: char| letters.contains(c) || (letters.contains('A') && ALL.contains(c));
    let keys = if ALL.chars().all(has) { "A".to_owned() } else { ALL.chars().filter(|&c| has(c)).collect() };
    Some(keys + &BESIDE_ALL.chars().filter(|&c| has(c)).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_except_those_of_the_channels_is_a_class() {
        for letter in ALL.chars().chain("mn".chars()) {
            assert_ne!(Events::parse(&format!("K{letter}")).classes(), Class::default(), "{letter}");
        }
        assert_eq!(Events::parse("AKE").classes(), Events::parse(&format!("{ALL}K")).classes());
        assert_eq!(Events::parse("A").classes(), Class::default(), "published nowhere");
    }

    #[test]
    fn letters_are_shown_in_redis_s_order() {
        for (letters, expected) in [("", ""), ("KEA", "AKE"), ("nxK", "xKn"), ("dtexzhsl$gE", "AE"), ("ElE", "lE")] {
            assert_eq!(shown(letters).as_deref(), Some(expected));
        }
        assert_eq!(shown("q"), None);
    }
}
