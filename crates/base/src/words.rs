//! Owns choices that the configuration names by a word and that more than one crate acts on. Never knows what a choice leads to.

/// An enum whose variants are words of the configuration.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$of])* $variant),+ }
        impl $name {
            /// In the order in which errors list them.
            pub const WORDS: &'static [&'static str] = &[$($text),+];

            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// The choice of a word, whose letters may be of any case.
            pub fn from_word(word: &str) -> Option<Self> {
                [$($name::$variant),+].into_iter().find(|choice| choice.as_str().eq_ignore_ascii_case(word))
            }

            /// The choice whose number this is: `choice as u8`.
            pub fn from_number(number: u8) -> Option<Self> {
                [$($name::$variant),+].get(usize::from(number)).copied()
            }
        }
    };
}

words!(
    /// What happens to a write when neither RAM nor flash has room: Redis's maxmemory-policy, in Redis's order.
    Policy {
        VolatileLru = "volatile-lru",
        VolatileLfu = "volatile-lfu",
        VolatileRandom = "volatile-random",
        VolatileTtl = "volatile-ttl",
        AllKeysLru = "allkeys-lru",
        AllKeysLfu = "allkeys-lfu",
        AllKeysRandom = "allkeys-random",
        NoEviction = "noeviction",
    }
);

impl Policy {
    /// Whether a key with or without an expiry may be evicted.
    pub fn evicts(self, has_expiry: bool) -> bool {
        match self {
            Policy::NoEviction => false,
            Policy::AllKeysLru | Policy::AllKeysLfu | Policy::AllKeysRandom => true,
            _ => has_expiry,
        }
    }
}

words!(
    /// What values on flash are compressed with.
    Codec { None = "none", Lz4 = "lz4", Zstd = "zstd" }
);

words!(
    /// How flash is read and written.
    FlashIo {
        /// io_uring where it is allowed, threads elsewhere.
        Auto = "auto",
        Uring = "uring",
        Threads = "threads",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_found_by_its_word_and_its_number() {
        for (number, word) in Policy::WORDS.iter().enumerate() {
            let policy = Policy::from_word(&word.to_uppercase()).expect("a word of the list");
            assert_eq!((policy.as_str(), policy as usize), (*word, number));
            assert_eq!(Policy::from_number(number as u8), Some(policy));
        }
        assert_eq!(Policy::from_number(Policy::WORDS.len() as u8), None);
        assert_eq!(Codec::from_word("gzip"), None);
    }
}
