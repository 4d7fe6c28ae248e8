//! Owns the position of the replication stream, in which replicas get a dataset's changes. Never knows the replicas.
//!
//! The stream is the RESP of the journal's records, one after the other, and its *offset* counts these bytes.

use std::fmt;
use std::str::FromStr;

/// The id of a stream. Two nodes that have bytes at the same offset of a stream with the same id have the same bytes.
/// 40 hexadecimal digits, as in Redis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Id([u8; Id::DIGITS]);

#[derive(Debug, PartialEq, Eq)]
pub struct NoId;

/// The position of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub id: Id,
    /// An earlier id, and the offset up to which it names the same bytes.
    pub second: Option<(Id, u64)>,
    /// The offset behind the last byte.
    pub offset: u64,
    /// The logical database of the next command. `None`: SELECT comes first.
    pub db: Option<u32>,
}

impl Id {
    pub const DIGITS: usize = 40;

    /// Makes an id of 20 random bytes.
    pub fn new(bytes: [u8; Id::DIGITS / 2]) -> Id {
        let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
        Id(std::array::from_fn(|at| digit(if at % 2 == 0 { bytes[at / 2] >> 4 } else { bytes[at / 2] & 15 })))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hexadecimal digits")
    }
}

impl FromStr for Id {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Id, NoId> {
        let digits: [u8; Id::DIGITS] = text.as_bytes().try_into().map_err(|_| NoId)?;
        if digits.iter().all(u8::is_ascii_hexdigit) { Ok(Id(digits)) } else { Err(NoId) }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `ID OFFSET DB SECOND-ID SECOND-OFFSET`, with `-` for each value that is absent.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.id, self.offset)?;
        match self.db {
            Some(db) => write!(f, "{db} ")?,
            None => f.write_str("- ")?,
        }
        match self.second {
            Some((id, to)) => write!(f, "{id} {to}"),
            None => f.write_str("- -"),
        }
    }
}

impl FromStr for Mark {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Mark, NoId> {
        let words: Vec<&str> = text.split(' ').collect();
        let [id, offset, db, second, to] = words[..] else { return Err(NoId) };
        let number = |text: &str| text.parse::<u64>().map_err(|_| NoId);
        let db = if db == "-" { None } else { Some(db.parse().map_err(|_| NoId)?) };
        let second = if (second, to) == ("-", "-") { None } else { Some((second.parse()?, number(to)?)) };
        Ok(Mark { id: id.parse()?, second, offset: number(offset)?, db })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let (id, other) = (Id::new([0xa7; 20]), Id::new(std::array::from_fn(|at| at as u8)));
        assert_eq!(other.as_str(), "000102030405060708090a0b0c0d0e0f10111213");
        let mark = Mark { id, second: Some((other, 12)), offset: 4711, db: Some(3) };
        for mark in [mark, Mark { second: None, ..mark }, Mark { db: None, ..mark }] {
            assert_eq!(mark.to_string().parse(), Ok(mark));
        }
        for bad in ["", "x 1 - - -", &format!("{id} 1 - -"), &format!("{id} 1 - - 7"), &format!("{id} -1 - - -")] {
            assert_eq!(bad.parse::<Mark>(), Err(NoId), "{bad}");
        }
    }
}
