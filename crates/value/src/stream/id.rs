//! Owns the ids of stream entries. Never knows a stream.

/// `ms-seq`, ordered by both. No entry has the id `0-0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub ms: u64,
    pub seq: u64,
}

impl Id {
    pub const MIN: Id = Id { ms: 0, seq: 0 };
    pub const MAX: Id = Id { ms: u64::MAX, seq: u64::MAX };

    pub const fn new(ms: u64, seq: u64) -> Id {
        Id { ms, seq }
    }

    /// The next id. `None` after the last one.
    pub fn next(self) -> Option<Id> {
        match (self.seq.checked_add(1), self.ms.checked_add(1)) {
            (Some(seq), _) => Some(Id { ms: self.ms, seq }),
            (None, Some(ms)) => Some(Id { ms, seq: 0 }),
            (None, None) => None,
        }
    }

    pub fn previous(self) -> Option<Id> {
        match (self.seq.checked_sub(1), self.ms.checked_sub(1)) {
            (Some(seq), _) => Some(Id { ms: self.ms, seq }),
            (None, Some(ms)) => Some(Id { ms, seq: u64::MAX }),
            (None, None) => None,
        }
    }

    /// 16 bytes, most significant first. They sort like the ids.
    pub fn to_bytes(self) -> [u8; 16] {
        ((u128::from(self.ms) << 64) | u128::from(self.seq)).to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Id {
        let number = u128::from_be_bytes(bytes);
        Id { ms: (number >> 64) as u64, seq: number as u64 }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_cross_the_millisecond() {
        assert_eq!(Id::new(5, u64::MAX).next(), Some(Id::new(6, 0)));
        assert_eq!(Id::new(6, 0).previous(), Some(Id::new(5, u64::MAX)));
        assert_eq!((Id::MAX.next(), Id::MIN.previous()), (None, None));
        assert_eq!(Id::from_bytes(Id::new(7, 9).to_bytes()), Id::new(7, 9));
    }
}
