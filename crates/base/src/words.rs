//! Owns choices that the configuration names by a word and that more than one crate uses. Never knows what a choice causes.

/// Defines an enum whose variants are words of the configuration.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$of])* $variant),+ }
        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// The words, in the order in which error texts list them.
            pub const WORDS: &'static [&'static str] = &[$($text),+];

            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// The choice that a word names. Letters may be of any case.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|choice| choice.as_str().eq_ignore_ascii_case(word))
            }

            /// The choice with this number. The number is `choice as u8`.
            pub fn from_number(number: u8) -> Option<Self> {
                Self::ALL.get(usize::from(number)).copied()
            }
        }
    };
}

words!(
    /// What happens to a write when neither RAM nor flash has room. The words are those of Redis's maxmemory-policy, in Redis's order.
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
    /// Whether the policy may evict a key. `has_expiry` says whether the key has an expiry.
    pub fn evicts(self, has_expiry: bool) -> bool {
        match self {
            Policy::NoEviction => false,
            Policy::AllKeysLru | Policy::AllKeysLfu | Policy::AllKeysRandom => true,
            _ => has_expiry,
        }
    }
}

words!(
    /// The codec that compresses values on flash.
    Codec { None = "none", Lz4 = "lz4", Zstd = "zstd" }
);

words!(
    /// How flash is read and written.
    FlashIo {
        /// io_uring where the system allows it, otherwise threads.
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
